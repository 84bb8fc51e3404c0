"""Element-wise loops that fill a tile of a pipelined loop: they run ahead like copies, where nobody can tell."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.kit import check, poison
from tests.toolchain import needs_gxx

pytestmark = needs_gxx
F16, F32, I32 = np.float16, np.float32, np.int32

CONVOLUTION = """
@T.prim_func
def conv(X: T.Tensor((2, 6, 7, 32), "float16"), W: T.Tensor((288, 32), "float16"), Y: T.Tensor((84, 32), "float32")):
    with T.Kernel(3, threads=64) as b:
        x = T.alloc_shared((32, 32), "float16")
        w = T.alloc_shared((32, 32), "float16")
        y = T.alloc_fragment((32, 32), "float32")
        T.clear(y)
        for k in T.Pipelined(9, num_stages=3):
            {fill}
            T.copy(W[k * 32, 0], w)
            T.gemm(x, w, y)
        T.copy(y, Y[b * 32, 0])
"""
TAPS = """for i, j in T.Parallel(32, 32):
                m = b * 32 + i
                h = m % 42 // 7 + (k * 32 + j) // 96 - 1
                c = m % 7 + (k * 32 + j) // 32 % 3 - 1
                inside = (h >= 0) and (c >= 0) and (h < 6) and (c < 7)
                x[i, j] = T.if_then_else(inside, X[m // 42, h, c, (k * 32 + j) % 32], 0)"""


@pytest.mark.parametrize("fill", [TAPS, "T.im2col(X, x, b, k, 3, 1, 1, 1)"])
def test_convolution_runs_ahead(fill: str) -> None:
    rng = np.random.default_rng()
    x, w = rng.integers(-3, 4, (2, 6, 7, 32)).astype(F16), rng.integers(-3, 4, (288, 32)).astype(F16)
    around = np.pad(x.astype(F32), ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = [around[:, r : r + 6, c : c + 7] for r in range(3) for c in range(3)]
    wanted = np.stack(taps, 3).reshape(84, 288) @ w.astype(F32)
    done = check(CONVOLUTION.format(fill=fill), {"X": x, "W": w, "Y": poison((84, 32), F32)}, {"Y": wanted})
    assert "copy_x" in done.cu and "cp_async_16_zfill(x " in done.cu


ROWS = """
@T.prim_func
def rows(X: T.Tensor((50, 96), "float16"), W: T.Tensor((96, 32), "float16"), At: T.Tensor((32,), "int32"), Y: T.Tensor((32, 32), "float32")):
    with T.Kernel(1, threads=64):
        at = T.alloc_shared((32,), "int32")
        x = T.alloc_shared((32, 32), "float16")
        w = T.alloc_shared((32, 32), "float16")
        y = T.alloc_fragment((32, 32), "float32")
        T.copy(At, at)
        T.clear(y)
        for k in T.Pipelined(3, num_stages=2):
            for i, j in T.Parallel(32, 32):
                {fill}
            T.copy(W[k * 32, 0], w)
            T.gemm(x, w, y)
            {after}
        T.copy(y, Y)
"""


@pytest.mark.parametrize(
    ("fill", "after", "ahead"),
    [
        ("x[i, j] = X[at[i], k * 32 + j]", "", True),
        ("x[i, j] = X[At[i], k * 32 + j]", "", True),
        ("if At[i] % 2 == 0:\n                    x[i, j] = X[At[i], k * 32 + j]\n                else:\n                    x[i, j] = 0", "", True),
        ("x[i, j] = T.if_then_else(i < 40, X[at[i], k * 32 + j], 0)", "", False),  # an index that the condition may guard
        ("x[i, j] = X[at[i], k * 32 + j]", "at[0] = (at[0] + 1) % 50", False),
        ("x[i, j] = X[at[i], k * 32 + j] * 2", "", False),
        ("x[j, i] = X[at[j], k * 32 + i]", "", False),
    ],
)
def test_gathered_rows(fill: str, after: str, ahead: bool) -> None:
    rng = np.random.default_rng()
    x, w = rng.integers(-3, 4, (50, 96)).astype(F16), rng.integers(-3, 4, (96, 32)).astype(F16)
    at = rng.integers(0, 60, 32).astype(I32)  # places out of range read as 0
    wanted, now = np.zeros((32, 32), F32), at.copy()
    for k in range(3):
        picked = np.where((now < 50)[:, None], x[np.minimum(now, 49), k * 32 : (k + 1) * 32], 0).astype(F32)
        picked *= (now % 2 == 0)[:, None] if "% 2" in fill else 2 if "* 2" in fill else 1
        wanted += picked @ w[k * 32 : (k + 1) * 32].astype(F32)
        now[0] = (now[0] + 1) % 50 if after else now[0]
    done = check(ROWS.format(fill=fill, after=after), {"X": x, "W": w, "At": at, "Y": poison((32, 32), F32)}, {"Y": wanted})
    assert ("copy_x" in done.cu) == ahead
