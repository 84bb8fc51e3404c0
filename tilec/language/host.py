"""Sizes computed by the host or the device: T.ceildiv, tilelang.cdiv, next_power_of_2, align_up.

T.ceildiv(7, -3) -> -2;  T.ceildiv(n, 128) -> Call("ceildiv", (n, 128))
"""

from __future__ import annotations

from typing import Any

from tilec.ir.dtypes import wrap
from tilec.ir.expr import Call, Const
from tilec.language.access import host_int, is_number
from tilec.language.arith import binary, meet
from tilec.language.bind import Entry, works
from tilec.language.builder import Builder


def ceildiv(b: Builder, lhs: Any, rhs: Any, span: Any = None) -> Any:
    """lhs / rhs rounded up, exact for every sign."""
    if is_number(lhs) and is_number(rhs):
        return _host_ceildiv(b, lhs, rhs)
    x, y = meet(b, lhs, rhs)
    if not x.dtype.is_int:
        raise b.error("TL0315", f"T.ceildiv takes integers, got {x.dtype}", help="use T.ceil(x / y) for floats")
    if isinstance(y, Const) and y.value == 0:
        raise b.error("TL0316", "division by zero")
    if isinstance(x, Const) and isinstance(y, Const):
        return Const(wrap(-(-int(x.value) // int(y.value)), x.dtype), x.dtype)
    return x if isinstance(y, Const) and y.value == 1 else Call("ceildiv", (x, y), x.dtype)


def _host_ceildiv(b: Builder, x: Any, y: Any) -> int:
    if isinstance(x, float) or isinstance(y, float):
        raise b.error("TL0206", f"T.ceildiv takes integers, got {x} and {y}")
    if y == 0:
        raise b.error("TL0316", "division by zero")
    return int(-(-x // y))


def next_power_of_2(b: Builder, n: Any) -> int:
    """The smallest power of two that is at least n."""
    value = host_int(b, n, "the argument of next_power_of_2")
    return 1 if value <= 1 else 1 << (value - 1).bit_length()


def align_up(b: Builder, value: Any, alignment: Any) -> Any:
    """value rounded up to a multiple of alignment."""
    return align(b, ceildiv(b, value, alignment), alignment)


def align(b: Builder, count: Any, alignment: Any) -> Any:
    """count times alignment, on the host where both are known."""
    return count * alignment if is_number(count) and is_number(alignment) else binary(b, "mul", count, alignment)


ENTRIES: tuple[Entry, ...] = works(ceildiv, "cdiv", host=True) + works(next_power_of_2, host=True) + works(align_up, host=True)
