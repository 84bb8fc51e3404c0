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
    [
        ("float16", "int16", (0, 0, 0)), ("bfloat16", "int16", (1, 0, 1)), ("int8", "int32", (0, 1, 1)), ("float16", "uint8", (1, 1, 0)),
        ("int8", "int16", (1, 0, 0)), ("int8", "uint8", (0, 0, 1)),
    ],
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
    done = check(text, values, {"C": (dense @ w).astype(acc)}, defines={"M": m, "N": n, "K": k})
    instruction = {"float16": "k32_f16_f32", "bfloat16": "k32_bf16_f32", "int8": "k64_s8_s32"}[dtype]
    assert f"mma_sp_m16n8{instruction}(c" in done.cu


@pytest.mark.parametrize(("meta", "turned"), [("int16", False), ("int32", False), ("uint8", True)])
def test_sparse_tiles_of_many_warps(meta: str, turned: bool) -> None:
    """Several tiles of 16 rows and 8 columns a warp, several warps along both sides, offsets inside of the tiles, half of a block."""
    per = int(meta.strip("uint"))
    text = f"""
@T.prim_func
def k(A: T.Tensor((2, 64, 64), "float16"), E: T.Tensor((2, 64, 128 // {per}), "{meta}"), B: T.Tensor({"(48, 128)" if turned else "(128, 48)"}, "float16"),
      C: T.Tensor((64, 48), "float32")):
    with T.Kernel(1, threads=128):
        marks = T.alloc_shared((2, 64, 128 // {per}), "{meta}")
        step = T.alloc_shared((2, 64, 64), "float16")
        w = T.alloc_shared({"(48, 128)" if turned else "(128, 48)"}, "float16")
        part = T.alloc_fragment((64, 48), "float32")
        T.copy(A, step)
        T.copy(E, marks)
        T.copy(B, w)
        T.gemm_sp(step[1, :, :], marks[1, :, :], w, part, transpose_B={turned}, clear_accum=True)
        T.gemm_sp(step[0, :, 32:64], marks[0, :, 64 // {per}:128 // {per}], w{"[:, 64:128]" if turned else "[64:128, :]"}, part, transpose_B={turned})
        T.copy(part, C)
"""
    rng = np.random.default_rng()
    parts = [sparse(rng, 64, 128, per) for _ in range(2)]
    w = rng.integers(-3, 4, (128, 48))
    values = {
        "A": np.stack([p[1] for p in parts]).astype(np.float16), "E": np.stack([p[2] for p in parts]).view(meta),
        "B": np.ascontiguousarray(w.T if turned else w).astype(np.float16), "C": poison((64, 48), np.float32),
    }  # fmt: skip
    want = parts[1][0] @ w + parts[0][0][:, 64:] @ w[64:]
    done = check(text, values, {"C": want.astype(np.float32)})
    assert done.cu.count("mma_sp_m16n8k32_f16_f32(part") == 2


def test_what_the_sparse_instruction_cannot_do_is_done_densely() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((24, 32), "float16"), E: T.Tensor((24, 4), "int16"), B: T.Tensor((64, 8), "float16"), C: T.Tensor((24, 8), "float32")):
    with T.Kernel(1, threads=32):
        a = T.alloc_shared((24, 32), "float16")
        e = T.alloc_shared((24, 4), "int16")
        w = T.alloc_shared((64, 8), "float16")
        c = T.alloc_fragment((24, 8), "float32")
        T.copy(A, a)
        T.copy(E, e)
        T.copy(B, w)
        T.gemm_sp(a, e, w, c, clear_accum=True)
        T.copy(c, C)
"""
    rng = np.random.default_rng()
    dense, kept, marks = sparse(rng, 24, 64, 16)
    w = rng.integers(-3, 4, (64, 8))
    values = {"A": kept.astype(np.float16), "E": marks, "B": w.astype(np.float16), "C": poison((24, 8), np.float32)}
    done = check(text, values, {"C": (dense @ w).astype(np.float32)})
    assert "mma_sp" not in done.cu and any(d.code == "TL0324" for d in done.diagnostics)


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


def interleaved(marks: np.ndarray) -> np.ndarray:
    """16- or 32-bit words of rows in the order of memory on sm_8x, one by one."""
    rows, words = marks.shape
    group, apart = (32, 4) if marks.itemsize == 2 else (16, 2)
    out = np.zeros(rows * words, marks.dtype)
    for i in range(rows):
        for j in range(words):
            row, column = i // group * group + i % 8 * apart + i % group // 8, j
            if row % 2 == 0 and column % 2 == 1:
                row, column = row + 1, column - 1
            elif row % 2 == 1 and column % 2 == 0:
                row, column = row - 1, column + 1
            out[column // 2 * rows * 2 + row * 2 + column % 2] = marks[i, j]
    return out.reshape(rows, words)


def tiled(marks: np.ndarray, block_k: int) -> np.ndarray:
    """Bytes of rows of 16-bit operands in the order of memory on sm_90: tiles of 64 rows, each a nest of six axes."""
    rows, count = marks.shape
    depth = block_k // 32
    axes = marks.reshape(rows // 64, 4, 2, 8, count // (4 * depth), depth, 2, 2)  # tile, i2, i1, i0, tile, k2, k1, k0
    return axes.transpose(4, 0, 1, 6, 3, 5, 2, 7).reshape(rows, count).copy()


@pytest.mark.parametrize(("arch", "meta", "dtype"), [("8.0", "int16", "float16"), ("9.0", "uint8", "float16"), (None, "int32", "int8")])
def test_metadata_in_the_order_of_a_compressor(arch: str | None, meta: str, dtype: str) -> None:
    per, acc = int(meta.strip("uint")), "int32" if dtype == "int8" else "float32"
    text = f"""
from tilelang.layout import make_cutlass_metadata_layout
@T.prim_func
def k(A: T.Tensor((64, 128), "{dtype}"), E: T.Tensor((64, 256 // {per}), "{meta}"), B: T.Tensor((256, 16), "{dtype}"), C: T.Tensor((64, 16), "{acc}")):
    with T.Kernel(1, threads=64):
        a, w = T.alloc_shared((64, 64), "{dtype}"), T.alloc_shared((128, 16), "{dtype}")
        e = T.alloc_shared((64, 128 // {per}), "{meta}")
        c = T.alloc_fragment((64, 16), "{acc}")
        T.annotate_layout({{
            E: make_cutlass_metadata_layout(E, mma_dtype="{dtype}", arch={arch!r}, block_k=128),
            e: make_cutlass_metadata_layout(e, mma_dtype="{dtype}", arch={arch!r}, block_k=128),
        }})
        T.clear(c)
        for k in T.Pipelined(2, num_stages=2):
            T.copy(A[0, k * 64], a)
            T.copy(E[0, k * (128 // {per})], e)
            T.copy(B[k * 128, 0], w)
            T.gemm_sp(a, e, w, c)
        T.copy(c, C)
"""
    rng = np.random.default_rng()
    dense, kept, marks = sparse(rng, 64, 256, per)
    w = rng.integers(-3, 4, (256, 16))
    stored = tiled(marks.view(meta), 128) if arch == "9.0" else interleaved(marks.view(meta))
    assert not np.array_equal(stored, marks.view(meta))
    values = {"A": kept.astype(dtype), "E": stored, "B": w.astype(dtype), "C": poison((64, 16), acc)}
    check(text, values, {"C": (dense @ w).astype(acc)})


def test_metadata_that_no_compressor_makes() -> None:
    text = """
from tilelang.layout import make_cutlass_metadata_layout
@T.prim_func
def k(E: T.Tensor((30, 4), "int16")):
    with T.Kernel(1, threads=64):
        T.annotate_layout({E: make_cutlass_metadata_layout(E, mma_dtype="float16", arch="8.0")})
"""
    assert refused(text).code == "TL0343"
