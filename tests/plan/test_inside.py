"""Loops around a parallel one that walk a fragment: each thread walks its own registers, where the order of the steps changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import MODES, compile_text, run_emulated
from tests.toolchain import needs_gxx

SQUARES = """import tilelang.language as T
@T.prim_func
def squares(X: T.Tensor((32, {n}), "bfloat16"), W: T.Tensor((32, {n}), "float32"), S: T.Tensor((32,), "float32"), C: T.Tensor((32, 32), "float32")):
    with T.Kernel(1, threads=128):
        x_s = T.alloc_shared((32, {n}), "bfloat16")
        w_s = T.alloc_shared((32, {n}), "float32")
        x = T.alloc_fragment((32, {n}), "float32")
        part = T.alloc_fragment((32, {wide}), "float32")
        total = T.alloc_fragment((32,), "float32")
        acc = T.alloc_fragment((32, 32), "float32")
        T.copy(X, x_s)
        T.copy(W, w_s)
        T.copy(x_s, x)
        T.clear(part)
        T.clear(acc)
        for k in T.serial({n} // {wide}):
            for i, j in T.Parallel(32, {wide}):
                part[i, j] += x[i, {place}] * x[i, {place}]
        T.gemm(x, w_s, acc, transpose_B=True)
        T.reduce_sum(part, total)
        T.copy(total, S)
        T.copy(acc, C)
"""


@needs_gxx
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("n", "wide", "place", "staged"),
    [
        (256, 4, "k * 4 + j", False), (64, 4, "j + 4 * k", False), (64, 8, "8 * k + j", False), (64, 2, "k * 2 + j", True),
        (64, 4, "j * 16 + k", True), (512, 4, "k * 4 + j", True),
    ],
)  # fmt: skip
def test_counters_of_loops_around_count_registers(n: int, wide: int, place: str, staged: bool, mode: str) -> None:
    compiled = compile_text(SQUARES.format(n=n, wide=wide, place=place))
    assert ("x_staged" in compiled.cu) == staged
    rng = np.random.default_rng()
    x, w = rng.integers(-4, 5, (32, n)), rng.integers(-4, 5, (32, n)).astype(np.float32)
    values = {"X": (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16), "W": w}
    poison = {"S": np.full(32, np.nan, np.float32), "C": np.full((32, 32), np.nan, np.float32)}
    got = run_emulated(compiled, {**values, **poison}, mode)
    assert np.array_equal(got["S"], (x.astype(np.float64) ** 2).sum(1))
    assert np.array_equal(got["C"], x.astype(np.float64) @ w.astype(np.float64).T)


STEPS = """import tilelang.language as T
@T.prim_func
def steps(X: T.Tensor((16, 16), "float32"), Y: T.Tensor((16,), "float32"), Z: T.Tensor((16,), "float32")):
    with T.Kernel(1, threads=32):
        x = T.alloc_fragment((16, 16), "float32")
        y = T.alloc_fragment((16,), "float32")
        T.copy(X, x)
        T.copy(Y, y)
        for k in T.serial(16):
            for i in T.Parallel(16):
                {body}
        T.copy(y, Z)
"""
CHAIN = "if i == k and k > 0: y[i] = y[i - 1] + x[i, k]"
OWN = "y[i] = y[i] * 2 + x[i, k]"


@needs_gxx
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("body", "turned"), [(CHAIN, False), (OWN, True)])
def test_steps_that_read_what_other_iterations_wrote_stay_in_order(body: str, turned: bool, mode: str) -> None:
    compiled = compile_text(STEPS.format(body=body))
    assert (compiled.cu.index("(int k = 0;") > compiled.cu.index("for i in T.Parallel(16)")) == turned
    rng = np.random.default_rng()
    x, y = rng.integers(-3, 4, (16, 16)).astype(np.float32), rng.integers(-3, 4, 16).astype(np.float32)
    got = run_emulated(compiled, {"X": x, "Y": y, "Z": np.full(16, np.nan, np.float32)}, mode)["Z"]
    wanted = y.copy()
    for k in range(16):
        if turned:
            wanted = wanted * 2 + x[:, k]
        elif k:
            wanted[k] = wanted[k - 1] + x[k, k]
    assert np.array_equal(got, wanted)
