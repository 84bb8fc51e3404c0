"""Loops around a parallel one that walk a fragment, walked inside by each thread instead.

    for k in T.serial(64):
        for i, j in T.Parallel(32, 4): s[i, j] += x[i, k * 4 + j]
    ->  for i, j in T.Parallel(32, 4):
            for k in T.unroll(64): s[i, j] += x[i, k * 4 + j]

The counter then counts registers, as that of a loop which its author wrote inside does, and one trip of x through shared memory does for
all steps where other threads hold it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilec.analysis.affine import depends_on
from tilec.ir.expr import Buffer, Expr, Load, Scope, Var
from tilec.ir.tile import For, If, Parallel, Seq, Stmt, Store
from tilec.ir.visit import flat, map_stmt, stmt_exprs, walk_expr, walk_stmt
from tilec.plan.domains import accesses, domain_fits
from tilec.plan.ways import MOST_WRITTEN_OUT, counted


def walked_inside(s: Stmt) -> Stmt:
    """`s` with such loops turned inside out, where the order of the steps changes nothing."""
    s = map_stmt(s, lambda e: e, walked_inside)
    return (_turned(s) or s) if isinstance(s, For) else s


def _turned(s: For) -> Parallel | None:
    body = flat(s.body)
    loop = body[0] if len(body) == 1 else None
    if not isinstance(loop, Parallel) or s.kind not in ("serial", "unroll") or s.factor or not 0 < (counted(s) or 0) <= MOST_WRITTEN_OUT:
        return None
    parts = list(walk_stmt(loop.body))
    if not all(isinstance(x, Store | If | Seq) for x in parts) or any(depends_on(e, (s.var,)) for e in loop.extents):
        return None
    if not _own(loop) or not any(_walks(e, s.var) for x in parts for e in stmt_exprs(x)):
        return None
    return replace(loop, body=replace(s, kind="unroll", body=loop.body))


def _own(loop: Parallel) -> bool:
    """True when each iteration writes elements of fragments that no other one touches: its steps may then follow one another."""
    found = list(accesses(loop.body, loop.vars))
    written: dict[Buffer, Sequence[Expr]] = {a.buffer: a.indices for a in found if a.writes}
    return all(
        a.buffer.scope is Scope.FRAGMENT and domain_fits(a, loop.extents) and set(a.dims or ()) >= set(range(len(loop.vars)))
        and a.indices == written[a.buffer]
        for a in found if a.buffer in written
    )  # fmt: skip


def _walks(e: Expr, v: Var) -> bool:
    """True where a fragment is read at a place that `v` decides."""
    loads = (x for x in walk_expr(e) if isinstance(x, Load) and x.buffer.scope is Scope.FRAGMENT)
    return any(depends_on(i, (v,)) for x in loads for i in x.indices)
