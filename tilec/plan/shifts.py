"""Loops that reach a fragment some places further on, run over the fragment's own places.

    for i, j in T.Parallel(16, N): s[i, j] = acc[i + h * 16, j]        acc has 32 rows
    ->  for i, j in T.Parallel(32, N):
            if i >= h * 16 and i < h * 16 + 16: s[i - h * 16, j] = acc[i, j]

Each iteration then belongs to the thread that holds its element, and nothing takes a trip through shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilec.analysis.affine import coefficient, depends_on
from tilec.analysis.simplify import simplify
from tilec.analysis.facts import Facts
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Binary, Buffer, Compare, Const, Expr, Load, Logical, Scope, Select, Var, VarKind
from tilec.ir.tile import Alloc, Atomic, Copy, If, Let, Parallel, Seq, Stmt, Store
from tilec.ir.visit import expr_children, map_expr, map_stmt, stmt_exprs, substitute, walk_expr, walk_stmt
from tilec.plan.access import conjunction
from tilec.plan.domains import Access, accesses, add, copy_as_parallel, domain_fits, static, static_shape
from tilec.record import record

_KNOWN = (VarKind.LOOP, VarKind.BLOCK, VarKind.PARAM, VarKind.EXTENT)
"""Kinds of variables that are alike in all threads, where whole tiles are worked on."""


@record
class _Shift:
    """The variable that takes the place of another one plus `by`, over `extent` places."""

    var: Var
    by: Expr
    extent: int


def unshifted(s: Stmt) -> Stmt:
    """`s` with its loops and copies over the places of the fragments that they reach at a shift, where all their fragments agree."""
    match s:
        case Parallel():
            return _moved(s) or s
        case Copy(src, dst) if Scope.FRAGMENT in (src.buffer.scope, dst.buffer.scope):
            return _moved(copy_as_parallel(s)) or s
        case _:
            return map_stmt(s, lambda e: e, unshifted)


def _moved(loop: Parallel) -> Parallel | None:
    """The loop over other places; None where it has its own, or must keep them."""
    found = [a for a in accesses(loop.body, loop.vars) if a.buffer.scope is Scope.FRAGMENT]
    if not found or any(static(e) is None for e in loop.extents) or all(domain_fits(a, loop.extents) for a in found):
        return None
    shifts = _shifts(loop, found)
    if not shifts or not any(_sure(a, shifts) for a in _unconditional(loop.body)):
        return None
    variables = tuple(shifts[v].var if v in shifts else v for v in loop.vars)
    extents = tuple(Const(shifts[v].extent, INT32) if v in shifts else e for v, e in zip(loop.vars, loop.extents, strict=True))
    body = _rewritten(loop.body, shifts)
    guards = [g for v, e in zip(loop.vars, loop.extents, strict=True) if v in shifts for g in _guards(shifts[v], static(e) or 0)]
    if (cond := conjunction(guards)) is not None:
        body = If(cond, body, Seq((), loop.span), loop.span)
    out = replace(loop, vars=variables, extents=extents, body=body)
    mine = [a for a in accesses(out.body, out.vars) if a.buffer.scope is Scope.FRAGMENT]
    return out if all(domain_fits(a, out.extents) for a in mine) else None


def _shifts(loop: Parallel, found: list[Access]) -> dict[Var, _Shift]:
    """For each variable that fragments are reached with at another place than its own, that shift; nothing where they disagree."""
    own = frozenset(s.var for s in walk_stmt(loop.body) if isinstance(s, Let))
    out: dict[Var, _Shift] = {}
    for a in found:
        for e, n in zip(a.indices, static_shape(a.buffer), strict=True):
            v = next((v for v in loop.vars if depends_on(e, (v,))), None)
            if v is None:
                continue
            by = _by(e, v, loop.vars, own)
            if by is None or (v in out and (out[v].by != by or out[v].extent != n)):
                return {}
            out.setdefault(v, _Shift(Var(v.name, v.dtype, VarKind.LOOP, span=v.span), by, n))
    sizes = dict(zip(loop.vars, (static(e) for e in loop.extents), strict=True))
    return {v: s for v, s in out.items() if s.by != Const(0, INT32) or sizes[v] != s.extent}


def _by(e: Expr, v: Var, variables: tuple[Var, ...], own: frozenset[Var]) -> Expr | None:
    """What an index is beyond `v`, the same for all threads and iterations; None for any other index."""
    if e.dtype != INT32 or coefficient(e, v) != 1:
        return None
    left = simplify(substitute(e, {v: Const(0, INT32)}), Facts())
    for x in walk_expr(left):
        if isinstance(x, Load) or (isinstance(x, Var) and (x in variables or x in own or x.kind not in _KNOWN)):
            return None
    return left


def _guards(s: _Shift, extent: int) -> Iterator[Expr]:
    """That a place is one of the loop's own `extent` places."""
    first = static(s.by)
    if first is None or first > 0:
        yield Compare("ge", s.var, s.by)
    if first is None or first + extent < s.extent:
        yield Compare("lt", s.var, add(s.by, Const(extent, INT32)) if first is None else Const(first + extent, INT32))


def _unconditional(body: Stmt) -> Iterator[tuple[Buffer, tuple[Expr, ...]]]:
    """The element accesses that happen whenever anything in the body does."""
    while True:
        if isinstance(body, If) and not any(not isinstance(x, Seq) for x in walk_stmt(body.orelse)):
            body = body.then
        elif isinstance(body, Seq) and len(body.body) == 1:
            body = body.body[0]
        else:
            break
    for s in body.body if isinstance(body, Seq) else (body,):
        if isinstance(s, Store | Atomic):
            yield s.buffer, s.indices
        if isinstance(s, Store | Atomic | Let):
            for e in stmt_exprs(s):
                yield from _loads(e)
        elif not isinstance(s, Alloc):
            return


def _loads(e: Expr) -> Iterator[tuple[Buffer, tuple[Expr, ...]]]:
    """The loads that evaluating an expression is sure to make."""
    if isinstance(e, Load):
        yield e.buffer, e.indices
    parts = (e.cond,) if isinstance(e, Select) else (e.a,) if isinstance(e, Logical) else expr_children(e)
    for c in parts:
        yield from _loads(c)


def _sure(access: tuple[Buffer, tuple[Expr, ...]], shifts: dict[Var, _Shift]) -> bool:
    """True for an element of a fragment that lies in it only while all shifted variables are in range."""
    buffer, indices = access
    return buffer.scope is Scope.FRAGMENT and all(any(depends_on(e, (v,)) for e in indices) for v in shifts)


def _rewritten(body: Stmt, shifts: dict[Var, _Shift]) -> Stmt:
    """The body in terms of the new variables."""
    table: dict[Var, Expr] = {v: s.var if s.by == Const(0, INT32) else Binary("sub", s.var, s.by, INT32) for v, s in shifts.items()}

    def place(e: Expr) -> Expr:
        v = next((v for v in shifts if depends_on(e, (v,))), None)
        return expr(e) if v is None else shifts[v].var

    def expr(e: Expr) -> Expr:
        if isinstance(e, Var):
            return table.get(e, e)
        if isinstance(e, Load) and e.buffer.scope is Scope.FRAGMENT:
            return replace(e, indices=tuple(map(place, e.indices)))
        return map_expr(e, expr)

    def stmt(s: Stmt) -> Stmt:
        if isinstance(s, Store) and s.buffer.scope is Scope.FRAGMENT:
            return replace(s, indices=tuple(map(place, s.indices)), value=expr(s.value))
        return map_stmt(s, expr, stmt)

    return stmt(body)
