"""Tiles that the copy engine stores, where warp groups do the products: one thread queues boxes, and waits only where the tile changes.

    T.copy(b_h_shared, h[i_s, ...])  in a pipelined loop  ->  thread 0: tma_store_5d(...); bulk_commit();
                                                              in front of the next barrier: bulk_wait_read<0>();

Threads that store themselves would keep the fences waiting that let warp groups see what was written, since a fence waits for all that its
thread has under way.
"""

from __future__ import annotations

from dataclasses import replace

from tilec.analysis.affine import coefficient
from tilec.analysis.facts import Facts
from tilec.ir.expr import Buffer, Expr, Var
from tilec.ir.tile import Atomic, BulkCopy, Copy, Stmt, Store
from tilec.ir.visit import regions, storage, walk_expr, walk_stmt
from tilec.layout.shared import SharedLayout
from tilec.plan.by_hand.plan import PBulkCopy, PControl
from tilec.plan.by_hand.tiles import bulk_boxes
from tilec.plan.domains import static
from tilec.plan.engine_copies import as_engine, box_bytes
from tilec.plan.pipelines import touched
from tilec.plan.plan import PBarrier, PFor, PIf, Pipeline, PSeq, PStmt, PWhile, Stepped
from tilec.plan.walk import walk_plan


def engine_store(s: Copy, var: Var | None, body: Stmt, layout: SharedLayout, facts: Facts) -> PBulkCopy | None:
    """The boxes of a copy to global memory right in the pipeline over `var`, if there is one; None where the engine cannot do it, or the
    order of stores could tell.

    Steps store to different places, nothing else in the launch `body` touches the tensor, and tile and tensor have the same elements.
    """
    tensor = s.dst.buffer
    if var is None or s.src.buffer.dtype != tensor.dtype or not as_engine(layout) or not _apart(s.dst.starts, s.dst.extents, var):
        return None
    if tensor in touched([body])[0] or sum(_writes(x, tensor) for x in walk_stmt(body)) > 1:
        return None
    found = bulk_boxes(BulkCopy(s.src, s.dst, None, None, s.span), layout, facts)
    if isinstance(found, str):
        return None
    tile, boxes = found
    return PBulkCopy(tile, s.src.buffer, boxes, len(boxes) * box_bytes(tile), None, None, s.span, closes=True)


def _apart(starts: tuple[Expr, ...], extents: tuple[Expr, ...], var: Var) -> bool:
    """True for a region that moves by at least its extent along one dimension with every step, and otherwise stays."""
    moving = [n for n, e in enumerate(starts) if any(x is var for x in walk_expr(e))]
    if len(moving) != 1:
        return False
    step, extent = coefficient(starts[moving[0]], var), static(extents[moving[0]])
    return step is not None and extent is not None and abs(step) >= extent


def _writes(s: Stmt, tensor: Buffer) -> bool:
    if isinstance(s, Store | Atomic):
        return storage(s.buffer) is tensor
    return any(storage(r.buffer) is tensor for r in regions(s)[1])


def with_store_waits(body: PSeq) -> PSeq:
    """`body`, which has its barriers, with a wait in front of the first one behind each of these stores: what is behind that barrier
    may write the tile."""
    out, left = _waiting(body, False)
    return PSeq((*out.body, _WAIT)) if left else out


_WAIT = PControl("stores_read", 0)


def _waiting(body: PSeq, open: bool) -> tuple[PSeq, bool]:
    """A sequence behind stores that are still to be waited for, if `open`; and whether some are so behind it."""
    out: list[PStmt] = []
    for s in body.body:
        if isinstance(s, Stepped | PSeq):
            inner, open = _waiting(s.body if isinstance(s, Stepped) else s, open)
            out.append(replace(s, body=inner.body) if isinstance(s, PSeq) else replace(s, body=inner))
            continue
        if open and any(_meets(x) for x in walk_plan(s)):
            out.append(_WAIT)
            open = False
        open = open or (isinstance(s, PBulkCopy) and s.closes)
        out.append(_inside(s))
    return PSeq(tuple(out)), open


def _inside(s: PStmt) -> PStmt:
    """A statement whose bodies end with nothing to be waited for."""
    match s:
        case PFor() | PWhile():
            return replace(s, body=with_store_waits(s.body))
        case PIf():
            return replace(s, then=with_store_waits(s.then), orelse=with_store_waits(s.orelse))
        case Pipeline():
            return replace(s, consumers=with_store_waits(s.consumers))
        case _:
            return s


def _meets(s: PStmt) -> bool:
    """True for a barrier, and for loops, whose steps may begin with one."""
    return (isinstance(s, PBarrier) and s.kind != "copies") or isinstance(s, Pipeline | PFor | PWhile)
