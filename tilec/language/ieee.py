"""T.ieee_add and its kin: arithmetic of one rounding, to nearest, which T.* has anyway unless fast_math is asked for.

T.ieee_fdiv(a, b)  ->  a / b;   T.ieee_frsqrt(x)  ->  1 / sqrt(x)
"""

from __future__ import annotations

from typing import Any

from tilec.ir.dtypes import FLOAT32
from tilec.ir.expr import Call, Expr
from tilec.language.access import as_expr
from tilec.language.arith import binary
from tilec.language.bind import Entry, works
from tilec.language.builder import Builder
from tilec.language.show import describe


def _nearest(b: Builder, rounding_mode: Any) -> None:
    if rounding_mode != "rn":
        text = f'the rounding of this operation is "rn", to nearest, got {describe(rounding_mode)}'
        raise b.error("TL0206", text, help="call the CUDA function with T.call_extern for another rounding")


def ieee_add(b: Builder, x: Any, y: Any, rounding_mode: Any = "rn") -> Any:
    """x + y, rounded to nearest."""
    _nearest(b, rounding_mode)
    return binary(b, "add", x, y)


def ieee_sub(b: Builder, x: Any, y: Any, rounding_mode: Any = "rn") -> Any:
    """x - y, rounded to nearest."""
    _nearest(b, rounding_mode)
    return binary(b, "sub", x, y)


def ieee_mul(b: Builder, x: Any, y: Any, rounding_mode: Any = "rn") -> Any:
    """x * y, rounded to nearest."""
    _nearest(b, rounding_mode)
    return binary(b, "mul", x, y)


def ieee_fdiv(b: Builder, x: Any, y: Any, rounding_mode: Any = "rn") -> Any:
    """x / y, rounded to nearest."""
    _nearest(b, rounding_mode)
    return binary(b, "div", x, y)


def ieee_fmaf(b: Builder, x: Any, y: Any, z: Any, rounding_mode: Any = "rn") -> Expr:
    """x * y + z with one rounding, to nearest."""
    _nearest(b, rounding_mode)
    first = as_expr(b, x)
    dtype = first.dtype if first.dtype.is_float else FLOAT32
    return Call("fma", tuple(as_expr(b, v, dtype) for v in (first, y, z)), dtype)


def ieee_fsqrt(b: Builder, x: Any, rounding_mode: Any = "rn") -> Expr:
    """The square root, rounded to nearest."""
    _nearest(b, rounding_mode)
    e = as_expr(b, x)
    return Call("sqrt", (e,), e.dtype)


def ieee_frcp(b: Builder, x: Any, rounding_mode: Any = "rn") -> Any:
    """1 / x, rounded to nearest."""
    _nearest(b, rounding_mode)
    return binary(b, "div", 1.0, x)


def ieee_frsqrt(b: Builder, x: Any) -> Any:
    """1 / square root."""
    return binary(b, "div", 1.0, ieee_fsqrt(b, x))


ENTRIES: tuple[Entry, ...] = tuple(
    e for fn in (ieee_add, ieee_sub, ieee_mul, ieee_fdiv, ieee_fmaf, ieee_fsqrt, ieee_frcp, ieee_frsqrt) for e in works(fn, lanewise=True)
)
