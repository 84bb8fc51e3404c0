"""Copies that an author leaves in flight: an arrival at a barrier tells when those of its thread are complete, and nobody waits before.

    for u in T.serial(8): T.ptx_cp_async(tile..., rows..., 8)  ->  eight times cp_async_16
    T.cp_async_barrier_noinc(ready)                            ->  mbarrier_arrive_copies(ready)

So the threads that bring tiles go on to the next one at once. Only copies that stand right in front of the arrival are left in flight,
in a branch whose threads order nothing else and do not touch the tile again. Whoever waits for the barrier sees what they brought; warp
groups, which read past the threads, after a fence of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilec.ir.expr import Buffer, Expr, Load, Scope, Select
from tilec.ir.tile import Barrier, For, If, Let, Mbarrier, Seq, Stmt, Store
from tilec.ir.visit import buffers_of, flat, stmt_children, stmt_exprs, storage, walk_expr, walk_stmt
from tilec.record import record


@record
class InFlight:
    """By id(): the copies that an arrival waits for, and all of them with the tile that each fills."""

    arrivals: dict[int, tuple[int, ...]]
    copies: dict[int, Buffer]

    @property
    def tiles(self) -> frozenset[Buffer]:
        """The tiles that are filled so."""
        return frozenset(self.copies.values())


def left_in_flight(body: Stmt) -> InFlight:
    """The copies of a launch that may go on behind the statement that begins them."""
    out = InFlight({}, {})
    for branch in _branches(body):
        found: dict[int, tuple[For, ...]] = {}
        for s in walk_stmt(branch):
            if isinstance(s, Seq):
                found |= _in_front(tuple(flat(s)))
        copies = {id(c): storage(_store(c).buffer) for group in found.values() for c in group}
        if copies and not _orders_more(branch) and not _touches(branch, copies):
            out.arrivals.update({key: tuple(map(id, group)) for key, group in found.items()})
            out.copies.update(copies)
    return out


def _branches(s: Stmt) -> Iterator[Stmt]:
    """The sides of the outermost branches."""
    if isinstance(s, If):
        for side in (s.then, s.orelse):
            yield from _branches(side) if _is_branch(side) else (side,)
    elif isinstance(s, Seq):
        for c in s.body:
            yield from _branches(c)


def _is_branch(s: Stmt) -> bool:
    """True for a side that is nothing but another branch, as `elif` makes it."""
    parts = flat(s)
    return len(parts) == 1 and isinstance(parts[0], If)


def _in_front(stmts: tuple[Stmt, ...]) -> dict[int, tuple[For, ...]]:
    """The arrivals among statements that follow one another, by id(), with the copies right in front of each."""
    out: dict[int, tuple[For, ...]] = {}
    run: tuple[For, ...] = ()
    for s in stmts:
        if isinstance(s, Mbarrier) and s.kind == "arrive_copies":
            out[id(s)] = run
        elif (copies := _copies(s)) is not None:
            run = (*run, *copies)
        else:
            run = ()
    return out


def _copies(s: Stmt) -> tuple[For, ...] | None:
    """The copies of a statement that does nothing else that others could see; None for any other."""
    if isinstance(s, Let) or (isinstance(s, Store) and s.buffer.scope in (Scope.LOCAL, Scope.VAR)):
        return () if all(_apart(e) for e in stmt_exprs(s)) else None
    if not isinstance(s, For) or not all(_apart(e) for e in (s.start, s.stop, s.step)):
        return None
    if _is_copy(s):
        return (s,)
    found = [_copies(c) for c in flat(s.body)]
    return None if any(f is None for f in found) else tuple(c for f in found if f is not None for c in f)


def _is_copy(s: For) -> bool:
    """True for neighbours in global memory that go to a shared tile."""
    parts = flat(s.body)
    if s.kind != "vectorized" or len(parts) != 1 or not isinstance(parts[0], Store):
        return False
    value = parts[0].value.a if isinstance(parts[0].value, Select) else parts[0].value
    brought = isinstance(value, Load) and value.buffer.scope is Scope.GLOBAL
    return brought and parts[0].buffer.scope is Scope.SHARED and all(_apart(e) for e in stmt_exprs(parts[0]))


def _store(s: For) -> Store:
    """The store that is all of a copy."""
    (store,) = flat(s.body)
    assert isinstance(store, Store)
    return store


def _apart(e: Expr) -> bool:
    """True for an expression that reads no shared memory."""
    return not any(isinstance(x, Load) and x.buffer.scope is Scope.SHARED for x in walk_expr(e))


def _orders_more(branch: Stmt) -> bool:
    """True when threads of a branch tell others something by other means than such arrivals."""
    return any(isinstance(s, Barrier) or (isinstance(s, Mbarrier) and s.kind in ("arrive", "arrive_expect")) for s in walk_stmt(branch))


def _touches(s: Stmt, copies: dict[int, Buffer]) -> bool:
    """True when a statement touches one of the tiles otherwise than by the copies."""
    if id(s) in copies:
        return False
    own = [] if stmt_children(s) and isinstance(s, Seq | For | If) else list(buffers_of(s))
    return any(storage(b) in copies.values() for b in own) or any(_touches(c, copies) for c in stmt_children(s))
