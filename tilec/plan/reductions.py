"""How threads that hold parts of one line of a reduction meet: lanes of a warp by shuffles, warps through shared memory.

    an accumulator tile of m16n8 reduced over its columns: lane_steps -> (1, 2), no partners
"""

from __future__ import annotations

from math import prod

from tilec.ir.dtypes import INT32
from tilec.ir.expr import Buffer, Const, Scope
from tilec.layout.fragment import FragmentLayout, thread_places

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


def scratch_tile(src: Buffer, dst: Buffer, layout: FragmentLayout, dim: int) -> Buffer:
    """A shared tile with one element a thread and result register."""
    results = prod(d.size for d in layout.regs if d.dim != dim)
    return Buffer(f"{src.name}_parts", dst.dtype, (Const(results, INT32), Const(layout.threads, INT32)), Scope.SHARED, span=src.span)
