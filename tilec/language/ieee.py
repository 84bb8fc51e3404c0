"""T.ieee_add and its kin: one operation with one rounding, to nearest, to zero, up or down.

T.ieee_fdiv(a, b, "rz")  ->  Call("div_rz", (a, b));   T.ieee_frsqrt(x)  ->  1 / sqrt(x), each rounded to nearest
"""

from __future__ import annotations

from typing import Any

from tilec.ir.dtypes import FLOAT32, DType
from tilec.ir.expr import Call, Expr
from tilec.language.access import as_expr, is_number
from tilec.language.arith import binary, meet
from tilec.language.bind import Entry, works
from tilec.language.builder import Builder
from tilec.language.show import describe

ROUNDINGS = ("rn", "rz", "ru", "rd")
"""To nearest, towards zero, up, down."""


def _rounded(b: Builder, op: str, mode: Any, *values: Any) -> Expr:
    """An operation of floats of 32 or 64 bits; narrower ones are rounded to nearest, as all their operations are."""
    if mode not in ROUNDINGS:
        raise b.error("TL0206", f"a rounding is one of {', '.join(ROUNDINGS)}, got {describe(mode)}")
    operands = tuple(as_expr(b, v, FLOAT32) if is_number(v) and len(values) == 1 else v for v in values)
    found = meet(b, *operands)
    dtype: DType = found[0].dtype if found[0].dtype.is_float else FLOAT32
    found = tuple(as_expr(b, e, dtype) for e in found)
    if dtype.bits >= 32:
        return Call(f"{op}_{mode}", found, dtype)
    if mode != "rn":
        hint = "cast the operands to float32 first"
        raise b.error("TL0206", f"{dtype} is rounded to nearest only, got {describe(mode)}", help=hint)
    if op in ("fma", "sqrt"):
        return Call(op, found, dtype)
    return binary(b, op, *found)


def ieee_add(b: Builder, x: Any, y: Any, rounding_mode: Any = "rn") -> Any:
    """x + y, rounded to nearest ("rn"), to zero ("rz"), up ("ru") or down ("rd")."""
    return _rounded(b, "add", rounding_mode, x, y)


def ieee_sub(b: Builder, x: Any, y: Any, rounding_mode: Any = "rn") -> Any:
    """x - y, with a rounding as T.ieee_add."""
    return _rounded(b, "sub", rounding_mode, x, y)


def ieee_mul(b: Builder, x: Any, y: Any, rounding_mode: Any = "rn") -> Any:
    """x * y, with a rounding as T.ieee_add; never joined with a sum behind it."""
    return _rounded(b, "mul", rounding_mode, x, y)


def ieee_fdiv(b: Builder, x: Any, y: Any, rounding_mode: Any = "rn") -> Any:
    """x / y, with a rounding as T.ieee_add."""
    return _rounded(b, "div", rounding_mode, x, y)


def ieee_fmaf(b: Builder, x: Any, y: Any, z: Any, rounding_mode: Any = "rn") -> Expr:
    """x * y + z with one rounding, as T.ieee_add has it."""
    return _rounded(b, "fma", rounding_mode, x, y, z)


def ieee_fsqrt(b: Builder, x: Any, rounding_mode: Any = "rn") -> Expr:
    """The square root, with a rounding as T.ieee_add."""
    return _rounded(b, "sqrt", rounding_mode, x)


def ieee_frcp(b: Builder, x: Any, rounding_mode: Any = "rn") -> Any:
    """1 / x, with a rounding as T.ieee_add."""
    return _rounded(b, "div", rounding_mode, 1.0, x)


def ieee_frsqrt(b: Builder, x: Any) -> Any:
    """1 / square root, each rounded to nearest."""
    return _rounded(b, "div", "rn", 1.0, ieee_fsqrt(b, x))


def fmul(b: Builder, x: Any, y: Any) -> Any:
    """x * y, rounded to nearest on its own: never joined with a sum behind it."""
    return _rounded(b, "mul", "rn", x, y)


ENTRIES: tuple[Entry, ...] = tuple(
    e
    for fn in (ieee_add, ieee_sub, ieee_mul, ieee_fdiv, ieee_fmaf, ieee_fsqrt, ieee_frcp, ieee_frsqrt, fmul)
    for e in works(fn, lanewise=True)
)
