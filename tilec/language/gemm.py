"""T.gemm: C += op(A) @ op(B) on tiles.

T.gemm(A_s, B_s, C_f, transpose_B=True)  ->  Gemm(A_s, B_s, C_f, trans_b=True, ...)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilec.ir.dtypes import (
    BFLOAT16,
    BOOL,
    FLOAT4_E2M1,
    FLOAT8_E4M3,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT4,
    INT8,
    INT32,
    TFLOAT32,
    UINT4,
    UINT8,
    DType,
)  # fmt: skip
from tilec.ir.expr import Const, Expr, Scope
from tilec.ir.tile import Gemm, Region
from tilec.language.access import buffer_label
from tilec.language.arith import truth
from tilec.language.bind import Entry, refused, works
from tilec.language.builder import Builder
from tilec.language.context import host_flag, host_int, scope_error, tile_statement
from tilec.language.extents import constant
from tilec.language.regions import is_element, region
from tilec.language.show import describe, expr_text, shape_text

POLICIES = {"Square": "square", "FullRow": "full_row", "FullCol": "full_col"}
"""Members of T.GemmWarpPolicy and what they are in the IR; 0, 1 and 2 are accepted for them."""

_FP8 = (FLOAT8_E4M3, FLOAT8_E5M2)
ACCUMULATORS = {
    FLOAT16: (FLOAT32, FLOAT16), BFLOAT16: (FLOAT32,), FLOAT32: (FLOAT32,), TFLOAT32: (FLOAT32,), FLOAT64: (FLOAT64,),
    FLOAT8_E4M3: (FLOAT32, FLOAT16), FLOAT8_E5M2: (FLOAT32, FLOAT16), INT8: (INT32,), UINT8: (INT32,),
    INT4: (INT32,), UINT4: (INT32,), FLOAT4_E2M1: (FLOAT32, FLOAT16),
}  # fmt: skip
"""The accumulator types of each operand type, the usual one first."""


def gemm(
    b: Builder, A: Any, B: Any, C: Any, transpose_A: Any = False, transpose_B: Any = False, policy: Any = "square",
    clear_accum: Any = False, k_pack: Any = 1, wg_wait: Any = 0, mbar: Any = None, annotations: Any = None,
) -> None:  # fmt: skip
    """C += op(A) @ op(B); with `clear_accum` C = op(A) @ op(B). A and B are shared or fragment tiles, C is a fragment."""
    tile_statement(b, "gemm")
    if host_int(b, k_pack, "k_pack") != 1:
        raise b.error("TL0323", f"k_pack must be 1 on NVIDIA GPUs, got {describe(k_pack)}", help="leave k_pack out")
    host_int(b, wg_wait, "wg_wait")
    if mbar is not None:
        raise b.error("TL0204", "`mbar` of T.gemm is not supported yet", help="leave it out; T.gemm is complete when it returns")
    b.emit(product(b, "gemm", (A, B, C), transpose_A, transpose_B, policy, clear_accum))


def queued_gemm(
    b: Builder, A: Any, B: Any, C: Any, transpose_A: Any, transpose_B: Any, policy: Any, clear_accum: Any
) -> None:
    """A product that T.wait_wgmma waits for."""
    tile_statement(b, "wgmma_gemm")
    g = product(b, "wgmma_gemm", (A, B, C), transpose_A, transpose_B, policy, clear_accum)
    scope_error(b, g.b.buffer, "B of T.wgmma_gemm", (Scope.SHARED,), "T.copy it into a shared tile first")
    b.emit(replace(g, waits=False))


def product(
    b: Builder, name: str, operands: tuple[Any, Any, Any], transpose_a: Any, transpose_b: Any, policy: Any, clear_accum: Any
) -> Gemm:
    """A checked product."""
    a, w, c = (_operand(b, v, n, name) for v, n in zip(operands, "ABC", strict=True))
    trans_a, trans_b = host_flag(b, transpose_a, "transpose_A"), host_flag(b, transpose_b, "transpose_B")
    _check_types(b, a, w, c)
    _check_scopes(b, a, w, c)
    _check_shapes(b, (a, w, c), trans_a, trans_b)
    if isinstance(clear_accum, str):
        raise b.error("TL0323", f"`clear_accum` is a condition, got {describe(clear_accum)}", help="use True, False or a comparison")
    clear = truth(b, clear_accum)
    return Gemm(a, w, c, trans_a, trans_b, policy_of(b, policy), Const(clear, BOOL) if isinstance(clear, bool) else clear, b.span)


def policy_of(b: Builder, value: Any) -> str:
    """The warp policy that an argument names."""
    known = tuple(POLICIES.values())
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(known):
        return known[value]
    name = POLICIES.get(value, value) if isinstance(value, str) else value
    if name not in known:
        raise b.error("TL0323", f"unknown warp policy {describe(value)}", help="use T.GemmWarpPolicy.Square, FullRow or FullCol")
    return str(name)


def _operand(b: Builder, value: Any, name: str, of: str) -> Region:
    """An operand as a region with two constant extents after leading ones."""
    if is_element(value):
        raise b.error("TL0320", f"{name} of T.{of} must be a tile, a single element was given", help="slice it: `A_s[k, :, :]`")
    r = region(b, value, f"{name} of T.{of}")
    sizes = [constant(e) for e in r.extents]
    shape = shape_text(r.extents)
    if len(sizes) < 2 or any(s != 1 for s in sizes[:-2]):
        text = f"{name} of T.{of} must have two dimensions after leading ones, `{r.buffer.name}` is {shape}"
        raise b.error("TL0320", text, *buffer_label(r.buffer))
    if None in sizes:
        text = f"the extents of {name} must be known while compiling, `{r.buffer.name}` is {shape}"
        raise b.error("TL0320", text, *buffer_label(r.buffer))
    return r


def _check_types(b: Builder, a: Region, w: Region, c: Region) -> None:
    x, y, z = a.buffer.dtype, w.buffer.dtype, c.buffer.dtype
    if _family(x) != _family(y):
        text = f"operands of different types: `{a.buffer.name}` is {x}, `{w.buffer.name}` is {y}"
        raise b.error("TL0321", text, *buffer_label(a.buffer), *buffer_label(w.buffer), help="copy one into a tile of the other's type")
    if x not in ACCUMULATORS:
        raise b.error("TL0321", f"T.gemm does not take {x} operands", help=f"use one of {', '.join(map(str, ACCUMULATORS))}")
    if z not in ACCUMULATORS[x]:
        names = " or ".join(map(str, ACCUMULATORS[x]))
        hint = f"allocate it as {ACCUMULATORS[x][0]}, and let T.copy cast the result"
        raise b.error("TL0321", f"{x} operands accumulate in {names}, `{c.buffer.name}` is {z}", *buffer_label(c.buffer), help=hint)


def _family(dtype: DType) -> str:
    """Types that one instruction can mix share a name."""
    return "float8" if dtype in _FP8 else "float32" if dtype is TFLOAT32 else dtype.name


def _check_scopes(b: Builder, a: Region, w: Region, c: Region) -> None:
    for r, name in ((a, "A"), (w, "B")):
        scope_error(b, r.buffer, f"{name} of T.gemm", (Scope.SHARED, Scope.FRAGMENT), "T.copy it into a shared tile first")
    scope_error(b, c.buffer, "the accumulator of T.gemm", (Scope.FRAGMENT,), "use T.alloc_fragment for it and T.copy the result")


def _check_shapes(b: Builder, operands: tuple[Region, Region, Region], trans_a: bool, trans_b: bool) -> None:
    """M×K by K×N must give M×N, with the transposes applied."""
    a, w, c = (r.extents[-2:] for r in operands)
    m, k = (a[1], a[0]) if trans_a else (a[0], a[1])
    k2, n = (w[1], w[0]) if trans_b else (w[0], w[1])
    if constant(k) == constant(k2) and (constant(m), constant(n)) == (constant(c[0]), constant(c[1])):
        return
    left, right = _shape(a, trans_a), _shape(w, trans_b)
    labels = [label for r in operands for label in buffer_label(r.buffer)]
    raise b.error("TL0320", f"shapes {left} x {right} do not give {_shape(c, False)}", *labels, help=_shape_help(k, k2, c, m, n))


def _shape(extents: tuple[Expr, ...], transposed: bool) -> str:
    return f"({expr_text(extents[0])}x{expr_text(extents[1])}){' transposed' if transposed else ''}"


def _shape_help(k: Expr, k2: Expr, c: tuple[Expr, ...], m: Expr, n: Expr) -> str:
    if constant(k) != constant(k2):
        return f"the inner extents differ: {expr_text(k)} and {expr_text(k2)}; is a transpose missing?"
    return f"the accumulator must be {expr_text(m)}x{expr_text(n)}"


ENTRIES: tuple[Entry, ...] = works(gemm, "gemm_v1", "gemm_v2") + refused(
    "use T.gemm, which chooses the instruction and waits for it", "tcgen05_gemm",
) + refused("use T.gemm on dense operands", "tcgen05_gemm_blockscaled", "mma_gemm_blockscaled")  # fmt: skip
