"""Products whose left operand holds two of every four elements: by the sparse mma where it can, else spread out first.

    gemm c += a @ b marks e   ->  the same, by mma.sp                          (whole steps of 16 x 8 x 32, of integers 64)
                              ->  for i, j in T.Parallel(M, K): dense[i, j] = a[i, ...] if the marks name j, else 0; gemm c += dense @ b
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tilec.diagnostics import Diagnostic, note
from tilec.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT8, INT32, UINT8, DType
from tilec.ir.expr import Binary, Buffer, Cast, Compare, Const, Expr, Load, Scope, Select, Var, VarKind
from tilec.ir.kernel import Kernel, Launch
from tilec.ir.tile import Alloc, BulkCopy, Control, Gemm, Mbarrier, Parallel, Region, Seq, Stmt, Store
from tilec.ir.visit import map_stmt, walk_stmt
from tilec.plan.domains import static

INSTRUCTIONS: dict[tuple[DType, DType, DType], tuple[str, tuple[int, int, int]]] = {
    (FLOAT16, FLOAT16, FLOAT32): ("mma_sp_m16n8k32_f16_f32", (16, 8, 32)),
    (BFLOAT16, BFLOAT16, FLOAT32): ("mma_sp_m16n8k32_bf16_f32", (16, 8, 32)),
    (INT8, INT8, INT32): ("mma_sp_m16n8k64_s8_s32", (16, 8, 64)),
    (UINT8, UINT8, INT32): ("mma_sp_m16n8k64_u8_s32", (16, 8, 64)),
}
"""The sparse instruction for operand and accumulator types, and its steps along m, n and k."""


def settle_sparse(kernel: Kernel, threads: int) -> Kernel:
    """The kernel with its sparse products as the machine does them; `threads` are those of a launch that has no number of its own."""
    if not any(isinstance(s, Gemm) and s.marks is not None for launch in kernel.launches for s in walk_stmt(launch.body)):
        return kernel
    return replace(kernel, launches=tuple(_settled(launch, threads) for launch in kernel.launches))


def spread_notes(kernel: Kernel, settled: Kernel) -> tuple[Diagnostic, ...]:
    """What the author should know: where sparse products are done as dense ones."""
    left = sum(isinstance(s, Gemm) and s.marks is not None for launch in settled.launches for s in walk_stmt(launch.body))
    found = [s for launch in kernel.launches for s in walk_stmt(launch.body) if isinstance(s, Gemm) and s.marks is not None]
    text = "the operand of T.gemm_sp is spread out in shared memory and multiplied as a dense one"
    return (note("TL0324", text, found[0].span),) if len(found) > left else ()


def _settled(launch: Launch, default: int) -> Launch:
    threads = prod(launch.threads) if launch.threads else default
    by_hand = any(isinstance(s, Mbarrier | BulkCopy | Control) for s in walk_stmt(launch.body))

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Gemm) and s.marks is not None:
            return s if not by_hand and fits(s, threads) else spread(s)
        return map_stmt(s, lambda e: e, visit)

    return replace(launch, body=visit(launch.body))


def fits(g: Gemm, threads: int) -> bool:
    """True when the sparse instruction does a product in whole steps, with all its operands in shared memory."""
    entry = INSTRUCTIONS.get((g.a.buffer.dtype, g.b.buffer.dtype, g.c.buffer.dtype))
    if entry is None or g.marks is None or threads % 32:
        return False
    if any(r.buffer.scope is not Scope.SHARED for r in (g.a, g.b, g.marks)):
        return False
    m, n = (static(e) for e in g.c.extents[-2:])
    k = static(g.b.extents[-1 if g.trans_b else -2])
    return all(size is not None and size % step == 0 for size, step in zip((m, n, k), entry[1], strict=True))


def spread(g: Gemm) -> Stmt:
    """The product with its left operand made dense in shared memory."""
    assert g.marks is not None
    m, k = g.c.extents[-2], g.b.extents[-1 if g.trans_b else -2]
    dense = Buffer(f"{g.a.buffer.name}_dense", g.a.buffer.dtype, (m, k), Scope.SHARED, span=g.span)
    i, j = (Var(n, INT32, VarKind.LOOP, span=g.span) for n in "ij")
    store = Store(dense, (i, j), _element(g, g.marks, i, j), g.span)
    fill = Parallel((i, j), dense.shape, Seq((store,), g.span), g.span)
    whole = Region(dense, (_int(0), _int(0)), dense.shape, g.span)
    return Seq((Alloc(dense, g.span), fill, replace(g, a=whole, trans_a=False, marks=None)), g.span)


def _element(g: Gemm, marks: Region, i: Var, j: Var) -> Expr:
    """The element of the dense operand at a place."""
    per, dtype = marks.buffer.dtype.bits, g.a.buffer.dtype
    word = _at(marks, i, _op("floordiv", j, per), False)
    shift = _op("mul", _op("floordiv", _op("mod", j, per), 4), 4)
    code = Binary("shr", Cast(word, INT32), shift, INT32)
    place, group = _op("mod", j, 4), _op("mul", _op("floordiv", j, 4), 2)
    out: Expr = Const(0.0 if dtype.is_float else 0, dtype)
    for n in (1, 0):
        named = Binary("and", Binary("shr", code, _int(2 * n), INT32) if n else code, _int(3), INT32)
        kept = _at(g.a, i, _op("add", group, n) if n else group, g.trans_a)
        out = Select(Compare("eq", place, named), kept, out, dtype)
    return out


def _at(r: Region, row: Expr, column: Expr, turned: bool) -> Load:
    inner = (column, row) if turned else (row, column)
    starts = r.starts[-2:]
    places = [x if static(s) == 0 else Binary("add", s, x, s.dtype) for s, x in zip(starts, inner, strict=True)]
    return Load(r.buffer, (*r.starts[:-2], *places))


def _op(op: str, a: Expr, b: int) -> Expr:
    return Binary(op, a, _int(b), INT32)


def _int(value: int) -> Const:
    return Const(value, INT32)


__all__ = ["INSTRUCTIONS", "fits", "settle_sparse", "spread", "spread_notes"]
