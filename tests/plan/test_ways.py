"""Fragments that loops read by a part of a variable or by the counter of a short loop inside: they lie where they are read."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import MODES, compile_text, run_emulated
from tests.toolchain import needs_gxx

UNPACK = """import tilelang.language as T
@T.prim_func
def unpack(B: T.Tensor((64, 64), "uint8"), A: T.Tensor((64, 128), "float16"), C: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=128):
        B_s = T.alloc_shared((64, 64), "uint8")
        A_s = T.alloc_shared((64, 128), "float16")
        B_f = T.alloc_fragment((64, 64), "uint8")
        W = T.alloc_fragment((64, 128), "float16")
        acc = T.alloc_fragment((64, 64), "float32")
        T.copy(B, B_s)
        T.copy(A, A_s)
        T.copy(B_s, B_f)
        for i, j in T.Parallel(64, 128):
            W[i, j] = T.cast((B_f[i, j // 2] >> (j % 2 * 4)) & 15, "float16")
        T.clear(acc)
        T.gemm(W, A_s, acc, transpose_B=True)
        T.copy(acc, C)
"""


@needs_gxx
@pytest.mark.parametrize("mode", MODES)
def test_what_a_product_needs_unpacked_is_held_packed_by_the_same_threads(mode: str) -> None:
    compiled = compile_text(UNPACK)
    assert "staged" not in compiled.cu
    rng = np.random.default_rng()
    b, a = rng.integers(0, 256, (64, 64)).astype(np.uint8), rng.integers(-4, 5, (64, 128)).astype(np.float16)
    got = run_emulated(compiled, {"B": b, "A": a, "C": np.full((64, 64), np.nan, np.float32)}, mode)["C"]
    wide = np.stack([b & 15, b >> 4], -1).reshape(64, 128).astype(np.float64)
    assert np.array_equal(got, wide @ a.astype(np.float64).T)


MIX = """import tilelang.language as T
@T.prim_func
def mix(a: T.Tensor(({k}, 4), "float32"), b: T.Tensor(({k}, 512), "float32"), x: T.Tensor((4, 512), "float32")):
    with T.Kernel(1, threads=128):
        a_f = T.alloc_fragment(({k}, 4), "float32")
        b_f = T.alloc_fragment(({k}, 512), "float32")
        x_f = T.alloc_fragment((4, 512), "float32")
        T.copy(a, a_f)
        T.copy(b, b_f)
        for i, j in T.Parallel(4, 512):
            x_f[i, j] = 1
            for k in T.serial({k}):
                x_f[i, j] += a_f[k, i] * b_f[k, j]
        T.copy(x_f, x)
"""


@needs_gxx
@pytest.mark.parametrize(("k", "staged"), [(3, False), (16, False), (17, True)])
def test_a_short_loop_inside_counts_registers(k: int, staged: bool) -> None:
    compiled = compile_text(MIX.format(k=k))
    assert ("staged" in compiled.cu) == staged
    rng = np.random.default_rng()
    a, b = rng.integers(-3, 4, (k, 4)).astype(np.float32), rng.integers(-3, 4, (k, 512)).astype(np.float32)
    got = run_emulated(compiled, {"a": a, "b": b, "x": np.full((4, 512), np.nan, np.float32)})["x"]
    assert np.array_equal(got, 1 + a.T @ b)


SCALED = """import tilelang.language as T
@T.prim_func
def scaled(X: T.Tensor((48, {n}), "float32"), S: T.Tensor((48, {n} // {group}), "float32"), Y: T.Tensor((48, {n}), "float32")):
    with T.Kernel(1, threads=128):
        x = T.alloc_fragment((48, {n}), "float32")
        s = T.alloc_fragment((48, {n} // {group}), "float32")
        T.copy(X, x)
        T.copy(S, s)
        for i, j in T.Parallel(48, {n}):
            x[i, j] = x[i, j] * s[i, j // {group}]
        T.copy(x, Y)
"""


@needs_gxx
@pytest.mark.parametrize(("n", "group"), [(64, 2), (64, 4), (64, 8), (64, 32), (96, 32), (96, 6), (64, 64)])
def test_groups_of_a_row_share_a_scale(n: int, group: int) -> None:
    compiled = compile_text(SCALED.format(n=n, group=group))
    rng = np.random.default_rng()
    x, s = rng.integers(-9, 10, (48, n)).astype(np.float32), rng.integers(-9, 10, (48, n // group)).astype(np.float32)
    got = run_emulated(compiled, {"X": x, "S": s, "Y": np.full((48, n), np.nan, np.float32)})["Y"]
    assert np.array_equal(got, x * np.repeat(s, group, 1))
    assert group == 6 or "staged" not in compiled.cu


def test_a_fragment_that_the_loop_also_writes_is_not_read_so() -> None:
    text = SCALED.format(n=64, group=2).replace("x[i, j] = x[i, j] * s[i, j // 2]", "x[i, j] = x[i, j // 2]")
    assert "staged" in compile_text(text).cu
