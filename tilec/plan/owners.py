"""Tiles of which each thread touches elements of its own only: what one statement leaves, the next finds without a barrier.

    T.copy(A, s);  for i, j in T.Parallel(64, 64): s[i, j] *= 2;  T.copy(s, B)      spread alike: thread by thread, no barrier

Statements are spread alike when the same thread has the same iterations, and each goes to the element of its own number; by registers
or by running numbers, and whether they count dimensions of one element or not, makes no difference.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilec.record import record
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Buffer, Const, Expr, Load, Scope, Var
from tilec.ir.tile import Atomic, Store
from tilec.ir.visit import pointers, stmt_exprs, storage, substitute, walk_expr
from tilec.layout.fragment import Digit, FragmentLayout, normal
from tilec.plan.access import copies_guard
from tilec.plan.domains import static
from tilec.plan.plan import THREAD, PFor, PIf, PScalar, PStmt, PWhile, Spread, TileLoop
from tilec.plan.walk import walk_plan

PLACES = tuple(Var(f"place{n}") for n in range(8))
"""Stand for the variables of a loop, first to last."""

ZERO = Const(0, INT32)
"""The one index along a dimension of one element."""


@record
class Owned:
    """A touch of `tile` (the owner of its storage) by the threads that `how` gives its elements to."""

    tile: Buffer
    how: FragmentLayout | Spread
    vector: int
    extents: tuple[Expr, ...]
    seen_as: Buffer
    indices: tuple[Expr, ...]
    writes: bool

    @property
    def alone(self) -> bool:
        """True for what a thread does for itself, at places that its author has given it."""
        return isinstance(self.how, Spread) and self.how.threads == 1

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for touches of one element by one thread."""
        threads = None if self.alone else holders(self.how, self.vector, self.extents)
        long = [n for n, e in enumerate(self.extents) if static(e) != 1]
        if threads is None or any(g.dim not in long for g in threads):
            return self.how, self.vector, self.extents, id(self.seen_as), self.indices
        table: dict[Var, Expr] = {v: PLACES[long.index(n)] if n in long else ZERO for n, v in enumerate(PLACES[: len(self.extents)])}
        places = tuple(substitute(e, table) for e in self.indices)
        digits = tuple((long.index(g.dim), g.stride, g.size) for g in threads)
        return digits, tuple(self.extents[n] for n in long), id(self.seen_as), places


def holders(how: FragmentLayout | Spread, width: int, extents: tuple[Expr, ...]) -> tuple[Digit, ...] | None:
    """Which thread has which iterations, as the digits of the thread number; None where these do not tell. Chunks are `width` long."""
    if isinstance(how, FragmentLayout):
        return normal(how.thread) if how.used_threads == how.threads else None
    counts = [static(e) for e in extents]
    counts[-1] = None if counts[-1] is None or counts[-1] % width else counts[-1] // width
    left, out = how.threads, []
    for d in reversed(range(len(counts))):
        n = counts[d]
        if n is None or (n % left and left % n):
            return None
        size = min(n, left)
        out.append(Digit(d, width if d == len(counts) - 1 else 1, size))
        left //= size
        if left == 1:
            return normal(out)
    return None


def owned(s: TileLoop) -> dict[Buffer, tuple[Owned, ...]]:
    """The shared tiles of which each thread touches its own elements in a loop, by their storage."""
    if s.rows or len(s.vars) > len(PLACES) or (s.guard is not None and any(isinstance(e, Load) for e in walk_expr(s.guard))):
        return {}
    if isinstance(s.how, Spread):
        alike = s.how.threads > 1 and isinstance(s.how.rounds, Const)
    else:
        alike = s.once is None and copies_guard(s.how, THREAD) is None
    if not alike:
        return {}
    table: dict[Var, Expr] = dict(zip(s.vars, PLACES, strict=False))
    found: dict[Buffer, dict[Owned, None]] = {}
    for buffer, indices, writes in _touches(s.body):
        places = tuple(substitute(e, table) for e in indices)
        found.setdefault(storage(buffer), {})[Owned(storage(buffer), s.how, s.vector, s.extents, buffer, places, writes)] = None
    taken = {storage(b) for x in walk_plan(s.body) for e in _exprs(x) for b, _ in pointers(e)}
    return {
        tile: tuple(touches) for tile, touches in found.items()
        if tile.scope is Scope.SHARED and tile not in taken and len({t.key for t in touches}) == 1 and _plain(next(iter(touches)).indices)
    }  # fmt: skip


def owned_by_thread(s: PScalar) -> dict[Buffer, tuple[Owned, ...]]:
    """The shared tiles of which a statement of each thread touches one element only: its own, as long as it names it alike."""
    found: dict[Buffer, dict[Owned, None]] = {}
    for buffer, indices, writes in _touches(s):
        touch = Owned(storage(buffer), Spread(1, 1, Const(1, INT32)), 1, (), buffer, indices, writes)
        found.setdefault(storage(buffer), {})[touch] = None
    taken = {storage(b) for e in _exprs(s) for b, _ in pointers(e)}
    return {
        tile: tuple(touches) for tile, touches in found.items()
        if tile.scope is Scope.SHARED and tile not in taken and len({t.key for t in touches}) == 1
    }  # fmt: skip


def _exprs(s: PStmt) -> tuple[Expr, ...]:
    match s:
        case PScalar(leaf):
            return stmt_exprs(leaf)
        case PIf(cond) | PWhile(cond):
            return (cond,)
        case PFor():
            return (s.start, s.stop, s.step)
        case _:
            return ()


def _touches(body: PStmt) -> Iterator[tuple[Buffer, tuple[Expr, ...], bool]]:
    for x in walk_plan(body):
        for root in _exprs(x):
            for e in walk_expr(root):
                if isinstance(e, Load):
                    yield e.buffer, e.indices, False
        if isinstance(x, PScalar) and isinstance(x.stmt, Store | Atomic):
            yield x.stmt.buffer, x.stmt.indices, True


def _plain(indices: tuple[Expr, ...]) -> bool:
    """True for places that nothing but the iteration decides."""
    return all(isinstance(e, Const) or e in PLACES for e in indices)
