"""Which statements write one element of a tensor in device memory by different threads, so that their order needs a barrier.

    for i in T.Parallel(64): O[i] = -1      by thread i
    O[n] = 5                                by the first thread: the two are rivals

Tensors that a launch also reads are ordered with their reads already (`plan.barriers`); this is about the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from types import MappingProxyType

from tilec.record import record
from tilec.analysis.facts import Facts
from tilec.analysis.proofs import prove
from tilec.ir.dtypes import INT64
from tilec.ir.expr import Buffer, Cast, Compare, Const, Expr, Scope, Var
from tilec.ir.tile import Atomic, Let, Store
from tilec.ir.visit import storage, substitute
from tilec.plan.plan import PFor, Pipeline, PScalar, PStmt, Spread, TileLoop
from tilec.plan.walk import plan_children

MOST = 64
"""Writes of one tensor that are compared in pairs; a tensor with more is left to its author."""


@dataclass(slots=True, eq=False)
class Writer:
    """A statement that writes `buffer`, and those that write the same elements of it by other threads."""

    buffer: Buffer
    rivals: set[Writer] = field(default_factory=set)


NO_WRITERS: Mapping[int, tuple[Writer, ...]] = MappingProxyType({})


@record(eq=False)
class _Write:
    """One store: the statement it belongs to, where it writes, and the loops of each thread around it, outermost first."""

    owner: PStmt
    leaf: Store | Atomic
    loops: tuple[Var, ...]

    @property
    def once(self) -> bool:
        """True when the first thread of the block does it."""
        return isinstance(self.owner, PScalar) and self.owner.once

    @property
    def spread(self) -> bool:
        """True when the threads of the block share the iterations of its loop."""
        return isinstance(self.owner, TileLoop) and not (isinstance(self.owner.how, Spread) and self.owner.how.threads == 1)


def writers(body: PStmt, facts: Facts, read: frozenset[Buffer]) -> Mapping[int, tuple[Writer, ...]]:
    """The writers that have rivals, by the identity of the planned statement. Tensors of `read` are left out."""
    found: dict[Buffer, list[_Write]] = {}
    for w, known in _writes(body, facts, None, ()):
        facts = known
        buffer = storage(w.leaf.buffer)
        if buffer.scope is Scope.GLOBAL and buffer not in read:
            found.setdefault(buffer, []).append(w)
    out: dict[int, dict[Buffer, Writer]] = {}
    for buffer, writes in found.items():
        if len({id(w.owner) for w in writes}) < 2 or len(writes) > MOST:
            continue
        for a, b in combinations(writes, 2):
            if a.owner is not b.owner and not _ordered(a, b, facts):
                x, y = (out.setdefault(id(w.owner), {}).setdefault(buffer, Writer(buffer)) for w in (a, b))
                x.rivals.add(y)
                y.rivals.add(x)
    return {owner: tuple(each.values()) for owner, each in out.items()}


def _writes(s: PStmt, facts: Facts, loop: TileLoop | None, loops: tuple[Var, ...]) -> Iterator[tuple[_Write, Facts]]:
    """Every store below `s` with what is known by then; `loop` is the tile loop around it."""
    match s:
        case PScalar(Store() | Atomic() as leaf):
            yield _Write(loop or s, leaf, loops), facts
            return
        case TileLoop():
            loop = s
            for var, extent in zip(s.vars, s.extents, strict=False):
                facts = facts.with_loop(var, Const(0, var.dtype), extent, Const(1, var.dtype))
        case PFor():
            facts = facts.with_loop(s.var, s.start, s.stop, s.step)
            loops = (*loops, s.var)
        case Pipeline():
            facts = facts.with_loop(s.var, s.start, s.stop, Const(1, s.var.dtype))
            loops = (*loops, s.var)
        case _:
            pass
    for child in plan_children(s):
        if isinstance(child, PScalar) and isinstance(child.stmt, Let):
            facts = facts.with_let(child.stmt.var, child.stmt.value)
        for write, known in _writes(child, facts, loop, loops):
            facts = known
            yield write, known


def _ordered(a: _Write, b: _Write, facts: Facts) -> bool:
    """True when no element is written by both, or every such element by one thread."""
    if a.once and b.once:
        return True
    if not (a.once or b.once or a.spread or b.spread):
        return True  # each thread its own element, as the author says
    if _same_thread(a, b):
        return True
    if a.leaf.buffer is not b.leaf.buffer:
        return False
    around = [v for v in a.loops if v in b.loops]
    table: dict[Var, Expr] = {}
    for v in around:  # of another step of the loops around both
        other = replace(v)
        table[v] = other
        lo, hi = facts.numbers(v)
        facts = facts.with_range(other, lo, hi)
    return any(_differ(x, substitute(y, table), facts) for x, y in zip(a.leaf.indices, b.leaf.indices, strict=True))


def _same_thread(a: _Write, b: _Write) -> bool:
    """True when both loops give the element to the same thread."""
    x, y = a.owner, b.owner
    if not isinstance(x, TileLoop) or not isinstance(y, TileLoop) or a.leaf.buffer is not b.leaf.buffer:
        return False
    if x.how != y.how or x.extents != y.extents or x.vector != y.vector:
        return False
    table: dict[Var, Expr] = dict(zip(y.vars, x.vars, strict=True))
    return a.leaf.indices == tuple(substitute(e, table) for e in b.leaf.indices)


def _differ(a: Expr, b: Expr, facts: Facts) -> bool:
    if a.dtype != b.dtype:
        a, b = (e if e.dtype == INT64 else Cast(e, INT64) for e in (a, b))
    return prove(Compare("ne", a, b), facts) is True
