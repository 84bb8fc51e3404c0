"""How threads that hold parts of one line of a reduction meet: lanes of a warp by shuffles, warps through shared memory.

    an accumulator tile of m16n8 reduced over its columns: lane_steps -> (1, 2), no partners
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilec.ir.dtypes import INT32
from tilec.ir.expr import Buffer, Const, Scope
from tilec.ir.tile import Reduce
from tilec.layout.fragment import FragmentLayout, thread_places
from tilec.plan.plan import PReduce

WARP = 32


def _parts(layout: FragmentLayout, dim: int) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """Distances to shuffle over, and (place, size) of the thread digits that only shared memory can join."""
    steps: list[int] = []
    partners: list[tuple[int, int]] = []
    for place, d in thread_places(layout):
        if d.dim != dim:
            continue
        size = d.size
        binary = place & (place - 1) == 0 and size & (size - 1) == 0
        if binary and layout.threads % WARP == 0:
            while size > 1 and place < WARP:
                steps.append(place)
                place, size = place * 2, size // 2
        if size > 1:
            partners.append((place, size))
    return tuple(steps), tuple(partners)


def lane_steps(layout: FragmentLayout, dim: int) -> tuple[int, ...]:
    """The distances of the exclusive-or shuffles that join the lanes of a line."""
    return _parts(layout, dim)[0]


def partners(layout: FragmentLayout, dim: int) -> tuple[tuple[int, int], ...]:
    """Thread digits (place value, size) whose threads meet in shared memory."""
    return _parts(layout, dim)[1]


def needs_scratch(layout: FragmentLayout, dim: int) -> bool:
    """True when the threads of a line lie in several warps."""
    return bool(partners(layout, dim))


def lanes_joined(steps: tuple[int, ...]) -> int:
    """How many neighbouring threads the shuffles join completely: they need one place in the scratch tile."""
    joined = 1
    while joined in steps:
        joined *= 2
    return joined


def scratch_tile(src: Buffer, dst: Buffer, layout: FragmentLayout, dim: int, known: Sequence[Buffer] = ()) -> Buffer:
    """A shared tile with one element for each result register and group of joined threads: one of the `known` ones if it will do."""
    results = prod(d.size for d in layout.regs if d.dim != dim)
    slots = layout.threads // lanes_joined(lane_steps(layout, dim))
    shape = (Const(results, INT32), Const(slots, INT32))
    alike = (b for b in known if (b.dtype, b.shape) == (dst.dtype, shape))
    return next(alike, None) or Buffer(f"{src.name}_parts", dst.dtype, shape, Scope.SHARED, span=src.span)


def planned_reduce(s: Reduce, layout: FragmentLayout, known: Sequence[Buffer]) -> PReduce:
    """A reduction of registers of this layout into registers; `known` are scratch tiles that it may use."""
    src, dst = s.src.buffer, s.dst.buffer
    scratch = scratch_tile(src, dst, layout, s.dim, known) if needs_scratch(layout, s.dim) else None
    return PReduce(
        s.op, src, dst, s.dim, s.clear, s.nan_propagate, layout, lane_steps(layout, s.dim), partners(layout, s.dim), scratch, s.span,
    )  # fmt: skip
