"""Names for particular instructions: cp.async, dp4a, im2col, transposes, words of four bytes."""

import numpy as np
import pytest

from tests.features.kit import check, poison, refused


@pytest.mark.parametrize("kernel, stride, dilation, pad", [(3, 1, 1, 1), (2, 2, 1, 0), (3, 1, 2, 2)])
def test_convolution_by_im2col(kernel, stride, dilation, pad):
    n, h, w, c, f = 2, 7, 9, 8, 32
    oh, ow = ((size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for size in (h, w))
    text = f"""
@T.prim_func
def conv(X: T.Tensor(({n}, {h}, {w}, {c}), "float16"), W: T.Tensor(({kernel}, {kernel}, {c}, {f}), "float16"),
         Y: T.Tensor(({n}, {oh}, {ow}, {f}), "float32")):
    with T.Kernel(T.ceildiv({n * oh * ow}, 32), threads=64) as b:
        x = T.alloc_shared((32, 16), "float16")
        k = T.alloc_shared((16, {f}), "float16")
        acc = T.alloc_fragment((32, {f}), "float32")
        flat = T.Tensor(({kernel * kernel * c}, {f}), "float16", W.data)
        out = T.Tensor(({n * oh * ow}, {f}), "float32", Y.data)
        T.clear(acc)
        for s in T.Pipelined(T.ceildiv({kernel * kernel * c}, 16), num_stages=2):
            T.c2d_im2col(X, x, b, s, {kernel}, {stride}, {dilation}, {pad})
            T.copy(flat[s * 16, 0], k)
            T.gemm(x, k, acc)
        T.copy(acc, out[b * 32, 0])
"""
    rng = np.random.default_rng()
    x, weights = rng.integers(-3, 4, (n, h, w, c)).astype(np.float16), rng.integers(-3, 4, (kernel, kernel, c, f)).astype(np.float16)
    padded = np.pad(x.astype(np.float64), ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    wanted = np.zeros((n, oh, ow, f))
    for i in range(kernel):
        for j in range(kernel):
            rows = padded[:, i * dilation :, j * dilation :][:, : stride * oh : stride, : stride * ow : stride]
            wanted += rows[:, :oh, :ow] @ weights[i, j].astype(np.float64)
    check(text, {"X": x, "W": weights, "Y": poison(wanted.shape, np.float32)}, {"Y": wanted})


def test_products_of_bytes_and_explicit_copies():
    text = """
@T.prim_func
def dots(A: T.Tensor((64, 16), "int8"), B: T.Tensor((64, 16), "int8"), C: T.Tensor((64,), "int32"), V: T.Tensor((40,), "float32"),
         O: T.Tensor((128,), "float32")):
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        a, b = T.alloc_local((16,), "int8"), T.alloc_local((16,), "int8")
        c = T.alloc_local((1,), "int32")
        s = T.alloc_shared((128,), "float32")
        c[0] = 7
        for k in T.vectorized(16):
            a[k] = A[tx, k]
        for k in T.vectorized(16):
            b[k] = B[tx, k]
        for k in T.serial(4):
            T.dp4a(a[k * 4], b[k * 4], c[0])
        C[tx] = c[0]
        T.ptx_cp_async(T.access_ptr(s[tx * 2], "w", 2), T.access_ptr(V[tx * 2], "r", 2), 2, tx % 2 == 0)
        T.ptx_commit_group()
        T.ptx_wait_group(0)
        T.sync_threads()
        for i in T.Parallel(128):
            O[127 - i] = s[i]
"""
    rng = np.random.default_rng()
    a, b = (rng.integers(-128, 128, (64, 16)).astype(np.int8) for _ in range(2))
    v = rng.standard_normal(40).astype(np.float32)
    s = np.zeros(128, np.float32)
    s[:40] = v
    s[(np.arange(128) // 2) % 2 == 1] = 0
    values = {"A": a, "B": b, "C": poison((64,), np.int32), "V": v, "O": poison((128,), np.float32)}
    check(text, values, {"C": 7 + (a.astype(np.int64) * b).sum(1), "O": s[::-1]})


def test_many_bytes_at_once():
    text = """
@T.prim_func
def wide(A: T.Tensor((32, 32), "float16"), B: T.Tensor((32, 32), "float16"), C: T.Tensor((32, 8), "uint32")):
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        s = T.alloc_shared((32, 16), "float16")
        T.stg64(B[tx, 0], T.ldg64(A[tx, 4:8], pred=tx != 3))
        x = T.ldg128(A[tx, 8:16])
        T.sts128(s[tx, 0], x)
        T.sts64(s[tx, 8:12], T.lds64(s[tx, 0:4]))
        T.stg32(s[tx, 12], x[3])
        T.stg32(s[tx, 14], x[2] + 1)
        T.stg256(B[tx, 16], T.ldg256(A[tx, 16]), pred=tx < 31)
        for k in T.serial(4):
            B[tx, 4 + k] = s[tx, k]
            C[tx, k] = T.lds32(s[tx, 8 + 2 * k])
"""
    rng = np.random.default_rng()
    a = rng.integers(-99, 99, (32, 32)).astype(np.float16)
    b, c = np.zeros((32, 32), np.float16), np.zeros((32, 8), np.uint32)
    x = a.view(np.uint32)[:, 4:8]
    wanted, words = b.copy(), c.copy()
    wanted[:, :4] = a[:, 4:8]
    wanted[3, :4] = 0
    wanted[:, 4:8], wanted[:31, 16:] = a[:, 8:12], a[:31, 16:]
    words[:, :4] = np.stack([x[:, 0], x[:, 1], x[:, 3], x[:, 2] + 1], 1)
    check(text, {"A": a, "B": b, "C": c}, {"B": wanted, "C": words})


def test_transposes_words_and_coordinates():
    text = """
@T.prim_func
def words(A: T.Tensor((32, 16), "float16"), W: T.Tensor((32, 8), "uint32"), F: T.Tensor((16, 32), "float32"), B: T.Tensor((32, 4), "uint8"),
          I: T.Tensor((32,), "float32"), P: T.Tensor((2, 32), "int32")):
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        s = T.alloc_shared((32, 16), "float16")
        t = T.alloc_shared((16, 32), "float32")
        T.async_copy(A, s)
        T.transpose(s, t)
        T.copy(t, F)
        for k in T.serial(8):
            W[tx, k] = T.ldg32(A[tx, k * 2], pred=tx < 30)
        T.stg32(B[tx, 0], T.ldg32(I[tx]))
        i, j, k = T.index_to_coordinates(tx, (4, 4, 2))
        P[0, tx] = T.lds32(s[tx, 2]) >> 16
        P[1, tx] = T.__ldg(A[i, j]) * 100.0 + k
"""
    rng = np.random.default_rng()
    a, i = rng.integers(-9, 9, (32, 16)).astype(np.float16), rng.standard_normal(32).astype(np.float32)
    words = a.view(np.uint32).copy()
    words[30:] = 0
    n = np.arange(32)
    last = a[n // 8, n // 2 % 4].astype(np.float64) * 100 + n % 2
    values = {"A": a, "W": poison((32, 8), np.uint32), "F": poison((16, 32), np.float32), "B": poison((32, 4), np.uint8), "I": i}
    wanted = {"W": words, "F": a.T.astype(np.float32), "B": i.view(np.uint8).reshape(32, 4)}
    check(text, {**values, "P": poison((2, 32), np.int32)}, {**wanted, "P": np.stack([a.view(np.uint32)[:, 1] >> 16, last])})


@pytest.mark.parametrize("bad, code", [
    ("T.transpose(s, s)", "TL0312"), ("T.dp4a(A[0, 0], A[0, 0], A[0, 0])", "TL0340"), ("T.ptx_cp_async(3, T.access_ptr(A[0, 0], 'r'), 4)", "TL0206"),
    ("T.im2col(A, s, 0, 0, 3, 1, 1, 1)", "TL0206"), ("T.stg64(A[0, 0], 5)", "TL0206"), ("T.tma_copy(A, s)", "TL0203"),
])  # fmt: skip
def test_what_cannot_be_moved_is_refused(bad, code):
    text = f"""
@T.prim_func
def f(A: T.Tensor((8, 16), "float32")):
    with T.Kernel(1, threads=32):
        s = T.alloc_shared((8, 16), "float32")
        {bad}
"""
    assert refused(text).code == code
