"""Planned statements of a kernel whose author orders its work by barriers. Data only; `lower` makes them.

    T.tma_copy(A[by * 128, k * 64], A_s, barrier=full)   ->  PBulkCopy(map of A, A_s, one box, 16384 bytes, full, 0)
"""

from __future__ import annotations

from tilec.analysis.teams import Team
from tilec.diagnostics import NOWHERE, Span
from tilec.ir.expr import Buffer, Expr, Var
from tilec.plan.hopper.plan import TensorMap
from tilec.record import record


@record
class TeamPlan:
    """Threads that carry out tile statements by themselves, and the named barrier at which they meet (0 for one thread, or a warp)."""

    team: Team
    barrier: int
    index: Var | None = None  # the thread index that is the number of a thread in its block, where one is


@record
class PBarriers:
    """The barriers of the author come into being: buffer, number and arrivals of each. `engine` tells the copy engine of them."""

    barriers: tuple[tuple[Buffer, int, int], ...]
    engine: bool


@record
class PMbarrier:
    """What each thread does with a barrier (see `ir.tile.Mbarrier`); `portable` where waiting must not need Hopper."""

    kind: str
    buffer: Buffer
    index: Expr
    value: Expr | None
    portable: bool
    span: Span = NOWHERE


@record
class BulkBox:
    """One box: the element of the tile where it lies, and its coordinates in the tensor, innermost first."""

    offset: Expr
    at: tuple[Expr, ...]


@record
class PBulkCopy:
    """Boxes queued by the first thread that is here; of a load with a `barrier`, which expects `bytes` more. With a `mask` the lowest
    block of it loads into all of them. A store that `closes` ends its group."""

    map: TensorMap
    tile: Buffer
    boxes: tuple[BulkBox, ...]
    bytes: int
    barrier: Buffer | None
    index: Expr | None
    span: Span = NOWHERE
    mask: int = 0
    closes: bool = False


@record
class PBulkFetch:
    """Inside a pipeline: whole tiles queued by the first thread for a later step; the barrier of the stage, an element of `full`,
    counts its arrival and their bytes."""

    copies: tuple[PBulkCopy, ...]
    full: Buffer

    @property
    def bytes(self) -> int:
        """Bytes of all boxes, parts out of range included."""
        return sum(c.bytes for c in self.copies)


@record
class PSend:
    """`bytes` from element `offset` of a shared tile, to element `there` of one of the block `peer` of the cluster, queued by the first
    thread that is here; one arrival at the barrier there, which expects these bytes."""

    src: Buffer
    offset: Expr
    dst: Buffer
    there: Expr
    bytes: int
    peer: Expr
    barrier: Buffer
    index: Expr
    span: Span = NOWHERE


@record
class PControl:
    """Orders what is queued (see `ir.tile.Control`); `settled` are accumulators that are complete behind it, with their registers."""

    kind: str
    value: int
    settled: tuple[tuple[Buffer, int], ...] = ()
    span: Span = NOWHERE
