"""Arithmetic on literals, at the width of their type.

    fold_binary("add", Const(2**31 - 1, INT32), Const(1, INT32), INT32) -> Const(-2**31, INT32)

Float results are computed in double and rounded once to the type, which is exact for `+ - * /` of the narrower types; `//` is not and is
rounded step by step.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from tilec.analysis.rounding import round_float
from tilec.ir.dtypes import BOOL, FLOAT32, FLOAT64, DType, wrap
from tilec.ir.expr import Const
from tilec.language.constants import convert


class FoldError(Exception):
    """A literal operation that has no value: a division by zero, a shift by more than the width."""


def fold_binary(op: str, a: Const, b: Const, dtype: DType) -> Const:
    """The literal that `a op b` gives in `dtype`; FoldError when it has none."""
    if dtype is BOOL:
        return Const(_bool_binary(op, bool(a.value), bool(b.value)), BOOL)
    if dtype.is_float:
        x, y = float(a.value), float(b.value)
        exact = _floor_divide(x, y, dtype) if op == "floordiv" else _float_binary(op, x, y)
        return Const(round_float(exact, dtype), dtype)
    return Const(wrap(_int_binary(op, int(a.value), int(b.value), dtype), dtype), dtype)


def _bool_binary(op: str, a: bool, b: bool) -> bool:
    match op:
        case "and" | "min" | "mul":
            return a and b
        case "or" | "max" | "add":
            return a or b
        case "xor":
            return a != b
        case _:
            raise FoldError(f"`{op}` is not defined for bool")


def _int_binary(op: str, a: int, b: int, dtype: DType) -> int:
    if op in ("floordiv", "mod", "truncdiv", "truncmod") and b == 0:
        raise FoldError("division by zero")
    if op in ("shl", "shr") and not 0 <= b < dtype.bits:
        raise FoldError(f"a shift by {b} is outside the {dtype.bits} bits of {dtype}")
    if op == "pow" and b < 0:
        raise FoldError("an integer to a negative power is not an integer")
    if op == "pow":
        return pow(a, b, 1 << dtype.bits)
    if op not in _INTEGERS:
        raise FoldError(f"`{op}` is not defined for {dtype}")
    return _INTEGERS[op](a, b)


def _trunc_divide(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


_INTEGERS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "mod": operator.mod,
    "truncdiv": _trunc_divide, "truncmod": lambda a, b: a - b * _trunc_divide(a, b), "min": min, "max": max,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "shl": operator.lshift, "shr": operator.rshift,
}  # fmt: skip


def _float_binary(op: str, a: float, b: float) -> float:
    match op:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "div":
            return _divide(a, b)
        case "mod":
            return math.nan if b == 0 or math.isinf(a) else a % b
        case "min" | "max":
            return drop_nan_min(a, b) if op == "min" else -drop_nan_min(-a, -b)
        case "pow":
            return _power(a, b)
        case _:
            raise FoldError(f"`{op}` is not defined for floats")


def _floor_divide(a: float, b: float, dtype: DType) -> float:
    """Python's `a // b` in the steps in which the generated code takes it, each rounded: quotients of more digits than the type has
    depend on them."""
    if b == 0 or math.isinf(a) or math.isnan(a) or math.isnan(b):
        return _divide(a, b) if b == 0 else math.nan
    kind = FLOAT64 if dtype is FLOAT64 else FLOAT32
    m = math.fmod(a, b)
    q = round_float(_divide(round_float(a - m, kind), b), kind)
    if m != 0 and (b < 0) != (m < 0):
        q = round_float(q - 1, kind)
    if q == 0:
        return math.copysign(0.0, a) * math.copysign(1.0, b)
    if math.isinf(q):
        return q
    whole = float(math.floor(q))
    return round_float(whole + 1, kind) if q - whole > 0.5 else whole


def _divide(a: float, b: float) -> float:
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _power(a: float, b: float) -> float:
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:  # 0 to a negative power, or a root of a negative number
        if a != 0:
            return math.nan
        return math.copysign(math.inf, a) if b % 2 == 1 else math.inf


def drop_nan_min(a: float, b: float) -> float:
    """The smaller number; the other one when one is NaN; -0.0 counts as smaller than 0.0."""
    if math.isnan(a):
        return b
    if math.isnan(b):
        return a
    if a == b == 0:
        return a if math.copysign(1.0, a) < 0 else b
    return min(a, b)


def fold_compare(op: str, a: Const, b: Const) -> bool:
    """The truth of a comparison of two literals; NaN compares as Python does."""
    x, y = a.value, b.value
    match op:
        case "eq":
            return x == y
        case "ne":
            return x != y
        case "lt":
            return x < y
        case "le":
            return x <= y
        case "gt":
            return x > y
        case "ge":
            return x >= y
        case _:
            raise ValueError(op)


def fold_cast(a: Const, dtype: DType) -> Const:
    """A literal converted to another type."""
    return Const(convert(a.value, dtype), dtype)
