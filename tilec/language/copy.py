"""T.copy, T.fill and T.clear: whole tiles and regions at once.

T.copy(A[by * 128, ko * 32], A_s)  ->  Copy(Region(A, (by * 128, ko * 32), (128, 32)), Region(A_s, (0, 0), (128, 32)))
"""

from __future__ import annotations

from typing import Any

from tilec.ir.expr import Buffer
from tilec.ir.tile import Copy, Fill
from tilec.language.access import as_expr
from tilec.language.bind import Entry, works
from tilec.language.builder import Builder
from tilec.language.context import in_kernel, tile_statement
from tilec.language.regions import is_element, is_empty, pair, region, write
from tilec.language.show import describe
from tilec.language.values import Ref


def copy(
    b: Builder, src: Any, dst: Any, coalesced_width: Any = None, disable_tma: Any = False, eviction_policy: Any = None, *,
    prefer_instruction: Any = None, annotations: Any = None, loop_layout: Any = None,
) -> None:  # fmt: skip
    """dst = src, element by element with a cast; reads out of range give 0, writes out of range are dropped.

    A side without slices is a start address that takes the extents of the other side. The options are hints.
    """
    in_kernel(b, "copy")
    for side, name in ((src, "source"), (dst, "destination")):
        if not isinstance(side, (Buffer, Ref)):
            raise b.error("TL0206", f"the {name} of T.copy must be a buffer or a region of one, got {describe(side)}")
    if coalesced_width is not None and not isinstance(coalesced_width, int):
        raise b.error("TL0206", f"coalesced_width must be an integer known while compiling, got {describe(coalesced_width)}")
    if is_element(src) and is_element(dst):
        write(b, dst, src)
        return
    tile_statement(b, "copy")
    source, target = pair(b, "copy", src, dst, empty=True)
    if not is_empty(source) and not is_empty(target):
        b.emit(Copy(source, target, b.span))


def fill(b: Builder, buffer: Any, value: Any) -> None:
    """Every element of a buffer or region = value, cast to its type."""
    in_kernel(b, "fill")
    if is_element(buffer):
        write(b, buffer, value)
        return
    tile_statement(b, "fill")
    target = region(b, buffer, "the first argument of T.fill", empty=True)
    if is_empty(target):
        return
    b.emit(Fill(target, as_expr(b, value, target.buffer.dtype), b.span))


def clear(b: Builder, buffer: Any) -> None:
    """Every element of a buffer or region = 0."""
    in_kernel(b, "clear")
    fill(b, buffer, 0)


ENTRIES: tuple[Entry, ...] = works(copy) + works(fill) + works(clear)
