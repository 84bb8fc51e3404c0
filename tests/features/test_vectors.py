"""Vector types in whole kernels: tensors, tiles and variables of them, slices, lanes, bits, packed arithmetic."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.features.kit import check, poison, refused

RNG = np.random.default_rng(7)


def floats(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(dtype)


def test_variables_tensors_and_slices() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((256,), "float32"), V: T.Tensor((64,), T.float32x4), B: T.Tensor((256,), "float32"), W: T.Tensor((64,), T.float32x4)):
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        v = T.alloc_var(T.float32x4)
        v = V[tx] * 2.0 + A[tx * 4:tx * 4 + 4]
        v -= T.float32x4(1.0, 2.0, 3.0, 4.0)
        B[tx * 4:tx * 4 + 4] = T.max(v, 0.0)
        W[tx] = T.Broadcast(T.extract_lane(v, 3), 4)
"""
    a, v = floats(256), floats(64, 4)
    want = v * np.float32(2) + a.reshape(64, 4) - np.arange(1, 5, dtype=np.float32)
    values = {"A": a, "V": v, "B": poison((256,), np.float32), "W": poison((64, 4), np.float32)}
    done = check(text, values, {"B": np.maximum(want, 0).ravel(), "W": np.repeat(want[:, 3:], 4, 1)})
    assert "store_vec" in done.cu


def test_a_tensor_of_vectors_moves_in_one_access() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((4, 32), "float16x8"), B: T.Tensor((32, 4), "float16x8")):
    with T.Kernel(1, threads=128):
        tx = T.get_thread_binding()
        x = A[tx // 32, tx % 32]
        B[tx % 32, tx // 32] = x
"""
    a = floats(4, 32, 8, dtype=np.float16)
    done = check(text, {"A": a, "B": poison((32, 4, 8), np.float16)}, {"B": a.transpose(1, 0, 2)})
    assert "load_vec<8>" in done.cu and "store_vec" in done.cu


def test_tiles_of_vectors() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((8, 16), T.int32x2), B: T.Tensor((16, 8), T.int32x2), C: T.Tensor((16, 8), "int32x2")):
    with T.Kernel(1, threads=32):
        s = T.alloc_shared((8, 16), T.int32x2)
        f = T.alloc_fragment((16, 8), "int32x2")
        T.copy(A, s)
        for i, j in T.Parallel(16, 8):
            f[i, j] = s[j, i] + 1
        T.copy(f, B)
        T.clear(f)
        T.copy(f, C)
"""
    a = RNG.integers(-1000, 1000, (8, 16, 2)).astype(np.int32)
    values = {"A": a, "B": poison((16, 8, 2), np.int32), "C": poison((16, 8, 2), np.int32)}
    check(text, values, {"B": a.transpose(1, 0, 2) + 1, "C": np.zeros((16, 8, 2), np.int32)})


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32"])
def test_packed_arithmetic(kind: str) -> None:
    text = f"""
@T.prim_func
def k(X: T.Tensor((64,), "{kind}"), Y: T.Tensor((64,), "{kind}"), Z: T.Tensor((7, 64), "{kind}")):
    with T.Kernel(1, threads=32):
        i = T.get_thread_binding() * 2
        x = T.{kind}x2(X[i], X[i + 1])
        y = Y[T.Ramp(i, 1, 2)]
        Z[0, i:i + 2] = T.add2(x, y)
        Z[1, i:i + 2] = T.sub2(x, y)
        Z[2, i:i + 2] = T.mul2(x, y)
        Z[3, i:i + 2] = T.max2(x, y)
        Z[4, i:i + 2] = T.min2(x, y)
        Z[5, i:i + 2] = T.abs2(x)
        Z[6, i:i + 2] = T.fma2(x, y, x)
"""
    dtype = {"bfloat16": ml_dtypes.bfloat16}.get(kind) or np.dtype(kind)
    x, y = (RNG.integers(-16, 16, 64).astype(dtype) for _ in range(2))
    wide = [v.astype(np.float64) for v in (x, y)]
    want = np.stack([wide[0] + wide[1], wide[0] - wide[1], wide[0] * wide[1], np.maximum(*wide), np.minimum(*wide), np.abs(wide[0]),
                     wide[0] * wide[1] + wide[0]]).astype(dtype)  # fmt: skip
    check(text, {"X": x, "Y": y, "Z": np.zeros((7, 64), dtype)}, {"Z": want})


def test_bits_of_vectors() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((32,), "uint32"), H: T.Tensor((32,), T.float16x2), B: T.Tensor((32,), T.uint8x4), C: T.Tensor((32,), "uint32"),
      D: T.Tensor((16,), "uint64"), E: T.Tensor((32, 2), "float32")):
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        T_bytes = T.reinterpret(A[tx], T.uint8x4)
        B[tx] = T_bytes
        pair = T.reinterpret(A[tx], "float16x2")
        H[tx] = pair
        C[tx] = T.reinterpret(T.uint32, pair)
        wide = T.cast(pair, "float32x2")
        E[tx, 0] = T.extract_lane(wide, 0)
        E[tx, 1] = T.Shuffle([wide], [1])
        if tx < 16:
            D[tx] = T.reinterpret(A[tx * 2:tx * 2 + 2], "uint64")
"""
    halves = floats(32, 2, dtype=np.float16)
    a = halves.view(np.uint32).ravel()
    values = {"A": a, "H": poison((32, 2), np.float16), "B": poison((32, 4), np.uint8), "C": poison((32,), np.uint32),
              "D": poison((16,), np.uint64), "E": poison((32, 2), np.float32)}  # fmt: skip
    want = {"B": a.view(np.uint8).reshape(32, 4), "H": halves, "C": a, "D": a.view(np.uint64), "E": halves.astype(np.float32)}
    check(text, values, want)


@pytest.mark.parametrize(("bits", "kind"), [(64, "float32"), (128, "float16"), (256, "float32"), (128, "uint8")])
def test_wide_loads_and_stores(bits: int, kind: str) -> None:
    n = bits // 8 // np.dtype(kind).itemsize
    text = f"""
@T.prim_func
def k(A: T.Tensor((32 * {n},), "{kind}"), B: T.Tensor((32 * {n},), "{kind}"), C: T.Tensor((32 * {n},), "{kind}")):
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        words = T.ldg{bits}(A[tx * {n}:tx * {n} + {n}], pred=tx % 2 == 0)
        B[tx * {n}:tx * {n} + {n}] = T.reinterpret(words, T.{kind}x{n})
        T.stg{bits}(C[tx * {n}], T.reinterpret(T.{kind}x{n}, words), pred=tx < 20)
"""
    a = RNG.integers(0, 100, 32 * n).astype(kind)
    c = poison((32 * n,), kind)
    read = a.reshape(32, n) * (np.arange(32)[:, None] % 2 == 0).astype(kind)
    left = c.reshape(32, n).copy()
    left[:20] = read[:20]
    done = check(text, {"A": a, "B": poison((32 * n,), kind), "C": c}, {"B": read.ravel(), "C": left.ravel()})
    assert "load_vec" in done.cu and "store_vec" in done.cu


def test_all_lanes_are_computed_before_the_first_is_stored() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((32,), T.int32x4)):
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        v = T.alloc_local((1,), T.int32x4)
        v[0] = A[tx]
        v[0] = T.Shuffle([v[0]], [3, 2, 1, 0])
        A[tx] = v[0]
"""
    a = RNG.integers(-9, 9, (32, 4)).astype(np.int32)
    check(text, {"A": a}, {"A": a[:, ::-1]})


def test_selects_comparisons_and_functions() -> None:
    text = """
@T.macro
def smaller(x, y):
    return T.if_then_else(x < y, x, y)

@T.prim_func
def k(A: T.Tensor((32,), T.float32x2), B: T.Tensor((32,), T.float32x2)):
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        for step in T.serial(2):
            x = A[tx]
            B[tx] = T.sqrt(T.abs(smaller(x, -x))) + T.float32(step)
"""
    a = floats(32, 2)
    check(text, {"A": a, "B": poison((32, 2), np.float32)}, {"B": np.sqrt(np.abs(a)) + 1}, tolerance=1e-6)


def test_eager_outputs_and_attributes() -> None:
    text = """
@tilelang.jit
def k(A):
    N = T.const("N")
    A: T.Tensor((N,), T.float32x4)
    C = T.empty((N,), T.float32x4)
    with T.Kernel(T.ceildiv(N, 32), threads=32) as bx:
        i = bx * 32 + T.get_thread_binding()
        if i < A.shape[0]:
            C[i] = A[i] * A.dtype.lanes
    return C
"""
    a = floats(50, 4)
    check(text, {"A": a, "C": poison((50, 4), np.float32)}, {"C": a * 4})


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("x = T.alloc_var('float32')\n        x = V[0]", "TL0301"),
        ("B[0] = V[0]", "TL0301"),
        ("V[0] = T.float32x2(1.0, 2.0)", "TL0301"),
        ("V[0] = T.float32x4(1.0, 2.0)", "TL0203"),
        ("B[V[0]] = 1.0", "TL0306"),
        ("B[0:4] = 1.0", "TL0308"),
    ],
)
def test_vectors_and_numbers_are_not_mixed_up(line: str, code: str) -> None:
    text = f"""
@T.prim_func
def k(V: T.Tensor((4,), T.float32x4), B: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=32):
        {line}
"""
    assert refused(text).code == code


def test_a_scalar_parameter_cannot_be_a_vector() -> None:
    text = """
@T.prim_func
def k(x: T.float32x4, B: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=32):
        B[0] = 1.0
"""
    assert refused(text).code == "TL0207"


def test_vectors_in_place_exchanged_and_by_address() -> None:
    text = """
@T.prim_func
def k(V: T.Tensor((32,), T.float32x4), A: T.Tensor((128,), "float32"), S: T.Tensor((1,), T.float32x4), W: T.Tensor((32,), T.float32x4),
      X: T.Tensor((32,), T.float32x4)):
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        V[tx] += 1.0
        A[tx * 4:tx * 4 + 4] *= V[tx]
        A[T.Ramp(tx * 4, 1, 4)] -= 0.5
        T.atomic_add(S[0], V[tx])
        W[tx] = T.shfl_xor(V[tx], 1)
        words = T.ldg128(W[tx])
        T.stg128(X[tx], words)
        V[tx] = max(V[tx], W[tx])
"""
    v, a = RNG.integers(-8, 8, (32, 4)).astype(np.float32), floats(128)
    one = v + 1
    swapped = one.reshape(16, 2, 4)[:, ::-1].reshape(32, 4)
    values = {"V": v, "A": a, "S": np.zeros((1, 4), np.float32), "W": poison((32, 4), np.float32), "X": poison((32, 4), np.float32)}
    want = {"V": np.maximum(one, swapped), "A": a * one.ravel() - np.float32(0.5), "S": one.sum(0, keepdims=True), "W": swapped, "X": swapped}
    check(text, values, want)


def test_slices_as_tiles_stay_tiles() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((4,), "float32"), C: T.Tensor((4,), "float32")):
    with T.Kernel(1, threads=32):
        s = T.alloc_shared((4,), "float32")
        T.copy(A, s)
        T.atomic_add(C[0:4], s[0:4])
"""
    a = floats(4)
    check(text, {"A": a, "C": np.zeros(4, np.float32)}, {"C": a})


def test_pairs_of_4_bit_floats() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((4, 16), T.float4_e2m1fnx2), B: T.Tensor((4, 32), "float16"), C: T.Tensor((4, 16), T.float4_e2m1fnx2)):
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        for r in T.serial(2):
            n = r * 32 + tx
            B[n // 16, n % 16 * 2:n % 16 * 2 + 2] = T.cast(A[n // 16, n % 16], "float16x2")
        for i, j in T.Parallel(4, 16):
            C[i, j] = A[3 - i, j]
"""
    a = RNG.integers(0, 256, (4, 16)).astype(np.uint8)
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float16)
    table = np.concatenate([table, -table])
    want = np.stack([table[a & 15], table[a >> 4]], -1).reshape(4, 32)
    values = {"A": a[..., None], "B": poison((4, 32), np.float16), "C": poison((4, 16, 1), np.uint8)}
    check(text, values, {"B": want, "C": a[::-1, :, None]})
