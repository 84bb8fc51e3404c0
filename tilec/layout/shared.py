"""Where the elements of a shared tile live: tensor index -> element offset, with a row pitch and a bank swizzle.

The swizzle exchanges the 16-byte chunks of a tile by an exclusive-or over the byte offset, as TMA's 32, 64 and 128-byte modes
do, so it does not depend on the shape in which a view looks at the bytes.

    Swizzle(mask=3, shift=3) on rows of 64 bytes: chunk c of row r goes to chunk c ^ (r / 2 % 4).
"""

from __future__ import annotations

from math import prod

from tilec.record import record

CHUNK = 16
"""Bytes that stay together: one ldmatrix row, one cp.async."""


@record
class Swizzle:
    """chunk ^= (chunk >> shift) & mask, over the running number of 16-byte chunks of the tile."""

    mask: int
    shift: int


@record
class SharedLayout:
    """A row-major tile of `shape` with elements of `itemsize` bytes; rows (last dimension) are `pitch` elements apart.

    With a `panel`, rows are cut into pieces of so many elements (the pitch), and all first pieces come before all second ones.
    """

    shape: tuple[int, ...]
    itemsize: int
    pitch: int
    swizzle: Swizzle | None = None
    panel: int = 0

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours along each dimension, the pitch included, the swizzle aside."""
        out: list[int] = []
        step = self.pitch
        for extent in reversed(self.shape[:-1]):
            out.append(step)
            step *= extent
        return (*reversed(out), 1) if self.shape else ()

    @property
    def elements(self) -> int:
        """Elements the tile spans, padding included."""
        if self.panel:
            return prod(self.shape)
        return prod(self.shape[:-1]) * self.pitch if self.shape else 1

    @property
    def bytes(self) -> int:
        """Bytes the tile spans."""
        return self.elements * self.itemsize

    def offset(self, index: tuple[int, ...]) -> int:
        """Element offset of an index: the ground truth for tests."""
        flat = sum(i * s for i, s in zip(index, self.strides, strict=True))
        if self.panel:
            flat += index[-1] // self.panel * (prod(self.shape[:-1]) - 1) * self.panel
        if self.swizzle is None:
            return flat
        per = CHUNK // self.itemsize
        chunk, rest = divmod(flat, per)
        return (chunk ^ ((chunk >> self.swizzle.shift) & self.swizzle.mask)) * per + rest


def dense(shape: tuple[int, ...], itemsize: int) -> SharedLayout:
    """The plain row-major layout."""
    return SharedLayout(shape, itemsize, shape[-1] if shape else 1)


def conflict_free(shape: tuple[int, ...], itemsize: int, compact: bool = False) -> SharedLayout:
    """The layout that ldmatrix (also .trans) and 16-byte row accesses meet without bank conflicts.

    Rows of 32 bytes or a greater power of two are swizzled; other rows of whole chunks get a pitch of an odd number of
    chunks; anything else stays plain. A `compact` layout swizzles rows of 128 bytes or a multiple, too, which takes no bytes more.
    """
    row = shape[-1] * itemsize
    if len(shape) < 2 or row % CHUNK or prod(shape[:-1]) == 1:
        return dense(shape, itemsize)
    chunks = row // CHUNK
    if compact and chunks % 8 == 0:
        return SharedLayout(shape, itemsize, shape[-1], Swizzle(7, (chunks & -chunks).bit_length() - 1))
    if chunks & (chunks - 1):
        return SharedLayout(shape, itemsize, (chunks + (chunks % 2 == 0)) * CHUNK // itemsize)
    if chunks == 1:
        return dense(shape, itemsize)
    mask = min(chunks, 8) - 1
    shift = max(3, chunks.bit_length() - 1)
    return SharedLayout(shape, itemsize, shape[-1], Swizzle(mask, shift))
