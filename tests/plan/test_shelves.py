"""Register tiles of which a part lies in shared memory: what is chosen, and that the generated code means the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.compiling import compile_text, run_reference
from tests.ptxas.kit import with_rungs
from tests.toolchain import needs_gxx
from tilec import emulator, templates_dir
from tilec.driver import Compiled, Options
from tilec.emit.explain import explain_text
from tilec.plan.ladder import LADDERS
from tilec.plan.legal import legalise
from tilec.plan.plan import Registers, Variant
from tilec.reference.inputs import np_dtype
from tilec.plan.shelves import passing, shelf_elements, shelvable
from tilec.targets import lookup

PART = next(n for n, r in enumerate(LADDERS["portable"]) if r.shelved)
EMULATED = (
    emulator.Mode(asynchrony="lazy", shared="apart", seed=1), emulator.Mode(asynchrony="eager", shared="real", seed=2),
    emulator.Mode(asynchrony="random", shared="real", seed=3, races=True),
)  # fmt: skip

SOFTMAX = """import tilelang.language as T

@T.prim_func
def f(X: T.Tensor(({m}, {n}), "{dtype}"), Y: T.Tensor(({m}, {n}), "{dtype}")):
    with T.Kernel({m}, threads={threads}) as row:
        x = T.alloc_fragment((1, {n}), "float32")
        top = T.alloc_fragment((1,), "float32")
        total = T.alloc_fragment((1,), "float32")
        T.copy(X[row, 0], x)
        T.reduce_max(x, top, dim=1)
        for i, j in T.Parallel(1, {n}):
            x[i, j] = T.exp(x[i, j] - top[i])
        T.reduce_sum(x, total, dim=1)
        for i, j in T.Parallel(1, {n}):
            Y[row, j] = x[i, j] / total[i]
"""

SCANNED = """import tilelang.language as T

@T.prim_func
def f(X: T.Tensor(({n},), "{dtype}"), Y: T.Tensor(({n},), "{dtype}"), S: T.Tensor(({n},), "{dtype}")):
    with T.Kernel(1, threads={threads}) as b:
        x = T.alloc_fragment(({n},), "{dtype}")
        y = T.alloc_fragment(({n},), "{dtype}")
        T.copy(X, x)
        T.fill(y, 3)
        for step in T.serial(2):
            for i in T.Parallel({n}):
                if x[i] > 2:
                    y[i] += x[i]
                else:
                    y[i] = T.if_then_else(i % 3 == 0, x[i], y[i] - 1)
            T.cumsum(x, dim=0, reverse={reverse})
        T.copy(x, S)
        T.copy(y, Y)
"""

PRODUCT = """import tilelang.language as T

@T.prim_func
def f(A: T.Tensor((64, 96), "{dtype}"), B: T.Tensor((96, 32), "{dtype}"), C: T.Tensor((64, 32), "{acc}")):
    with T.Kernel(1, threads=64) as b:
        a_s = T.alloc_shared((64, 32), "{dtype}")
        b_s = T.alloc_shared((32, 32), "{dtype}")
        acc = T.alloc_fragment((64, 32), "{acc}")
        T.clear(acc)
        for k in T.Pipelined(3, num_stages={stages}):
            T.copy(A[0, k * 32], a_s)
            T.copy(B[k * 32, 0], b_s)
            T.gemm(a_s, b_s, acc)
        for i, j in T.Parallel(64, 32):
            acc[i, j] = T.if_then_else(i > j, acc[i, j] * 2, acc[i, j])
        T.copy(acc, C)
"""

COLUMNS = """import tilelang.language as T

@T.prim_func
def f(X: T.Tensor((45, 40), "float16"), Y: T.Tensor((40,), "float32"), Z: T.Tensor((45, 40), "float16")):
    with T.Kernel(1, threads=64) as b:
        x = T.alloc_fragment((48, 40), "float16")
        w = T.alloc_fragment((48, 40), "float32")
        total = T.alloc_fragment((40,), "float32")
        T.copy(X[0:48, :], x)
        for i, j in T.Parallel(48, 40):
            w[i, j] = T.if_then_else(i < 45, T.cast(x[i, j], "float32") * 2, 0)
        T.reduce_sum(w, total, dim=0)
        for i, j in T.Parallel(48, 40):
            x[i, j] = w[i, j] + total[j]
        T.copy(total, Y)
        T.copy(x, Z[0:48, :])
"""


def shelved(text: str, registers: int, arch: str = "sm_80", shared: int = 0, **options: Any) -> Compiled:
    """The compilation at the first such rung, for a machine whose threads have so few registers, and so much shared memory if not 0."""
    target = lookup(arch)
    assert target is not None
    target = replace(target, registers_per_thread_max=registers, shared_per_block_max=shared or target.shared_per_block_max)
    compiled = compile_text(text, arch=arch, **options)
    (kernel,) = compiled.plans
    names = (kernel.symbol, f"{kernel.symbol}__general")
    given = Options("kernel.py", text.encode(), target, **options)
    return with_rungs(compiled, given, {("portable", name): PART for name in names})


def body(compiled: Compiled) -> Variant:
    return compiled.plans[0].launches[0].variants[0]


def places(compiled: Compiled) -> dict[str, Registers]:
    """The register tiles of the first body by name."""
    return {b.name: p for b, p in body(compiled).placements.items() if isinstance(p, Registers)}


def check(compiled: Compiled, values: Mapping[str, Any], tolerance: float = 0.0) -> dict[str, Any]:
    """Runs a kernel every way; all must agree with its meaning, which comes back."""
    want = run_reference(compiled, values)
    for mode in EMULATED:
        got = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in values.items()}
        outcome = emulator.build(compiled.cu).run(f"{compiled.plans[0].symbol}_launch", got, mode)
        assert outcome.ok, (mode, outcome)
        for name, value in want.items():
            if isinstance(value, np.ndarray):
                np.testing.assert_allclose(
                    got[name].astype(np.float64), value.astype(np.float64), rtol=tolerance, atol=tolerance, err_msg=name
                )
    return want


def test_what_exceeds_the_registers_lies_on_the_shelf() -> None:
    text = SOFTMAX.format(m=3, n=1024, dtype="float32", threads=32)
    compiled = shelved(text, 40)
    x, target = places(compiled)["x"], compiled.plans[0].target
    share = LADDERS["portable"][PART].shelved
    assert x.layout.registers == 32 and 0 < x.kept < 32 and x.kept % 4 == 0
    assert body(compiled).registers <= target.registers_per_thread_max * share // 100 < body(compiled).registers + 4
    assert body(compiled).shared_bytes == x.offset + x.shelved * 32 * 4
    assert f"shelved<float, {x.kept}, 32> x(shared_tile<float, {x.shelved * 32}>({x.offset}), thread);" in compiled.cu
    assert f"x 1x1024 f32, 32 a thread, {x.shelved} of them in shared memory" in compiled.cu
    assert f"32 elements a thread, {x.shelved} of them on the shelf at {x.offset}" in explain_text(compiled.plans[0])
    assert not places(shelved(text, 255))["x"].shelved, "there are registers for all of it"


def test_no_more_than_there_is_room_for() -> None:
    text = SOFTMAX.format(m=3, n=1024, dtype="float32", threads=32)
    little = shelved(text, 40, shared=3 * 32 * 16 + 300)
    assert places(little)["x"].shelved == 12 and body(little).shared_bytes <= 3 * 32 * 16 + 300


def test_operands_of_products_stay_and_accumulators_come_last() -> None:
    text = """import tilelang.language as T

@T.prim_func
def f(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=128) as b:
        a = T.alloc_shared((64, 64), "float16")
        acc = T.alloc_fragment((64, 64), "float32")
        half = T.alloc_fragment((64, 64), "float16")
        beside = T.alloc_fragment((64, 64), "float32")
        T.copy(A, a)
        T.copy(A, half)
        T.clear(acc)
        T.gemm(half, a, acc)
        T.copy(A, beside)
        for i, j in T.Parallel(64, 64):
            beside[i, j] += acc[i, j]
        T.copy(beside, C)
"""
    compiled = compile_text(text)
    (launch,) = compiled.module.kernels[0].launches
    legal = legalise(launch.body, 128, compiled.plans[0].target, False)
    assert [b.name for b in shelvable(legal.body, legal.layouts, legal.gemms)] == ["beside", "acc"]


def test_a_tile_that_the_next_statement_uses_up_takes_no_registers() -> None:
    def names(text: str) -> set[str]:
        (launch,) = compile_text(text).module.kernels[0].launches
        return {b.name for b in passing(launch.body)}

    text = """import tilelang.language as T

@T.prim_func
def f(X: T.Tensor((512,), "float32"), Y: T.Tensor((512,), "float32"), Z: T.Tensor((1,), "float32")):
    with T.Kernel(1, threads=64) as b:
        x = T.alloc_fragment((512,), "float32")
        square = T.alloc_fragment((512,), "float32")
        total = T.alloc_fragment((1,), "float32")
        T.copy(X, x)
        for i in T.Parallel(512):
            square[i] = x[i] * x[i]
        T.reduce_sum(square, total, dim=0)
        T.copy(x, Y)
        T.copy(total, Z)
"""
    assert names(text) == {"square"}
    assert names(text.replace("T.copy(x, Y)", "T.copy(square, Y)")) == {"x"}
    assert names(text.replace("T.copy(total, Z)", "T.copy(square, Y)")) == set()


def test_elements_of_every_size_fill_chunks_of_16_bytes() -> None:
    for dtype, per in (("int8", 16), ("float16", 8), ("float32", 4), ("float64", 2)):
        x = places(shelved(SCANNED.format(n=3001, dtype=dtype, threads=64, reverse=False), 26))["x"]
        buffer = next(
            b for b in body(compile_text(SCANNED.format(n=3001, dtype=dtype, threads=64, reverse=False))).placements if b.name == "x"
        )
        assert x.shelved and x.kept % per == 0 and shelf_elements(buffer, x, 64) * 16 % (per * 64 * 16) == 0


@needs_gxx
@pytest.mark.parametrize(("m", "n", "dtype", "threads"), [(3, 1000, "float32", 32), (2, 1003, "float16", 64), (2, 4096, "bfloat16", 128)])
def test_rows(m: int, n: int, dtype: str, threads: int) -> None:
    compiled = shelved(SOFTMAX.format(m=m, n=n, dtype=dtype, threads=threads), 32)
    x = compiled.plans[0].kernel.params[0]
    assert places(compiled)["x"].shelved
    kind = np_dtype(x.dtype)
    values = {"X": np.random.default_rng().normal(0, 3, (m, n)).astype(kind), "Y": np.full((m, n), 7).astype(kind)}
    want = check(compiled, values, 1e-2 if dtype == "bfloat16" else 1e-3)
    exact = np.exp(values["X"].astype(np.float64) - values["X"].astype(np.float64).max(1, keepdims=True))
    np.testing.assert_allclose(want["Y"].astype(np.float64), exact / exact.sum(1, keepdims=True), rtol=1e-2, atol=1e-4)


@needs_gxx
@pytest.mark.parametrize(
    ("n", "dtype", "threads", "reverse"), [(1500, "int32", 64, False), (1001, "int16", 32, True), (3000, "int8", 32, False)]
)
def test_running_sums_and_conditions(n: int, dtype: str, threads: int, reverse: bool) -> None:
    compiled = shelved(SCANNED.format(n=n, dtype=dtype, threads=threads, reverse=reverse), 34)
    assert places(compiled)["x"].shelved and places(compiled)["y"].shelved
    values = {k: np.full(n, 77, dtype) for k in "XYS"} | {"X": np.random.default_rng().integers(-3, 4, n).astype(dtype)}
    check(compiled, values)


@needs_gxx
def test_sums_of_columns_of_a_tile_that_is_longer_than_the_tensor() -> None:
    compiled = shelved(COLUMNS, 34)
    assert places(compiled)["w"].shelved
    rng = np.random.default_rng()
    values = {"X": rng.normal(size=(45, 40)).astype(np.float16), "Y": np.full(40, 7, np.float32), "Z": np.full((45, 40), 7, np.float16)}
    check(compiled, values, 1e-2)


@needs_gxx
@pytest.mark.parametrize(("dtype", "acc", "stages"), [("float16", "float32", 2), ("int8", "int32", 1)])
def test_accumulators(dtype: str, acc: str, stages: int) -> None:
    compiled = shelved(PRODUCT.format(dtype=dtype, acc=acc, stages=stages), 40)
    assert places(compiled)["acc"].shelved and "(acc + " in compiled.cu
    rng = np.random.default_rng()
    values = {"A": rng.integers(-4, 5, (64, 96)).astype(dtype), "B": rng.integers(-4, 5, (96, 32)).astype(dtype), "C": np.full((64, 32), 7, acc)}
    exact = values["A"].astype(np.int64) @ values["B"].astype(np.int64)
    assert np.array_equal(check(compiled, values)["C"], np.where(np.arange(64)[:, None] > np.arange(32), 2 * exact, exact))


def test_the_emulator_s_twin_is_the_same_text() -> None:
    folder = templates_dir.path()
    device, host = ((folder / name).read_text() for name in ("prelude/memory.cuh", "emulator/tilec_emulator.h"))
    twin = host[host.index("template <typename T, int kept, int threads>\nstruct shelved {") :]
    twin = twin[: twin.index("};") + 2]
    assert twin in device and "operator+" in twin
