"""What warp groups have in flight: products that follow one another share a wait, and threads work on in front of it.

    gemm acc; gemm acc; copy a tile into other registers; use acc   ->  both queued, the copy, one wait, use acc
"""

from __future__ import annotations

from dataclasses import replace

from tilec.ir.expr import Buffer, Call, Expr, Load, Scope
from tilec.ir.tile import Alloc, Let, Store
from tilec.ir.visit import stmt_exprs, storage, walk_expr
from tilec.plan.carried import told_apart, touches
from tilec.plan.plan import (
    Fetch, FillRegisters, PFor, PGemm, PGemms, PIf, Pipeline, PReduce, PScalar, PSeq, PStmt, PWhile, Stepped, TileLoop,
)  # fmt: skip
from tilec.plan.stores import with_store_waits
from tilec.plan.walk import walk_plan


def with_flights(body: PSeq, by_hand: bool) -> PSeq:
    """A body with products of warp groups, and its barriers, with where threads wait for these and for stores of the copy engine."""
    return told_apart(body) if by_hand else joined_products(with_store_waits(body))


def joined_products(body: PSeq) -> PSeq:
    """`body`, which has its barriers, with products that follow one another queued together, where they share one wait, and what else may
    be done in front of it."""
    return _joined(body, _sums(body))


def _sums(s: PStmt) -> frozenset[Buffer]:
    """The accumulators of all products of warp groups inside a statement."""
    return frozenset(storage(g.c.buffer) for g in walk_plan(s) if isinstance(g, PGemm) and g.in_place)


def _joined(body: PSeq, sums: frozenset[Buffer]) -> PSeq:
    """The same, where products have left `sums` before: none of these is read beside a product (see `plan.carried`)."""
    out: list[PStmt] = []
    for s, touched in ((s, touches(s)) for s in body.body):
        queued, here = (_queued(out[-1]) if out else None), _product(s)
        if queued and here and not queued.meanwhile and all(here.a.buffer is not g.c.buffer for g in queued.products):
            out[-1] = Stepped(queued.products[0].span, PSeq((PGemms((*queued.products, here)),)))
        elif queued and (isinstance(s, Fetch) or (_independent(s, queued.products) and not touched.reads & sums)):
            out[-1] = Stepped(queued.products[0].span, PSeq((replace(queued, meanwhile=(*queued.meanwhile, s)),)))
        else:
            out.append(_inside(s, sums))
        sums -= touched.changed
    return PSeq(tuple(out))


def _product(s: PStmt) -> PGemm | None:
    """The product of warp groups that is all of a statement."""
    match s:
        case Stepped(_, PSeq((PGemm() as g,))) if g.in_place and g.waits:
            return g
        case _:
            return None


def _queued(s: PStmt) -> PGemms | None:
    """The products that are all of a statement."""
    match s:
        case Stepped(_, PSeq((PGemms() as found,))):
            return found
        case _:
            return None if (g := _product(s)) is None else PGemms((g,))


def _independent(s: PStmt, products: tuple[PGemm, ...]) -> bool:
    """True for work that neither needs the products nor disturbs them, and declares nothing."""
    reads: set[Buffer] = set()
    writes: set[Buffer] = set()
    if not _touch(s, reads, writes):
        return False
    sums = {g.c.buffer for g in products}
    operands = {storage(r.buffer) for g in products for r in (g.a, g.b)}
    return not sums & (reads | writes) and not operands & writes


def _touch(s: PStmt, reads: set[Buffer], writes: set[Buffer], inside: bool = False) -> bool:
    """Collects what a statement touches; false for one that must stay where it is."""
    match s:
        case Stepped(_, body):
            return _touch(body, reads, writes, inside)
        case PSeq(parts):
            return bool(parts) and all(_touch(x, reads, writes, inside) for x in parts)
        case TileLoop():
            return _read(reads, s.guard, *s.values) and _touch(s.body, reads, writes, True)
        case FillRegisters(buffer, value):
            writes.add(storage(buffer))
            return _read(reads, value)
        case PReduce() if s.scratch is None:
            reads.add(storage(s.src))
            writes.add(storage(s.dst))
            return True
        case PScalar(Store() as leaf) if inside and leaf.buffer.scope in (Scope.FRAGMENT, Scope.GLOBAL):
            writes.add(storage(leaf.buffer))
            return _read(reads, *stmt_exprs(leaf))
        case PScalar(Let() | Alloc() as leaf) if inside:
            return _read(reads, *stmt_exprs(leaf))
        case _:
            return False


def _read(reads: set[Buffer], *exprs: Expr | None) -> bool:
    """Collects what expressions read; false where a function is called that may do more."""
    found = [x for e in exprs if e is not None for x in walk_expr(e)]
    reads.update(storage(x.buffer) for x in found if isinstance(x, Load))
    return not any(isinstance(x, Call) and x.foreign for x in found)


def _inside(s: PStmt, sums: frozenset[Buffer]) -> PStmt:
    match s:
        case PSeq():
            return _joined(s, sums)
        case Stepped():
            return replace(s, body=_joined(s.body, sums))
        case PFor() | PWhile():
            return replace(s, body=_joined(s.body, sums | _sums(s.body)))
        case PIf():
            return replace(s, then=_joined(s.then, sums), orelse=_joined(s.orelse, sums))
        case Pipeline():
            return replace(s, consumers=_joined(s.consumers, sums | _sums(s.consumers)))
        case _:
            return s
