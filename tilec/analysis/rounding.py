"""Exact rounding of numbers to the floating types, in integers (round to nearest even).

    round_float(0.1, FLOAT16) -> 0.0999755859375
"""

from __future__ import annotations

from math import copysign, inf, isinf, isnan, ldexp

from tilec.ir.dtypes import BFLOAT16, FLOAT4_E2M1, FLOAT8_E4M3, FLOAT8_E5M2, FLOAT8_E8M0, FLOAT16, FLOAT64, DType

# Significant bits, least exponent of a normal number, largest finite value.
_FORMATS: dict[DType, tuple[int, int, int]] = {
    FLOAT4_E2M1: (2, 0, 6),
    FLOAT8_E8M0: (1, -127, 1 << 127),
    FLOAT8_E4M3: (4, -6, 448),
    FLOAT8_E5M2: (3, -14, 57344),
    FLOAT16: (11, -14, 65504),
    BFLOAT16: (8, -126, 255 << 120),
    FLOAT64: (53, -1022, ((1 << 53) - 1) << 971),
}
_FLOAT32 = (24, -126, ((1 << 24) - 1) << 104)
_SATURATING = (FLOAT8_E4M3, FLOAT8_E5M2, FLOAT4_E2M1, FLOAT8_E8M0)


def round_float(value: int | float, dtype: DType) -> float:
    """`value` rounded to `dtype` (tfloat32 counts as float32, its storage); fp8 saturates, the others overflow to infinity."""
    if isinstance(value, float):
        if isnan(value) or value == 0.0:
            return value
        if isinf(value):
            return copysign(_FORMATS[dtype][2], value) if dtype in _SATURATING else value
    top, bottom = value.as_integer_ratio()
    return round_ratio(top, bottom, dtype)


def round_ratio(top: int, bottom: int, dtype: DType) -> float:
    """top / bottom (bottom > 0) rounded once to `dtype`."""
    if top == 0:
        return 0.0
    precision, least, largest = _FORMATS.get(dtype, _FLOAT32)
    size = abs(top)
    exponent = size.bit_length() - bottom.bit_length()  # 2^(exponent - 1) < size / bottom < 2^(exponent + 1)
    if (size << max(-exponent, 0)) < (bottom << max(exponent, 0)):
        exponent -= 1
    unit = max(exponent, least) - precision + 1
    steps, rest = divmod(size << max(-unit, 0), bottom << max(unit, 0))
    half = 2 * rest - (bottom << max(unit, 0))
    steps += half > 0 or (half == 0 and steps % 2 == 1)
    if (unit > 0 and steps << unit > largest) or (unit <= 0 and steps > largest << -unit):
        magnitude = float(largest) if dtype in _SATURATING else inf
    else:
        magnitude = ldexp(steps, unit)
    return magnitude if top > 0 else -magnitude


def round_decimal(digits: int, exponent: int, dtype: DType) -> float:
    """digits * 10^exponent rounded once to `dtype`: what a correct compiler reads."""
    return round_ratio(digits * 10 ** max(exponent, 0), 10 ** max(-exponent, 0), dtype)
