"""The memories of a kernel: global tensors, tiles of the block, private arrays of its lanes.

Lanes are whatever executes in step: the threads of the block, or the iterations of a Parallel. A private array has one
leading axis per lane axis, of size 1 while all lanes agree and of full size after they first differ.

    memory.load(A_s, (np.arange(128)[:, None], np.int32(3)), mask=True)      a column of a tile, one element per lane
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilec.diagnostics import NOWHERE, Span
from tilec.ir.expr import Buffer, Expr, Scope
from tilec.ir.visit import storage
from tilec.reference.errors import MeaningError
from tilec.reference.masks import Mask, mask_and, mask_any, mask_not
from tilec.reference.values import Array, Value, cast, np_dtype, poison, settle

Index = tuple[Value, ...]
PRIVATE = (Scope.LOCAL, Scope.VAR)
DEFAULT_THREADS = (128, 1, 1)


@dataclass(slots=True)
class Private:
    """A private array; `data` has the shape lanes (1 or full) + buffer shape."""

    data: Array
    written: bool = False


@dataclass(slots=True)
class Memory:
    """Every array that the executing lanes can name. `extent` evaluates the shapes of buffers."""

    lanes: tuple[int, ...]
    globals: dict[Buffer, Array]
    tiles: dict[Buffer, Array]
    extent: Callable[[Expr], int]
    private: dict[Buffer, Private | None] = field(default_factory=dict)
    pointed: Mapping[int, Array] = field(default_factory=dict)
    peer: Callable[[int, Span], Memory] | None = None  # the memory of another block of the cluster

    def shape(self, buffer: Buffer) -> tuple[int, ...]:
        """The buffer's extents as numbers."""
        return tuple(self.extent(e) for e in buffer.shape)

    def allocate(self, buffer: Buffer) -> None:
        """Undefined contents for a new buffer; zero for a scalar variable. A view shares the bytes of what it views."""
        if buffer.view_of is not None:
            return
        if buffer.scope is Scope.VAR:
            self.private[buffer] = Private(np.zeros((1,) * len(self.lanes), np_dtype(buffer.dtype)))
        elif buffer.scope is Scope.LOCAL:
            self.private[buffer] = Private(poison((1,) * len(self.lanes) + self.shape(buffer), buffer.dtype))
        else:
            self.tiles[buffer] = poison(self.shape(buffer), buffer.dtype)

    def renew(self, buffer: Buffer, mask: Mask) -> None:
        """What `allocate` does, for the private arrays of some lanes."""
        held = self.private[buffer]
        self.allocate(buffer)
        fresh = self.private[buffer]
        if held is None or fresh is None or isinstance(mask, bool):
            return
        rank = len(self.lanes)
        full = np.broadcast_to(held.data, self.lanes + held.data.shape[rank:]).copy()
        full[mask] = fresh.data[(0,) * rank]
        self.private[buffer] = Private(full, held.written)

    def array(self, buffer: Buffer, span: Span = NOWHERE) -> Array:
        """The live array of a global or tile buffer, reinterpreted when it is a view."""
        root = storage(buffer)
        if buffer.peer is not None and buffer.view_of is not None:
            if self.peer is None:
                raise MeaningError(f"`{buffer.view_of.name}` of another block, in a launch without clusters", span)
            return self.peer(self.extent(buffer.peer), span).array(buffer.view_of, span)
        if root.scope is Scope.GLOBAL:
            if root.workspace and root not in self.globals:
                self.globals[root] = poison(self.shape(root), root.dtype)
            found = self.globals.get(root) if root.address is None else self.pointed_at(root, root.address, span)
        else:
            found = self.tiles.get(root)
        if found is None:
            raise MeaningError(f"`{root.name}` is used before it exists", span)
        return found if root is buffer else _as_view(found, (), self.shape(buffer), buffer, span)

    def pointed_at(self, buffer: Buffer, address: Expr, span: Span) -> Array:
        """The array at an address, among those that the caller has named."""
        found = self.pointed.get(self.extent(address))
        shape = self.shape(buffer)
        if found is None or found.dtype != np_dtype(buffer.dtype) or found.size < math.prod(shape) or buffer.strides is not None:
            raise MeaningError(f"what `{buffer.name}` points to is only known on a GPU", span)
        return found.reshape(-1)[: math.prod(shape)].reshape(shape)

    def private_array(self, buffer: Buffer, span: Span) -> Array:
        """The live array of a private buffer, lane axes first."""
        found = self.private.get(storage(buffer))
        if found is None:
            raise MeaningError(
                f"`{storage(buffer).name}` differs between threads here, and which thread runs an iteration is not defined"
                if storage(buffer) in self.private else f"`{buffer.name}` is used before it exists", span,
            )  # fmt: skip
        lead = found.data.shape[: len(self.lanes)]
        return found.data if buffer.view_of is None else _as_view(found.data, lead, self.shape(buffer), buffer, span)

    def load(self, buffer: Buffer, index: Index, mask: Mask, safe: Value, span: Span) -> Value:
        """One element per lane. Out of range: `safe` for a global tensor, an error for anything else."""
        if buffer.scope in PRIVATE:
            data = self.private_array(buffer, span)
            shape = data.shape[len(self.lanes) :]
            ok = self._inside(buffer, index, shape, mask, span)
            return settle(data[self._lane_index(data, index) + _clip(index, shape, ok)])
        data = self.array(buffer, span)
        ok = self._inside(buffer, index, data.shape, mask, span)
        if ok is True:
            return settle(data[index])
        if 0 in data.shape:
            return safe
        return settle(np.where(ok, data[_clip(index, data.shape, ok)], safe))

    def store(self, buffer: Buffer, index: Index, value: Value, mask: Mask, span: Span) -> None:
        """One element per active lane. Lanes that meet in one element must agree on its value. Out of range: see `load`."""
        if buffer.scope in PRIVATE:
            self._store_private(buffer, index, value, mask, span)
            return
        data = self.array(buffer, span)
        ok = self._inside(buffer, index, data.shape, mask, span)
        if not _scatter(data, index, value, mask_and(mask, ok)):
            raise MeaningError(f"lanes store different values to one element of `{buffer.name}`: which one stays is not defined", span)

    def _store_private(self, buffer: Buffer, index: Index, value: Value, mask: Mask, span: Span) -> None:
        data = self.private_array(buffer, span)
        rank = len(self.lanes)
        self._inside(buffer, index, data.shape[rank:], mask, span)
        total = max([rank] + [np.ndim(x) for x in (*index, value, mask)])
        parts = [mask, value, *index]
        if data.shape[:rank] != self.lanes and not all(_lane_uniform(x, rank, total) for x in parts):
            root = self.private[storage(buffer)]
            assert root is not None
            root.data = np.broadcast_to(root.data, self.lanes + root.data.shape[rank:]).copy()
            data = self.private_array(buffer, span)
        found = self.private[storage(buffer)]
        assert found is not None
        found.written = True
        _scatter(data, self._lane_index(data, index, total) + index, value, mask)

    def _lane_index(self, data: Array, index: Index, total: int = 0) -> Index:
        """Index arrays for the leading axes of a private array: each lane its own element."""
        rank = len(self.lanes)
        total = max([rank, total] + [np.ndim(i) for i in index])
        return tuple(
            np.intp(0) if data.shape[d] == 1 else np.arange(data.shape[d]).reshape([-1 if k == d else 1 for k in range(total)])
            for d in range(rank)
        )  # fmt: skip

    def _inside(self, buffer: Buffer, index: Index, shape: tuple[int, ...], mask: Mask, span: Span) -> Mask:
        """Lanes whose index is in range; raises when an active lane is out of range of anything but a global tensor."""
        ok: Mask = True
        for i, n in zip(index, shape, strict=True):
            if isinstance(i, np.ndarray):
                if i.size == 0 or (i.min() >= 0 and i.max() < n):
                    continue
                ok = mask_and(ok, (i >= 0) & (i < n))
            else:
                ok = mask_and(ok, bool(0 <= i < n))
        if ok is not True and buffer.scope is not Scope.GLOBAL:
            bad = mask_and(mask, mask_not(ok))
            if mask_any(bad):
                raise MeaningError(f"`{buffer.name}[{_first(index, bad)}]` is out of its range {'x'.join(map(str, shape))}", span)
        return ok


def _lane_uniform(x: Value, rank: int, total: int) -> bool:
    """True when a value is the same for all lanes: no extent above 1 along the lane axes."""
    shape = np.shape(x)
    return all(n == 1 for n in ((1,) * (total - len(shape)) + shape)[:rank])


def _clip(index: Index, shape: Sequence[int], ok: Mask) -> Index:
    """The index brought into range where lanes are not ok, so that it can be gathered."""
    if ok is True:
        return index
    return tuple(np.clip(i, 0, max(n - 1, 0)) for i, n in zip(index, shape, strict=True))


def _scatter(data: Array, index: Index, value: Value, mask: Mask) -> bool:
    """Stores one value per lane; False when an element does not hold afterwards what one of its lanes stored."""
    if mask is False:
        return True
    shape = np.broadcast_shapes(np.shape(value), np.shape(mask), *(np.shape(i) for i in index))
    if shape == ():
        data[index] = value
        return True
    full = [np.broadcast_to(i, shape) for i in index]
    values = np.broadcast_to(value, shape)
    if isinstance(mask, np.ndarray):
        chosen = np.broadcast_to(mask, shape)
        full, values = [i[chosen] for i in full], values[chosen]
    if not values.size:
        return True
    if not full:
        data[...] = values.reshape(-1)[-1]
        return _same(values, data)
    at = tuple(full)
    data[at] = values
    return _same(values, data[at])


def _first(index: Index, bad: Mask) -> str:
    """The index of the first offending lane, as text."""
    shape = np.broadcast_shapes(np.shape(bad), *(np.shape(i) for i in index))
    where = int(np.argmax(np.broadcast_to(bad, shape)))
    return ", ".join(str(int(np.broadcast_to(i, shape).reshape(-1)[where])) for i in index)


def _as_view(data: Array, lead: tuple[int, ...], shape: tuple[int, ...], buffer: Buffer, span: Span) -> Array:
    """The bytes of `data` as an array of the view's shape and type, without a copy."""
    try:
        flat = data.reshape((*lead, -1)).view(np_dtype(buffer.dtype)).reshape(lead + shape)
    except ValueError:
        raise MeaningError(f"`{buffer.name}` does not have as many bytes as what it views", span) from None
    if flat.size and not np.shares_memory(flat, data):
        raise MeaningError(f"`{buffer.name}` views a tensor that is not dense row-major", span)
    return flat


def read_box(data: Array, starts: Sequence[int], extents: Sequence[int], safe: Value) -> Array:
    """A box of an array; what lies outside of the array is `safe`."""
    cut, place = _overlap(data, starts, extents)
    if all(p.stop - p.start == n for p, n in zip(place, extents, strict=True)):
        return data[cut]
    box = np.full(extents, safe, data.dtype)
    box[place] = data[cut]
    return box


def write_box(data: Array, starts: Sequence[int], values: Array) -> None:
    """Stores a box; what lies outside of the array is dropped."""
    cut, place = _overlap(data, starts, values.shape)
    data[cut] = values[place]


def _overlap(data: Array, starts: Sequence[int], extents: Sequence[int]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """The part of a box that lies inside the array, as slices of the array and as slices of the box."""
    cut, place = [], []
    for start, extent, n in zip(starts, extents, data.shape, strict=True):
        low = min(max(start, 0), n)
        high = max(min(start + extent, n), low)
        cut.append(slice(low, high))
        place.append(slice(low - start, high - start) if high > low else slice(0, 0))
    return tuple(cut), tuple(place)


def enter_lanes(memory: Memory, lanes: tuple[int, ...], taken: Array | None = None) -> Memory:
    """The memory as the iterations of a Parallel see it: private arrays on which all threads (`taken` of them) agree become theirs."""
    inner = Memory(lanes, memory.globals, memory.tiles, memory.extent, pointed=memory.pointed, peer=memory.peer)
    rank = len(memory.lanes)
    for buffer, held in memory.private.items():
        inner.private[buffer] = None
        if held is not None:
            data = held.data if taken is None or held.data.shape[0] == 1 else held.data[taken]
            first = data[(slice(0, 1),) * rank]
            if data.shape == first.shape or _same(data, first):
                inner.private[buffer] = Private(first.reshape((1,) * len(lanes) + first.shape[rank:]).copy())
    return inner


def leave_lanes(outer: Memory, inner: Memory) -> None:
    """After a Parallel: outer private arrays that its iterations wrote hold something undefined."""
    for buffer, held in outer.private.items():
        seen = inner.private.get(buffer)
        if held is not None and seen is not None and seen.written:
            held.data = poison(held.data.shape, buffer.dtype)
            held.written = True


def _same(a: Array, b: Array) -> bool:
    """Bitwise equality of two arrays that broadcast to each other."""
    raw = np.dtype(f"u{a.dtype.itemsize}")
    return bool((a.view(raw) == b.view(raw)).all())


def uniform(x: Value) -> Value | None:
    """The single value that an array of lanes agrees on, or None."""
    if not isinstance(x, np.ndarray):
        return x
    if x.size == 0:
        return None
    first = x.reshape(-1)[0]
    return first if bool((x == first).all()) else None


def convert(value: Value, buffer: Buffer) -> Value:
    """A value in the buffer's element type."""
    return cast(value, buffer.dtype)
