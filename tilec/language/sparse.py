"""T.gemm_sp: a product whose left operand keeps two of every four elements of a row, with metadata that says which.

T.gemm_sp(A, E, B, C)  ->  dense[i, k] = A[i, k // 4 * 2 + n] where E names k % 4 as the n-th kept place, else 0; C += dense @ B

The metadata lie in the order of the rows: 4 bits for each group of four elements, the lowest bits of an integer first; of these,
the lower two name the place of the first kept element and the upper two that of the second.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilec.ir.dtypes import BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2, FLOAT16, FLOAT32, INT8, INT32, UINT8
from tilec.ir.expr import Buffer, Const, Load, Scope, Var, VarKind
from tilec.ir.tile import Alloc, Parallel, Region, Seq, Store
from tilec.language.access import as_expr, buffer_label, dtype_of
from tilec.language.arith import binary
from tilec.language.bind import Entry, refused, works
from tilec.language.builder import Builder
from tilec.language.context import host_flag, scope_error, tile_statement
from tilec.language.extents import constant
from tilec.language.gemm import product
from tilec.language.regions import region
from tilec.language.show import shape_text

_KINDS = (FLOAT16, BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2, INT8, UINT8)


def gemm_sp(
    b: Builder, A_sparse: Any, E: Any, B: Any, C: Any, transpose_A: Any = False, transpose_E: Any = False, transpose_B: Any = False,
    policy: Any = "square", clear_accum: Any = False, k_pack: Any = 1, wg_wait: Any = 0, annotations: Any = None,
) -> None:  # fmt: skip
    """C += op(A) @ op(B), where A_sparse holds two of every four elements along K and E which: by the sparse mma for 16-bit floats
    and 8-bit integers in whole steps of 16 x 8 x 32 or 64, else as a dense tile."""
    tile_statement(b, "gemm_sp")
    kept, marks = region(b, A_sparse, "A_sparse of T.gemm_sp"), region(b, E, "E of T.gemm_sp")
    trans_a, trans_e = host_flag(b, transpose_A, "transpose_A"), host_flag(b, transpose_E, "transpose_E")
    m, k = _check(b, kept, marks, trans_a, trans_e)
    for r, name in ((kept, "A_sparse"), (marks, "E")):
        scope_error(b, r.buffer, f"{name} of T.gemm_sp", (Scope.SHARED, Scope.FRAGMENT), "T.copy it into a shared tile first")
    dense = Buffer(f"{kept.buffer.name}_dense", kept.buffer.dtype, (Const(m, INT32), Const(k, INT32)), Scope.SHARED, span=b.span)
    g = product(b, "gemm_sp", (dense, B, C), False, transpose_B, policy, clear_accum)
    b.emit(replace(g, a=kept, trans_a=trans_a, marks=_in_rows(b, marks) if trans_e else marks))


def _in_rows(b: Builder, marks: Region) -> Region:
    """Metadata in the order of the rows, from those in the order of the columns."""
    rows, words = marks.extents[-1], marks.extents[-2]
    own = Buffer(f"{marks.buffer.name}_rows", marks.buffer.dtype, (rows, words), Scope.SHARED, span=b.span)
    i, j = (Var(n, INT32, VarKind.LOOP, span=b.span) for n in "ij")
    places = (*marks.starts[:-2], *(as_expr(b, binary(b, "add", s, x)) for s, x in zip(marks.starts[-2:], (j, i), strict=True)))
    b.emit(Alloc(own, b.span))
    b.emit(Parallel((i, j), own.shape, Seq((Store(own, (i, j), Load(marks.buffer, places), b.span),), b.span), b.span))
    return region(b, own)


def _check(b: Builder, kept: Region, marks: Region, trans_a: bool, trans_e: bool) -> tuple[int, int]:
    """The rows and the columns of the operand when spread out."""
    a, e = kept.buffer, marks.buffer
    if a.dtype not in _KINDS:
        raise b.error("TL0321", f"T.gemm_sp takes 8- and 16-bit operands, `{a.name}` is {a.dtype}", *buffer_label(a))
    if not e.dtype.is_int or e.dtype.bits > 32:
        text = f"the metadata of T.gemm_sp are integers of 8, 16 or 32 bits, `{e.name}` is {e.dtype}"
        raise b.error("TL0321", text, *buffer_label(e), help="the order of the arguments is A_sparse, E, B, C")
    sizes = [tuple(constant(n) for n in r.extents[-2:]) for r in (kept, marks)]
    if any(len(r.extents) < 2 or any(constant(n) != 1 for n in r.extents[:-2]) for r in (kept, marks)) or None in sizes[0] + sizes[1]:
        raise b.error("TL0320", "A_sparse and E of T.gemm_sp must be tiles of two dimensions that are known while compiling")
    (rows, half), (lines, words) = (s[::-1] if t else s for s, t in zip(sizes, (trans_a, trans_e), strict=True))
    assert rows is not None and half is not None and words is not None
    if rows != lines or 2 * half != words * e.dtype.bits:
        text = f"A_sparse of {shape_text(kept.extents)} and E of {shape_text(marks.extents)} {e.dtype} do not belong together"
        hint = f"E has a row for each of A_sparse and one {e.dtype} for every {e.dtype.bits // 2} elements"
        raise b.error("TL0320", text, *buffer_label(a), *buffer_label(e), help=hint)
    return rows, 2 * half


ENTRIES: tuple[Entry, ...] = works(gemm_sp, "gemm_sp_v2") + refused(
    "use T.gemm_sp with metadata in the order of the rows", "wgmma_gemm_sp", "tcgen05_gemm_sp"
)

def get_e_factor(b: Builder, a_dtype: Any, meta_dtype: Any) -> int:
    """Elements of the dense operand that one integer of metadata is about."""
    return dtype_of(b, meta_dtype).bits // 4 * (2 if dtype_of(b, a_dtype) is FLOAT32 else 4)


def get_e_replicate_factor(b: Builder, a_dtype: Any) -> int:
    """Threads side by side that hold the same metadata."""
    return 1 if dtype_of(b, a_dtype).bits <= 8 else 2


FACTORS: tuple[Entry, ...] = works(get_e_factor, host=True) + works(get_e_replicate_factor, host=True)
"""Members of tilelang.cuda.intrinsics.sparse_layout."""
