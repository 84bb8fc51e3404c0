"""Sums written as a parallel loop: iterations that update one element run one after another.

`for i, j in T.Parallel(M, N): acc[i] += A[i, j]` means what Python means: every j adds to acc[i]. The variables that do not
index the updated element become serial loops inside the parallel one; the author is told that a reduction is faster.

    parallel i, j in 12, 40: acc[i] = acc[i] + A[i, j]  ->  parallel i in 12: for j in serial(0, 40, 1): acc[i] = acc[i] + A[i, j]
"""

from __future__ import annotations

from tilec.ir.dtypes import INT32
from tilec.ir.expr import Const, Expr, Load, Scope, Var, VarKind
from tilec.ir.tile import For, Parallel, Stmt, Store
from tilec.ir.visit import stmt_exprs, storage, walk_expr, walk_stmt
from tilec.language.builder import Builder


def in_order(b: Builder, loop: Parallel) -> Parallel:
    """`loop` with the variables along which an element is updated again and again made serial."""
    serial = _repeated(loop)
    if not serial:
        return loop
    one = Const(1, INT32)
    body: Stmt = loop.body
    for v, e in reversed(list(zip(loop.vars, loop.extents, strict=True))):
        if v in serial:
            body = For(v, Const(0, v.dtype), e, Const(1, v.dtype), "serial", body, span=loop.span)
    kept = [(v, e) for v, e in zip(loop.vars, loop.extents, strict=True) if v not in serial]
    names = ", ".join(v.name for v in loop.vars if v in serial)
    b.note("TL0319", f"iterations along {names} update the same element: they run one after another", loop.span, "T.reduce_sum is faster")
    if not kept:
        kept = [(Var("once", kind=VarKind.LOOP, span=loop.span), one)]
    return Parallel(tuple(v for v, _ in kept), tuple(e for _, e in kept), body, loop.span)


def _repeated(loop: Parallel) -> set[Var]:
    """The variables of `loop` that move on while a statement updates one and the same element."""
    out: set[Var] = set()
    for s in walk_stmt(loop.body):
        if not isinstance(s, Store) or s.buffer.scope in (Scope.VAR, Scope.LOCAL):
            continue
        if not any(isinstance(e, Load) and storage(e.buffer) is storage(s.buffer) and e.indices == s.indices for e in walk_expr(s.value)):
            continue
        used = _variables(s.indices)
        out |= {v for v, e in zip(loop.vars, loop.extents, strict=True) if v not in used and not (isinstance(e, Const) and e.value == 1)}
    # Values bound inside the loop may carry a variable into an index; then nothing is known, and nothing is changed.
    bound = {v for s in walk_stmt(loop.body) for root in stmt_exprs(s) for v in _variables((root,)) if v.kind is VarKind.LET}
    return set() if out and any(v in bound for s in walk_stmt(loop.body) if isinstance(s, Store) for v in _variables(s.indices)) else out


def _variables(exprs: tuple[Expr, ...]) -> set[Var]:
    return {x for e in exprs for x in walk_expr(e) if isinstance(x, Var)}
