"""Copies and fills that each thread does for itself: those of private arrays, and those whose place depends on the thread.

    T.clear(acc) of T.alloc_local((4,), ...)  ->  for i in T.vectorized(4): acc[i] = 0
"""

from __future__ import annotations

from math import prod

from tilec.ir.dtypes import INT32
from tilec.ir.expr import Const, Expr, Scope, Var, VarKind
from tilec.ir.tile import Copy, Fill, For, Let, Parallel, Seq, Stmt, Store
from tilec.ir.visit import map_stmt, walk_expr, walk_stmt
from tilec.plan.domains import add, copy_as_parallel, static

UNROLLED = 64
"""Elements of a private array up to which its loops are unrolled, so that it can stay in registers."""


def fill_as_parallel(s: Fill) -> Parallel:
    """The element-wise loop that a fill means."""
    variables = tuple(Var("ijklmn"[d % 6], kind=VarKind.LOOP, span=s.span) for d in range(len(s.dst.extents)))
    index = tuple(add(start, v) for start, v in zip(s.dst.starts, variables, strict=True))
    return Parallel(variables, s.dst.extents, Store(s.dst.buffer, index, s.value, s.span), s.span)


def by_thread(body: Stmt) -> Stmt:
    """`body` with the copies and fills that every thread does for itself turned into loops."""
    varying: set[Var] = set()
    for s in walk_stmt(body):
        if isinstance(s, Let) and _mentions_thread(s.value, varying):
            varying.add(s.var)

    def visit(s: Stmt) -> Stmt:
        match s:
            case Copy(src, dst) if _alone((*src.starts, *dst.starts), (src.buffer.scope, dst.buffer.scope), varying):
                return _loops(copy_as_parallel(s))
            case Fill(dst) if _alone(dst.starts, (dst.buffer.scope,), varying):
                return _loops(fill_as_parallel(s))
            case _:
                return map_stmt(s, lambda e: e, visit)

    return visit(body)


def _alone(starts: tuple[Expr, ...], scopes: tuple[Scope, ...], varying: set[Var]) -> bool:
    if Scope.FRAGMENT in scopes:
        return False
    return Scope.LOCAL in scopes or Scope.VAR in scopes or any(_mentions_thread(e, varying) for e in starts)


def _mentions_thread(e: Expr, varying: set[Var]) -> bool:
    return any(isinstance(x, Var) and (x.kind is VarKind.THREAD or x in varying) for x in walk_expr(e))


def _loops(loop: Parallel) -> Stmt:
    """The nest of loops with the meaning of `loop` for one thread."""
    sizes = [static(e) for e in loop.extents]
    small = all(n is not None for n in sizes) and prod(n or 1 for n in sizes) <= UNROLLED
    out: Stmt = loop.body
    for n, (v, e) in reversed(list(enumerate(zip(loop.vars, loop.extents, strict=True)))):
        kind = "serial" if not small else "vectorized" if n == len(loop.vars) - 1 else "unroll"
        out = For(v, Const(0, INT32), e, Const(1, INT32), kind, out if isinstance(out, Seq) else Seq((out,), loop.span), span=loop.span)
    return out
