"""Numbers as the kernel computes them: NumPy types, conversions and arithmetic rounded to the declared type.

A value is a NumPy scalar when it is the same for all lanes, else an array that broadcasts against the lanes.

    binary("add", np.int8(127), np.int8(1), INT8) -> np.int8(-128);  cast(np.float32(1e9), FLOAT8_E4M3) -> 448
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from tilec.ir import dtypes as dt
from tilec.ir.dtypes import DType, Kind

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Value: TypeAlias = Any
"""A NumPy scalar or array; its NumPy type is that of the expression it came from."""

_NUMPY: dict[DType, np.dtype[Any]] = {
    dt.BOOL: np.dtype(np.bool_), dt.FLOAT16: np.dtype(np.float16), dt.FLOAT32: np.dtype(np.float32),
    dt.FLOAT64: np.dtype(np.float64), dt.TFLOAT32: np.dtype(np.float32), dt.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    dt.FLOAT8_E4M3: np.dtype(ml_dtypes.float8_e4m3fn), dt.FLOAT8_E5M2: np.dtype(ml_dtypes.float8_e5m2),
    dt.HANDLE: np.dtype(np.uint64),
    **{d: np.dtype(d.name) for d in dt.ALL if d.is_int},
}  # fmt: skip
_ML_FLOATS = tuple(_NUMPY[d] for d in (dt.BFLOAT16, dt.FLOAT8_E4M3, dt.FLOAT8_E5M2))
_FP8_MAX = {dt.FLOAT8_E4M3: 448.0, dt.FLOAT8_E5M2: 57344.0}


def np_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy type that holds one element (tfloat32 is stored as float32)."""
    return _NUMPY[dtype]


def settle(x: Value) -> Value:
    """`x` with a 0-d array turned into a scalar, so that uniform values are always scalars."""
    return x[()] if isinstance(x, np.ndarray) and x.ndim == 0 else x


def constant(value: float, dtype: DType) -> Value:
    """A literal, which its type can hold, as a NumPy scalar: infinities too, which a cast to fp8 would not give."""
    return settle(np.float64(value).astype(np_dtype(dtype))) if dtype.is_float else np_dtype(dtype).type(value)


def poison(shape: tuple[int, ...], dtype: DType) -> Array:
    """Undefined contents that show when they are used: NaN, bytes 0xA5 for integers, true for bool."""
    if dtype.is_float:
        return np.full(shape, np.nan, np.float32).astype(np_dtype(dtype))
    if dtype.kind is Kind.BOOL:
        return np.ones(shape, np.bool_)
    return np.frombuffer(b"\xa5" * (int(np.prod(shape, dtype=np.int64)) * dtype.bytes), np_dtype(dtype)).reshape(shape).copy()


def is_float(x: Array) -> bool:
    """True for every floating NumPy type, those of ml_dtypes included."""
    return x.dtype.kind == "f" or x.dtype in _ML_FLOATS


def widen(x: Value) -> Value:
    """A float value in the type it is computed in: float16 and narrower become float32."""
    x = np.asarray(x)
    return settle(x.astype(np.float32) if x.dtype.itemsize < 4 else x)


def cast(x: Value, to: DType) -> Value:
    """Conversion as `ir.expr.Cast` defines it."""
    x = np.asarray(x)
    target = np_dtype(to)
    if x.dtype == target:
        return settle(x)
    if to.kind is Kind.BOOL:
        return settle((widen(x) if is_float(x) else x) != 0)
    if to.is_float:
        return settle(_to_float(x, to))
    if is_float(x):
        return settle(_float_to_int(x.astype(np.float64), to))
    return settle(x.astype(target))


def _to_float(x: Array, to: DType) -> Array:
    """Rounds once, to nearest even; fp8 saturates."""
    target = np_dtype(to)
    if to in (dt.FLOAT32, dt.TFLOAT32, dt.FLOAT64):
        return x.astype(target)
    if not is_float(x):
        x = x.astype(np.float64)
    if to in _FP8_MAX:
        x = x.astype(np.float32) if x.dtype.itemsize < 4 else x
        x = np.clip(x, -_FP8_MAX[to], _FP8_MAX[to])
    if to != dt.FLOAT16 and x.dtype == np.float64:
        x = _round_to_odd(x)
    return x.astype(target)


def _round_to_odd(x: Array) -> Array:
    """float64 to float32 such that a second rounding to a narrower type gives what one rounding would have given."""
    y = x.astype(np.float32)
    inexact_even = (y.astype(np.float64) != x) & ~np.isnan(x) & ((y.view(np.int32) & 1) == 0)
    toward = np.where(x > y, np.inf, -np.inf).astype(np.float32)
    return np.where(inexact_even, np.nextafter(y, toward), y)


def _float_to_int(x: Array, to: DType) -> Array:
    """Truncates; the nearest end of the type when out of range, 0 for NaN."""
    low, high = dt.int_range(to)
    x = np.where(np.isnan(x), 0.0, np.trunc(x))
    above, below = x >= float(high), x <= float(low)
    inside = np.where(above | below, 0.0, x).astype(np_dtype(to))
    ends = np.where(above, np_dtype(to).type(high), np_dtype(to).type(low))
    return np.where(above | below, ends, inside)


def _int_truncdiv(a: Value, b: Value) -> Value:
    quotient = a // b
    return np.where((a % b != 0) & ((a < 0) != (b < 0)), quotient + np.ones_like(quotient), quotient).astype(quotient.dtype)


def _int_pow(a: Value, b: Value) -> Value:
    """Wraps; a negative exponent gives the truncated quotient (0 except for bases 1 and -1)."""
    positive = np.power(a, np.maximum(b, np.zeros_like(b)))
    unit = np.where(a == 1, np.ones_like(a), np.where(np.abs(a) == 1, np.where(b % 2 == 0, np.ones_like(a), a), np.zeros_like(a)))
    return np.where(b < 0, unit, positive).astype(np.asarray(a).dtype)


def _float_pow(a: Value, b: Value) -> Value:
    return np.power(a.astype(np.float64), b.astype(np.float64))


_Op = Callable[[Value, Value], Value]
_COMMON: dict[str, _Op] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "floordiv": np.floor_divide, "mod": np.mod}
_FLOAT_OPS: dict[str, _Op] = _COMMON | {
    "div": np.true_divide, "truncdiv": lambda a, b: np.trunc(a / b), "truncmod": np.fmod, "min": np.fmin, "max": np.fmax,
    "pow": _float_pow,
}  # fmt: skip
_INT_OPS: dict[str, _Op] = _COMMON | {
    "truncdiv": _int_truncdiv, "truncmod": np.fmod, "min": np.minimum, "max": np.maximum, "pow": _int_pow,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "shl": lambda a, b: np.left_shift(a, b.astype(a.dtype)), "shr": lambda a, b: np.right_shift(a, b.astype(a.dtype)),
}  # fmt: skip
_COMPARE: dict[str, _Op] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def binary(op: str, a: Value, b: Value, dtype: DType) -> Value:
    """One of BINARY_OPS, rounded or wrapped to `dtype`."""
    if dtype.is_float:
        return cast(_FLOAT_OPS[op](widen(a), widen(b)), dtype)
    return cast(_INT_OPS[op](a, b), dtype)


def unary(op: str, a: Value, dtype: DType) -> Value:
    """neg, not or invert."""
    if op == "not":
        return settle(np.logical_not(a))
    if op == "invert":
        return settle(np.invert(a))
    return cast(np.negative(widen(a) if dtype.is_float else a), dtype)


def compare_values(op: str, a: Value, b: Value, dtype: DType) -> Value:
    """A comparison of two operands of type `dtype`; NaN compares unequal to everything."""
    return settle(_COMPARE[op](widen(a), widen(b)) if dtype.is_float else _COMPARE[op](a, b))


def reinterpret(a: Value, dtype: DType) -> Value:
    """The bits of `a` read as another type of the same width."""
    return settle(np.ascontiguousarray(a).reshape(np.shape(a)).view(np_dtype(dtype)))
