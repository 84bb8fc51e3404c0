"""Exact rounding of numbers to the floating types, in plain Python (round to nearest even).

    round_float(0.1, FLOAT16) -> 0.0999755859375
"""

from __future__ import annotations

from fractions import Fraction
from math import copysign, inf, isinf, isnan, ldexp

from tilec.ir.dtypes import BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2, FLOAT16, FLOAT64, DType

# Significant bits, least exponent of a normal number, largest finite value.
_FORMATS: dict[DType, tuple[int, int, float]] = {
    FLOAT8_E4M3: (4, -6, 448.0),
    FLOAT8_E5M2: (3, -14, 57344.0),
    FLOAT16: (11, -14, 65504.0),
    BFLOAT16: (8, -126, ldexp(255, 120)),
}
_FLOAT32 = (24, -126, ldexp((1 << 24) - 1, 104))


def round_float(value: float | Fraction, dtype: DType) -> float:
    """`value` rounded to `dtype` (tfloat32 counts as float32, its storage); fp8 saturates, the others overflow to infinity."""
    if isinstance(value, float) and (isnan(value) or value == 0.0):
        return value
    fp8 = dtype in (FLOAT8_E4M3, FLOAT8_E5M2)
    if isinstance(value, float) and isinf(value):
        return copysign(_FORMATS[dtype][2], value) if fp8 else value
    if dtype == FLOAT64:
        try:
            return float(value)
        except OverflowError:
            return inf if value > 0 else -inf
    precision, least, largest = _FORMATS.get(dtype, _FLOAT32)
    exact = Fraction(value)
    size = abs(exact)
    if size == 0:
        return 0.0
    unit = max(_exponent(size), least) - precision + 1
    rounded = Fraction(round(size / Fraction(2) ** unit)) * Fraction(2) ** unit  # round() of a Fraction is half to even
    magnitude = float(rounded) if rounded <= Fraction(largest) else largest if fp8 else inf
    return magnitude if exact > 0 else -magnitude


def _exponent(size: Fraction) -> int:
    """e with 2^e <= size < 2^(e + 1)."""
    e = size.numerator.bit_length() - size.denominator.bit_length()
    return e if size >= Fraction(2) ** e else e - 1
