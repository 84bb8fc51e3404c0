"""Literal values of every element type, in pure Python: rounding, wrapping and conversion.

A `Const` holds a value that its type can hold. These functions make one from any host number, with one rounding.

    round_float(0.1, FLOAT32) -> 0.10000000149011612;  convert(300, UINT8) -> 44;  convert(1e6, FLOAT8_E4M3) -> 448.0
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilec.ir.dtypes import (
    BFLOAT16,
    BOOL,
    FLOAT8_E4M3,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    TFLOAT32,
    UINT64,
    DType,
    int_range,
    wrap,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A binary floating format: bits of precision (the hidden one included), smallest normal exponent, largest finite value."""

    precision: int
    emin: int
    largest: float
    saturates: bool = False
    has_infinity: bool = True


FORMATS = {
    FLOAT8_E4M3: FloatFormat(4, -6, 448.0, saturates=True, has_infinity=False),
    FLOAT8_E5M2: FloatFormat(3, -14, 57344.0, saturates=True),
    FLOAT16: FloatFormat(11, -14, 65504.0),
    BFLOAT16: FloatFormat(8, -126, math.ldexp(2 - 2**-7, 127)),
    TFLOAT32: FloatFormat(24, -126, math.ldexp(2 - 2**-23, 127)),
    FLOAT32: FloatFormat(24, -126, math.ldexp(2 - 2**-23, 127)),
    FLOAT64: FloatFormat(53, -1022, math.ldexp(2 - 2**-52, 1023)),
}
"""tfloat32 is stored in 32 bits; only the tensor core drops the low ones, so its literals are those of float32."""


def _to_double(value: int | float, precision: int) -> float:
    """`value` as a double; an integer too long for `precision` bits is rounded to them first, so only once."""
    if isinstance(value, float):
        return value
    excess = value.bit_length() - precision
    if excess > 0:
        half, rest = 1 << (excess - 1), value & ((1 << excess) - 1)
        value = (value >> excess) + (rest > half or (rest == half and (value >> excess) & 1 == 1))
        value <<= excess
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def round_float(value: int | float, dtype: DType) -> float:
    """`value` rounded to the nearest number of a floating type, ties to even.

    Beyond the largest finite value it is an infinity, for the 8-bit types the largest finite value. NaN and -0.0 stay.
    """
    fmt = FORMATS[dtype]
    number = _to_double(value, fmt.precision)
    if math.isnan(number) or number == 0.0:
        return number
    if math.isinf(number):
        return math.copysign(fmt.largest, number) if fmt.saturates else number
    if dtype is FLOAT64:
        return number
    exponent = max(math.frexp(number)[1] - 1, fmt.emin) - (fmt.precision - 1)
    result = math.ldexp(float(round(math.ldexp(number, -exponent))), exponent)
    if abs(result) > fmt.largest:
        return math.copysign(fmt.largest if fmt.saturates else math.inf, number)
    return math.copysign(result, number)


def convert(value: int | float, dtype: DType) -> int | float:
    """What a cast of `value` to `dtype` gives: integers wrap, floats truncate to the nearest end, NaN becomes 0, bool is != 0."""
    if dtype is BOOL:
        return bool(value != 0)
    if dtype.is_float:
        return round_float(int(value) if isinstance(value, bool) else value, dtype)
    if isinstance(value, float):
        low, high = int_range(dtype)
        if math.isnan(value):
            return 0
        if math.isinf(value):
            return high if value > 0 else low
        return min(max(math.trunc(value), low), high)
    return wrap(int(value), dtype)


def fits(value: int, dtype: DType) -> bool:
    """True when a type can hold an integer without wrapping or overflowing to infinity."""
    if dtype.is_float:
        return abs(value) <= FORMATS[dtype].largest
    low, high = int_range(dtype)
    return low <= value <= high


def literal_dtype(value: int | float) -> DType | None:
    """The type of a literal that nothing else decides: bool, int32 (then int64, uint64) or float32; None if nothing holds it."""
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, float):
        return FLOAT32
    return next((d for d in (INT32, INT64, UINT64) if fits(value, d)), None)
