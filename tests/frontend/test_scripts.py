"""What scripts around kernels hold: seeds set through modules, rows between named bounds, arrays of another name of their type."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import compile_text, run_emulated
from tests.frontend.conftest import read_text
from tests.toolchain import needs_gxx
from tilec.diagnostics import CompileError
from tilec.frontend import ArgSpec
from tilec.ir.expr import Buffer, Const
from tilec.ir.text import show
from tilec.ir.tile import Copy
from tilec.ir.visit import walk_stmt

SEEDED = """
import torch
import tilelang.testing
torch.manual_seed(0)
tilelang.testing.set_random_seed(42)
torch.backends.cuda.matmul.allow_tf32 = True
limits = []
limits.append(unknown())

@tilelang.jit
def make():
    torch.cuda.synchronize()
    d = torch.float16
    @T.prim_func
    def k(O: T.Tensor((%s,), d)):
        with T.Kernel(1, threads=1):
            O[0] = 1
    return k
"""


def test_calls_through_modules_change_no_module() -> None:
    (kernel,) = read_text(SEEDED % "8", kernels=("make",)).kernels
    assert str(kernel.params[0].dtype) == "float16"


def test_what_a_list_holds_is_unknown_after_a_call_that_is() -> None:
    with pytest.raises(CompileError) as caught:
        read_text(SEEDED % "len(limits)", kernels=("make",))
    assert "unknown" in caught.value.diagnostics[0].message


ALIASES = """
import tilelang
import tilelang.language as T
from tilelang import tvm as tvm
from tilelang.tvm import tirx
from tilelang.language.fp8 import determine_fp8_type
from tilelang.language.dtypes import float16
from tilelang.cuda.intrinsics.sparse_layout import get_e_factor

FACTORS = tuple(get_e_factor(d, m) for d, m in (("float16", "int16"), ("float32", "int16"), ("int8", "int32"), (float16, "uint8")))

@T.prim_func
def k(O: T.Tensor((tvm.DataType("int16").bits, *FACTORS), determine_fp8_type()), P: T.Tensor((8,), "int32")):
    with T.Kernel(1, threads=8):
        mine = T.alloc_fragment((1,), "int32", scope="local")
        mine[0] = T.get_thread_binding(0)
        while mine[0] % 3 != 0:
            mine[0] = mine[0] + 1
        P[T.get_thread_binding(0)] = mine[0]
"""


def test_other_paths_to_names() -> None:
    (kernel,) = read_text(ALIASES).kernels
    first = kernel.params[0]
    assert isinstance(first, Buffer) and str(first.dtype) == "float8_e4m3fn"
    assert [n.value for n in first.shape if isinstance(n, Const)] == [16, 16, 8, 32, 8]


@needs_gxx
def test_a_fragment_of_each_thread() -> None:
    compiled = compile_text(ALIASES, kernels=("k",))
    values = {"O": np.zeros((16, 16, 8, 32, 8), np.uint8), "P": np.full(8, -1, np.int32)}
    assert run_emulated(compiled, values)["P"].tolist() == [0, 3, 3, 3, 6, 6, 6, 9]


RUN = """
import torch

@tilelang.jit
def twice(X, step: int = 4):
    M = T.const("M")
    X: T.Tensor((M,), "float16")
    Y = T.empty((M,), "float16")
    with T.Kernel(M, threads=1) as bx:
        Y[bx] = X[bx] * 2
    return Y

X = torch.randn(8192, device="cuda")
Y = twice(X)
torch.testing.assert_close(Y, X * 2)
"""


@pytest.mark.parametrize("kernels", [(), ("twice",)])
def test_a_kernel_that_the_script_runs(kernels: tuple[str, ...]) -> None:
    module = read_text(RUN, kernels=kernels, args={"X": ArgSpec("float16", (64,))})
    assert [k.symbol for k in module.kernels] == ["twice"]


ROWS = """
@T.prim_func
def k(A: T.Tensor((8, 256, 64), "float16"), S: T.Tensor((8,), "int32"), B: T.Tensor((8, 256, 64), "float16")):
    with T.Kernel(8, 2, threads=128) as (bx, by):
        f = T.alloc_fragment((64, 64), "float16")
        {bounds}
        T.copy(A[bx, lo:hi, :], f)
        T.copy(f, B[bx, lo:hi, :])
"""


@pytest.mark.parametrize("bounds", [
    "lo = by % 2 * 64; hi = lo + 64",
    "half = by * 64; lo = half + S[bx]; hi = lo + 64",
    "lo = by * 64; hi = (by + 1) * 64",
    "step = 64; lo = S[bx] * step; next = lo; hi = next + step",
])  # fmt: skip
def test_rows_between_names_are_counted(bounds: str) -> None:
    (kernel,) = read_text(ROWS.format(bounds=bounds)).kernels
    copies = [s for s in walk_stmt(kernel.launches[0].body) if isinstance(s, Copy)]
    assert len(copies) == 2
    for copy in copies:
        for region in (copy.src, copy.dst):
            assert [e.value if isinstance(e, Const) else e for e in region.extents][-2:] == [64, 64]


@pytest.mark.parametrize("bounds", [
    "lo = S[bx]; hi = S[bx] + 64",  # two loads: another thread may have stored in between
    "lo = S[bx]; hi = S[by]",
])  # fmt: skip
def test_rows_between_values_of_memory_are_not(bounds: str) -> None:
    with pytest.raises(CompileError) as caught:
        read_text(ROWS.format(bounds=bounds))
    assert caught.value.diagnostics[0].code == "TL0312"


def test_float32_arrays_are_tfloat32_tensors() -> None:
    text = """
@tilelang.jit
def k(X, n: int = 4):
    M = T.const("M")
    X: T.Tensor((M, n), "tfloat32")
    with T.Kernel(1, threads=1):
        X[0, 0] = 1
"""
    (kernel,) = read_text(text, args={"X": ArgSpec("float32", (32, 4))}).kernels
    assert str(kernel.params[0].dtype) == "tfloat32"


MARKED = """
from tilelang.tools.cuda import iket

@T.prim_func
def k(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
    with T.Kernel(2, threads=32) as bx, iket.range("block"):
        iket.mark("enter", payload=iket.payload(bx, dtype="int32"))
        for i in T.Parallel(32):
            at = bx * 32 + i
            iket.range_push("store", payload=at)
            B[at] = A[at] + 1
            iket.range_pop("store")
        with iket.range("nothing", payload=bx):
            iket.mark("leave")
"""


def test_marks_for_a_profiler_change_nothing() -> None:
    lines = [line.replace(', iket.range("block")', "") for line in MARKED.splitlines()]
    plain = "\n".join(line for line in lines if "  iket." not in line and "nothing" not in line)
    marked, bare = read_text(MARKED), read_text(plain)
    assert show(marked) == show(bare)
