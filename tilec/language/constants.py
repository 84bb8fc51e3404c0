"""Literal values of every element type: limits, conversion, wrapping.

A `Const` holds a value that its type can hold. These functions make one from any host number, with one rounding.

    convert(0.1, FLOAT32) -> 0.10000000149011612;  convert(300, UINT8) -> 44;  convert(1e6, FLOAT8_E4M3) -> 448.0
"""

from __future__ import annotations

import math

from tilec.analysis.rounding import round_float
from tilec.ir.dtypes import BOOL, FLOAT8_E4M3, FLOAT32, INT32, INT64, STORED, UINT64, DType, int_range, wrap


def largest(dtype: DType) -> int | float:
    """The largest finite value of a numeric type."""
    return _LARGEST[dtype.name] if dtype.is_float else int_range(dtype)[1]


_LARGEST = {
    "float4_e2m1fn": 6.0,
    "float8_e8m0fnu": math.ldexp(1.0, 127),
    "float8_e4m3fn": 448.0,
    "float8_e5m2": 57344.0,
    "float16": 65504.0,
    "bfloat16": math.ldexp(2 - 2**-7, 127),
    "tfloat32": math.ldexp(2 - 2**-23, 127),
    "float32": math.ldexp(2 - 2**-23, 127),
    "float64": math.ldexp(2 - 2**-52, 1023),
}


def has_infinity(dtype: DType) -> bool:
    """Every floating type but e4m3fn and the stored ones has infinities; integers have none."""
    return dtype.is_float and dtype not in (FLOAT8_E4M3, *STORED)


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
        return abs(value) <= largest(dtype)
    low, high = int_range(dtype)
    return low <= value <= high


def literal_dtype(value: int | float) -> DType | None:
    """The type of a literal that nothing else decides: bool, int32 (then int64, uint64) or float32; None if nothing holds it."""
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, float):
        return FLOAT32
    return next((d for d in (INT32, INT64, UINT64) if fits(value, d)), None)
