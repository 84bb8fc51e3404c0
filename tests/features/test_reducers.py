"""T.alloc_reducer: what parallel loops combine into, in registers where the loops allow it and by atomics where not."""

import numpy as np
import pytest

from tests.features.kit import check, poison, refused

GEMV = """
@T.prim_func
def gemv(A: T.Tensor((96, 128), "float16"), x: T.Tensor((128,), "float16"), y: T.Tensor((96,), "float32"), m: T.Tensor((96,), "float32")):
    with T.Kernel(3, threads=64) as b:
        a = T.alloc_shared((32, 32), "float16")
        v = T.alloc_fragment((32,), "float16")
        total = T.alloc_reducer((32,), "float32", replication="all")
        top = T.alloc_reducer((32,), "float32", op="max")
        result = T.alloc_fragment((32,), "float32")
        T.clear(total)
        T.reducer_init(top)
        for k in T.Pipelined(4, num_stages=2):
            T.copy(A[b * 32, k * 32], a)
            T.copy(x[k * 32:(k + 1) * 32], v)
            for i, j in T.Parallel(32, 32):
                total[i] += a[i, j] * v[j]
                top[i] = T.max(top[i], a[i, j])
        T.finalize_reducer(total)
        T.finalize_reducer(top, result)
        T.copy(total, y[b * 32:(b + 1) * 32])
        T.copy(result, m[b * 32:(b + 1) * 32])
"""


def test_contributions_one_a_point_become_reductions():
    rng = np.random.default_rng()
    a, x = rng.integers(-4, 5, (96, 128)).astype(np.float16), rng.integers(-4, 5, 128).astype(np.float16)
    values = {"A": a, "x": x, "y": poison((96,), np.float32), "m": poison((96,), np.float32)}
    done = check(GEMV, values, {"y": a.astype(np.float64) @ x, "m": a.max(1)})
    assert "atomic" not in done.cu


def test_other_contributions_are_atomic():
    text = """
@T.prim_func
def histogram(K: T.Tensor((256,), "int32"), W: T.Tensor((256,), "int32"), H: T.Tensor((8,), "int32"), L: T.Tensor((8,), "int32")):
    with T.Kernel(1, threads=64):
        h = T.alloc_reducer((8,), "int32")
        low = T.alloc_reducer((8,), "int32", op="min")
        T.clear(h)
        T.reducer_init(low, 50)
        for i in T.Parallel(256):
            if W[i] > 0:
                h[K[i]] += W[i]
            T.reducer_update(low[K[i]], W[i])
        T.finalize_reducer(h)
        T.copy(h, H)
        T.copy(low, L)
"""
    rng = np.random.default_rng()
    k, w = rng.integers(0, 8, 256).astype(np.int32), rng.integers(-99, 99, 256).astype(np.int32)
    sums = [w[(k == n) & (w > 0)].sum() for n in range(8)]
    lows = [min([50, *w[k == n]]) for n in range(8)]
    check(text, {"K": k, "W": w, "H": poison((8,), np.int32), "L": poison((8,), np.int32)}, {"H": sums, "L": lows})


def test_conditions_and_columns():
    text = """
@T.prim_func
def columns(A: T.Tensor((64, 48), "float32"), S: T.Tensor((48,), "float32"), N: T.Tensor((64,), "int32")):
    with T.Kernel(1, threads=128):
        s = T.alloc_reducer((48,), "float32")
        n = T.alloc_reducer((64,), "int32", op="bitor")
        T.clear(s)
        T.clear(n)
        for i, j in T.Parallel(64, 48):
            if A[i, j] > 0.0:
                s[j] += A[i, j]
        for i in T.Parallel(64):
            n[i] = n[i] | i
        T.finalize_reducer(s)
        T.finalize_reducer(n)
        for j in T.Parallel(48):
            S[j] = s[j] * 2.0
        T.copy(n, N)
"""
    a = np.random.default_rng().integers(-9, 9, (64, 48)).astype(np.float32)
    values = {"A": a, "S": poison((48,), np.float32), "N": poison((64,), np.int32)}
    check(text, values, {"S": 2 * np.maximum(a, 0).sum(0), "N": np.arange(64)})


@pytest.mark.parametrize("bad, code", [
    ("for i in T.Parallel(8):\n            r[i] = 1.0", "TL0331"), ("for i in T.Parallel(8):\n            r[i] = T.max(r[i], 1.0)", "TL0331"),
    ('q = T.alloc_reducer((8,), "float32", op="xor")', "TL0331"), ("T.finalize_reducer(A)", "TL0206"),
])  # fmt: skip
def test_what_is_no_contribution_is_refused(bad, code):
    text = f"""
@T.prim_func
def f(A: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=32):
        r = T.alloc_reducer((8,), "float32")
        {bad}
"""
    assert refused(text).code == code


def test_a_reducer_of_one_element_takes_rows():
    text = """
@T.prim_func
def sums(A: T.Tensor((5, 1000), "float16"), S: T.Tensor((5,), "float32"), Q: T.Tensor((5,), "float32")):
    with T.Kernel(5, threads=64) as row:
        s = T.alloc_reducer((1,), "float32", replication="all")
        q = T.alloc_reducer((1,), "float32", op="max")
        T.clear(s)
        T.reducer_init(q)
        for j in T.Parallel(1000):
            a = T.cast(A[row, j], "float32")
            s[0] += a
            if j % 2 == 0:
                q[0] = T.max(q[0], a * a)
        T.finalize_reducer(s)
        T.finalize_reducer(q)
        S[row] = s[0]
        Q[row] = q[0]
"""
    a = np.random.default_rng().integers(-9, 10, (5, 1000)).astype(np.float16)
    values = {"A": a, "S": poison((5,), np.float32), "Q": poison((5,), np.float32)}
    wide = a.astype(np.float64)
    done = check(text, values, {"S": wide.sum(1), "Q": (wide[:, ::2] ** 2).max(1)})
    assert "atomic" not in done.cu
