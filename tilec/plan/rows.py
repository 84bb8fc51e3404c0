"""When the elements of an mma accumulator can be stored 16 bytes of a row at a time, after an exchange inside each quad of lanes.

    accumulator(128, 256, (2, 4), 256): each lane holds columns 2q and 2q+1 of eight tiles; exchanged, all of every fourth tile
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilec.ir.expr import Scope
from tilec.ir.tile import Stmt, Store
from tilec.layout.fragment import Digit, FragmentLayout

ROW_ELEMENTS = 8
"""Elements of 16 bits that a lane stores at once."""


def group_of(layout: FragmentLayout) -> int:
    """The number of the register digit that counts tiles of eight columns; -1 if there is none to be taken four at a time."""
    last = len(layout.shape) - 1
    quad, pair = Digit(last, 2, 4), Digit(last, 1, 2)
    if not layout.regs or layout.regs[0] != pair or not layout.thread or layout.thread[0] != quad:
        return -1
    return next((n for n, g in enumerate(layout.regs) if (g.dim, g.stride) == (last, 8) and g.size % 4 == 0), -1)


def row_layout(layout: FragmentLayout) -> FragmentLayout:
    """Where the first of a lane's eight columns lies after the exchange: registers count what is left, 16 bytes each."""
    group, last = group_of(layout), len(layout.shape) - 1
    regs = [Digit(g.dim, g.stride * 4, g.size // 4) if n == group else g for n, g in enumerate(layout.regs) if n > 0]
    return FragmentLayout(
        layout.shape, layout.threads, (Digit(last, ROW_ELEMENTS, 4), *layout.thread[1:]), tuple(g for g in regs if g.size > 1)
    )  # fmt: skip


def stores_rows(layout: FragmentLayout, body: Sequence[Stmt], width_of: Callable[[Store, int], int]) -> bool:
    """True when a loop over the registers of `layout` is one store of 16-bit elements to memory that takes whole rows.

    `width_of(store, n)` tells how many elements, at most n, the store may move at once.
    """
    if group_of(layout) < 0 or layout.padded(len(layout.shape) - 1) != layout.shape[-1] or len(body) != 1:
        return False
    (s,) = body
    narrow = isinstance(s, Store) and s.buffer.scope is Scope.GLOBAL and s.buffer.dtype.bytes == 2
    return narrow and isinstance(s, Store) and width_of(s, ROW_ELEMENTS) == ROW_ELEMENTS
