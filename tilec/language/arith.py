"""Operators on device values: promotion, constant folding at the type's width, casts.

    binary(b, "add", Ref(A, (i,)), 1) -> Binary("add", Load(A, (i,)), Const(1, FLOAT16), FLOAT16)

Called as soon as one operand is a device value; operations between host values are Python's own. Every function returns an
expression (a `Const` when everything was a literal) and raises CompileError for operands that an operator does not take.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from tilec.ir.dtypes import BOOL, FLOAT32, FLOAT64, INT32, INT64, UINT32, UINT64, DType, Kind
from tilec.ir.expr import Binary, Cast, Compare, Const, Expr, Logical, Select, Unary
from tilec.ir.visit import walk_expr
from tilec.language.access import as_expr, cast_expr, dtype_of, is_number, literal
from tilec.language.builder import Builder
from tilec.language.constants import convert, literal_dtype
from tilec.language.fold import FoldError, fold_binary, fold_compare
from tilec.language.promote import arithmetic, common, comparison
from tilec.language.promote import literal as literal_beside
from tilec.language.show import describe

__all__ = [
    "as_expr", "binary", "cast", "common_dtype", "compare", "convert_to", "logical", "meet", "select", "truth", "unary",
]  # fmt: skip

SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "pow": "**", "and": "&", "or": "|", "xor": "^",
    "shl": "<<", "shr": ">>", "invert": "~", "neg": "-",
}  # fmt: skip
_BITWISE = ("and", "or", "xor")
_RINGS = ("add", "sub", "mul", *_BITWISE)  # the same bits come out whether the operands are read as signed or not
_LONGEST_POWER = 16
_LARGEST_BASE = 12


def _types(b: Builder, values: tuple[Any, ...]) -> tuple[DType, ...]:
    """The type of each operand; literals adapt to the operands that are not literals."""
    others = [v.dtype for v in values if not is_number(v)]
    if not others:
        return tuple(_literal_alone(b, v) for v in values)
    beside = others[0]
    for d in others[1:]:
        beside = common(beside, d)
    found = tuple(literal_beside(v, beside) if is_number(v) else v.dtype for v in values)
    if None in found:
        raise b.error("TL0303", "an integer literal is larger than any integer type")
    return tuple(d for d in found if d is not None)


def _literal_alone(b: Builder, value: int | float) -> DType:
    found = literal_dtype(value)
    if found is None:
        raise b.error("TL0303", f"no integer type holds {value}")
    return found


def _operand(b: Builder, value: Any) -> Any:
    """A host number as it is, anything else as an expression."""
    return value if is_number(value) else as_expr(b, value)


def common_dtype(b: Builder, *values: Any) -> DType:
    """The type in which `values` meet."""
    return _fold_types(_types(b, tuple(_operand(b, v) for v in values)))


def _fold_types(types: tuple[DType, ...]) -> DType:
    result = types[0]
    for d in types[1:]:
        result = common(result, d)
    return arithmetic(result)


def _to(b: Builder, value: Any, dtype: DType) -> Expr:
    """An operand in the type an operation computes in; a literal is rounded to it once and wraps."""
    if not is_number(value):
        return cast_expr(value, dtype)
    return literal(b, value, dtype) if dtype.is_float else Const(convert(value, dtype), dtype)


def meet(b: Builder, *values: Any) -> tuple[Expr, ...]:
    """`values` as expressions of one type."""
    operands = tuple(_operand(b, v) for v in values)
    dtype = _fold_types(_types(b, operands))
    return tuple(_to(b, v, dtype) for v in operands)


def binary(b: Builder, op: str, x: Any, y: Any) -> Expr:
    """`x op y` for the operators of the IR (`add`, `floordiv`, `min`, `shl`, ...)."""
    if op in ("shl", "shr"):
        return _shift(b, op, x, y)
    if op == "pow":
        return power(b, x, y)
    if op not in _RINGS:
        x, y = _signed_beside(b, x, y), _signed_beside(b, y, x)
    left, right = meet(b, x, y)
    dtype = left.dtype
    if dtype.kind is Kind.HANDLE:
        raise b.error("TL0315", f"`{SIGNS.get(op, op)}` is not defined for pointers")
    if dtype is BOOL and op not in _BITWISE:
        left, right, dtype = cast_expr(left, INT32), cast_expr(right, INT32), INT32
    if op == "div" and not dtype.is_float:
        raise b.error("TL0314", f"`/` of two integers ({dtype}) is not defined", help="use `//` for the floor, or cast one side to a float")
    if op in (*_BITWISE, "truncdiv", "truncmod") and dtype.is_float:
        raise b.error("TL0315", f"`{SIGNS.get(op, op)}` is not defined for {dtype}", help="reinterpret or cast it to an integer first")
    return _compute(b, op, left, right, dtype)


def _signed_beside(b: Builder, value: Any, other: Any) -> Any:
    """`value` in int64 when it is a uint32 beside a negative literal, which only sums, products and bits may wrap."""
    if is_number(value) or not (is_number(other) and not isinstance(other, float) and other < 0):
        return value
    e = as_expr(b, value)
    if e.dtype == UINT64:
        raise b.error("TL0303", f"{other} is outside the range of uint64", help="cast the other side to a signed type first")
    return cast_expr(e, INT64) if e.dtype == UINT32 else e


def _compute(b: Builder, op: str, x: Expr, y: Expr, dtype: DType) -> Expr:
    """`x op y` on two expressions of type `dtype`, folded where both are literals."""
    if dtype.is_float and dtype.bits == 8:
        wide = _compute(b, op, cast_expr(x, FLOAT32), cast_expr(y, FLOAT32), FLOAT32)
        return cast_expr(wide, dtype)
    if isinstance(x, Const) and isinstance(y, Const):
        try:
            return fold_binary(op, x, y, dtype)
        except FoldError as fault:
            raise b.error("TL0316", f"{fault}") from None
    if dtype.is_int and isinstance(y, Const) and y.value == 0 and op in ("floordiv", "mod", "truncdiv", "truncmod"):
        raise b.error("TL0316", "division by zero")
    return _identity(op, x, y) or Binary(op, x, y, dtype)


def _identity(op: str, x: Expr, y: Expr) -> Expr | None:
    """The operand that an integer operation with 0 or 1 leaves as it is; keeps index expressions short."""
    if not x.dtype.is_int:
        return None
    left = x.value if isinstance(x, Const) else None
    right = y.value if isinstance(y, Const) else None
    if (op in ("add", "sub", "or", "xor") and right == 0) or (op in ("mul", "floordiv", "truncdiv") and right == 1):
        return x
    if (op in ("add", "or", "xor") and left == 0) or (op == "mul" and left == 1):
        return y
    return Const(0, x.dtype) if op == "mul" and 0 in (left, right) else None


def _shift(b: Builder, op: str, x: Any, y: Any) -> Expr:
    """Shifts take the type of their left side; the count may be any integer and must lie inside the width."""
    count = as_expr(b, y)
    value = cast_expr(count, count.dtype) if is_number(x) else as_expr(b, x)
    dtype = INT32 if value.dtype is BOOL else value.dtype
    left = as_expr(b, x, dtype) if is_number(x) and not isinstance(x, float) else cast_expr(as_expr(b, x), dtype)
    if not (left.dtype.is_int and (count.dtype.is_int or count.dtype is BOOL)):
        raise b.error("TL0315", f"`{SIGNS[op]}` takes integers, got {left.dtype} and {count.dtype}")
    if count.dtype is BOOL:
        count = cast_expr(count, INT32)
    if isinstance(count, Const) and not 0 <= count.value < dtype.bits:
        raise b.error("TL0316", f"a shift by {count.value} is outside the {dtype.bits} bits of {dtype}")
    if isinstance(left, Const) and isinstance(count, Const):
        return fold_binary(op, left, count, dtype)
    return left if isinstance(count, Const) and count.value == 0 else Binary(op, left, count, dtype)


def power(b: Builder, x: Any, y: Any) -> Expr:
    """`x ** y`. A small whole exponent becomes multiplications, which are exact where the result is."""
    base, exponent = meet(b, x, y)
    if base.dtype is BOOL:
        base, exponent = cast_expr(base, INT32), cast_expr(exponent, INT32)
    if base.dtype.is_float and base.dtype.bits < 32:  # steps rounded to a narrow type would overflow early
        return cast_expr(power(b, cast_expr(base, FLOAT32), cast_expr(exponent, FLOAT32)), base.dtype)
    whole = _whole(exponent)
    if base.dtype.is_int and whole is not None and whole < 0:
        raise b.error("TL0316", "an integer to a negative power is not an integer", help="cast the base to a float first")
    if whole is None or abs(whole) > _LONGEST_POWER or isinstance(base, Const) or not _small(base):
        return _compute(b, "pow", base, exponent, base.dtype)
    one = Const(convert(1, base.dtype), base.dtype)
    result = _multiply(b, base, abs(whole)) if whole else one
    return binary(b, "div", one, result) if whole < 0 else result


def _whole(e: Expr) -> int | None:
    """The value of a literal exponent that is a whole number."""
    if not isinstance(e, Const) or not abs(e.value) <= 1024:
        return None
    return int(e.value) if int(e.value) == e.value else None


def _small(e: Expr) -> bool:
    return sum(1 for _ in islice(walk_expr(e), _LARGEST_BASE + 1)) <= _LARGEST_BASE


def _multiply(b: Builder, base: Expr, count: int) -> Expr:
    """base**count by repeated squaring."""
    if count == 1:
        return base
    half = _multiply(b, base, count // 2)
    square = binary(b, "mul", half, half)
    return binary(b, "mul", square, base) if count % 2 else square


def compare(b: Builder, op: str, x: Any, y: Any) -> Expr:
    """`x op y` for eq, ne, lt, le, gt, ge: exact between integers of any types, as Python's."""
    left, right = _operand(b, x), _operand(b, y)
    a_type, b_type = _types(b, (left, right))
    dtype = _exact_beside(left, right, comparison(a_type, b_type))
    if dtype is None:
        return _compare_64(b, op, _to(b, left, a_type), _to(b, right, b_type))
    if dtype.is_float and dtype.bits == 8:
        dtype = FLOAT32
    if dtype is BOOL and op not in ("eq", "ne"):
        dtype = INT32
    first, second = _to(b, left, dtype), _to(b, right, dtype)
    if isinstance(first, Const) and isinstance(second, Const):
        return Const(fold_compare(op, first, second), BOOL)
    return Compare(op, first, second)


def _exact_beside(x: Any, y: Any, dtype: DType | None) -> DType | None:
    """A float type wide enough for an integer literal, so that a comparison with it is exact."""
    for value in (x, y):
        if dtype is not None and dtype.is_float and isinstance(value, int):
            wide = (d for d in (dtype, FLOAT32, FLOAT64) if d.bits >= dtype.bits and convert(value, d) == value)
            dtype = next(wide, FLOAT64)
    return dtype


def _compare_64(b: Builder, op: str, x: Expr, y: Expr) -> Expr:
    """int64 against uint64: a negative value is below everything, the others compare as unsigned."""
    if x.dtype.kind is Kind.UINT:
        return _compare_64(b, {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}.get(op, op), y, x)
    below = compare(b, "lt", cast_expr(x, INT64), 0)
    unsigned = compare(b, op, cast_expr(x, UINT64), cast_expr(y, UINT64))
    if op in ("lt", "le", "ne"):
        return logical(b, "or", below, unsigned)
    return logical(b, "and", unary(b, "not", below), unsigned)


def unary(b: Builder, op: str, x: Any) -> Expr:
    """`-x` (neg), `not x` (not), `~x` (invert; of a bool it is its negation)."""
    if op == "not":
        return _negate(as_bool(b, x))
    value = as_expr(b, x)
    if op == "invert" and value.dtype is BOOL:
        return _negate(value)
    if value.dtype is BOOL:
        value = cast_expr(value, INT32)
    dtype = value.dtype
    if op == "invert" and not dtype.is_int:
        raise b.error("TL0315", f"`~` is not defined for {dtype}", help="reinterpret or cast it to an integer first")
    if dtype.is_float and dtype.bits == 8 and not isinstance(value, Const):
        return cast_expr(Unary(op, Cast(value, FLOAT32), FLOAT32), dtype)
    if isinstance(value, Const):
        flipped = -value.value if op == "neg" else ~int(value.value)
        return Const(convert(flipped, dtype) if dtype.is_int else flipped, dtype)
    return Unary(op, value, dtype)


def _negate(e: Expr) -> Expr:
    if isinstance(e, Const):
        return Const(not e.value, BOOL)
    return e.a if isinstance(e, Unary) and e.op == "not" else Unary("not", e, BOOL)


def as_bool(b: Builder, x: Any) -> Expr:
    """`x` as a condition: itself when bool, otherwise `x != 0`."""
    value = as_expr(b, x)
    return value if value.dtype is BOOL else compare(b, "ne", value, 0)


def truth(b: Builder, value: Any) -> bool | Expr:
    """The truth of a value: a host bool when it is known now, a bool expression otherwise."""
    if not isinstance(value, Expr) and (is_number(value) or isinstance(value, (str, tuple, list, dict)) or value is None):
        return bool(value)
    condition = as_bool(b, value)
    return bool(condition.value) if isinstance(condition, Const) else condition


def logical(b: Builder, op: str, x: Any, y: Any) -> Expr:
    """`x and y` / `x or y` as bools; the right side counts only when the left one does not decide."""
    left = as_bool(b, x)
    if isinstance(left, Const):
        return as_bool(b, y) if bool(left.value) == (op == "and") else left
    right = as_bool(b, y)
    if isinstance(right, Const) and bool(right.value) == (op == "and"):
        return left
    return Logical(op, left, right)


def select(b: Builder, cond: Any, x: Any, y: Any) -> Any:
    """`x if cond else y`, both in their common type; only the chosen one is evaluated."""
    condition = truth(b, cond)
    if isinstance(condition, bool) and not isinstance(cond, Expr) and is_number(x) and is_number(y):
        return x if condition else y
    first, second = meet(b, x, y)
    if isinstance(condition, bool):
        return first if condition else second
    return Select(condition, first, second, first.dtype)


def cast(b: Builder, x: Any, dtype: Any) -> Expr:
    """`T.float16(x)`: a typed literal of a host number (an integer must fit), otherwise a conversion."""
    wanted = dtype_of(b, dtype)
    if isinstance(x, str) and wanted.is_float and x.lower().lstrip("+-") in ("inf", "infinity", "nan"):
        x = float(x)
    if not is_number(x) and not isinstance(x, Expr) and isinstance(x, (str, tuple, list, dict, type(None), DType)):
        raise b.error("TL0301", f"cannot convert {describe(x)} to {wanted}")
    return as_expr(b, x, wanted)


def convert_to(b: Builder, x: Any, dtype: Any) -> Expr:
    """`T.cast(x, dtype)`: as `cast`, but an integer literal wraps at the width of the type."""
    wanted = dtype_of(b, dtype)
    if is_number(x) and not isinstance(x, float) and wanted.is_int:
        return Const(convert(x, wanted), wanted)
    return cast(b, x, wanted)
