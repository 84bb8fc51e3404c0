"""Tiles, GEMM, reductions, loops, atomics, launches, views: what each call records and refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.language.kit import BX, BY, TX, N, call, check, extents, kernel_builder, refused, tensor
from tilec.ir.dtypes import BOOL, FLOAT16, FLOAT32, INT8, INT32, INT64, UINT8, UINT32, DType
from tilec.ir.expr import Binary, Call, Cast, Compare, Const, Load, Scope, Var
from tilec.ir.tile import Alloc, Atomic, Barrier, For, Gemm, Parallel, Print, Reduce, Scan, Store, Trap
from tilec.language.builder import Builder
from tilec.language.catalogue import modules
from tilec.language.launch import flags_of
from tilec.language.tensors import apply_safe_values
from tilec.language.values import ConstSpec, DynamicSpec, EmptySpec, KernelSpec, LoopSpec, Ref, Slice, TensorSpec

FULL = Slice(None, None)


def last(b: Builder) -> Any:
    return b.body().body[-1]


def shared(b: Builder, *shape: int, dtype: DType = FLOAT16) -> Any:
    return call(b, "alloc_shared", shape, dtype)


def fragment(b: Builder, *shape: int, dtype: DType = FLOAT32) -> Any:
    return call(b, "alloc_fragment", shape, dtype)


# Tiles.


def test_tiles_take_the_name_they_are_bound_to() -> None:
    b = kernel_builder()
    b.hint = "A_s"
    s = call(b, "alloc_shared", [128, Const(32, INT32)], "half", scope="shared")
    assert (s.name, s.dtype, s.shape, s.scope) == ("A_s", FLOAT16, extents(128, 32), Scope.SHARED)
    assert last(b) == Alloc(s, b.span)
    assert call(b, "alloc_local", 4, "int8").scope is Scope.LOCAL
    v = call(b, "alloc_var", "int32", 5)
    assert v.shape == () and isinstance(last(b), Store) and last(b).value == Const(5, INT32)
    check(b)


@pytest.mark.parametrize("shape", [(0,), (-4, 4), (), (2**16, 2**15), (2.5,), ("x",), (True,)])
def test_illegal_tile_shapes(shape: Any) -> None:
    assert refused(kernel_builder(), "alloc_fragment", shape, "float32").code in ("TL0310", "TL0206")


def test_tiles_need_sizes_known_now() -> None:
    d = refused(kernel_builder(), "alloc_shared", (Binary("mul", N, Const(2, INT32), INT32), 32), "float16")
    assert d.code == "TL0309" and "-D n=" in d.help
    assert refused(kernel_builder(), "alloc_shared", (4,), "float17").help == "did you mean `float16`?"
    assert refused(kernel_builder(), "alloc_shared", (4,), "float16", scope="local").code == "TL0206"
    assert refused(Builder(), "alloc_shared", (4,), "float16").code == "TL0205"


# GEMM.


def test_gemm() -> None:
    b = kernel_builder()
    a, w, c = shared(b, 64, 32), shared(b, 128, 32), fragment(b, 64, 128)
    call(b, "gemm", a, w, c, False, True, policy=modules()["tilelang.language"].members["GemmWarpPolicy"].members["FullRow"])
    g = last(b)
    assert isinstance(g, Gemm) and (g.trans_a, g.trans_b, g.policy, g.clear) == (False, True, "full_row", Const(False, BOOL))
    call(b, "gemm", a, w, c, transpose_B=True, clear_accum=Compare("eq", BX, Const(0, INT32)), policy=2, wg_wait=-1)
    assert isinstance(last(b).clear, Compare) and last(b).policy == "full_col"
    stages = shared(b, 3, 64, 32)
    call(b, "gemm", Ref(stages, (BX, FULL, FULL)), w, c, transpose_B=True)
    check(b)


def gemm_of(b: Builder, a: DType, w: DType, c: DType) -> tuple[Any, Any, Any]:
    return shared(b, 64, 32, dtype=a), shared(b, 32, 64, dtype=w), fragment(b, 64, 64, dtype=c)


def test_gemm_shapes() -> None:
    b = kernel_builder()
    d = refused(b, "gemm", shared(b, 64, 32), shared(b, 32, 48), fragment(b, 64, 64))
    assert d.code == "TL0320" and d.message == "shapes (64x32) x (32x48) do not give (64x64)"
    d = refused(b, "gemm", shared(b, 64, 32), shared(b, 64, 32), fragment(b, 64, 64))
    assert "transpose" in d.help
    assert refused(b, "gemm", shared(b, 64), shared(b, 64, 32), fragment(b, 64, 64)).code == "TL0320"
    assert refused(b, "gemm", shared(b, 2, 64, 32), shared(b, 32, 64), fragment(b, 64, 64)).code == "TL0320"
    assert refused(b, "gemm", Ref(shared(b, 64, 32), (0, 0)), shared(b, 32, 64), fragment(b, 64, 64)).code == "TL0320"


def test_gemm_options() -> None:
    b = kernel_builder()
    operands = gemm_of(b, FLOAT16, FLOAT16, FLOAT32)
    assert refused(b, "gemm", *operands, k_pack=3).code == "TL0323"
    assert refused(b, "gemm", *operands, policy="Rows").code == "TL0323"
    d = refused(b, "gemm", *operands, transposeB=True)
    assert d.code == "TL0202" and d.help == "did you mean `transpose_B`?"
    assert refused(b, "gemm", *operands[:2]).code == "TL0203"
    assert refused(b, "gemm", *operands, A=operands[0]).code == "TL0203"
    assert refused(b, "gemm", *operands, clear_accum="yes", policy=7).code == "TL0323"


@pytest.mark.parametrize(
    ("a", "w", "c"),
    [
        (FLOAT16, INT8, FLOAT32),
        (FLOAT16, FLOAT16, INT32),
        (INT8, INT8, FLOAT32),
        (INT32, INT32, INT32),
        (FLOAT16, FLOAT32, FLOAT32),
        (INT8, UINT8, INT32),
    ],
)
def test_gemm_types(a: DType, w: DType, c: DType) -> None:
    b = kernel_builder()
    assert refused(b, "gemm", *gemm_of(b, a, w, c)).code == "TL0321"


def test_gemm_places() -> None:
    b = kernel_builder()
    a, w, c = gemm_of(b, FLOAT16, FLOAT16, FLOAT32)
    assert refused(b, "gemm", tensor("A", 64, 32), w, c).code == "TL0322"
    assert refused(b, "gemm", a, w, shared(b, 64, 64, dtype=FLOAT32)).code == "TL0322"


# Reductions.


@pytest.mark.parametrize(("dim", "out", "axis"), [(-1, (4, 6), 2), (0, (6, 8), 0), (-2, (4, 1, 8), 1), (1, (4, 8), 1)])
def test_reduce_dims(dim: int, out: tuple[int, ...], axis: int) -> None:
    b = kernel_builder()
    call(b, "reduce_sum", fragment(b, 4, 6, 8), fragment(b, *out), dim=dim, clear=False)
    r = last(b)
    assert isinstance(r, Reduce) and (r.op, r.dim, r.clear) == ("sum", axis, False)
    check(b)


def test_reduce_errors() -> None:
    b = kernel_builder()
    a = fragment(b, 4, 6, 8)
    for dim in (3, -4):
        assert refused(b, "reduce_max", a, fragment(b, 4, 6), dim=dim).code == "TL0330"
    assert refused(b, "reduce_max", a, fragment(b, 6, 4), dim=2).code == "TL0330"
    assert refused(b, "reduce_max", a, fragment(b, 4, 6, 8), dim=2).code == "TL0330"
    assert refused(b, "reduce_bitand", a, fragment(b, 4, 6)).code == "TL0331"
    assert refused(b, "reduce_sum", tensor("A", 4, 4), fragment(b, 4)).code == "TL0322"
    assert refused(b, "reduce_sum", a, fragment(b, 4, 6), nan_propagate=True).code == "TL0202"


def test_reduce_forms() -> None:
    b = kernel_builder()
    call(b, "reduce_max", fragment(b, 64), fragment(b, 1), dim=0, nan_propagate=True)
    assert last(b).nan_propagate
    stages = shared(b, 2, 64, 32, dtype=FLOAT32)
    call(b, "reduce_sum", Ref(stages, (BX, FULL, FULL)), fragment(b, 32), dim=0)  # as NumPy: a scalar index drops its dimension
    assert last(b).dim == 1
    call(b, "cumsum", Ref(stages, (0, Slice(4, 8), Slice(8, 33 - 1))), dim=1, reverse=True)
    s = last(b)
    assert isinstance(s, Scan) and (s.dim, s.reverse) == (2, True) and s.src == s.dst
    assert refused(b, "cumsum", stages, fragment(b, 64, 32)).code == "TL0330"
    check(b)


# Loops.


def test_counted_loops() -> None:
    b = kernel_builder()
    assert call(b, "serial", 4) == LoopSpec("serial", 0, 4, 1, span=b.span)
    assert call(b, "serial", 7, -1, -3) == LoopSpec("serial", 7, -1, -3, span=b.span)
    base = Var("base", INT64)
    wide = call(b, "serial", base, Binary("add", base, Const(4, INT64), INT64))
    assert {wide.start.dtype, wide.stop.dtype, wide.step.dtype} == {INT64}
    narrow = call(b, "unroll", 0, Var("m", UINT8), 2)
    assert (narrow.start, narrow.step) == (Const(0, INT32), Const(2, INT32)) and narrow.stop.dtype == INT32
    assert call(b, "serial", Var("u", UINT32)).stop.dtype == INT64
    pipelined = call(b, "Pipelined", call(b, "ceildiv", N, 32), num_stages=3)
    assert pipelined.kind == "pipelined" and pipelined.options["num_stages"] == 3 and isinstance(pipelined.stop, Call)
    assert call(b, "Pipelined", 8).options["num_stages"] is None
    assert call(b, "Parallel", 8, 16, coalesced_width=2).extents == (8, 16)


def test_loop_errors() -> None:
    b = kernel_builder()
    assert refused(b, "serial", 0, 8, 0).code == "TL0206"
    assert refused(b, "serial", 2.5).code == "TL0206"
    assert refused(b, "serial", Var("f", FLOAT32)).code == "TL0206"
    assert refused(b, "Pipelined", 8, num_stages=-1).code == "TL0403"
    assert refused(b, "Parallel").code == "TL0203"


# Launches.


@pytest.mark.parametrize("threads", [-1, 0, 1025, 2.5, (32, 64), (1, 1, 65), (4, 4, 4, 4), (), "128", True, N])
def test_illegal_threads(threads: Any) -> None:
    d = refused(Builder(), "Kernel", 1, threads=threads)
    assert d.code == "TL0402" and "threads" in d.message


@pytest.mark.parametrize(
    ("threads", "wanted"),
    [(1, (1, 1, 1)), (33, (33, 1, 1)), (1000, (1000, 1, 1)), (1024, (1024, 1, 1)), ((32, 4), (32, 4, 1)), (None, None)],
)
def test_legal_threads(threads: Any, wanted: Any) -> None:
    spec = call(Builder(), "Kernel", 4, N, threads=threads)
    assert isinstance(spec, KernelSpec) and (spec.grid, spec.threads) == ((4, N), wanted)


def test_a_grid_may_have_no_blocks() -> None:
    assert call(Builder(), "Kernel", 0, N, threads=64).grid == (0, N)


@pytest.mark.parametrize("grid", [(-1,), (1, 65536), (1, 1, 65536), (2**31,), (), (1, 1, 1, 1), (1.5,), (True,)])
def test_illegal_grids(grid: tuple[Any, ...]) -> None:
    assert refused(Builder(), "Kernel", *grid).code == "TL0401"


def test_launch_state() -> None:
    b = kernel_builder()
    call(b, "use_swizzle", 10, order="column")
    assert b.launch is not None and (b.launch.panel, b.launch.panel_order) == (10, "column")
    call(b, "use_swizzle", panel_size=4, enable=False)
    assert b.launch.panel == 10
    assert call(b, "get_thread_binding") is TX and call(b, "get_block_binding", 1) is BY
    assert call(b, "thread_binding", 0, 128, thread="threadIdx.x") is TX
    assert refused(b, "thread_binding", 0, 64, thread="threadIdx.x").code == "TL0402"
    assert refused(b, "get_block_binding", 2).code == "TL0206"
    assert refused(b, "Kernel", 1).code == "TL0404"
    assert refused(Builder(), "get_thread_binding").code == "TL0205"


def test_pass_configs() -> None:
    keys = modules()["tilelang"].members["PassConfigKey"].members
    configs = {keys["TL_ENABLE_FAST_MATH"]: True, keys["TL_DISABLE_THREAD_STORAGE_SYNC"]: True, keys["TL_NOBODY_KNOWS_THIS"]: True}
    assert flags_of(configs) == ("fast_math", "no_auto_sync")
    assert flags_of({"tl.enable_fast_math": False}) == ()


# Atomics.


def test_atomics_on_elements() -> None:
    b, h = kernel_builder(), tensor("H", 64, dtype=FLOAT16)
    x = Var("x", FLOAT32)
    call(b, "atomic_add", Ref(h, (BX,)), x)
    assert last(b) == Atomic("add", h, (BX,), (Cast(x, FLOAT16),), "relaxed", None, b.span)
    b.hint = "old"
    old = call(b, "atomic_max", Ref(h, (0,)), 42.0, memory_order="acquire", return_prev=True)
    assert isinstance(old, Var) and last(b).result is old and last(b).order == "acquire" and last(b).operands == (Const(42.0, FLOAT16),)
    loaded = call(b, "atomic_load", Ref(tensor("I", 4, dtype=INT32), (0,)))
    assert last(b).op == "load" and last(b).result is loaded
    call(b, "atomic_addx4", Ref(tensor("F", 8, dtype=FLOAT32), (4,)), Ref(h, (BX,)))
    assert [s.indices[-1] for s in b.body().body[-4:]] == list(extents(4, 5, 6, 7))


def test_atomics_on_tiles() -> None:
    b, c = kernel_builder(), tensor("C", 256, 64, dtype=FLOAT32)
    acc = fragment(b, 64, 32)
    call(b, "atomic_add", Ref(c, (Slice(64, 128), Slice(0, 32))), acc)
    loop = last(b)
    assert isinstance(loop, Parallel) and loop.extents == extents(64, 32)
    (update,) = loop.body.body  # type: ignore[union-attr]
    i, j = loop.vars
    assert isinstance(update, Atomic) and update.operands == (Load(acc, (i, j)),)
    assert update.indices == (Binary("add", Const(64, INT32), i, INT32), j)
    call(b, "atomic_add", Ref(c, (BY, 0)), fragment(b, 1, 64))
    assert isinstance(last(b), Parallel) and len(last(b).vars) == 1
    call(b, "atomic_max", Ref(c, (0, FULL)), 1.0)
    assert isinstance(last(b), Parallel)
    assert refused(b, "atomic_add", c, acc).code == "TL0312"
    assert refused(b, "atomic_add", Ref(c, (Slice(0, 64), Slice(0, 32))), acc, return_prev=True).code == "TL0341"
    check(b, c)


def test_atomic_errors() -> None:
    b = kernel_builder()
    assert refused(b, "atomic_add", Ref(tensor("A", 8, dtype=BOOL), (0,)), 1).code == "TL0340"
    assert refused(b, "atomic_or", Ref(tensor("A", 8, dtype=FLOAT32), (0,)), 1).code == "TL0340"
    assert refused(b, "atomic_add", Ref(fragment(b, 8), (0,)), 1).code == "TL0322"
    assert refused(b, "atomic_add", Ref(tensor("A", 8, dtype=INT32), (0,)), 1, memory_order="strict").code == "TL0206"
    assert refused(b, "atomic_add", Ref(tensor("A", 8, dtype=INT32), (0, 0)), 1).code == "TL0304"


# Tensors and views.


def test_tensor_specs() -> None:
    b = Builder()
    assert call(b, "Tensor", (N, 128), "float16") == TensorSpec((N, 128), FLOAT16, None, b.span)
    assert call(b, "Tensor", 8) == TensorSpec((8,), FLOAT32, None, b.span)
    assert call(b, "Tensor", (), "int32").shape == ()
    assert call(b, "StridedTensor", (6, 10), (N, 1), "float32").strides == (N, 1)
    assert call(b, "empty", (4, 5), "float16") == call(b, "empty", 4, 5, dtype="float16") == EmptySpec((4, 5), FLOAT16, b.span)
    assert call(b, "empty", 4, 5, "float16") == EmptySpec((4, 5), FLOAT16, b.span)
    assert call(b, "const", "M, N") == ConstSpec(("M", "N"), False, b.span)
    assert call(b, "dynamic", "m", "int64") == DynamicSpec(("m",), True, INT64, b.span)
    assert refused(b, "Tensor", (-1,)).code == "TL0310"
    assert refused(b, "StridedTensor", (6, 10), (1,)).code == "TL0310"
    floats = (0.5, math.inf, math.nan)
    for stride in floats:  # half an element is no element, and infinity no number of them
        literal = Const(stride, FLOAT16)
        assert refused(b, "StridedTensor", (2, 1), (literal, 1), data=tensor("s", 2, scope=Scope.SHARED)).code == "TL0342"
    assert refused(b, "dynamic", "m", "float32").code == "TL0302"
    assert refused(b, "dynamic", "2m").code == "TL0206"


def test_views() -> None:
    b = kernel_builder()
    s = shared(b, 64, 64)
    flat = call(b, "reshape", s, (4096,))
    assert flat.view_of is s and flat.shape == extents(4096) and flat.scope is Scope.SHARED
    words = call(b, "view", s, (32, 64), "uint32")
    assert words.dtype == UINT32
    assert call(b, "reshape", s, (-1, 32)).shape == extents(128, 32)
    assert refused(b, "reshape", s, (4095,)).code == "TL0342"
    assert refused(b, "view", Ref(s, (0, 0)), (4096,)).code == "TL0206"
    a = tensor("A", N, 8)
    assert call(b, "Tensor", (Binary("mul", N, Const(8, INT32), INT32),), "float16", a).view_of is a
    call(b, "copy", flat, Ref(tensor("O", 4096), (0,)))
    check(b, tensor("O2", 1), *(p for p in [last(b).dst.buffer]))


def test_safe_values() -> None:
    b, a = kernel_builder(), tensor("A", 60, 61, dtype=INT32)
    s = shared(b, 64, 64, dtype=INT32)
    call(b, "annotate_safe_value", {a: -5})
    call(b, "copy", Ref(a, (Slice(0, 64), Slice(0, 64))), s)
    body, table = apply_safe_values(b, b.body())
    new = table[a]
    assert new.safe_value == Const(-5, INT32) and new.shape == a.shape
    assert body.body[-1].src.buffer is new and body.body[-1].dst.buffer is s  # type: ignore[union-attr]
    assert refused(b, "annotate_safe_value", {s: 1}).code == "TL0206"


def test_layouts_of_tiles_are_hints() -> None:
    b = kernel_builder()
    s = shared(b, 8, 8)
    call(b, "annotate_layout", {s: call(b, "Layout", (8, 8), None)})
    d = refused(b, "annotate_layout", {tensor("A", 8, 8): None})
    assert d.code == "TL0343" and "`A`" in d.message


# Barriers, assertions, printing.


def test_barriers_and_traps() -> None:
    b = kernel_builder()
    call(b, "sync_threads")
    call(b, "sync_threads", 1, 64)
    assert last(b) == Barrier("named", Const(1, INT32), Const(64, INT32), b.span)
    call(b, "sync_warp")
    condition = Compare("lt", BX, N)
    call(b, "device_assert", condition, "outside")
    assert last(b) == Trap(condition, "outside", b.span)
    size = len(b.body().body)
    call(b, "device_assert", True)
    call(b, "assume", condition)
    assert len(b.body().body) == size
    assert refused(b, "device_assert", 1 > 2).code == "TL0206"
    call(b, "print", BX, "block")
    assert isinstance(last(b), Print) and last(b).args == (BX,)
    call(b, "print", shared(b, 4, 4))
    assert isinstance(last(b), For)
    call(b, "print", fragment(b, 4))
    assert isinstance(last(b), For)
    check(b)
    b.in_parallel = True
    assert refused(b, "sync_threads").code == "TL0205"


def test_names_for_later_say_what_to_use() -> None:
    b = kernel_builder()
    d = refused(b, "tma_load", 1, 2)
    assert d.code == "TL0204" and "T.copy" in d.help and "tma_load" in d.message
    assert refused(b, "alloc_tmem", 128).code == "TL0204"
