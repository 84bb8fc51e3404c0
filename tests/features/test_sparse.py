"""T.gemm_sp: operands that keep two of every four elements, in both orders of A, E and B."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.features.kit import check, poison, refused
from tests.toolchain import needs_gxx

pytestmark = needs_gxx

TEXT = """
@tilelang.jit
def product(M, N, K, dtype="{dtype}", acc="{acc}", meta="{meta}"):
    per = T.dtype(meta).bits
    @T.prim_func
    def main(A: T.Tensor({A}, dtype), E: T.Tensor({E}, meta), B: T.Tensor({B}, dtype), C: T.Tensor((M, N), acc)):
        with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, 32), threads=64) as (bx, by):
            a = T.alloc_shared({a}, dtype)
            e = T.alloc_shared({e}, meta)
            w = T.alloc_shared({b}, dtype)
            c = T.alloc_fragment((32, 32), acc)
            T.clear(c)
            for k in T.Pipelined(K // 64, num_stages=2):
                T.copy(A[{at}], a)
                T.copy(E[{et}], e)
                T.copy(B[{bt}], w)
                T.gemm_sp(a, e, w, c, transpose_A={tA}, transpose_E={tE}, transpose_B={tB})
            T.copy(c, C[by * 32, bx * 32])
    return main
"""


def sparse(rng: np.random.Generator, m: int, k: int, bits: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A dense matrix with two of every four elements, what is kept of it, and the marks."""
    places = np.sort(np.array([rng.permutation(4)[:2] for _ in range(m * k // 4)]), 1)
    kept = rng.integers(1, 4, (m * k // 4, 2))
    dense = np.zeros((m * k // 4, 4), np.int64)
    np.put_along_axis(dense, places, kept, 1)
    codes = (places[:, 0] | places[:, 1] << 2).astype(np.uint64).reshape(m, k // bits, bits // 4)
    marks = (codes << (4 * np.arange(bits // 4, dtype=np.uint64))).sum(-1).astype(np.uint64)
    return dense.reshape(m, k), kept.reshape(m, k // 2), marks.astype(f"u{bits // 8}").view(f"i{bits // 8}")


@pytest.mark.parametrize(
    ("dtype", "meta", "turned"),
    [("float16", "int16", (0, 0, 0)), ("bfloat16", "int16", (1, 0, 1)), ("int8", "int32", (0, 1, 1)), ("float16", "uint8", (1, 1, 0))],
)
def test_sparse_product(dtype: str, meta: str, turned: tuple[int, int, int]) -> None:
    rng = np.random.default_rng()
    m, n, k, bits = 64, 32, 128, np.dtype(meta).itemsize * 8
    dense, kept, marks = sparse(rng, m, k, bits)
    w = rng.integers(-3, 4, (k, n))
    kind = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "int8": np.int8}[dtype]
    acc = "int32" if dtype == "int8" else "float32"

    def shape(rows: str, columns: str, turn: int) -> str:
        return f"({columns}, {rows})" if turn else f"({rows}, {columns})"

    tA, tE, tB = turned
    text = TEXT.format(
        dtype=dtype, acc=acc, meta=meta, A=shape("M", "K // 2", tA), E=shape("M", "K // per", tE), B=shape("K", "N", tB),
        a=shape("32", "32", tA), e=shape("32", "64 // per", tE), b=shape("64", "32", tB), at=shape("by * 32", "k * 32", tA)[1:-1],
        et=shape("by * 32", "k * 64 // per", tE)[1:-1], bt=shape("k * 64", "bx * 32", tB)[1:-1], tA=bool(tA), tE=bool(tE), tB=bool(tB),
    )  # fmt: skip

    def turn(x: np.ndarray, by: int) -> np.ndarray:
        return np.ascontiguousarray(x.T if by else x)

    values = {
        "A": turn(kept.astype(kind), tA), "E": turn(marks.view(meta), tE), "B": turn(w.astype(kind), tB), "C": poison((m, n), acc),
    }  # fmt: skip
    check(text, values, {"C": (dense @ w).astype(acc)}, defines={"M": m, "N": n, "K": k})


@pytest.mark.parametrize(
    ("call", "code"),
    [("a, w, e, c", "TL0321"), ("a, a, w, c", "TL0321"), ("a, e[0:16, :], w, c", "TL0320"), ("a, e, w[0:32, :], c", "TL0320")],
)
def test_operands_that_do_not_fit(call: str, code: str) -> None:
    text = f"""
@T.prim_func
def k(O: T.Tensor((32, 32), "float32")):
    with T.Kernel(1, threads=64):
        a = T.alloc_shared((32, 32), "float16")
        e = T.alloc_shared((32, 4), "int16")
        w = T.alloc_shared((64, 32), "float16")
        c = T.alloc_fragment((32, 32), "float32")
        T.gemm_sp({call})
"""
    assert refused(text).code == code


def test_reordered_metadata_are_refused() -> None:
    text = """
from tilelang.layout import make_cutlass_metadata_layout
@T.prim_func
def k(E: T.Tensor((32, 4), "int16")):
    with T.Kernel(1, threads=64):
        T.annotate_layout({E: make_cutlass_metadata_layout(E, mma_dtype="float16", arch="8.0")})
"""
    found = refused(text)
    assert found.code == "TL0204" and "order of the rows" in found.help
