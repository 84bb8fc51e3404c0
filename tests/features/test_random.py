"""Random numbers: the published values of Philox4x32-10, streams of threads, floats."""

import numpy as np
import pytest

from tests.features.kit import check, poison, refused
from tilec.reference.intrinsics import philox

KNOWN = "6627e8d5 e169c58d bc57ac4c 9b00dbd8"
"""The known answer of Salmon et al. for a key and a counter of zeros."""


def test_the_meaning_has_the_published_values():
    zero = np.uint64(0)
    assert [f"{int(philox(zero, zero, np.uint64(k))):08x}" for k in range(4)] == KNOWN.split()


def test_streams_of_threads():
    text = """
@T.prim_func
def draw(O: T.Tensor((2, 64, 6), "uint32"), Q: T.Tensor((64,), "uint32"), F: T.Tensor((64,), "float32"), D: T.Tensor((64,), "float64")):
    with T.Kernel(2, threads=64) as b:
        tx = T.get_thread_binding()
        T.rng_init(1234567890123)
        for k in T.serial(6):
            O[b, tx, k] = T.rng_rand()
        if b == 1:
            T.rng_init(5, tx * 3, 9)
            Q[tx] = T.rng_rand()
            F[tx] = T.rng_rand_float()
            D[tx] = T.rng_rand_float(64)
"""
    n = np.arange(128).reshape(2, 64, 1)
    streams = philox(np.uint64(1234567890123), n, np.arange(6).reshape(1, 1, 6))
    own = [philox(np.uint64(5), np.arange(64) * 3, np.uint64(9 + k)) for k in range(4)]
    floats = (own[1].astype(np.float64) * 2.0**-32 + 2.0**-33).astype(np.float32)
    doubles = ((own[2].astype(np.uint64) ^ (own[3].astype(np.uint64) << np.uint64(21))).astype(np.float64) * 2.0**-53) + 2.0**-54
    values = {"O": poison((2, 64, 6), np.uint32), "Q": poison((64,), np.uint32), "F": poison((64,), np.float32), "D": poison((64,), np.float64)}
    check(text, values, {"O": streams, "Q": own[0], "F": floats, "D": doubles}, 1e-7)
    assert abs(float(floats.mean()) - 0.5) < 0.25 and len(np.unique(streams)) > 700


def test_iterations_have_numbers_of_their_own():
    text = """
@T.prim_func
def fill(A: T.Tensor((512,), "uint32"), B: T.Tensor((4, 8, 2), "uint32")):
    with T.Kernel(4, threads=64) as b:
        T.rng_init(42, 0, b * 128)
        for i, j in T.Parallel(1, 128):
            if b * 128 + j < 500:
                A[b * 128 + j] = T.rng_rand()
        for i in T.Parallel(8):
            B[b, i, 0] = T.rng_rand()
            B[b, i, 1] = T.rng_rand()
"""
    stream = philox(np.uint64(42), np.uint64(0), np.arange(1024))
    a = np.where(np.arange(512) < 500, stream[:512], 7).astype(np.uint32)
    later = np.stack([stream[128 * (b + 1) : 128 * (b + 1) + 16].reshape(2, 8).T for b in range(4)])
    check(text, {"A": np.full(512, 7, np.uint32), "B": poison((4, 8, 2), np.uint32)}, {"A": a, "B": later})


@pytest.mark.parametrize("bad, code", [
    ("A[0] = T.rng_rand()", "TL0205"), ('T.rng_init(1)\n        A[0] = T.rng_rand_float(dist="normal")', "TL0204"),
    ("T.rng_init(1)\n        for i in T.Parallel(8):\n            for k in T.serial(2):\n                A[i] = T.rng_rand_float()", "TL0205"),
])  # fmt: skip
def test_draws_without_a_stream_are_refused(bad, code):
    text = f'@T.prim_func\ndef f(A: T.Tensor((8,), "float32")):\n    with T.Kernel(1, threads=32):\n        {bad}\n'
    assert refused(text).code == code
