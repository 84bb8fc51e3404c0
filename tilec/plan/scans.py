"""Running sums and maxima of a tile held in registers: how the tile lies so that neighbours along the line are joined cheaply.

A thread scans the run of neighbours it holds, the lanes of a warp join their totals by shuffles, warps through shared memory, and
what is left of the line follows in further passes of the registers.

    scan_layout((16, 64), 1, 64, 4): runs of 4, 16 lanes a row, 4 rows at once and 4 passes over rows
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilec.record import record
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Buffer, Const, Scope
from tilec.layout.fragment import Digit, FragmentLayout, thread_places
from tilec.plan.fragments import power_down, power_up

WARP = 32
LONGEST = 64
"""Elements of a line that a thread may hold."""


@record
class Line:
    """How a line lies: `run` neighbours in a thread, then `lanes` of a warp `place` threads apart, then `warps`, then `passes`."""

    run: int
    place: int
    lanes: int
    warps: int
    passes: int


def scan_layout(shape: Sequence[int], dim: int, threads: int, itemsize: int) -> FragmentLayout | None:
    """The layout of a tile that is scanned along `dim`; None where there is none of this kind: partial warps, endless columns."""
    if threads % WARP or not shape:
        return None
    last, length, others = len(shape) - 1, shape[dim], [d for d in reversed(range(len(shape))) if d != dim]
    thread: list[Digit] = []
    regs: list[Digit] = []
    if dim == last:
        run = 16 // itemsize
        while run > 1 and (length % run or prod(shape) // run < threads):
            run //= 2
        across = min(power_up(-(-length // run)), power_down(threads))
        regs.append(Digit(dim, 1, run))
        thread.append(Digit(dim, run, across))
        regs.append(Digit(dim, run * across, -(-length // (run * across))))
        left = threads // across
    else:
        beside = min(power_up(prod(shape[d] for d in others)), power_down(threads))
        across = min(power_up(length), power_down(threads // beside))
        run, left = -(-length // across), beside
        regs.append(Digit(dim, 1, run))
    rest: list[Digit] = []
    for d in others:
        used = min(power_up(shape[d]), power_down(left))
        thread.append(Digit(d, 1, used))
        rest.append(Digit(d, used, -(-shape[d] // used)))
        left //= used
    if dim != last:
        thread.append(Digit(dim, run, across))
    if prod(g.size for g in regs) > LONGEST:
        return None
    return FragmentLayout(
        tuple(shape), threads, tuple(g for g in thread if g.size > 1), tuple(g for g in (*regs, *rest) if g.size > 1)
    )  # fmt: skip


def line_of(layout: FragmentLayout, dim: int) -> Line:
    """How the lines along `dim` of a layout made by `scan_layout` lie."""
    held = sorted((g for g in layout.regs if g.dim == dim), key=lambda g: g.stride)
    found = [(place, g) for place, g in thread_places(layout) if g.dim == dim]
    run = held[0].size if held and held[0].stride == 1 else 1
    passes = prod(g.size for g in held if g.stride > 1 or g.size != run)
    if not found:
        return Line(run, 1, 1, 1, passes)
    ((place, g),) = found
    lanes = min(g.size, max(1, WARP // place))
    return Line(run, place, lanes, g.size // lanes, passes)


def scan_scratch(buffer: Buffer, layout: FragmentLayout, dim: int) -> Buffer | None:
    """A shared tile with one total for each warp's part of a line and register of results; None where a warp holds whole lines."""
    line = line_of(layout, dim)
    if line.warps == 1:
        return None
    results = layout.registers // line.run
    slots = layout.threads // line.lanes
    return Buffer(f"{buffer.name}_totals", buffer.dtype, (Const(results, INT32), Const(slots, INT32)), Scope.SHARED, span=buffer.span)
