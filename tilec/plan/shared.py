"""Where each shared tile lies in the block's memory, and in which layout.

Tiles that an mma reads are laid out without bank conflicts; others stay row-major. Every tile has a place of its own, unless the
block's memory is too small for that (see `overlap`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from tilec.diagnostics import Label, Span, error
from tilec.ir.expr import Buffer, Scope
from tilec.ir.tile import BulkCopy, Gemm, Stmt
from tilec.ir.visit import buffers_of, regions, storage, walk_stmt
from tilec.layout.shared import SharedLayout, conflict_free, dense
from tilec.plan.domains import static_shape
from tilec.plan.plan import SharedTile
from tilec.targets import Target

ALIGNMENT = 128
"""Bytes that every tile starts on a multiple of."""

BULK_ALIGNMENT = 1024
"""The same for tiles whose rows the copy engine or warp-group products exchange."""


def tile_layouts(buffers: Iterable[Buffer], operands: frozenset[Buffer], compact: bool = False) -> dict[Buffer, SharedLayout]:
    """The layout of every shared buffer; `operands` are those that tensor cores read.

    Views share the bytes of their owner, so owner and views keep dense rows, and one swizzle serves them all.
    """
    groups: dict[Buffer, list[Buffer]] = {}
    for b in buffers:
        groups.setdefault(storage(b), []).append(b)
    out: dict[Buffer, SharedLayout] = {}
    for owner, members in groups.items():
        if owner not in members:
            members.append(owner)
        wanted = [conflict_free(static_shape(b), b.dtype.bytes, compact) for b in members if b in operands]
        if len(members) == 1:
            out[owner] = wanted[0] if wanted else dense(static_shape(owner), owner.dtype.bytes)
            continue
        swizzle = next((w.swizzle for w in wanted if w.swizzle is not None), None)
        for b in members:
            shape = static_shape(b)
            out[b] = SharedLayout(shape, b.dtype.bytes, shape[-1] if shape else 1, swizzle)
    return out


def place_tiles(
    layouts: Mapping[Buffer, SharedLayout], stages: Mapping[Buffer, int], bulk: Collection[Buffer] = (),
    offsets: Mapping[Buffer, int] | None = None,
) -> tuple[dict[Buffer, SharedTile], int]:
    """Offsets of all tiles, owners in order, views at their owner's; and the bytes of the block. `bulk` are tiles for the copy
    engine; `offsets` are places already chosen."""
    tiles: dict[Buffer, SharedTile] = {}
    top = 0
    for b, layout in layouts.items():
        if storage(b) is b:
            top = -(-top // BULK_ALIGNMENT) * BULK_ALIGNMENT if b in bulk else top
            tile = SharedTile(layout, top if offsets is None else offsets[b], stages.get(b, 1))
            tiles[b] = tile
            top = max(top, tile.offset + -(-tile.bytes // ALIGNMENT) * ALIGNMENT)
    for b, layout in layouts.items():
        if storage(b) is not b:
            owner = tiles[storage(b)]
            tiles[b] = SharedTile(layout, owner.offset, owner.stages)
    return tiles, top


def check_limit(tiles: Mapping[Buffer, SharedTile], total: int, target: Target, span: Span) -> None:
    """Raises an error that lists the tiles when they do not fit the target."""
    if total <= target.shared_per_block_max:
        return
    owners: Sequence[tuple[Buffer, SharedTile]] = [(b, t) for b, t in tiles.items() if storage(b) is b]
    labels = tuple(
        Label(b.span, f"{b.name} takes {t.bytes} bytes" + (f" ({t.stages} versions of {t.layout.bytes})" if t.stages > 1 else ""))
        for b, t in owners
    )
    raise error(
        "TL0401", f"the tiles of this kernel need {total} bytes of shared memory, {target.name} has {target.shared_per_block_max} a block",
        span, *labels, help="use smaller tiles, fewer stages, or another --arch",
    )  # fmt: skip


def shared_buffers(body: Stmt) -> list[Buffer]:
    """Every shared buffer that `body` mentions, owners and views, in order of appearance."""
    found: dict[Buffer, None] = {}
    for s in walk_stmt(body):
        for b in buffers_of(s):
            if b.scope is Scope.SHARED:
                found.setdefault(storage(b))
                if b.peer is not None and b.view_of is not None:
                    found.setdefault(b.view_of)
                found.setdefault(b)
    return list(found)


def bulk_tiles(body: Stmt) -> frozenset[Buffer]:
    """Tiles that bulk copies fill or empty, and operands of products."""
    sides = [r.buffer for s in walk_stmt(body) if isinstance(s, BulkCopy | Gemm) for side in regions(s) for r in side]
    return frozenset(b for b in sides if b.scope is Scope.SHARED)
