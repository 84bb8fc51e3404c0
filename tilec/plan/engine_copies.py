"""Copies of a pipelined loop that the copy engine brings, where warp groups do the products: one thread queues whole tiles as boxes.

    T.copy(KV[k * 64, 0], KV_s)  in a loop of two stages  ->  thread 0 expects 65536 bytes at full[stage] and queues eight boxes

The threads wait for the barrier of a stage instead of copies of their own; they have neither addresses to compute nor anything to tell
warp groups of, since the engine writes where those read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tilec.analysis.facts import Facts
from tilec.ir.dtypes import INT32, UINT64
from tilec.ir.expr import Buffer, Const, Scope, Var
from tilec.ir.tile import BulkCopy, Copy
from tilec.layout.shared import SharedLayout
from tilec.plan.by_hand.plan import PBarriers, PBulkCopy, PBulkFetch
from tilec.plan.by_hand.tiles import bulk_boxes
from tilec.plan.copy_engine import SPANS, span_swizzle
from tilec.plan.domains import static
from tilec.plan.hopper.plan import TensorMap
from tilec.plan.pipelines import rename
from tilec.plan.plan import PBarrier, PSeq


def fetched(
    copies: Sequence[Copy], var: Var, ahead: Var, stages: int, tiles: Callable[[Buffer], SharedLayout], facts: Facts
) -> tuple[PBulkFetch, frozenset[int]] | None:
    """What the engine brings of the `copies` that a loop over `var` runs ahead, with `ahead` in its place, and their numbers."""
    full = Buffer("full", UINT64, (Const(stages, INT32),), Scope.SHARED, span=copies[0].span if copies else ahead.span)
    out: dict[int, PBulkCopy] = {}
    for n, c in enumerate(copies):
        moved = rename(c, var, ahead)
        assert isinstance(moved, Copy)
        found = _boxes(moved, full, stages, tiles(c.dst.buffer), facts)
        if found is not None:
            out[n] = found
    return (PBulkFetch(tuple(out.values()), full), frozenset(out)) if out else None


def _boxes(s: Copy, full: Buffer, stages: int, layout: SharedLayout, facts: Facts) -> PBulkCopy | None:
    """A copy as boxes; None where the engine cannot do it, or would put a tile where its layout does not."""
    whole = 1024 if layout.swizzle else 128
    if s.src.buffer.dtype != s.dst.buffer.dtype or not as_engine(layout) or (stages > 1 and layout.bytes % whole):
        return None
    found = bulk_boxes(BulkCopy(s.src, s.dst, full, Const(0, INT32), s.span), layout, facts)
    if isinstance(found, str):
        return None
    tensor, boxes = found
    return PBulkCopy(tensor, s.dst.buffer, boxes, len(boxes) * box_bytes(tensor), full, Const(0, INT32), s.span)


def as_engine(layout: SharedLayout) -> bool:
    """True for plain rows, and for rows exchanged as the engine does."""
    if layout.swizzle is None:
        return layout.pitch == layout.shape[-1]
    span = layout.pitch * layout.itemsize
    return span in SPANS and layout.swizzle == span_swizzle(span) and layout.pitch in (layout.panel, layout.shape[-1])


def box_bytes(tensor: TensorMap) -> int:
    """Bytes of a box, parts out of range included."""
    return prod(tensor.box) * tensor.tensor.dtype.bytes


def with_full(body: PSeq, fetches: Sequence[PBulkFetch]) -> PSeq:
    """`body` with the barriers of its pipelines made first."""
    if not fetches:
        return body
    made = tuple((f.full, n, 1) for f in fetches for n in range(static(f.full.shape[0]) or 0))
    return PSeq((PBarriers(made, True), PBarrier("block", why="the barriers exist"), *body.body))


def engine_tiles(fetches: Sequence[PBulkFetch], tiles: Callable[[Buffer], SharedLayout]) -> frozenset[Buffer]:
    """The tiles that must start where the exchange of their rows does."""
    return frozenset(c.tile for f in fetches for c in f.copies if tiles(c.tile).swizzle is not None)
