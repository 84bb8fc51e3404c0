"""How one element access is carried out: which register, or which tests and how wide a memory access.

    register_index(C layout, dims (0, 1), loop layout, digits) -> (m * 8 + n) * 4 + h * 2 + p
    bounds_checks(A, (by * 128 + row, col)) -> [by * 128 + row < M] when 128 does not divide M
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from tilec.analysis.facts import Facts
from tilec.analysis.proofs import prove
from tilec.analysis.ranges import divisor
from tilec.analysis.simplify import simplify
from tilec.ir.dtypes import INT32, INT64, UINT64
from tilec.ir.expr import Binary, Buffer, Compare, Const, Expr, Logical, Var
from tilec.layout.fragment import REPLICA, Digit, FragmentLayout, thread_places
from tilec.layout.shared import CHUNK, SharedLayout
from tilec.plan.chunks import Chunk, slope
from tilec.plan.domains import Dims, add, cast


def times(a: Expr, n: int) -> Expr:
    """a * n with the trivial cases folded."""
    if n == 0:
        return Const(0, a.dtype)
    if isinstance(a, Const):
        return Const(int(a.value) * n, a.dtype)
    return a if n == 1 else Binary("mul", a, Const(n, a.dtype), a.dtype)


def total(parts: Sequence[Expr]) -> Expr:
    """The sum of parts, 0 when there are none."""
    out: Expr = Const(0, INT32)
    for p in parts:
        out = add(out, p)
    return out


def register_index(
    fragment: FragmentLayout, dims: Dims, loop: FragmentLayout, digits: Sequence[Expr], divided: Mapping[int, int] | None = None
) -> Expr | None:
    """The register of a fragment that a thread of `loop` needs in its iteration, or None when it lies in another thread.

    `digits` are the values of the loop's register digits, in the order of `loop.regs`. Digits that one side has whole and the
    other in parts are compared part by part. `divided` tells by what variables of the loop are divided in the index.
    """
    if fragment.threads != loop.threads:
        return None
    wanted = {d for d in dims if d is not None}
    by = divided or {}
    fragment = fragment if not by else _undivided(fragment, dims, by)
    cuts = _cuts(fragment, dims, loop)
    cuts |= {d: tuple(sorted({*cuts.get(d, ()), k})) for d, k in by.items() if k > 1}

    def tells(p: _Part) -> bool:  # what lies below the divisor does not
        return p[1] is None or p[2] * p[3] > by.get(p[1], 1)

    here = {p for place, d in thread_places(loop) if d.dim in wanted for p in _parts(d, d.dim, cuts, place) if tells(p)}
    there = {p for place, d in thread_places(fragment) for p in _parts(d, dims[d.dim], cuts, place)}
    if here != there:
        return None
    kept = {p[1:] for g in fragment.regs for p in _parts(g, dims[g.dim], cuts)}
    if kept != {p[1:] for g in loop.regs if g.dim in wanted for p in _parts(g, g.dim, cuts) if tells(p)}:
        return None
    value = {
        part[1:]: _part(e, part[0], part[3], g.size) for g, e in zip(loop.regs, digits, strict=True) for part in _parts(g, g.dim, cuts)
    }  # fmt: skip
    weight, terms = 1, []
    for g in fragment.regs:
        if g.size > 1 and dims[g.dim] is not None:
            terms += [times(value[part[1:]], weight * part[0]) for part in _parts(g, dims[g.dim], cuts)]
        weight *= g.size
    return total(tuple(reversed(terms)))


def _undivided(fragment: FragmentLayout, dims: Dims, by: Mapping[int, int]) -> FragmentLayout:
    """The layout with strides counted in the variables of the loop instead of in what is left when they are divided."""

    def stretched(g: Digit) -> Digit:
        d = None if g.dim == REPLICA else dims[g.dim]
        return g if d is None else replace(g, stride=g.stride * by.get(d, 1))

    return replace(fragment, thread=tuple(map(stretched, fragment.thread)), regs=tuple(map(stretched, fragment.regs)))


_Part: TypeAlias = tuple[int, int | None, int, int]
"""A part of a digit: its place value, the dimension of the loop it runs along, stride and size."""


def _cuts(fragment: FragmentLayout, dims: Dims, loop: FragmentLayout) -> dict[int | None, tuple[int, ...]]:
    """For each dimension of the loop the strides at which digits of either side begin or end."""
    found: dict[int | None, set[int]] = {}
    sides = [(g, dims[g.dim]) for g in (*fragment.thread, *fragment.regs) if g.dim != REPLICA]
    for g, dim in [*sides, *((g, g.dim) for g in (*loop.thread, *loop.regs) if g.dim != REPLICA)]:
        found.setdefault(dim, set()).update((g.stride, g.stride * g.size))
    return {dim: tuple(sorted(strides)) for dim, strides in found.items()}


def _parts(g: Digit, dim: int | None, cuts: Mapping[int | None, tuple[int, ...]], place: int = 1) -> list[_Part]:
    """The parts of a digit between cuts, those of one value left out; `place` is the digit's own place value."""
    out: list[_Part] = []
    stride, size = g.stride, g.size
    for cut in cuts.get(dim, ()):
        if stride < cut < stride * size and cut % stride == 0 and size % (cut // stride) == 0:
            count = cut // stride
            out.append((place, dim, stride, count))
            place, stride, size = place * count, cut, size // count
    return [*out, (place, dim, stride, size)] if size > 1 else out


def _part(e: Expr, place: int, size: int, whole: int) -> Expr:
    """A part of the value of a digit of size `whole`."""
    above: Expr = e if place == 1 else Binary("floordiv", e, Const(place, INT32), INT32)
    return above if place * size == whole else Binary("mod", above, Const(size, INT32), INT32)


def constant_register(fragment: FragmentLayout, index: Sequence[int]) -> int | None:
    """The register that holds a fixed element in every thread; None when only some threads hold it."""
    if thread_places(fragment):
        return None
    left = list(index)
    register, weight = 0, 1
    per_dim = sorted(fragment.regs, key=lambda g: -g.stride)
    values: dict[Digit, int] = {}
    for g in per_dim:
        values[g] = min(left[g.dim] // g.stride, g.size - 1)
        left[g.dim] -= values[g] * g.stride
    if any(left):
        return None
    for g in fragment.regs:
        register += values[g] * weight
        weight *= g.size
    return register


def copies_guard(layout: FragmentLayout, thread: Var) -> Expr | None:
    """The condition that picks one of the threads that hold the same elements; None when there are no copies."""
    conditions: list[Expr] = []
    place = 1
    for d in layout.thread:
        if d.dim == REPLICA and d.size > 1:
            digit: Expr = thread if place == 1 else Binary("floordiv", thread, Const(place, INT32), INT32)
            if place * d.size < layout.threads:
                digit = Binary("mod", digit, Const(d.size, INT32), INT32)
            conditions.append(Compare("eq", digit, Const(0, INT32)))
        place *= d.size
    if place < layout.threads:
        conditions.append(Compare("lt", thread, Const(place, INT32)))
    return conjunction(conditions)


def conjunction(conditions: Sequence[Expr]) -> Expr | None:
    """All of `conditions`, or None when there are none."""
    out: Expr | None = None
    for c in conditions:
        out = c if out is None else Logical("and", out, c)
    return out


def layout_values(layout: FragmentLayout, thread: Var, digits: Sequence[Expr]) -> tuple[Expr, ...]:
    """The tensor index of a register as expressions over the thread number and the register digits."""
    parts: list[list[Expr]] = [[] for _ in layout.shape]
    for g, e in zip(layout.regs, digits, strict=True):
        parts[g.dim].append(times(e, g.stride))
    place, left = 1, layout.threads
    for d in layout.thread:
        left = -(-left // d.size)
        if d.dim != REPLICA and d.size > 1:
            value: Expr = thread if place == 1 else Binary("floordiv", thread, Const(place, INT32), INT32)
            if left > 1:
                value = Binary("mod", value, Const(d.size, INT32), INT32)
            parts[d.dim].append(times(value, d.stride))
        place *= d.size
    return tuple(total(tuple(reversed(p))) for p in parts)


def compare(op: str, a: Expr, b: Expr) -> Compare:
    """a op b of extents and of indices beside them, in 64 bits when either side is: an unsigned one stays unsigned."""
    dtype = a.dtype if a.dtype == b.dtype else UINT64 if UINT64 in (a.dtype, b.dtype) else INT64
    return Compare(op, cast(a, dtype), cast(b, dtype))


def bounds_checks(buffer: Buffer, indices: Sequence[Expr], facts: Facts) -> tuple[Expr, ...]:
    """The tests that keep an access inside a global tensor, those that are proven left out."""
    out: list[Expr] = []
    for e, extent in zip(indices, buffer.shape, strict=True):
        for test in (compare("ge", e, Const(0, e.dtype)), compare("lt", e, extent)):
            if prove(test, facts) is not True:
                out.append(simplify(test, facts))
    return tuple(out)


def _neighbours(indices: Sequence[Expr], at: Chunk) -> bool:
    """True when the elements of a chunk lie side by side: the last index moves one by one, the others stay."""
    return bool(indices) and slope(indices[-1], at) == 1 and all(slope(e, at) == 0 for e in indices[:-1])


def row_strides(buffer: Buffer) -> tuple[Expr, ...]:
    """Strides of a global tensor in elements: the declared ones, or those of dense rows."""
    if buffer.strides is not None:
        return buffer.strides
    out: list[Expr] = []
    step: Expr = Const(1, INT32)
    for extent in reversed(buffer.shape):
        out.append(step)
        if isinstance(step, Const) and isinstance(extent, Const):
            n = int(step.value) * int(extent.value)
            step = Const(n, INT32 if n < 1 << 31 else INT64)
        elif isinstance(step, Const) and step.value == 1:
            step = extent
        else:
            step = Binary("mul", cast(step, INT64), cast(extent, INT64), INT64)
    return tuple(reversed(out))


def global_width(
    buffer: Buffer, indices: Sequence[Expr], var: Var, most: int, facts: Facts, alignment: Callable[[Buffer], int],
    opaque: frozenset[Var] = frozenset(),
) -> int:  # fmt: skip
    """How many elements along `var` a global access may move at once, at most `most` (a power of two).

    All of them must lie side by side, start on a multiple of their size, and be in or out of range together. `opaque` are
    variables that may differ from element to element.
    """
    strides = row_strides(buffer)
    if not strides or not (isinstance(strides[-1], Const) and strides[-1].value == 1):
        return 1
    width = min(most, alignment(buffer) // buffer.dtype.bytes, CHUNK // buffer.dtype.bytes)
    while width > 1 and not _wide_enough(buffer, indices, strides, Chunk(var, width, facts.with_range(var, divisor=width), opaque), facts):
        width //= 2
    return max(1, width)


def _wide_enough(buffer: Buffer, indices: Sequence[Expr], strides: Sequence[Expr], at: Chunk, facts: Facts) -> bool:
    def divides(e: Expr) -> bool:
        return divisor(e, at.facts) % at.width == 0

    if not _neighbours(indices, at):
        return False
    for e, s in zip(indices[:-1], strides[:-1], strict=True):
        if not (divides(s) or divides(e) or (isinstance(e, Const) and e.value == 0)):
            return False
    last = indices[-1]
    if not divides(last):
        return False
    inside = prove(compare("lt", last, buffer.shape[-1]), facts) is True and prove(compare("ge", last, Const(0, last.dtype)), facts) is True
    return inside or divides(buffer.shape[-1])


def shared_width(
    layout: SharedLayout, indices: Sequence[Expr], var: Var, most: int, facts: Facts, opaque: frozenset[Var] = frozenset()
) -> int:
    """How many elements along `var` a shared access may move at once, at most `most`."""
    width = min(most, CHUNK // layout.itemsize)
    while width > 1:
        at = Chunk(var, width, facts.with_range(var, divisor=width), opaque)
        outer = zip(layout.strides[:-1], indices[:-1], strict=True)
        rows = all(s % width == 0 or (isinstance(e, Const) and e.value == 0) for s, e in outer)
        if rows and _neighbours(indices, at) and divisor(indices[-1], at.facts) % width == 0:
            break
        width //= 2
    return max(1, width)
