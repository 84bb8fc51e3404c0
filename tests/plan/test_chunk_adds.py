"""Atomic additions to neighbours: one instruction for several of them, where the target has it and they lie side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compiling import MODES, compile_text, run_emulated
from tests.toolchain import needs_gxx

TEXT = """import tilelang.language as T
@T.prim_func
def add(X: T.Tensor((192, 40), "{dtype}"), C: T.Tensor((64, 40), "{dtype}")):
    with T.Kernel(3, threads=64) as b:
        f = T.alloc_fragment((64, 40), "{dtype}")
        T.copy(X[b * 64, 0], f)
        for i, j in T.Parallel(64, 40):
            {body}
"""
PLAIN = "T.atomic_add(C[i, j], f[i, j])"
WIDTHS = {"float32": 4, "float16": 8, "bfloat16": 8}


def kernel(dtype: str = "float32", body: str = PLAIN) -> str:
    return TEXT.format(dtype=dtype, body=body)


@pytest.mark.parametrize("dtype", WIDTHS)
def test_one_instruction_adds_16_bytes(dtype: str) -> None:
    text = compile_text(kernel(dtype), arch="sm_90").cu
    assert f"vec<{ {'float32': 'float', 'float16': 'half_t'}.get(dtype, 'bfloat16_t')}, {WIDTHS[dtype]}> C_v" in text
    assert "atomic_add_vec(" in text
    assert "atomic_add_vec" not in compile_text(kernel(dtype), arch="sm_80").cu


@pytest.mark.parametrize(
    "body",
    [
        "old = T.atomic_add(C[i, j], f[i, j], return_prev=True)",
        'T.atomic_add(C[i, j], f[i, j], memory_order="release")',
        "T.atomic_max(C[i, j], f[i, j])",
        "T.atomic_add(C[j, i % 40], f[i, j])",
        "if f[i, j] > 0:\n                T.atomic_add(C[i, j], f[i, j])",
    ],
    ids=["asks for the old value", "orders memory", "another operation", "down a column", "under a condition of each element"],
)
def test_others_go_one_by_one(body: str) -> None:
    assert "atomic_add_vec" not in compile_text(kernel(body=body), arch="sm_90").cu


def test_integers_go_one_by_one() -> None:
    assert "atomic_add_vec" not in compile_text(kernel("int32"), arch="sm_90").cu


def values(dtype: Any, rows: int = 64, columns: int = 40) -> dict[str, Any]:
    """Small whole numbers, whose sums are exact in any order."""
    rng = np.random.default_rng()
    return {"X": rng.integers(-8, 9, (192, columns)).astype(dtype), "C": rng.integers(-8, 9, (rows, columns)).astype(dtype)}


@needs_gxx
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_all_of_it_is_added(dtype: str, mode: str) -> None:
    v = values(dtype)
    got = run_emulated(compile_text(kernel(dtype), arch="sm_90"), v, mode)["C"]
    assert np.array_equal(got, v["C"] + v["X"].reshape(3, 64, 40).sum(0, dtype=dtype))


RAGGED = """import tilelang.language as T
M, N = T.dynamic("M"), T.dynamic("N")
@T.prim_func
def add(X: T.Tensor((M, N), "float32"), C: T.Tensor((M, N), "float32"), S: T.Tensor((N,), "float32")):
    with T.Kernel(T.ceildiv(M, 32), T.ceildiv(N, 64), threads=128) as (by, bx):
        f = T.alloc_fragment((32, 64), "float32")
        s = T.alloc_fragment((64,), "float32")
        T.copy(X[by * 32, bx * 64], f)
        T.reduce_sum(f, s, dim=0)
        for i, j in T.Parallel(32, 64):
            if by * 32 + i < M - 3:
                T.atomic_add(C[by * 32 + i, bx * 64 + j], f[i, j] * 2)
        T.atomic_add(S[bx * 64], s)
"""


@needs_gxx
@pytest.mark.parametrize("n", [200, 203])
def test_nothing_is_added_out_of_range_or_twice(n: int) -> None:
    compiled = compile_text(RAGGED, arch="sm_90")
    assert "atomic_add_vec(&C" in compiled.cu.replace("C + ", "&C + ") or "atomic_add_vec(" in compiled.cu
    rng = np.random.default_rng()
    m = 77
    v = {"X": rng.integers(-9, 9, (m, n)).astype(np.float32), "C": np.zeros((m, n), np.float32), "S": np.zeros(n, np.float32), "M": m, "N": n}
    got = run_emulated(compiled, v)
    want = 2 * v["X"]
    want[m - 3 :] = 0
    assert np.array_equal(got["C"], want) and np.array_equal(got["S"], v["X"].sum(0))


SPLIT = """import tilelang.language as T
@T.prim_func
def gemm(A: T.Tensor((128, 256), "float16"), B: T.Tensor((256, 128), "float16"), C: T.Tensor((128, 128), "float32")):
    with T.Kernel(1, 1, 4, threads=128) as (bx, by, bz):
        A_s = T.alloc_shared((128, 32), "float16")
        B_s = T.alloc_shared((32, 128), "float16")
        acc = T.alloc_fragment((128, 128), "float32")
        T.clear(acc)
        for k in T.Pipelined(2, num_stages=2):
            T.copy(A[by * 128, bz * 64 + k * 32], A_s)
            T.copy(B[bz * 64 + k * 32, bx * 128], B_s)
            T.gemm(A_s, B_s, acc)
        for i, j in T.Parallel(128, 128):
            T.atomic_add(C[by * 128 + i, bx * 128 + j], acc[i, j])
"""


@needs_gxx
@pytest.mark.parametrize("arch", ["sm_90", "sm_90a"])
def test_parts_of_a_product_are_added_by_pairs(arch: str) -> None:
    compiled = compile_text(SPLIT, arch=arch)
    assert "vec<float, 2> C_v" in compiled.cu and "atomic_add_vec(" in compiled.cu
    rng = np.random.default_rng()
    v = {"A": rng.standard_normal((128, 256)).astype(np.float16), "B": rng.standard_normal((256, 128)).astype(np.float16)}
    got = run_emulated(compiled, {**v, "C": np.ones((128, 128), np.float32)})["C"]
    want = v["A"].astype(np.float64) @ v["B"].astype(np.float64) + 1
    assert np.linalg.norm(got - want) <= 1e-5 * np.linalg.norm(want)
