"""Functions of numbers: T.exp, T.max, T.cast, T.if_then_else and the other intrinsics.

    T.exp2(x * 1.44)  ->  Call("exp2", (x * 1.44,), FLOAT32);  T.max(x, 0.0)  ->  Binary("max", x, 0.0)

`INTRINSICS` is the list of names that a `Call` may have. Exact ones are folded on literals; those that round are left to the
device, so that a literal and a loaded value give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilec.ir.dtypes import BOOL, FLOAT8_E4M3, FLOAT8_E5M2, FLOAT32, INT32, DType, int_range
from tilec.ir.expr import Call, Const, Expr, Reinterpret
from tilec.language.access import as_expr, cast_expr, dtype_of, is_number
from tilec.language.arith import binary, compare, convert_to, logical, meet, select, unary
from tilec.language.bind import Entry, works
from tilec.language.builder import Builder
from tilec.language.context import host_flag
from tilec.language.constants import convert, has_infinity, largest
from tilec.language.fold import drop_nan_min
from tilec.language.promote import arithmetic
from tilec.language.show import describe

FLOAT_FUNCTIONS = {
    "exp": "e to the x", "exp2": "2 to the x", "exp10": "10 to the x", "log": "natural logarithm", "log2": "logarithm to base 2",
    "log10": "logarithm to base 10", "log1p": "log(1 + x)", "expm1": "exp(x) - 1", "sqrt": "square root",
    "rsqrt": "1 / square root", "sin": "sine", "cos": "cosine", "tan": "tangent", "sinh": "hyperbolic sine",
    "cosh": "hyperbolic cosine", "tanh": "hyperbolic tangent", "asin": "arc sine", "acos": "arc cosine", "atan": "arc tangent",
    "asinh": "inverse hyperbolic sine", "acosh": "inverse hyperbolic cosine", "atanh": "inverse hyperbolic tangent",
    "erf": "error function", "sigmoid": "1 / (1 + exp(-x))",
}  # fmt: skip
"""Intrinsics of one float: integers are converted to float32, 8-bit floats are computed in float32."""

BINARY_FUNCTIONS = {
    "atan2": "angle of the point (y, x)", "fmod": "remainder with the sign of x", "copysign": "x with the sign of y",
    "hypot": "sqrt(x*x + y*y)", "nextafter": "next number after x towards y",
}  # fmt: skip

INTRINSICS = (
    *FLOAT_FUNCTIONS, *BINARY_FUNCTIONS, "abs", "floor", "ceil", "round", "trunc", "isnan", "isinf", "isfinite", "popcount", "clz",
    "fma", "ceildiv",
)  # fmt: skip
"""Every name of a `Call` that the language makes."""

_ROUNDINGS: dict[str, Callable[[float], int]] = {"floor": math.floor, "ceil": math.ceil, "round": round, "trunc": math.trunc}


def _float_operand(b: Builder, x: Any) -> tuple[Expr, DType]:
    """The operand in the type it is computed in, and the type of the result."""
    value = as_expr(b, x)
    dtype = value.dtype
    dtype = arithmetic(dtype) if dtype.is_float else FLOAT32
    return cast_expr(value, FLOAT32 if dtype.bits == 8 else dtype), dtype


def float_function(b: Builder, name: str, x: Any) -> Expr:
    """An intrinsic of one float; the result has the operand's type."""
    value, dtype = _float_operand(b, x)
    return cast_expr(Call(name, (value,), value.dtype), dtype)


def _define_unary(name: str, doc: str) -> Any:
    def function(b: Builder, x: Any) -> Expr:
        return float_function(b, name, x)

    function.__doc__ = f"The {doc}." if doc[0].isalpha() else f"{doc}."
    return function


def _define_binary(name: str, doc: str) -> Any:
    def function(b: Builder, x: Any, y: Any) -> Expr:
        first, second = meet(b, x, y)
        value, dtype = _float_operand(b, first)
        return cast_expr(Call(name, (value, cast_expr(second, value.dtype)), value.dtype), dtype)

    function.__doc__ = f"The {doc}."
    return function


def _rounding(b: Builder, name: str, x: Any) -> Expr:
    """floor, ceil, round (ties to even) and trunc: integers stay as they are, literals are rounded now."""
    value = as_expr(b, x)
    if not value.dtype.is_float:
        return cast_expr(value, INT32) if value.dtype is BOOL else value
    value = cast_expr(value, arithmetic(value.dtype))
    if isinstance(value, Const):
        number = float(value.value)
        whole = number if not math.isfinite(number) else math.copysign(float(_ROUNDINGS[name](number)), number)
        return Const(convert(whole, value.dtype), value.dtype)
    return float_function(b, name, value)


def floor(b: Builder, x: Any) -> Expr:
    """The largest whole number not above x."""
    return _rounding(b, "floor", x)


def ceil(b: Builder, x: Any) -> Expr:
    """The smallest whole number not below x."""
    return _rounding(b, "ceil", x)


def round_(b: Builder, x: Any, rounding_mode: Any = "ties-to-even") -> Any:
    """The nearest whole number, ties to even; away from zero with rounding_mode="ties-away-from-zero"."""
    if rounding_mode in (None, "ties-to-even"):
        return _rounding(b, "round", x)
    if rounding_mode != "ties-away-from-zero":
        raise b.error("TL0206", f'the rounding of T.round is "ties-to-even" or "ties-away-from-zero", got {describe(rounding_mode)}')
    value = as_expr(b, x)
    if not value.dtype.is_float:
        return _rounding(b, "round", value)
    whole = _rounding(b, "trunc", value)
    rest = as_expr(b, abs_(b, binary(b, "sub", value, whole)))
    one = _define_binary("copysign", "")(b, Const(1.0, whole.dtype), value)
    return select(b, compare(b, "ge", rest, 0.5), binary(b, "add", whole, one), whole)


def trunc(b: Builder, x: Any) -> Expr:
    """x without its fraction."""
    return _rounding(b, "trunc", x)


def abs_(b: Builder, x: Any) -> Any:
    """The absolute value; that of the smallest signed integer is itself."""
    if is_number(x):
        return abs(x)
    value = as_expr(b, x)
    value = cast_expr(value, INT32 if value.dtype is BOOL else arithmetic(value.dtype))
    if isinstance(value, Const):
        return Const(convert(abs(value.value), value.dtype), value.dtype)
    if value.dtype.is_float:
        return float_function(b, "abs", value)
    return value if value.dtype.kind.value == "uint" else Call("abs", (value,), value.dtype)


def _class_test(b: Builder, name: str, x: Any) -> Expr:
    """isnan, isinf and isfinite: whatever is not a float is finite."""
    value = as_expr(b, x)
    if not value.dtype.is_float:
        return Const(name == "isfinite", BOOL)
    if isinstance(value, Const):
        test = {"isnan": math.isnan, "isinf": math.isinf, "isfinite": math.isfinite}[name]
        return Const(test(value.value), BOOL)
    return Call(name, (cast_expr(value, FLOAT32) if value.dtype.bits == 8 else value,), BOOL)


def isnan(b: Builder, x: Any) -> Expr:
    """Whether x is NaN."""
    return _class_test(b, "isnan", x)


def isinf(b: Builder, x: Any) -> Expr:
    """Whether x is an infinity."""
    return _class_test(b, "isinf", x)


def isfinite(b: Builder, x: Any) -> Expr:
    """Whether x is neither NaN nor an infinity."""
    return _class_test(b, "isfinite", x)


def max_(b: Builder, a: Any, *others: Any) -> Any:
    """The largest of its arguments; NaN is dropped."""
    return _extreme(b, "max", (a, *others))


def min_(b: Builder, a: Any, *others: Any) -> Any:
    """The smallest of its arguments; NaN is dropped."""
    return _extreme(b, "min", (a, *others))


def _extreme(b: Builder, op: str, values: tuple[Any, ...]) -> Any:
    if len(values) == 1:
        if not isinstance(values[0], (tuple, list)):
            raise b.error("TL0203", f"`T.{op}` of one number", help=f"give it two numbers or more; T.reduce_{op} takes a tile")
        values = tuple(values[0])
    if not values:
        raise b.error("TL0203", f"`T.{op}` needs at least one argument")
    result = values[0] if is_number(values[0]) else as_expr(b, values[0])
    for value in values[1:]:
        result = _host_extreme(op, result, value) if is_number(result) and is_number(value) else binary(b, op, result, value)
    return result


def _host_extreme(op: str, x: Any, y: Any) -> Any:
    if isinstance(x, float) or isinstance(y, float):
        return drop_nan_min(float(x), float(y)) if op == "min" else -drop_nan_min(-float(x), -float(y))
    return min(x, y) if op == "min" else max(x, y)


def clamp(b: Builder, dst: Any, min_val: Any, max_val: Any) -> Any:
    """min(max(x, lo), hi); NaN becomes lo."""
    return _extreme(b, "min", (_extreme(b, "max", (dst, min_val)), max_val))


def if_then_else(b: Builder, cond: Any, t: Any, f: Any, span: Any = None) -> Any:
    """`t if cond else f` in their common type; only the chosen one is evaluated."""
    return select(b, cond, t, f)


def fma(b: Builder, x: Any, y: Any, z: Any) -> Expr:
    """x * y + z with one rounding; for integers the plain sum."""
    first, second, third = meet(b, x, y, z)
    if not first.dtype.is_float:
        return binary(b, "add", binary(b, "mul", first, second), third)
    value, dtype = _float_operand(b, first)
    return cast_expr(Call("fma", (value, cast_expr(second, value.dtype), cast_expr(third, value.dtype)), value.dtype), dtype)


def popcount(b: Builder, x: Any) -> Expr:
    """The number of one bits of an integer."""
    return _bit_count(b, "popcount", x)


def clz(b: Builder, x: Any) -> Expr:
    """The number of leading zero bits of an integer, its width for 0."""
    return _bit_count(b, "clz", x)


def _bit_count(b: Builder, name: str, x: Any) -> Expr:
    value = as_expr(b, x)
    if not value.dtype.is_int:
        raise b.error("TL0315", f"T.{name} takes integers, got {value.dtype}")
    if isinstance(value, Const):
        bits = int(value.value) & ((1 << value.dtype.bits) - 1)
        return Const(bits.bit_count() if name == "popcount" else value.dtype.bits - bits.bit_length(), INT32)
    return Call(name, (value,), INT32)


def _operator(op: str, doc: str) -> Any:
    def function(builder: Builder, a: Any, b: Any, span: Any = None) -> Any:
        return binary(builder, op, *(as_expr(builder, v) if is_number(a) and is_number(b) else v for v in (a, b)))

    function.__doc__ = doc
    return function


def _logical(op: str, doc: str) -> Any:
    def function(builder: Builder, a: Any, b: Any, span: Any = None) -> Any:
        return logical(builder, op, a, b)

    function.__doc__ = doc
    return function


def Not(b: Builder, a: Any) -> Expr:
    """Logical negation."""
    return unary(b, "not", a)


def bitwise_not(b: Builder, x: Any) -> Expr:
    """Every bit flipped."""
    return unary(b, "invert", x)


def cast(b: Builder, value: Any, dtype: Any, round: Any = "", sat: Any = True) -> Expr:
    """Conversion: floats round to nearest even, float to integer truncates, integers wrap, 8-bit floats saturate."""
    if round not in ("", "rn", None):
        hint = "other roundings are instructions of later architectures; T.floor, T.ceil and T.trunc give whole numbers"
        raise b.error("TL0206", f"T.cast rounds to nearest even, {describe(round)} is not supported", help=hint)
    wanted = dtype_of(b, dtype)
    if wanted not in (FLOAT8_E4M3, FLOAT8_E5M2) or host_flag(b, sat, "sat"):
        return convert_to(b, value, wanted)
    wide = as_expr(b, value)
    size = as_expr(b, abs_(b, wide if wide.dtype.is_float else cast_expr(wide, FLOAT32)))
    first = (464.0, math.nan) if wanted == FLOAT8_E4M3 else (61440.0, math.inf)  # ties go to the even neighbour
    beyond = compare(b, "gt" if wanted == FLOAT8_E4M3 else "ge", size, first[0])
    signed = _define_binary("copysign", "")(b, Const(first[1], FLOAT32), cast_expr(wide, FLOAT32))
    return as_expr(b, select(b, beyond, cast_special(b, signed, wanted), convert_to(b, wide, wanted)))


def cast_special(b: Builder, value: Expr, dtype: DType) -> Expr:
    """NaN, or an infinity with its sign, in an 8-bit type; conversions would make the latter finite."""
    if dtype == FLOAT8_E4M3:
        return Const(math.nan, dtype)
    below = compare(b, "lt", value, 0.0)
    return as_expr(b, select(b, below, Const(-math.inf, dtype), Const(math.inf, dtype)))


def Select(b: Builder, condition: Any, true_value: Any, false_value: Any, span: Any = None) -> Any:
    """T.if_then_else."""
    return select(b, condition, true_value, false_value)


def const(b: Builder, value: Any, dtype: Any = "int32", span: Any = None) -> Expr:
    """A literal of a type (tvm.tirx.const)."""
    return convert_to(b, value, dtype)


def reinterpret(b: Builder, value: Any, dtype: Any) -> Expr:
    """The same bits as another type of the same width."""
    if isinstance(value, (DType, str)) and not isinstance(dtype, (DType, str)):
        value, dtype = dtype, value
    wanted, operand = dtype_of(b, dtype), as_expr(b, value)
    if operand.dtype.bits != wanted.bits:
        text = f"cannot reinterpret {operand.dtype} ({operand.dtype.bits} bits) as {wanted} ({wanted.bits} bits)"
        raise b.error("TL0317", text, help="use T.cast to convert the value")
    return operand if operand.dtype is wanted else Reinterpret(operand, wanted)


def infinity(b: Builder, dtype: Any = "float32", span: Any = None) -> Expr:
    """Positive infinity of a floating type."""
    wanted = dtype_of(b, dtype)
    if not has_infinity(wanted):
        limit = largest(wanted)
        raise b.error("TL0317", f"{wanted} has no infinity", help=f'its largest value is {limit}: T.max_value("{wanted}")')
    return Const(math.inf, wanted)


def max_value(b: Builder, dtype: Any, span: Any = None) -> Expr:
    """The largest finite value of a type."""
    wanted = dtype_of(b, dtype)
    return Const(largest(wanted), wanted)


def min_value(b: Builder, dtype: Any, span: Any = None) -> Expr:
    """The most negative finite value of a type."""
    wanted = dtype_of(b, dtype)
    return Const(-largest(wanted) if wanted.is_float else int_range(wanted)[0], wanted)


_OPERATORS = {
    "floordiv": ("floordiv", "Quotient rounded down, as `//`."), "floormod": ("mod", "Remainder with the divisor's sign, as `%`."),
    "truncdiv": ("truncdiv", "Quotient of integers rounded towards zero."), "div": ("div", "True division of floats, as `/`."),
    "truncmod": ("truncmod", "Remainder of integers with the dividend's sign."), "indexdiv": ("floordiv", "As `//`."),
    "indexmod": ("mod", "As `%`."), "shift_left": ("shl", "As `<<`."), "shift_right": ("shr", "As `>>`; keeps the sign."),
    "bitwise_and": ("and", "As `&`."), "bitwise_or": ("or", "As `|`."), "bitwise_xor": ("xor", "As `^`."),
    "pow": ("pow", "x to the y; small whole exponents become multiplications."), "power": ("pow", "As T.pow."),
}  # fmt: skip

def fast_rcp(b: Builder, x: Any) -> Expr:
    """1 / x; the approximate form is computed as the exact one."""
    return binary(b, "div", 1.0, x)


APPROXIMATE = ("exp", "exp10", "log", "log2", "log10", "sin", "cos", "tan")
"""Functions with an approximate form `T.__exp` in the language; it is computed as the exact one."""

_FUNCTIONS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (Not, ()), (bitwise_not, ()), (floor, ()), (ceil, ()), (round_, ("nearbyint", "rint")), (trunc, ()), (abs_, ("fabs",)),
    (isnan, ()), (isinf, ()), (isfinite, ()), (max_, ()), (min_, ()), (clamp, ()), (if_then_else, ()), (Select, ()), (fma, ()),
    (popcount, ()), (clz, ()), (fast_rcp, ()),
)  # fmt: skip

ENTRIES: tuple[Entry, ...] = (
    tuple(e for name, doc in FLOAT_FUNCTIONS.items() for e in works(_define_unary(name, doc), name=name, host=True, lanewise=True))
    + tuple(e for name, doc in BINARY_FUNCTIONS.items() for e in works(_define_binary(name, doc), name=name, host=True, lanewise=True))
    + tuple(e for name, (op, doc) in _OPERATORS.items() for e in works(_operator(op, doc), name=name, host=True, lanewise=True))
    + works(_logical("and", "As `and`."), name="And", host=True, lanewise=True)
    + works(_logical("or", "As `or`."), name="Or", host=True, lanewise=True)
    + tuple(e for fn, aliases in _FUNCTIONS for e in works(fn, *aliases, host=True, lanewise=True))
    + works(infinity, host=True)
    + works(max_value, host=True)
    + works(min_value, host=True)
    + tuple(
        e for n in APPROXIMATE for e in works(_define_unary(n, FLOAT_FUNCTIONS[n]), name=f"__{n}", host=True, lanewise=True)
    )
)
"""`const` is not here: T.const declares sizes; tvm.tirx.const is added by the catalogue; T.cast and T.reinterpret are in `vectors`."""
