"""Products that authors write warp by warp with TensorCoreIntrinEmitter."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.features.kit import check, poison, refused

RNG = np.random.default_rng(16)

TEXT = """
from tilelang.cuda.intrinsics import get_swizzle_layout, make_mma_swizzle_layout
from tilelang.cuda.intrinsics.macro.mma_macro_generator import TensorCoreIntrinEmitter

def swizzled(tile):
    def place(i, j):
        return list(get_swizzle_layout(i, j, tile.shape[-1], tile.dtype))
    return T.Layout(tile.shape, place)

@tilelang.jit
def product(A, B, a_t: bool, b_t: bool, kind="float16", acc="float32", to="blocks", rows=32, columns=16, clear="T.clear"):
    M, N, K = 128, 64, 96
    chunk = 32
    A: T.Tensor((K, M) if a_t else (M, K), kind)
    B: T.Tensor((N, K) if b_t else (K, N), kind)
    C = T.empty((M, N), acc)
    mma = TensorCoreIntrinEmitter(a_dtype=kind, b_dtype=kind, accum_dtype=acc, a_transposed=a_t, b_transposed=b_t, block_row_warps=2,
                                  block_col_warps=2, warp_row_tiles=rows, warp_col_tiles=columns, chunk=chunk)
    m, n = 2 * rows, 2 * columns
    with T.Kernel(T.ceildiv(N, n), T.ceildiv(M, m), threads=mma.threads) as (bx, by):
        a_s = T.alloc_shared((chunk, m) if a_t else (m, chunk), kind)
        b_s = T.alloc_shared((n, chunk) if b_t else (chunk, n), kind)
        c_s = T.alloc_shared((m // 16, n // mma.micro_size_y, 16, mma.micro_size_y), acc)
        flat = T.alloc_shared((m, n), acc)
        a_l = T.alloc_local((mma.warp_rows * mma.local_size_a), kind)
        b_l = T.alloc_local((mma.warp_cols * mma.local_size_b), kind)
        c_l = T.alloc_local((mma.warp_rows * mma.warp_cols * mma.local_size_out), acc)
        T.annotate_layout({a_s: swizzled(a_s), b_s: make_mma_swizzle_layout(b_s)})
        if clear == "T.clear":
            T.clear(c_l)
        else:
            for i in T.serial(mma.warp_rows * mma.warp_cols * mma.local_size_out):
                c_l[i] = 0
        for ko in T.Pipelined(K // chunk, num_stages=2):
            T.copy(A[ko * chunk, by * m] if a_t else A[by * m, ko * chunk], a_s)
            T.copy(B[bx * n, ko * chunk] if b_t else B[ko * chunk, bx * n], b_s)
            for ki in T.serial(0, chunk // mma.micro_size_k):
                mma.ldmatrix_a(a_l, a_s, ki)
                mma.ldmatrix_b(b_l, b_s, ki)
                mma.mma(a_l, b_l, c_l)
        if to == "tensor":
            mma.stmatrix(c_l, C, pid_m=by, pid_n=bx)
        elif to == "tile":
            mma.stmatrix(c_l, flat)
            T.copy(flat, C[by * m, bx * n])
        else:
            mma.stmatrix(c_l, c_s)
            for i, j in T.Parallel(m, n):
                C[by * m + i, bx * n + j] = c_s[i // 16, j // mma.micro_size_y, i % 16, j % mma.micro_size_y]
    return C
"""
FORMS = (
    {"a_t": False, "b_t": True},
    {"a_t": True, "b_t": False, "to": "tile", "columns": 8, "clear": "loop"},
    {"a_t": False, "b_t": False, "to": "tensor", "kind": "bfloat16"},
    {"a_t": False, "b_t": True, "kind": "int8", "acc": "int32", "to": "tensor", "rows": 16},
)


@pytest.mark.parametrize("form", FORMS, ids=lambda f: "-".join(map(str, f.values())))
def test_products_of_warps(form: dict[str, object]) -> None:
    dtype = {"bfloat16": ml_dtypes.bfloat16, "int8": np.int8}.get(str(form.get("kind")), np.float16)
    acc = np.int32 if dtype is np.int8 else np.float32
    a, b = (RNG.integers(-4, 5, shape).astype(dtype) for shape in ((128, 96), (96, 64)))
    values = {"A": a.T.copy() if form["a_t"] else a, "B": b.T.copy() if form["b_t"] else b, "C": poison((128, 64), acc)}
    compiled = check(TEXT, values, {"C": a.astype(acc) @ b.astype(acc)}, kernels=("product",), defines=form)
    assert "mma_m16n8k" in compiled.cu and "ldmatrix" in compiled.cu


WRONG = {
    "c_l[0] = c_l[0] + 1": ("TL0204", "only the emitter knows"),
    "mma.mma(a_l, a_l, c_l)": ("TL0320", "holds"),
    "mma.mma(a_s, b_l, c_l)": ("TL0322", "arrays of T.alloc_local"),
    "mma.mma(a_l, b_l, c_l, 1)": ("TL0204", "later part"),
    "mma.ldmatrix_c(a_l, a_s, ki)": ("TL0201", "ldmatrix_c"),
}


@pytest.mark.parametrize("line", WRONG)
def test_what_an_emitter_cannot_do_is_told(line: str) -> None:
    text = TEXT.replace("                mma.mma(a_l, b_l, c_l)\n", f"                mma.mma(a_l, b_l, c_l)\n                {line}\n")
    found = refused(text, kernels=("product",), defines={"a_t": False, "b_t": True})
    assert (found.code, WRONG[line][1] in found.message) == (WRONG[line][0], True), found


def test_other_thread_counts_are_told() -> None:
    found = refused(TEXT.replace("threads=mma.threads", "threads=64"), kernels=("product",), defines={"a_t": False, "b_t": True})
    assert found.code == "TL0402"
