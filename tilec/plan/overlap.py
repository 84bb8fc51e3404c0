"""Tiles that live one after the other share bytes, where the memory of a block would not hold them all side by side.

    Q_shared before and in the loop, O_shared behind it, 64 KB each  ->  both at byte 0, a barrier in front of the first use of O_shared

A tile lives from the first to the last statement of the launch that touches it; a loop counts as one statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilec.ir.expr import Buffer
from tilec.plan.barriers import shared_tiles
from tilec.plan.by_hand.plan import PControl
from tilec.plan.plan import PBarrier, PSeq, PStmt, Stepped
from tilec.record import record


@record
class Life:
    """The first and the last of the statements that touch a tile, by their number."""

    first: int
    last: int

    def meets(self, other: Life) -> bool:
        """True when there is a statement at which both live."""
        return self.first <= other.last and other.first <= self.last


@record
class Overlap:
    """Byte offsets of tiles, the bytes of the block, and the statements, by number, before which all threads meet."""

    offsets: Mapping[Buffer, int]
    total: int
    meetings: frozenset[int]


def _units(body: PSeq) -> Iterator[PStmt]:
    """The statements of a launch in order, what is inside loops and branches not counted."""
    for s in body.body:
        if isinstance(s, PSeq):
            yield from _units(s)
        elif isinstance(s, Stepped):
            yield from _units(s.body)
        else:
            yield s


def lives(body: PSeq) -> dict[Buffer, Life]:
    """When each shared tile lives, views counted with their owners."""
    found: dict[Buffer, Life] = {}
    for k, s in enumerate(_units(body)):
        for b in shared_tiles(s):
            found[b] = Life(found[b].first if b in found else k, k)
    return found


def overlap(body: PSeq, sizes: Mapping[Buffer, int], alignment: Mapping[Buffer, int]) -> Overlap:
    """Places for tiles of these sizes, the largest first, each at the lowest offset of its alignment where no tile lies that lives with
    it."""
    alive = lives(body)
    whole = Life(0, sum(1 for _ in _units(body)))
    placed: dict[Buffer, tuple[int, int, Life]] = {}
    for b in sorted(sizes, key=lambda b: -sizes[b]):
        step = alignment[b]
        life, size = alive.get(b, whole), -(-sizes[b] // step) * step
        at = 0
        for start, stop, other in sorted(placed.values(), key=lambda p: p[:2]):
            if life.meets(other) and start < at + size and at < stop:
                at = -(-stop // step) * step
        placed[b] = at, at + size, life
    meetings = {
        life.first
        for b, (start, stop, life) in placed.items()
        for c, (low, high, other) in placed.items()
        if b is not c and start < high and low < stop and other.last < life.first
    }
    order = {b: placed[b][0] for b in sizes}
    return Overlap(order, max((stop for _, stop, _ in placed.values()), default=0), frozenset(meetings))


def with_meetings(body: PSeq, meetings: frozenset[int], engine: bool = False) -> PSeq:
    """`body` with a barrier in front of the statements of these numbers, and a fence where the copy `engine` may write next."""
    numbers = iter(range(sum(1 for _ in _units(body))))

    def rebuild(seq: PSeq) -> PSeq:
        out: list[PStmt] = []
        for s in seq.body:
            if isinstance(s, PSeq):
                out.append(rebuild(s))
            elif isinstance(s, Stepped):
                out.append(Stepped(s.span, rebuild(s.body)))
            else:
                if next(numbers) in meetings:
                    out += [PControl("fence", 0)] if engine else []
                    out.append(PBarrier("block", why="tiles that share bytes"))
                out.append(s)
        return PSeq(tuple(out))

    return rebuild(body)
