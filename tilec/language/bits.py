"""T.__fns: the place of the n-th bit that is set.

T.__fns(0b1011, 0, 3)  ->  3;  found by halves: how many bits are set in the lower 16, then in 8 of these or of the others, ...
"""

from __future__ import annotations

from typing import Any

from tilec.ir.dtypes import INT32, UINT32
from tilec.ir.expr import Binary, Call, Compare, Const, Expr, Select
from tilec.language.access import as_expr
from tilec.language.bind import Entry, works
from tilec.language.builder import Builder
from tilec.language.context import in_kernel
from tilec.language.warp import held

_ALL = Const(0xFFFFFFFF, UINT32)


def find_nth_set(b: Builder, mask: Any, base: Any, offset: Any) -> Expr:
    """The place of the `offset`-th set bit of `mask` from bit `base` on, downwards if negative, of `base` for 0; 0xffffffff if none."""
    in_kernel(b, "__fns")
    bits, start, nth = as_expr(b, mask, UINT32), as_expr(b, base, INT32), as_expr(b, offset, INT32)
    zero, one = Const(0, INT32), Const(1, INT32)
    above = Binary("shl", _ALL, start, UINT32)
    below = Binary("shr", _ALL, Binary("sub", Const(31, INT32), start, INT32), UINT32)
    here = Binary("and", above, below, UINT32)
    up, down = Compare("gt", nth, zero), Compare("lt", nth, zero)
    kept = held(b, Binary("and", bits, Select(up, above, Select(down, below, here, UINT32), UINT32), UINT32), "kept")
    total = held(b, Call("popcount", (kept,), INT32), "count")
    from_top = Binary("add", Binary("add", total, nth, INT32), one, INT32)
    left = held(b, Select(up, nth, Select(down, from_top, one, INT32), INT32), "nth")
    known = Compare("ge", left, one), Compare("le", left, total)
    place: Expr = zero
    for width in (16, 8, 4, 2, 1):
        low = Binary("and", Binary("shr", kept, place, UINT32), Const((1 << width) - 1, UINT32), UINT32)
        count = held(b, Call("popcount", (low,), INT32), "low")
        beyond = Compare("gt", left, count)
        place = held(b, Binary("add", place, Select(beyond, Const(width, INT32), zero, INT32), INT32), "place")
        left = held(b, Binary("sub", left, Select(beyond, count, zero, INT32), INT32), "nth")
    return Select(known[0], Select(known[1], as_expr(b, place, UINT32), _ALL, UINT32), _ALL, UINT32)


ENTRIES: tuple[Entry, ...] = works(find_nth_set, name="__fns")
