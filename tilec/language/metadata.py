"""Orders in memory that the metadata of T.gemm_sp have where CUTLASS or torch have compressed an operand.

    T.annotate_layout({E: make_cutlass_metadata_layout(E, mma_dtype="float16", arch="8.0")})
        ->  E[i, j] lies where those compressors put the metadata of row i

On sm_8x rows are dealt out in groups and pairs of words of two rows changed over; on sm_90 tiles of 64 rows are laid out one by one.
Tiles in shared memory stay in the order of the rows: copies put the words in their places.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tilec.ir.dtypes import DType
from tilec.ir.expr import Buffer
from tilec.language.access import as_expr, buffer_label, dtype_of, host_int
from tilec.language.arith import binary
from tilec.language.bind import Entry, works
from tilec.language.builder import Builder
from tilec.language.extents import constant
from tilec.language.layouts import LayoutValue
from tilec.language.show import describe
from tilec.language.values import Primitive

Digit = tuple[int, int]
"""Of a mixed-radix number: how many values a digit has, and what each step of it adds to the place."""


def make_cutlass_metadata_layout(b: Builder, buffer: Any, mma_dtype: Any = "float16", arch: Any = None, block_k: Any = 128) -> LayoutValue:
    """The order of metadata that CUTLASS compresses, for T.annotate_layout; of `arch`, or of the target."""
    if not isinstance(buffer, Buffer) or buffer.rank != 2 or None in (sizes := [constant(e) for e in buffer.shape]):
        text = f"make_cutlass_metadata_layout takes a buffer of two dimensions of known sizes, got {describe(buffer)}"
        raise b.error("TL0343", text, help="give the sizes with -D")
    rows, words = (int(n or 0) for n in sizes)
    number = b.target.number if arch is None else _number(b, arch)
    operand = dtype_of(b, mma_dtype)
    if number >= 90:
        digits = _tiles_of_64(b, buffer, operand, rows, words, host_int(b, block_k, "block_k"))
        return LayoutValue(Primitive("layout", lambda b, args, kwargs: _mixed(b, args, digits), True))
    if buffer.dtype.bits not in (16, 32) or rows % (32 if buffer.dtype.bits == 16 else 16) or words % 2:
        text = f"metadata of sm_8x are whole groups of rows of an even number of 16- or 32-bit words, `{buffer.name}` is not"
        raise b.error("TL0343", text, *buffer_label(buffer))
    group, apart = (32, 4) if buffer.dtype.bits == 16 else (16, 2)
    return LayoutValue(Primitive("layout", lambda b, args, kwargs: _interleaved(b, args, (rows, words), group, apart), True))


def _number(b: Builder, arch: Any) -> int:
    """An architecture such as "8.0", "sm_90a" or 90 as a number of two digits."""
    digits = "".join(c for c in str(arch) if c.isdigit())
    if not digits:
        raise b.error("TL0206", f"{describe(arch)} is no architecture", help='write it as "8.0" or "9.0"')
    return int(digits) * (10 if len(digits) == 1 else 1)


def _interleaved(b: Builder, index: tuple[Any, ...], size: tuple[int, int], group: int, apart: int) -> Any:
    """Rows of a group by their number among eight first; the words off the diagonal of each two by two change places."""
    i, j = index

    def op(name: str, x: Any, y: Any) -> Any:
        return binary(b, name, x, y)

    row = op("add", op("mul", op("floordiv", i, group), group), op("mul", op("mod", i, 8), apart))
    row = op("add", row, op("floordiv", op("mod", i, group), 8))
    pair = op("add", op("mul", op("floordiv", row, 2), 2), op("mod", j, 2))  # the last bits of row and column change places
    place = op("add", op("mul", op("floordiv", j, 2), 2 * size[0]), op("add", op("mul", pair, 2), op("mod", row, 2)))
    return (as_expr(b, place),)


def _tiles_of_64(b: Builder, buffer: Buffer, operand: DType, rows: int, words: int, block_k: int) -> tuple[list[Digit], list[Digit]]:
    """The digits of the row and of the byte, lowest first."""
    least = 512 // operand.bits
    block = min(block_k, 128)
    if buffer.dtype.bits != 8 or operand.bits not in (8, 16, 32) or block % least:
        text = f"metadata of sm_90 are bytes, for tiles of a multiple of {least} along K"
        raise b.error("TL0343", f"{text}: `{buffer.name}` is {buffer.dtype}, block_k {block_k}", *buffer_label(buffer))
    if operand.bits == 8:
        extents: tuple[list[int], list[int]] = ([64], [block // 8])
        steps: tuple[list[int], list[int]] = ([block // 8], [1])
    else:
        along = (8, 2, 4, operand.bits // 8 if operand.bits == 16 else 1, 2, block // least)
        step, found = 1, [0] * 6
        for place in (3, 1, 5, 0, 4, 2):  # from what lies side by side to what lies far apart
            found[place], step = step, step * along[place]
        extents, steps = (list(along[:3]), list(along[3:])), (found[:3], found[3:])
    tile = prod(extents[0]) * prod(extents[1])
    down, across = -(-rows // 64), -(-words // prod(extents[1]))
    if rows % 64 or words % prod(extents[1]):
        text = f"`{buffer.name}` of {rows}×{words} is no whole number of tiles of 64×{prod(extents[1])}"
        raise b.error("TL0343", text, *buffer_label(buffer))
    return [*zip(extents[0], steps[0], strict=True), (down, tile)], [*zip(extents[1], steps[1], strict=True), (across, tile * down)]


def _mixed(b: Builder, index: tuple[Any, ...], digits: tuple[list[Digit], list[Digit]]) -> Any:
    """The place of an index whose coordinates are cut into digits."""
    place: Any = 0
    for rest, own in zip(index, digits, strict=True):
        for n, (size, step) in enumerate(own):
            last = n + 1 == len(own)
            digit = rest if last else binary(b, "mod", rest, size)
            rest = rest if last else binary(b, "floordiv", rest, size)
            if size > 1:
                place = binary(b, "add", place, binary(b, "mul", digit, step))
    return (as_expr(b, place),)


LAYOUTS: tuple[Entry, ...] = works(make_cutlass_metadata_layout, "make_metadata_layout", host=True)
"""Names of tilelang.layout."""
