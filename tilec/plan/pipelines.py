"""Which copies of a pipelined loop may run ahead of the rest, and why not where they may not.

T.Pipelined is a serial loop with a hint. A copy from global to shared memory may be issued stages - 1 steps early when nobody
can tell: it fills a whole tile that only this loop reads, after the copy, and its source and place do not depend on what the
loop does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from tilec.record import record
from tilec.ir.expr import Buffer, Const, Expr, Load, Scope, Var
from tilec.ir.tile import Atomic, Break, Continue, Copy, For, If, Let, Parallel, Seq, Stmt, Store
from tilec.ir.visit import flat, map_expr, map_stmt, pointers, regions, stmt_exprs, storage, substitute, walk_expr, walk_stmt
from tilec.plan.domains import whole
from tilec.plan.gathers import gather, source


@record
class Split:
    """A loop body cut in two: `producers` run ahead into the tiles `versioned`, `consumers` stay. `why` is for explain.

    `cond` (over the loop variable) tells in which steps the producers copy at all; None for every step. `gathers` are loops
    that copy as the producers do (see `plan.gathers`).
    """

    producers: tuple[Copy, ...]
    consumers: tuple[Stmt, ...]
    versioned: tuple[Buffer, ...]
    why: str = ""
    cond: Expr | None = None
    gathers: tuple[Parallel, ...] = ()


def touched(stmts: Sequence[Stmt]) -> tuple[set[Buffer], set[Buffer]]:
    """The buffers (owners of storage) that statements read and write, everything inside them included."""
    reads: set[Buffer] = set()
    writes: set[Buffer] = set()
    for top in stmts:
        for s in walk_stmt(top):
            source, target = regions(s)
            reads |= {storage(r.buffer) for r in source}
            writes |= {storage(r.buffer) for r in target}
            if isinstance(s, Store | Atomic):
                writes.add(storage(s.buffer))
            for e in stmt_exprs(s):
                reads |= {storage(x.buffer) for x in walk_expr(e) if isinstance(x, Load)}
                writes |= {storage(b) for b, mode in pointers(e) if "w" in mode}
    return reads, writes


def reads_tensors(s: Stmt) -> bool:
    """True when a statement reads tensors in global memory."""
    return any(b.scope is Scope.GLOBAL for b in touched([s])[0])


def _variables(exprs: Sequence[Expr]) -> set[Var]:
    return {x for e in exprs for x in walk_expr(e) if isinstance(x, Var)}


def _inlined(e: Expr, lets: dict[Var, Expr]) -> Expr:
    while any(v in lets for v in _variables((e,))):
        e = substitute(e, lets)
    return e


def _resolved(copy: Copy, lets: dict[Var, Expr]) -> Copy:
    """The copy with names bound inside the loop replaced by what they stand for."""
    out = map_stmt(copy, lambda e: _inlined(e, lets), lambda s: s)
    assert isinstance(out, Copy)
    return out


Uses: TypeAlias = Sequence[tuple[set[Buffer], set[Buffer]]]
"""What each statement of a body reads and writes."""

Accept: TypeAlias = Callable[[Parallel], bool]
"""Tells of a gathering loop whether it can be copied in chunks."""


def split(loop: For, outside: set[Buffer], accept: Accept | None = None, private: bool = False) -> Split:
    """Cuts the body of a pipelined loop. `outside` are buffers used elsewhere in the launch; without `accept` only copies run ahead.
    With `private` their places may depend on private variables, which whoever runs ahead must know then."""
    body = flat(loop.body)
    if any(isinstance(s, Break | Continue) for s in walk_stmt(loop.body)):
        return Split((), tuple(body), (), "the loop is left early")
    if not (isinstance(loop.step, Const) and loop.step.value == 1):
        return Split((), tuple(body), (), "the step is not 1")
    uses = [touched([s]) for s in body]
    written = set[Buffer]().union(*(writes for _, writes in uses))
    bound = {s.var for top in body for s in walk_stmt(top) if isinstance(s, Let | For)}
    lets = {s.var: s.value for s in body if isinstance(s, Let)}
    producers: list[Copy] = []
    gathers: list[Parallel] = []
    kept: list[Stmt] = []
    why = ""
    for n, s in enumerate(body):
        if accept is not None and isinstance(s, Parallel):
            found = _gathered(s, n, uses, lets, bound, written, outside)
            if found is not None and accept(found):
                gathers.append(found)
            else:
                kept.append(s)
            continue
        reason = _obstacle(s, n, uses, outside) if isinstance(s, Copy) and _fills_shared(s) else "-"
        if not reason and isinstance(s, Copy):
            s = _resolved(s, lets)
            reason = _free(s, bound, written, private)
        if reason:
            kept.append(s)
            why = why or ("" if reason == "-" else reason)
        else:
            assert isinstance(s, Copy)
            producers.append(s)
    tiles = [storage(p.dst.buffer) for p in producers] + [p.body.buffer for p in gathers if isinstance(p.body, Store)]
    return Split(tuple(producers), tuple(kept), tuple(dict.fromkeys(tiles)), why, None, tuple(gathers))


def _gathered(
    s: Parallel, at: int, uses: Uses, lets: dict[Var, Expr], bound: set[Var], written: set[Buffer], outside: set[Buffer]
) -> Parallel | None:
    """A loop that fills a tile as a copy would and may run ahead; None for other loops."""
    found = gather(s, lets)
    if found is None:
        return None
    assert isinstance(found.body, Store)
    load, cond = source(found)
    if _in_the_way(storage(found.body.buffer), storage(load.buffer), at, uses, outside):
        return None
    exprs = stmt_exprs(found.body)
    if load.buffer.address is not None or _variables(exprs) & bound:
        return None
    loads = {storage(x.buffer) for e in exprs for x in walk_expr(e) if isinstance(x, Load)}
    if any(b in written or b.scope not in (Scope.GLOBAL, Scope.SHARED) for b in loads):
        return None
    places = [x for e in load.indices for x in walk_expr(e) if isinstance(x, Load)]
    guarded = cond is not None and any(x.buffer.scope is Scope.SHARED for x in places)  # the condition keeps such indices in range
    return None if guarded else found


def split_branch(loop: For, outside: set[Buffer], accept: Accept | None = None, private: bool = False) -> Split | None:
    """Cuts a pipelined loop all of whose work stands in one branch, as block-sparse kernels write it; None for other loops.

    The branch must not have an else, and its condition must not depend on what the loop does.
    """
    *lets, last = flat(loop.body)
    if not (isinstance(last, If) and not flat(last.orelse) and all(isinstance(s, Let) for s in lets)):
        return None
    values = {s.var: s.value for s in lets if isinstance(s, Let)}
    cond = _inlined(last.cond, values)
    _, written = touched([loop.body])
    loads = {storage(x.buffer) for x in walk_expr(cond) if isinstance(x, Load)}
    if loads & written or any(b.scope in (Scope.SHARED, Scope.FRAGMENT) for b in loads):
        return None
    inner = split(replace(loop, body=Seq((*lets, last.then), loop.span)), outside, accept, private)
    if not (inner.producers or inner.gathers):
        return None
    branch = replace(last, then=Seq(inner.consumers[len(lets) :], last.span))
    return replace(inner, consumers=(*lets, branch), cond=cond)


def _fills_shared(s: Copy) -> bool:
    return s.src.buffer.scope is Scope.GLOBAL and s.dst.buffer.scope is Scope.SHARED


def _obstacle(s: Copy, at: int, uses: Uses, outside: set[Buffer]) -> str:
    """Why a copy must stay where it is; empty when its tile allows it to run ahead."""
    tile = storage(s.dst.buffer)
    if not whole(s.dst):
        return f"only a part of {tile.name} is filled"
    return _in_the_way(tile, storage(s.src.buffer), at, uses, outside)


def _in_the_way(tile: Buffer, read: Buffer, at: int, uses: Uses, outside: set[Buffer]) -> str:
    """Why statement `at`, which fills all of `tile` from `read`, must stay where it is; empty when it need not."""
    if tile in outside:
        return f"{tile.name} is used outside the loop"
    if any(read in writes for _, writes in uses):
        return f"{read.name} is written in the loop"
    if any(tile in writes for n, (_, writes) in enumerate(uses) if n != at):
        return f"{tile.name} is written by another statement"
    if any(tile in reads for reads, _ in uses[:at]):
        return f"{tile.name} is read before it is filled"
    return ""


def _free(s: Copy, bound: set[Var], written: set[Buffer], private: bool) -> str:
    """Why the source of a copy depends on what the loop does; empty when it does not."""
    exprs = stmt_exprs(s)
    address = storage(s.src.buffer).address
    if _variables(exprs if address is None else (*exprs, address)) & bound:
        return "its place depends on a value of the step"
    loads = {storage(x.buffer) for e in exprs for x in walk_expr(e) if isinstance(x, Load)}
    steady = (Scope.GLOBAL, Scope.VAR, Scope.LOCAL) if private else (Scope.GLOBAL,)
    if any(b in written or b.scope not in steady for b in loads):
        return "its place is read from memory that may change"
    return ""


def rename(s: Stmt, old: Var, new: Expr) -> Stmt:
    """`s` with a variable replaced everywhere."""

    def expr(e: Expr) -> Expr:
        return new if e is old else map_expr(e, expr)

    def stmt(x: Stmt) -> Stmt:
        return map_stmt(x, expr, stmt)

    return stmt(s)


def used_outside(body: Stmt, loop: For) -> set[Buffer]:
    """Buffers that a launch's body touches outside of one loop."""

    def cut(s: Stmt) -> Stmt:
        return Seq(()) if s is loop else map_stmt(s, lambda e: e, cut)

    reads, writes = touched([cut(body)])
    return reads | writes
