"""References as regions: slices, start addresses, and how the two sides of a copy pair up; element reads and writes.

region(b, Ref(A, (Slice(i * 64, (i + 1) * 64), Slice(None, None)))) -> Region(A, (i * 64, 0), (64, 128))
pair(b, "copy", Ref(A, (by * 64, 0)), A_s) -> (Region(A, (by * 64, 0), (64, 32)), Region(A_s, (0, 0), (64, 32)))
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilec.diagnostics import Label
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Buffer, Const, Expr, Scope
from tilec.ir.tile import Region, Store
from tilec.ir.visit import substitute, walk_expr
from tilec.language.access import as_expr, buffer_label, element, expand, index, read, where
from tilec.language.arith import binary
from tilec.language.builder import Builder
from tilec.language.extents import constant, difference, equal
from tilec.language.lanes import is_vector, store
from tilec.language.show import describe, shape_text, size_text
from tilec.language.values import Ref, Slice

__all__ = ["element", "is_element", "pair", "read", "region", "sliced_dims", "write"]

ZERO, ONE = Const(0, INT32), Const(1, INT32)

_DEPTH = 8  # names defined by names that are looked through for the length of a slice
_SIZE = 400  # nodes of the longest expressions in that search


def is_element(value: Any) -> bool:
    """True for a reference without slices, and for a scalar variable: one element, or the start of a region."""
    if isinstance(value, Buffer):
        return value.rank == 0
    return isinstance(value, Ref) and not any(isinstance(i, Slice) or i is Ellipsis for i in value.items)


def write(b: Builder, target: Ref | Buffer, value: Any) -> None:
    """Emits `target = value` for an element or a scalar variable; the value is cast to the buffer's type."""
    if is_vector(target) and (isinstance(target, Buffer) or is_element(target) or is_vector(value)):
        store(b, target, value)
        return
    ref = Ref(target, (), b.span) if isinstance(target, Buffer) else target
    if isinstance(target, Ref) and not is_element(target):
        raise b.error(
            "TL0308", f"cannot assign to a slice of `{target.buffer.name}`", span=where(b, target),
            help="use T.copy(source, slice) or T.fill(slice, value)",
        )  # fmt: skip
    if ref.buffer.rank and not ref.items:
        raise b.error("TL0308", f"cannot assign to the whole of `{ref.buffer.name}`", help="use T.copy or T.fill")
    indices = element(b, ref)
    if ref.buffer in b.reducers and b.in_parallel:
        from tilec.language.reducers import update

        b.emit(update(b, ref.buffer, indices, as_expr(b, value, ref.buffer.dtype)))
        return
    b.emit(Store(ref.buffer, indices, as_expr(b, value, ref.buffer.dtype), b.span))


def region(b: Builder, value: Any, what: str = "this argument", empty: bool = False) -> Region:
    """The region that a buffer or a sliced reference names; dimensions with a scalar index have extent 1. No elements: only if `empty`."""
    if isinstance(value, Region):
        return value
    if isinstance(value, Buffer):
        return Region(value, (ZERO,) * value.rank, value.shape, b.span)
    if not isinstance(value, Ref):
        raise b.error("TL0206", f"{what} must be a buffer or a region of one, got {describe(value)}")
    boxes = [_box(b, value, d, item, empty) for d, item in enumerate(expand(b, value))]
    return Region(value.buffer, tuple(s for s, _ in boxes), tuple(e for _, e in boxes), where(b, value))


def sliced_dims(b: Builder, value: Any) -> tuple[int, ...]:
    """The dimensions that Python's indexing keeps: those not indexed by a scalar."""
    if isinstance(value, Ref):
        return tuple(d for d, item in enumerate(expand(b, value)) if isinstance(item, Slice))
    return tuple(range(value.buffer.rank if isinstance(value, Region) else value.rank))


def is_empty(value: Region) -> bool:
    """True for a region that is known to have no elements."""
    return any(constant(e) == 0 for e in value.extents)


def _box(b: Builder, ref: Ref, dim: int, item: Any, empty: bool) -> tuple[Expr, Expr]:
    """Start and extent of one dimension of a reference."""
    if not isinstance(item, Slice):
        return index(b, ref, dim, item), ONE
    if item.step not in (None, 1) and not (isinstance(item.step, Const) and item.step.value == 1):
        hint = "copy elements with a step between them in T.Parallel"
        raise b.error("TL0307", f"a slice of `{ref.buffer.name}` must have step 1", span=where(b, ref), help=hint)
    size = ref.buffer.shape[dim]
    start = ZERO if item.start is None else _bound(b, ref, dim, item.start)
    stop = size if item.stop is None else _bound(b, ref, dim, item.stop)
    extent = _length(b, stop, start)
    _check_box(b, ref, dim, start, extent, empty)
    return start, extent


def _length(b: Builder, stop: Expr, start: Expr) -> Expr:
    """stop - start; where that is no number, names give way to what they hold: `H1 = H0 + 64; A[H0:H1]` has 64 rows."""
    extent = difference(stop, start)
    for _ in range(_DEPTH):
        if constant(extent) is not None:
            return extent
        inner = substitute(stop, b.snapshots), substitute(start, b.snapshots)
        if inner == (stop, start) or sum(1 for e in inner for _ in walk_expr(e)) > _SIZE:
            break
        stop, start = inner
        found = difference(stop, start)
        extent = found if constant(found) is not None else extent
    return extent


def _bound(b: Builder, ref: Ref, dim: int, value: Any) -> Expr:
    """One end of a slice; a negative literal counts from the end, as in Python."""
    if isinstance(value, Const) and value.dtype.is_int:
        value = int(value.value)
    if isinstance(value, int) and not isinstance(value, bool):
        size = ref.buffer.shape[dim]
        return binary(b, "add", size, value) if value < 0 else as_expr(b, value)
    return index(b, ref, dim, value)


def _check_box(b: Builder, ref: Ref, dim: int, start: Expr, extent: Expr, empty: bool) -> None:
    """Refuses reversed, for tiles out-of-range, and unless `empty` also empty slices, as far as they are known now."""
    length, first = constant(extent), constant(start)
    name = ref.buffer.name
    if length == 0 and empty:
        return
    if length is not None and length <= 0:
        kind = "empty" if length == 0 else "reversed"
        text = f"the slice in dimension {dim} of `{name}` is {kind}"
        hint = "write it as start:stop, where start is below stop"
        raise b.error("TL0307", text, *buffer_label(ref.buffer), span=where(b, ref), help=hint)
    _check_inside(b, ref.buffer, dim, first, length, where(b, ref))


def _check_inside(b: Builder, buffer: Buffer, dim: int, first: int | None, length: int | None, span: Any) -> None:
    """A region of a tile must lie inside it; global tensors are masked instead."""
    size = constant(buffer.shape[dim])
    if buffer.scope is Scope.GLOBAL or size is None:
        return
    start = max(first, 0) if first is not None else 0
    if (first is not None and not 0 <= first < size) or (length is not None and start + length > size):
        end = f"{first}:{(first or 0) + length}" if first is not None and length is not None else f"of length {length}"
        text = f"the slice {end} is outside dimension {dim} of `{buffer.name}`, whose extent is {size}"
        if first is not None and first < 0:
            text = f"the slice starts {-first} in front of dimension {dim} of `{buffer.name}`, whose extent is {size}"
        hint = "a slice of a tile must lie inside it; only tensors in global memory are cut at their ends"
        raise b.error("TL0305", text, *buffer_label(buffer), span=span, help=hint)


def pair(b: Builder, verb: str, src: Any, dst: Any, empty: bool = False) -> tuple[Region, Region]:
    """The regions of two sides that must have the same elements, dimensions of extent 1 apart; none at all if `empty` allows it.

    A side without slices is a start address that takes the other side's extents, aligned at the last dimension. Where equality
    is only known at run time, a tile beside a global tensor decides, since the global side is masked.
    """
    if is_element(src) and is_element(dst):
        raise b.error("TL0312", f"both sides of the {verb} are single elements")
    if is_element(src):
        right = region(b, dst, "the destination", empty)
        return _at(b, verb, src, right), right
    if is_element(dst):
        left = region(b, src, "the source", empty)
        return left, _at(b, verb, dst, left)
    left, right = region(b, src, "the source", empty), region(b, dst, "the destination", empty)
    return _agree(b, verb, left, right)


def _at(b: Builder, verb: str, start: Any, other: Region) -> Region:
    """The region that starts at an element and has the extents of `other`, right-aligned."""
    if isinstance(start, Buffer):
        raise b.error("TL0312", f"cannot {verb} between the scalar `{start.name}` and a tile of shape {shape_text(other.extents)}")
    starts = element(b, start)
    rank, extents = len(starts), other.extents
    while len(extents) > rank and constant(extents[0]) == 1:
        extents = extents[1:]
    if len(extents) > rank:
        extents = tuple(e for e in extents if constant(e) != 1)
    if len(extents) > rank:
        text = f"cannot {verb} between a region of {shape_text(other.extents)} and `{start.buffer.name}`, which has {rank} dimensions"
        raise b.error("TL0312", text, *_facts(other, Region(start.buffer, starts, start.buffer.shape)))
    extents = (ONE,) * (rank - len(extents)) + extents
    for d, (first, length) in enumerate(zip(starts, extents, strict=True)):
        _check_inside(b, start.buffer, d, constant(first), constant(length), where(b, start))
    return Region(start.buffer, starts, extents, where(b, start))


def _agree(b: Builder, verb: str, src: Region, dst: Region) -> tuple[Region, Region]:
    """Both regions with equal extents, or an error with the two shapes."""
    left = [d for d, e in enumerate(src.extents) if constant(e) != 1]
    right = [d for d, e in enumerate(dst.extents) if constant(e) != 1]
    if len(left) != len(right):
        raise _mismatch(b, verb, src, dst)
    for i, j in zip(left, right, strict=True):
        x, y = src.extents[i], dst.extents[j]
        if equal(x, y):
            continue
        if constant(x) is not None and constant(y) is not None:
            raise _mismatch(b, verb, src, dst)
        src, dst = _settle(b, verb, (src, i), (dst, j))
    return src, dst


def _settle(b: Builder, verb: str, left: tuple[Region, int], right: tuple[Region, int]) -> tuple[Region, Region]:
    """Gives one extent to both sides where they are not provably equal: that of the tile beside a global tensor."""
    (src, i), (dst, j) = left, right
    outer = [r.buffer.scope is Scope.GLOBAL for r in (src, dst)]
    if outer[0] == outer[1] or (outer[1] and not _reaches_edge(b, dst, j)):
        raise _mismatch(b, verb, src, dst)
    kept, at = (dst, j) if outer[0] else (src, i)
    extent, other = kept.extents[at], src if outer[0] else dst
    if not _reaches_edge(b, other, i if outer[0] else j):
        text = f"the {verb} takes the extent {shape_text((extent,))} of `{kept.buffer.name}`, not the length of the slice"
        b.note("TL0313", f"{text} of `{other.buffer.name}`")
    if outer[0]:
        return replace(src, extents=src.extents[:i] + (extent,) + src.extents[i + 1 :]), dst
    return src, replace(dst, extents=dst.extents[:j] + (extent,) + dst.extents[j + 1 :])


def _reaches_edge(b: Builder, r: Region, dim: int) -> bool:
    """True when a region ends where its tensor does, so that masking what lies outside cuts it to its length."""
    return equal(binary(b, "add", r.starts[dim], r.extents[dim]), r.buffer.shape[dim])


def _facts(*sides: Region) -> list[Label]:
    """Where each buffer was declared, with its shape."""
    return [label for r in sides for label in buffer_label(r.buffer)]


def _mismatch(b: Builder, verb: str, src: Region, dst: Region) -> Exception:
    left, right = size_text(src.extents), size_text(dst.extents)
    text = f"cannot {verb} between regions of different extents: {left} of `{src.buffer.name}`, {right} of `{dst.buffer.name}`"
    return b.error("TL0312", text, *_facts(src, dst), help="slice one side so that both have the same extents")
