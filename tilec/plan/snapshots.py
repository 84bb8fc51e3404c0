"""Values that a statement must take before it changes what they are read from.

A statement happens at once: where a copy starts, what a fill writes and how often a loop runs are settled before the first
element moves. Threads that read them as they go would see some of what others have written already.

    T.copy(A[s[0]:s[0] + 64], s)  ->  first = s[0]; T.copy(A[first:first + 64], s)
    T.copy(s[0:48], s[16:64])     ->  T.copy(s[0:48], line); T.copy(line, s[16:64])
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from tilec.ir.dtypes import INT32
from tilec.ir.expr import Buffer, Const, Expr, Load, Scope, Var, VarKind
from tilec.ir.tile import Alloc, Copy, Fill, For, Let, Reduce, Region, Scan, Seq, Stmt
from tilec.ir.visit import map_stmt, storage, walk_expr
from tilec.plan.pipelines import touched


def snapshots(s: Stmt) -> Stmt:
    """`s` with these values bound, and copies inside one tile taken through another."""
    match s:
        case Copy(src, dst) | Reduce(_, src, dst) | Scan(_, src, dst):
            lets: list[Stmt] = []
            settled = replace(s, src=_settled(src, dst, lets), dst=_settled(dst, dst, lets))
            moved = _apart(settled) if isinstance(settled, Copy) else (settled,)
            return s if not lets and len(moved) == 1 else Seq((*lets, *moved), s.span)
        case Fill(dst, value):
            lets = []
            filled = replace(s, dst=_settled(dst, dst, lets), value=_bound(value, {storage(dst.buffer)}, lets))
            return Seq((*lets, filled), s.span) if lets else s
        case For(kind="pipelined"):
            lets = []
            _, written = touched([s.body])
            start, stop = (_bound(e, written, lets) for e in (s.start, s.stop))
            loop = replace(s, start=start, stop=stop, body=snapshots(s.body))
            return Seq((*lets, loop), s.span) if lets else loop
        case _:
            return map_stmt(s, lambda e: e, snapshots)


def _bound(e: Expr, written: Set[Buffer], lets: list[Stmt]) -> Expr:
    """`e`, or a variable that holds it when it reads a buffer that is written."""
    if not any(isinstance(x, Load) and storage(x.buffer) in written for x in walk_expr(e)):
        return e
    var = Var("first", e.dtype, VarKind.LET)
    lets.append(Let(var, e))
    return var


def _settled(r: Region, target: Region, lets: list[Stmt]) -> Region:
    starts = tuple(_bound(e, {storage(target.buffer)}, lets) for e in r.starts)
    return r if all(a is b for a, b in zip(starts, r.starts, strict=True)) else replace(r, starts=starts)


def _apart(s: Copy) -> tuple[Stmt, ...]:
    """A copy from one part of a tile to another part of it, which may overlap, in two steps."""
    inside = s.src.buffer.scope in (Scope.SHARED, Scope.FRAGMENT) and storage(s.src.buffer) is storage(s.dst.buffer)
    if not inside or (s.src.buffer is s.dst.buffer and s.src.starts == s.dst.starts):
        return (s,)
    line = Buffer(f"{s.src.buffer.name}_moved", s.src.buffer.dtype, s.src.extents, Scope.SHARED, span=s.span)
    whole = Region(line, tuple(Const(0, INT32) for _ in line.shape), line.shape, s.span)
    return Alloc(line, s.span), replace(s, dst=whole), replace(s, src=whole)
