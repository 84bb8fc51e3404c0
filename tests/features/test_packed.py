"""4-bit integers and floats, two a byte, and exponents of block scales: storage, arithmetic, products."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.features.kit import check, poison, refused
from tests.toolchain import needs_gxx, needs_nvrtc, nvrtc_compile

pytestmark = needs_gxx
F16, F32, I32, I8, U8 = np.float16, np.float32, np.int32, np.int8, np.uint8
HALVES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
FLOAT4 = np.concatenate([HALVES, -HALVES])


def pack(codes: np.ndarray, dtype: type = U8) -> np.ndarray:
    """4-bit codes, or integers of which the low bits count, two a byte."""
    low = codes.astype(np.int64) & 15
    return (low[..., 0::2] | low[..., 1::2] << 4).astype(U8).view(dtype)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@needs_nvrtc
def test_product_of_4_bit_integers(arch: str) -> None:
    text = """
@tilelang.jit
def mm(M, N, K, bM=32, bN=32, bK=32, dtype=T.int4):
    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), "int32")):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=128) as (bx, by):
            a = T.alloc_shared((bM, bK), dtype)
            b = T.alloc_shared((bN, bK), dtype)
            c = T.alloc_fragment((bM, bN), "int32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, bK), num_stages=2):
                T.copy(A[by * bM, k * bK], a)
                T.copy(B[bx * bN, k * bK], b)
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C[by * bM, bx * bN])
    return main
"""
    rng = np.random.default_rng()
    a, b = rng.integers(-8, 8, (64, 64)), rng.integers(-8, 8, (32, 64))
    values = {"A": pack(a, I8), "B": pack(b, I8), "C": poison((64, 32), I32)}
    compiled = check(text, values, {"C": a @ b.T}, defines={"M": 64, "N": 32, "K": 64}, arch=arch)
    nvrtc_compile(compiled.cu, arch)


def test_elements_of_a_byte() -> None:
    text = """
@T.prim_func
def k(
    A: T.Tensor((32, 64), "uint4"), O: T.Tensor((32, 64), "float16"), R: T.Tensor((32, 64), "uint4"), S: T.Tensor((32, 64), "int4"),
    Z: T.Tensor((4, 64), "int4"),
):
    with T.Kernel(2, threads=64) as b:
        s = T.alloc_shared((16, 64), T.uint4)
        f = T.alloc_fragment((16, 64), "uint4")
        T.copy(A[b * 16, 0], s)
        T.copy(s, f)
        for i, j in T.Parallel(16, 64):
            v = s[i, j]
            O[b * 16 + i, j] = T.cast(v, "float16") * 0.5 + A[b * 16 + i, 63 - j]
        T.copy(f, R[b * 16 : (b + 1) * 16, :])
        for i, j in T.Parallel(16, 64):
            x = f[i, j] + 3
            if x > 9:
                S[b * 16 + i, j] = x - 8
            else:
                S[b * 16 + i, j] = -x
        if b == 0:
            T.fill(Z, -3)
            Z[1, 3] = 5
            Z[1, 4] = -8
"""
    u = np.random.default_rng().integers(0, 16, (32, 64))
    z = np.full((4, 64), -3)
    z[1, 3:5] = 5, -8
    wanted = {
        "O": (u * 0.5 + u[:, ::-1]).astype(F16), "R": pack(u), "S": pack(np.where(u + 3 > 9, u - 5, -(u + 3)), I8), "Z": pack(z, I8),
    }  # fmt: skip
    kinds = {"R": (32, U8), "S": (32, I8)}
    empty = {"O": poison((32, 64), F16), "Z": poison((4, 32), I8)} | {n: poison((32, w), d) for n, (w, d) in kinds.items()}
    check(text, {"A": pack(u), **empty}, wanted)


def test_private_elements_and_one_thread_after_another() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((64,), "int4"), O: T.Tensor((64,), "int32"), P: T.Tensor((64,), "int4")):
    with T.Kernel(1, threads=32):
        t = T.get_thread_binding()
        own = T.alloc_local((2,), "int4")
        v = T.alloc_var("int4")
        for i in T.vectorized(2):
            own[i] = A[t * 2 + i]
        v = own[0] + own[1]
        O[t * 2] = v
        O[t * 2 + 1] = T.if_then_else(own[1] < 0, own[0], T.cast(20, "int4"))
        for i in T.serial(64):
            P[i] = A[63 - i]
"""
    a = np.random.default_rng().integers(-8, 8, 64)
    sums = ((a[::2] + a[1::2] + 8) & 15) - 8
    wanted = np.stack([sums, np.where(a[1::2] < 0, a[::2], 4)], 1).reshape(-1)
    values = {"A": pack(a, I8), "O": poison((64,), I32), "P": poison((32,), I8)}
    check(text, values, {"O": wanted, "P": pack(a[::-1], I8)})


def test_4_bit_floats_with_block_scales() -> None:
    text = """
@tilelang.jit
def mx(A, B, S, bM: int = 32, bN: int = 32, bK: int = 32):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((N, K), T.float4_e2m1fn)
    S: T.Tensor((N, K // 32), T.float8_e8m0fnu)
    C = T.empty((M, N), T.float32)
    with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=64) as (bx, by):
        a = T.alloc_shared((bM, bK), T.float16)
        b = T.alloc_shared((bN, bK), T.float4_e2m1fn)
        codes = T.alloc_fragment((bN, bK), T.float4_e2m1fn)
        wide = T.alloc_shared((bN, bK), T.float16)
        c = T.alloc_fragment((bM, bN), T.float32)
        T.clear(c)
        for k in T.Pipelined(K // bK, num_stages=2):
            T.copy(A[by * bM, k * bK], a)
            T.copy(B[bx * bN, k * bK], b)
            T.copy(b, codes)
            for i, j in T.Parallel(bN, bK):
                wide[i, j] = codes[i, j].astype(T.float32) * S[bx * bN + i, k]
            T.gemm(a, wide, c, transpose_B=True)
        T.copy(c, C[by * bM, bx * bN])
    return C
"""
    rng = np.random.default_rng()
    a, codes = rng.standard_normal((32, 64)).astype(F16), rng.integers(0, 16, (64, 64))
    scales = rng.integers(122, 130, (64, 2)).astype(U8)
    w = FLOAT4[codes] * np.repeat(2.0 ** (scales.astype(int) - 127), 32, 1)
    values = {"A": a, "B": pack(codes), "S": scales, "C": poison((32, 64), F32)}
    check(text, values, {"C": a.astype(np.float64) @ w.T}, 1e-3, defines={"M": 32, "N": 64, "K": 64})


def test_rounding_to_4_bit_floats() -> None:
    text = """
@T.prim_func
def k(X: T.Tensor((8, 64), "float32"), Q: T.Tensor((8, 64), "float4_e2m1fn"), D: T.Tensor((8, 64), "float32")):
    with T.Kernel(1, threads=64):
        f = T.alloc_fragment((8, 64), "float32")
        q = T.alloc_fragment((8, 64), "float4_e2m1fn")
        s = T.alloc_shared((8, 64), "float4_e2m1fn")
        T.copy(X, f)
        T.copy(f, q)
        T.copy(q, s)
        T.copy(s, Q)
        T.copy(q, D)
"""
    x = np.random.default_rng().uniform(-7, 7, (8, 64)).astype(F32)
    x[:, :10] = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -5.0, -0.1, np.inf]
    codes = np.minimum(np.abs(x), 6).astype(ml_dtypes.float4_e2m1fn).view(U8) | np.signbit(x) * U8(8)
    check(text, {"X": x, "Q": poison((8, 32), U8), "D": poison((8, 64), F32)}, {"Q": pack(codes), "D": FLOAT4[codes].astype(F32)})


def test_bytes_seen_as_4_bit_floats() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((32, 64), "float4_e2m1fn"), B: T.Tensor((64, 32), "uint8"), C: T.Tensor((32, 64), "float32")):
    with T.Kernel(1, threads=64):
        a = T.alloc_shared((32, 64), "float4_e2m1fn")
        b = T.alloc_shared((64, 64), "float4_e2m1fn")
        c = T.alloc_fragment((32, 64), "float32")
        T.copy(A, a)
        T.copy(T.view(B, (64, 64), "float4_e2m1fn"), b)
        T.gemm(a, b, c, transpose_B=True, clear_accum=True)
        T.copy(c, C)
"""
    rng = np.random.default_rng()
    a, b = rng.integers(0, 16, (32, 64)), rng.integers(0, 16, (64, 64))
    check(text, {"A": pack(a), "B": pack(b), "C": poison((32, 64), F32)}, {"C": (FLOAT4[a] @ FLOAT4[b].T).astype(F32)})


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("A[T.get_thread_binding()] = 1", "TL0302"),
        ("for i in T.Parallel(32):\n            A[i + 1] = 1", "TL0302"),
        ("for i in T.Parallel(31):\n            A[i] = 1", "TL0302"),
        ("T.fill(A, 8)", "TL0303"),
        ("T.atomic_add(A[0], 1)", "TL0340"),
    ],
)
def test_bytes_that_two_threads_would_write(body: str, code: str) -> None:
    text = f"""
@T.prim_func
def k(A: T.Tensor((64,), "int4")):
    with T.Kernel(1, threads=64):
        {body}
"""
    assert refused(text).code == code


def test_types_of_other_machines() -> None:
    found = refused('@T.prim_func\ndef k(A: T.Tensor((64,), "float8_e4m3fnuz")):\n    with T.Kernel(1):\n        T.clear(A)\n')
    assert found.code == "TL0204"


def test_sizes_from_the_arrays_of_a_call() -> None:
    text = """
@tilelang.jit
def k(A, S):
    M, K = T.const("M, K")
    A: T.Tensor((M, K), T.uint4)
    S: T.Tensor((M, K // 32), T.float8_e8m0fnu)
    O = T.empty((M, K), T.float32)
    with T.Kernel(1, threads=32):
        for i, j in T.Parallel(M, K):
            O[i, j] = A[i, j] * S[i, j // 32]
    return O
"""
    rng = np.random.default_rng()
    a, s = rng.integers(0, 16, (4, 64)), rng.integers(120, 130, (4, 2)).astype(U8)
    wanted = (a * np.repeat(2.0 ** (s.astype(int) - 127), 32, 1)).astype(F32)
    args = {"A": ("uint8", (4, 32)), "S": ("uint8", (4, 2))}
    check(text, {"A": pack(a), "S": s, "O": poison((4, 64), F32)}, {"O": wanted}, args=args)
