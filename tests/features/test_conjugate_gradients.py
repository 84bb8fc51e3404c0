"""An iteration that carries its errors on: gradients of Sinkhorn's normalisation by conjugate gradients, in macros over shared tiles."""

from __future__ import annotations

import numpy as np

from tests.features.kit import check, poison

TEXT = """
@T.macro
def applied(R, x1, x2, buf, y1, y2, t, n):
    for b, i, j in T.Parallel(t, n, n):
        buf[b, i, j] = R[b, i, j] * x2[b, j]
    T.reduce_sum(buf, y1, dim=-1)
    for b, i, j in T.Parallel(t, n, n):
        buf[b, i, j] = R[b, i, j] * x1[b, i]
    T.reduce_sum(buf, y2, dim=-2)
    for b, i in T.Parallel(t, n):
        y1[b, i] += x1[b, i]
        y2[b, i] += x2[b, i]

@T.macro
def product(x1, x2, y1, y2, buf, out, t, n):
    for b, i in T.Parallel(t, n):
        buf[b, i] = x1[b, i] * y1[b, i] + x2[b, i] * y2[b, i]
    T.reduce_sum(buf, out, dim=-1)

@tilelang.jit
def k(out, dout, t: int = 2, threads: int = 64):
    count, n = T.dynamic("count"), 8
    out: T.Tensor([count, n, n], "float32")
    dout: T.Tensor([count, n, n], "float32")
    res = T.empty([count, n, n], "float32")
    with T.Kernel(T.ceildiv(count, t), threads=threads) as at:
        R = T.alloc_fragment([t, n, n], "float32")
        dR = T.alloc_fragment([t, n, n], "float32")
        RdR = T.alloc_fragment([t, n, n], "float32")
        buf = T.alloc_shared([t, n, n], "float32")
        line = T.alloc_shared([t, n], "float32")
        x1, x2, r1, r2, p1, p2, y1, y2 = [T.alloc_shared([t, n], "float32") for _ in range(8)]
        rr = T.alloc_fragment([t], "float32")
        new = T.alloc_fragment([t], "float32")
        py = T.alloc_fragment([t], "float32")
        step = T.alloc_fragment([t, n], "float32")
        T.copy(out[at * t : (at + 1) * t, :, :], R)
        T.copy(dout[at * t : (at + 1) * t, :, :], dR)
        for b, i, j in T.Parallel(t, n, n):
            RdR[b, i, j] = R[b, i, j] * dR[b, i, j]
        T.reduce_sum(RdR, r1, dim=-1)
        T.reduce_sum(RdR, r2, dim=-2)
        T.clear(x1)
        T.clear(x2)
        T.copy(r1, p1)
        T.copy(r2, p2)
        product(r1, r2, r1, r2, line, rr, t, n)
        for _ in T.serial(2 * n):
            applied(R, p1, p2, buf, y1, y2, t, n)
            product(p1, p2, y1, y2, line, py, t, n)
            for b, i in T.Parallel(t, n):
                step[b, i] = rr[b] / (py[b] + 1e-10)
            for b, i in T.Parallel(t, n):
                x1[b, i] += step[b, i] * p1[b, i]
                x2[b, i] += step[b, i] * p2[b, i]
            for b, i in T.Parallel(t, n):
                r1[b, i] -= step[b, i] * y1[b, i]
                r2[b, i] -= step[b, i] * y2[b, i]
            product(r1, r2, r1, r2, line, new, t, n)
            for b, i in T.Parallel(t, n):
                step[b, i] = new[b] / (rr[b] + 1e-10)
            for b, i in T.Parallel(t, n):
                p1[b, i] = r1[b, i] + step[b, i] * p1[b, i]
                p2[b, i] = r2[b, i] + step[b, i] * p2[b, i]
            T.copy(new, rr)
        for b, i, j in T.Parallel(t, n, n):
            buf[b, i, j] = (dR[b, i, j] - x1[b, i] - x2[b, j]) * R[b, i, j]
        T.copy(buf, res[at * t : (at + 1) * t, :, :])
    return res
"""


def _gradient(r: np.ndarray, d: np.ndarray) -> np.ndarray:
    """What the iteration converges to: the solution of least norm, which least squares finds directly."""
    n = r.shape[-1]
    out = []
    for one, grad in zip(r.astype(np.float64), d.astype(np.float64), strict=True):
        system = np.block([[np.eye(n), one], [one.T, np.eye(n)]])
        right = np.concatenate([(one * grad).sum(1), (one * grad).sum(0)])
        x = np.linalg.lstsq(system, right, rcond=1e-9)[0]
        out.append((grad - x[:n, None] - x[None, n:]) * one)
    return np.stack(out)


def test_gradients_by_conjugate_gradients() -> None:
    """The rows and columns of `out` add up to 1, as they do behind Sinkhorn: other matrices make the iteration diverge, and then any
    two orders of summation differ, float32 from float64 first of all."""
    rng = np.random.default_rng(5)
    r = np.exp(rng.standard_normal((5, 8, 8)))
    for _ in range(50):
        r /= r.sum(-2, keepdims=True)
        r /= r.sum(-1, keepdims=True)
    d = rng.standard_normal((5, 8, 8)).astype(np.float32)
    out = r.astype(np.float32)
    values = {"out": out, "dout": d, "count": 5, "res": poison((5, 8, 8), np.float32)}
    check(TEXT, values, {"res": _gradient(out, d)}, tolerance=2e-4)
