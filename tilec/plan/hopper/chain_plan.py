"""How a kernel that chains products runs on Hopper: its numbers, and how products find their operands. Data only.

    S = K Q^T of 64 rows a consumer: ChainProduct("wgmma_m64n64k16_f16_f32", K as TileRead, Q as TileRead, S, 32 registers, fresh)
"""

from __future__ import annotations

from tilec.diagnostics import NOWHERE, Span
from tilec.ir.expr import Buffer, Expr
from tilec.plan.hopper.plan import WarpGroups
from tilec.record import record


@record
class ChainSchedule(WarpGroups):
    """The numbers of a kernel that chains products.

    `row_axis` is the block index that runs fastest over the tiles, because blocks that differ in it alone
    stream the same tiles; `uneven` is 1 or -1 where the loop grows longer with it or shorter: those blocks go longest first, in
    sections of `section` others, whose streamed tiles fit the L2 cache together.
    """

    row_axis: int
    uneven: int
    section: Expr


@record
class TileRead:
    """A shared tile as an operand: where it lies, and what a descriptor says of it.

    `group_step` are the bytes between the parts of two consumers, `slices` those from the start to each slice of 16 along k.
    `bytes` are those of a version.
    """

    tile: Buffer
    leading: int
    stride: int
    mode: int
    group_step: int
    slices: tuple[int, ...]
    bytes: int
    transposed: bool  # rows run along m or n


@record
class ChainProduct:
    """A product of each consumer: `instruction` is the prelude's name; `a` is a fragment or a tile, `b` a tile.

    `fresh`: it overwrites its accumulator. `by_columns`: consumers share the columns of a result of 64 rows, not its rows.
    """

    instruction: str
    a: Buffer | TileRead
    b: TileRead
    c: Buffer
    registers: int
    fresh: bool
    by_columns: bool


@record
class Multiply:
    """Queues a product of a step, by its number, as a group of its own."""

    product: int
    span: Span = NOWHERE


@record
class Settle:
    """Waits until all but the newest `pending` products are done; the `accumulators` of those may be used then.

    `releases`: products of the step before end here, so the tiles of that step are handed back.
    """

    pending: int
    accumulators: tuple[Buffer, ...]
    releases: bool = False


@record
class Publish:
    """A 16-bit fragment goes into the shared tile `tile` for the products of all consumers, which meet here."""

    src: Buffer
    tile: Buffer
    rows: int
    span: Span = NOWHERE
