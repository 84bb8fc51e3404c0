"""Threads by number and what they exchange: shuffles, votes, reductions of a warp, barriers with votes."""

import ml_dtypes
import numpy as np
import pytest

from tests.features.kit import check, poison, refused

KINDS = {
    "int8": np.int8, "uint16": np.uint16, "int32": np.int32, "uint64": np.uint64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32, "float64": np.float64,
}  # fmt: skip


def test_numbers_of_threads():
    text = """
@T.prim_func
def numbers(O: T.Tensor((6, 256), "int32")):
    with T.Kernel(1, threads=(16, 8, 2)):
        tx, ty, tz = T.get_thread_bindings()
        n = tx + 16 * ty + 128 * tz
        O[0, n] = T.get_lane_idx()
        O[1, n] = T.get_warp_idx()
        O[2, n] = T.get_warp_group_idx()
        O[3, n] = T.cast(T.shuffle_elect(64), "int32")
        O[4, n] = T.cast(T.shuffle_elect(0), "int32")
        O[5, n] = T.get_warp_idx_sync() * 100 + T.cast(T.elect_one_sync(), "int32")
"""
    n = np.arange(256)
    wanted = np.stack([n % 32, n // 32, n // 128, n % 64 == 0, n == 0, n // 32 * 100 + (n % 32 == 0)])
    check(text, {"O": poison((6, 256), np.int32)}, {"O": wanted})


def test_shuffles_of_every_width_and_type():
    params = ", ".join(f'X_{t}: T.Tensor((64,), "{t}"), O_{t}: T.Tensor((5, 64), "{t}")' for t in KINDS)
    body = "".join(
        f"        x = X_{t}[tx]\n        O_{t}[0, tx] = T.shfl_xor(x, 5)\n        O_{t}[1, tx] = T.shfl_down(x, 3, 8)\n"
        f"        O_{t}[2, tx] = T.shfl_up(x, 2, width=16)\n        O_{t}[3, tx] = T.shfl_sync(x, tx * 7 % 32)\n"
        f"        O_{t}[4, tx] = T.tvm_warp_shuffle(-1, x, 3, 4, 32)\n" for t in KINDS
    )
    text = f"@T.prim_func\ndef shuffles({params}):\n    with T.Kernel(1, threads=64):\n        tx = T.get_thread_binding()\n{body}"
    n = np.arange(64)
    lane, first = n % 32, n // 32 * 32
    places = [
        n ^ 5, np.where(n % 8 + 3 < 8, n + 3, n), np.where(n % 16 >= 2, n - 2, n), first + n * 7 % 32, n // 4 * 4 + 3,
    ]  # fmt: skip
    assert all((p // 32 == n // 32).all() for p in places) and lane.max() == 31
    values, wanted = {}, {}
    for t, kind in KINDS.items():
        x = np.random.default_rng().integers(-100 if t[0] != "u" else 0, 100, 64).astype(kind)
        values |= {f"X_{t}": x, f"O_{t}": poison((5, 64), np.uint8).astype(kind)}
        wanted[f"O_{t}"] = np.stack([x[p] for p in places])
    check(text, values, wanted)


def test_votes_and_matches():
    text = """
@T.prim_func
def votes(X: T.Tensor((96,), "int32"), F: T.Tensor((96,), "float32"), O: T.Tensor((9, 96), "int64"), N: T.Tensor((3, 96), "int32")):
    with T.Kernel(1, threads=96):
        tx = T.get_thread_binding()
        x = X[tx]
        O[0, tx] = T.cast(T.ballot(x > 3), "int64")
        O[1, tx] = T.any_sync(x > 8)
        O[2, tx] = T.all_sync(x < 9)
        O[3, tx] = T.cast(T.match_any_sync(x), "int64")
        O[4, tx] = T.cast(T.match_all_sync(x // 100), "int64")
        O[5, tx] = T.cast(T.match_all_sync(F[tx]), "int64")
        O[6, tx] = T.cast(T.activemask(), "int64")
        O[7, tx] = T.cast(T.ballot_sync(tx % 2 == 0), "int64")
        O[8, tx] = T.__ffs(x)
        N[0, tx] = T.syncthreads_count(x > 3)
        N[1, tx] = T.syncthreads_and(x < 10)
        N[2, tx] = T.syncthreads_or(x > 9)
"""
    x = np.random.default_rng().integers(0, 10, 96).astype(np.int32)
    f = np.repeat(np.array([1.5, -0.0, 2.0], np.float32), 32)
    f[40] = 0.0
    warps = x.reshape(3, 32)
    bits = 1 << np.arange(32, dtype=np.int64)
    per_warp = lambda v: np.repeat(v, 32)  # noqa: E731
    full = 2**32 - 1
    wanted = np.stack([
        per_warp(((warps > 3) * bits).sum(1)), per_warp((warps > 8).any(1)), per_warp((warps < 9).all(1)),
        np.concatenate([((w[:, None] == w[None, :]) * bits).sum(1) for w in warps]), np.full(96, full),
        np.repeat([full, 0, full], 32), np.full(96, full), np.full(96, bits[::2].sum()), [(v & -v).bit_length() for v in x.tolist()],
    ])  # fmt: skip
    counts = np.stack([np.full(96, (x > 3).sum()), np.ones(96), np.zeros(96)])
    values = {"X": x, "F": f, "O": poison((9, 96), np.int64), "N": poison((3, 96), np.int32)}
    check(text, values, {"O": wanted, "N": counts})


def test_reductions_of_a_warp():
    text = """
@T.prim_func
def totals(X: T.Tensor((64,), "float32"), K: T.Tensor((64,), "int32"), H: T.Tensor((64,), "float16"), O: T.Tensor((2, 64), "float32"),
           B: T.Tensor((3, 64), "int32"), S: T.Tensor((64,), "float16")):
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        O[0, tx] = T.warp_reduce_sum(X[tx])
        O[1, tx] = T.warp_reduce_max(X[tx])
        B[0, tx] = T.warp_reduce_min(K[tx])
        B[1, tx] = T.warp_reduce_bitand(K[tx])
        B[2, tx] = T.warp_reduce_bitor(K[tx])
        S[tx] = T.warp_reduce_sum(H[tx])
"""
    rng = np.random.default_rng()
    x, k, h = rng.standard_normal(64).astype(np.float32), rng.integers(0, 2**30, 64).astype(np.int32), rng.integers(-3, 4, 64).astype(np.float16)
    rows = lambda a: a.reshape(2, 32)  # noqa: E731
    sums = np.repeat(rows(x).astype(np.float64).sum(1), 32)
    values = {"X": x, "K": k, "H": h, "O": poison((2, 64), np.float32), "B": poison((3, 64), np.int32), "S": poison((64,), np.float16)}
    bits = np.stack([np.repeat(f(rows(k), axis=1), 32) for f in (np.min, np.bitwise_and.reduce, np.bitwise_or.reduce)])
    wanted = {"O": np.stack([sums, np.repeat(rows(x).max(1), 32)]), "B": bits, "S": np.repeat(rows(h).sum(1), 32)}
    check(text, values, wanted, 1e-5)


def test_elements_that_are_set():
    text = """
@T.prim_func
def masks(A: T.Tensor((32, 8), "bool"), O: T.Tensor((2, 32), "int32")):
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        O[0, tx] = T.cast(T.any_of(A[tx, 0:4]), "int32")
        O[1, tx] = T.cast(T.all_of(A[tx, 4:8]), "int32")
"""
    a = np.random.default_rng().random((32, 8)) < 0.6
    check(text, {"A": a, "O": poison((2, 32), np.int32)}, {"O": np.stack([a[:, :4].any(1), a[:, 4:].all(1)])})


@pytest.mark.parametrize("bad, code", [
    ("for i in T.Parallel(32):\n            A[i] = T.shfl_xor(A[i], 1)", "TL0205"), ("A[0] = T.shfl_xor(A[0], 1, 5)", "TL0206"),
    ("A[0] = T.warp_reduce_bitor(A[0])", "TL0315"), ("x = T.any_of(A)", "TL0206"),
])  # fmt: skip
def test_exchanges_that_have_no_meaning_are_refused(bad, code):
    text = f'@T.prim_func\ndef f(A: T.Tensor((128,), "float32")):\n    with T.Kernel(1, threads=32):\n        {bad}\n'
    assert refused(text).code == code


def _nth_set(mask: int, base: int, offset: int) -> int:
    if offset == 0:
        return base if mask >> base & 1 else 0xFFFFFFFF
    places = [i for i in (range(base, 32) if offset > 0 else range(base, -1, -1)) if mask >> i & 1]
    return places[abs(offset) - 1] if abs(offset) <= len(places) else 0xFFFFFFFF


def test_place_of_the_nth_bit_that_is_set():
    text = """
@T.prim_func
def k(M: T.Tensor((256,), "uint32"), B: T.Tensor((256,), "int32"), N: T.Tensor((256,), "int32"), O: T.Tensor((256,), "uint32")):
    with T.Kernel(1, threads=64):
        with T.sblock("root"):
            T.reads(M)
            T.writes(O)
            for i in T.Parallel(256):
                O[i] = T.__fns(M[i], B[i], N[i])
"""
    rng = np.random.default_rng()
    m = rng.integers(0, 2**32, 256).astype(np.uint32)
    m[:3] = 0, 0xFFFFFFFF, 1 << 31
    base, n = rng.integers(0, 32, 256).astype(np.int32), rng.integers(-8, 9, 256).astype(np.int32)
    wanted = np.array([_nth_set(int(a), int(b), int(c)) for a, b, c in zip(m, base, n, strict=True)], np.uint32)
    check(text, {"M": m, "B": base, "N": n, "O": poison((256,), np.uint32)}, {"O": wanted})
