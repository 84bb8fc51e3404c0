"""What products leave for the next step of a pipeline, and who reads it while products of that step are in flight.

A copy is a branch, and beyond a branch the assembler loses sight of which products are in flight: what reads an accumulator that the
step before has left, and needs nothing of those in flight, it moves up beside them, and puts a wait of its own in front (C7517). So in
such steps copies go in front of the products, and in front of the copies those reads that nothing hinders; they share a barrier then:

    gemm s; fetch; use s; gemm o; copy state -> state_s; gemm state   ->   copy state -> state_s; fetch; gemm s; use s; gemm o; gemm state

Chunked linear attention on an H200, four sizes: 168, 101, 94 and 239 us with the copies beside the first product, 166, 101, 83 and 201 in
front of it, 156, 102, 83 and 198 with the state's copy there as well (175, 107, 95 and 243 with the copies behind the product).

Where an author orders all that by hand, nothing moves: the assembler is told how many products are in flight (`told_apart`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tilec.ir.expr import Buffer, Call, Expr, Load, Scope
from tilec.ir.tile import Alloc, Let, Store
from tilec.ir.visit import stmt_exprs, storage, walk_expr
from tilec.plan.by_hand.plan import PBulkCopy, PControl, PMbarrier
from tilec.plan.plan import (
    FillRegisters, PFor, PGemm, PIf, PReduce, PScalar, PScan, PSeq, PStmt, PWhile, Spread, Stepped, TileLoop,
)  # fmt: skip
from tilec.plan.walk import walk_plan
from tilec.record import record


@record
class Touched:
    """What a statement reads and writes, products apart; the accumulators of its products and what these read. `known` is false where
    something may do more, `simple` where a statement does more than to move elements."""

    reads: frozenset[Buffer]
    writes: frozenset[Buffer]
    sums: frozenset[Buffer]
    operands: frozenset[Buffer]
    known: bool
    simple: bool

    @property
    def needed(self) -> frozenset[Buffer]:
        """All that is read."""
        return self.reads | self.sums | self.operands

    @property
    def changed(self) -> frozenset[Buffer]:
        """All that is written."""
        return self.writes | self.sums


def touches(s: PStmt) -> Touched:
    """What a statement touches, everything inside it included."""
    reads: set[Buffer] = set()
    writes: set[Buffer] = set()
    sums: set[Buffer] = set()
    operands: set[Buffer] = set()
    exprs: list[Expr | None] = []
    known, inside = True, list(walk_plan(s))
    for x in inside:
        match x:
            case PSeq() | Stepped() | PControl("fence"):
                pass
            case TileLoop(how=how):
                exprs += [x.guard, *x.values, *([how.rounds] if isinstance(how, Spread) else [])]
            case FillRegisters(buffer, value):
                writes.add(storage(buffer))
                exprs.append(value)
            case PScalar(Store() | Let() | Alloc() as leaf):
                writes.update([storage(leaf.buffer)] if isinstance(leaf, Store) else [])
                exprs += stmt_exprs(leaf)
            case PReduce():
                reads.add(storage(x.src))
                writes.update(storage(b) for b in (x.dst, x.scratch) if b is not None)
            case PScan():
                reads.add(storage(x.buffer))
                writes.update(storage(b) for b in (x.buffer, x.scratch) if b is not None)
            case PGemm():
                sums.add(storage(x.c.buffer))
                operands.update(storage(r.buffer) for r in (x.a, x.b))
                exprs += [x.clear, *(e for r in x.operands for e in r.starts)]
            case PFor():
                exprs += [x.start, x.stop, x.step]
            case PIf() | PWhile():
                exprs.append(x.cond)
            case _:
                known = False
    parts = [e for root in exprs if root is not None for e in walk_expr(root)]
    reads.update(storage(e.buffer) for e in parts if isinstance(e, Load))
    known &= not any(isinstance(e, Call) and e.foreign for e in parts)
    simple = known and all(isinstance(x, PSeq | Stepped | TileLoop | PScalar | PControl) for x in inside)
    return Touched(frozenset(reads), frozenset(writes), frozenset(sums), frozenset(operands), known, simple)


def carried_first(consumers: Sequence[PStmt], first: int, last: int) -> tuple[list[PStmt], int]:
    """The statements of a step, of which those from `first` to `last` are products that copies could go beside, with all in front of
    these that can be and reads what the step before has left; and in front of which one the copies go.
    """
    found = [touches(s) for s in consumers]
    carried = tuple(_carried(found, first, last))
    moved: list[int] = []
    for n in carried:
        between = [found[m] for m in range(first, n) if m not in moved]
        if _movable(consumers[n], found[n], between) and not any(_declares(consumers[m]) for m in range(first, n)):
            moved.append(n)
    kept = [s for n, s in enumerate(consumers) if n not in moved]
    early = [_unfenced(consumers[n]) if any(map(_fences, kept[last + 1 : n])) else consumers[n] for n in moved]
    return [*kept[:first], *early, *kept[first:]], first + len(moved) if carried else last + 1


def _carried(found: Sequence[Touched], first: int, last: int) -> Iterator[int]:
    """Which statements of a step read what the step before has left, and need nothing of the products from `first` to `last`."""
    sums = frozenset().union(*(t.sums for t in found))
    tainted = frozenset().union(*(t.sums for t in found[first : last + 1]))
    written = frozenset().union(*(t.changed for t in found[: last + 1]))
    for n, t in enumerate(found[last + 1 :], last + 1):
        waits = not tainted.isdisjoint(t.needed)
        if not waits and not (t.reads & sums) <= written:
            yield n
        tainted = tainted | t.changed if waits else tainted
        written |= t.changed


def _movable(s: PStmt, t: Touched, between: Sequence[Touched]) -> bool:
    """True when a statement may as well come before others: it moves elements between registers and shared memory, and neither needs what
    they change nor changes what they need."""
    inner = all(b.scope in (Scope.FRAGMENT, Scope.SHARED) for b in t.reads | t.writes)
    apart = all(x.known and t.writes.isdisjoint(x.needed | x.changed) and t.reads.isdisjoint(x.changed) for x in between)
    return t.simple and inner and apart and not _declares(s)


def _declares(s: PStmt) -> bool:
    """True for a statement of the step that gives later ones a name."""
    match s:
        case Stepped(_, body):
            return _declares(body)
        case PSeq(parts):
            return any(_declares(x) for x in parts)
        case PScalar(leaf):
            return isinstance(leaf, Let | Alloc)
        case _:
            return False


def _fences(s: PStmt) -> bool:
    """True for a statement of the step that lets warp groups see what has been written so far."""
    return isinstance(s, Stepped) and any(isinstance(x, PControl) and x.kind == "fence" for x in s.body.body)


def _unfenced(s: PStmt) -> PStmt:
    """The statement without its fence, as a later one does for both."""
    return replace(s, body=PSeq(tuple(x for x in s.body.body if not isinstance(x, PControl)))) if isinstance(s, Stepped) else s


# ---- by hand


def told_apart(body: PSeq, looping: bool = False) -> PSeq:
    """`body`, whose author queues products and waits for them, with what else the assembler must be told: where a product is in flight
    beyond a branch and a step reads what the step before has left, a wait behind it for all but those in flight, which waits for nothing.
    """
    parts = [_told_inside(s, looping) for s in body.body]
    return PSeq(tuple(_with_counts(parts) if looping else parts))


def _told_inside(s: PStmt, looping: bool) -> PStmt:
    match s:
        case PSeq():
            return told_apart(s, looping)
        case Stepped():
            return replace(s, body=told_apart(s.body, looping))
        case PFor() | PWhile():
            return replace(s, body=told_apart(s.body, True))
        case PIf():
            return replace(s, then=told_apart(s.then, looping), orelse=told_apart(s.orelse, looping))
        case _:
            return s


def _with_counts(parts: Sequence[PStmt]) -> list[PStmt]:
    """The statements of a step with those waits."""
    queued = [any(isinstance(x, PGemm) and x.plan.kind == "wgmma" and not x.waits for x in _own(s)) for s in parts]
    if not any(queued):
        return list(parts)
    found, flying = [touches(s) for s in parts], 0
    for s in parts:  # what the step before has left in flight
        flying = _flying(s, flying)
    out: list[PStmt] = []
    for n, s in enumerate(parts):
        out.append(s)
        flying = _flying(s, flying)
        if queued[n] and _branches(parts[n + 1 :]) and any(_carried(found, n, n)):
            out.append(PControl("products_wait", flying))
    return out


def _own(s: PStmt) -> tuple[PStmt, ...]:
    """What a statement of the step consists of, branches and loops left out."""
    return s.body.body if isinstance(s, Stepped) else (s,)


def _flying(s: PStmt, before: int) -> int:
    """How many groups of products may be in flight behind a statement."""
    for x in walk_plan(s):
        match x:
            case PGemm() if x.plan.kind == "wgmma":
                before = 0 if x.waits else before + 1
            case PControl("products_wait", left):
                before = min(before, left)
            case _:
                pass
    return before


def _branches(parts: Sequence[PStmt]) -> bool:
    """True when threads meet a branch before they wait for all products: a loop that waits at a barrier is one."""
    for x in (x for s in parts for x in walk_plan(s)):
        match x:
            case PControl("products_wait", 0):
                return False
            case PIf() | PFor() | PWhile() | PBulkCopy() | PMbarrier(kind="wait"):
                return True
            case _:
                pass
    return False
