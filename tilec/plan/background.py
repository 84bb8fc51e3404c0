"""Copies of whole vectors from global to shared memory that go on in the background until somebody needs the tile.

    T.copy(A[...], tile);  __syncthreads()   ->   cp_async_16(...) for every chunk, then one wait in front of the barrier

A thread then has all its chunks under way at once, whatever registers it has. Threads wait for their own chunks in front of the next
barrier, and in front of the first statement that touches the tile or stores to global memory. Copies inside loops stay as they are:
a pipeline is what takes them ahead.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilec.ir.expr import Buffer, Call, Load, Scope
from tilec.ir.tile import Alloc, Let, Store
from tilec.ir.visit import stmt_exprs, storage, walk_expr
from tilec.plan.barriers import touched_by
from tilec.plan.domains import static
from tilec.plan.plan import (
    AsyncCopy, Element, ElementKey, FillRegisters, InMemory, PBarrier, PReduce, PScalar, PScan, PSeq, PStmt, Spread, Stepped,
    TileLoop,
)  # fmt: skip

CHUNK = 16
"""Bytes of a copy that goes past the L1 cache."""

ROUNDS = 32
"""Chunks of one thread that are put under way together at most."""


def in_background(body: PSeq, elements: Mapping[ElementKey, Element], written: frozenset[Buffer]) -> PSeq:
    """`body`, which has its barriers, with asynchronous copies for plain ones. `written` are tensors that the launch stores to."""
    out: list[PStmt] = []
    filling: set[Buffer] = set()

    def settle() -> None:
        if filling:
            names = ", ".join(sorted(b.name for b in filling))
            out.append(PBarrier("copies", why=names))
            filling.clear()

    for s in body.body:
        span, inner = (s.span, s.body) if isinstance(s, Stepped) else (None, PSeq((s,)))
        copy = _copy(inner, elements, written)
        if copy is None:
            if not _passes(s, filling):
                settle()
            out.append(s)
            continue
        if storage(copy.dst) in filling:
            settle()
        filling.add(storage(copy.dst))
        out.append(copy if span is None else Stepped(span, PSeq((copy,))))
    settle()
    return PSeq(tuple(out))


def _copy(s: PSeq, elements: Mapping[ElementKey, Element], written: frozenset[Buffer]) -> AsyncCopy | None:
    """The asynchronous copy that means the same as all of `s`; None where there is none."""
    loop = s.body[0] if len(s.body) == 1 else None
    if not isinstance(loop, TileLoop) or not isinstance(loop.how, Spread) or loop.once is not None or len(loop.body.body) != 1:
        return None
    leaf = loop.body.body[0]
    rounds = static(loop.how.rounds)
    if not isinstance(leaf, PScalar) or not isinstance(leaf.stmt, Store) or rounds is None or not 1 <= rounds <= ROUNDS:
        return None
    dst, src = leaf.stmt, leaf.stmt.value
    if not isinstance(src, Load) or src.buffer.scope is not Scope.GLOBAL or dst.buffer.scope is not Scope.SHARED:
        return None
    whole = all(_whole(elements.get((b, i))) for b, i in ((src.buffer, src.indices), (dst.buffer, dst.indices)))
    same = src.buffer.dtype == dst.buffer.dtype and loop.vector * src.buffer.dtype.bytes == CHUNK and loop.how.threads > 1
    if not (whole and same) or storage(src.buffer) in written:
        return None
    return AsyncCopy(
        loop.vars, loop.how, loop.digits, loop.values, loop.vector, src.buffer, src.indices, dst.buffer, dst.indices, None, loop.guard,
        loop.span,
    )  # fmt: skip


def _whole(e: Element | None) -> bool:
    """True for an access that moves whole vectors and needs no test."""
    return isinstance(e, InMemory) and e.wide and not e.checks


def _passes(s: PStmt, filling: set[Buffer]) -> bool:
    """True for work in registers, which need not wait for the tiles that are being filled."""
    match s:
        case Stepped(_, body):
            return _passes(body, filling)
        case PSeq(parts):
            return all(_passes(x, filling) for x in parts)
        case TileLoop():
            return all(_passes(x, filling) for x in s.body.body) and not _meets(s, filling)
        case PScalar(Alloc() | Let() | Store() as leaf):
            foreign = any(isinstance(x, Call) and x.foreign for root in stmt_exprs(leaf) for x in walk_expr(root))
            return not foreign and not _meets(s, filling)
        case FillRegisters():
            return not _meets(s, filling)
        case PReduce() | PScan():
            return s.scratch is None
        case _:
            return False


def _meets(s: PStmt, filling: set[Buffer]) -> bool:
    """True when a statement touches one of the tiles, or stores to memory that other threads see."""
    found = touched_by(s)
    return bool(found.writes) or bool(found.updates) or not filling.isdisjoint(found.reads)
