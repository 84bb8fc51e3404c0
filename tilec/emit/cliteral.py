"""The C spelling of types and literals: exact in every locale, without a header.

    ctype(FLOAT16) -> "half_t"      literal(0.1, FLOAT32) -> "0.1f"      literal(-2**31, INT32) -> "(-2147483647 - 1)"
"""

from __future__ import annotations

from collections.abc import Callable
from math import copysign, isinf, isnan

from tilec.analysis.rounding import round_decimal, round_float
from tilec.ir.dtypes import (
    BFLOAT16,
    BOOL,
    FLOAT8_E4M3,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    HANDLE,
    INT8,
    INT16,
    INT32,
    INT64,
    TFLOAT32,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    DType,
    Kind,
)

Need = Callable[[str], None]

_CTYPES: dict[DType, str] = {
    BOOL: "bool", INT8: "signed char", INT16: "short", INT32: "int", INT64: "long long",
    UINT8: "unsigned char", UINT16: "unsigned short", UINT32: "unsigned", UINT64: "unsigned long long",
    FLOAT16: "half_t", BFLOAT16: "bfloat16_t", FLOAT8_E4M3: "fp8_e4m3_t", FLOAT8_E5M2: "fp8_e5m2_t",
    TFLOAT32: "float", FLOAT32: "float", FLOAT64: "double", HANDLE: "void*",
}  # fmt: skip

NARROW: dict[DType, str] = {FLOAT16: "half", BFLOAT16: "bfloat16", FLOAT8_E4M3: "fp8_e4m3", FLOAT8_E5M2: "fp8_e5m2"}
"""The floats that C has no arithmetic for, with the stem of their conversions: to_half, to_float_half, ..."""


def ctype(dtype: DType) -> str:
    """The C type that holds a value of `dtype`; the narrow floats are structs of the prelude (entries of the same name)."""
    return _CTYPES[dtype]


def literal(value: int | float, dtype: DType, need: Need, typed: bool = True) -> str:
    """`value` as a C constant of `dtype`; of type float for the narrow floats.

    With `typed` false a small 64-bit integer goes without suffix, for operands whose partner is 64 bits wide already.
    """
    if dtype == BOOL:
        return "true" if value else "false"
    if dtype.is_float:
        return float_literal(float(value), dtype, need)
    return _int_literal(int(value), dtype, typed)


def _int_literal(n: int, dtype: DType, typed: bool) -> str:
    if dtype.kind is Kind.UINT:
        return f"{n}{'ull' if dtype.bits == 64 and (typed or n >= 1 << 32) else 'u' if dtype.bits >= 32 else ''}"
    if dtype.bits == 64:
        if n == -(1 << 63):
            return "(-9223372036854775807LL - 1)"
        return f"{n}LL" if typed or not -(1 << 31) < n < 1 << 31 else str(n)
    return "(-2147483647 - 1)" if n == -(1 << 31) else str(n)


def float_literal(value: float, dtype: DType, need: Need) -> str:
    """A float or double constant (float for the narrow types, rounded to them); infinities and NaN through the prelude."""
    suffix = "_f64" if dtype == FLOAT64 else ""
    if isnan(value):
        need(f"quiet_nan{suffix}")
        return f"quiet_nan{suffix}()"
    if not (isinf(value) and dtype == FLOAT8_E5M2):  # a constant infinity is no cast that would saturate
        value = round_float(value, dtype)
    if isinf(value):
        need(f"infinity{suffix}")
        return f"{'-' if value < 0 else ''}infinity{suffix}()"
    sign = "-" if copysign(1.0, value) < 0 else ""
    return sign + (_shortest_double(abs(value)) if dtype == FLOAT64 else _shortest_float(abs(value)) + "f")


def bits_literal(value: float, dtype: DType) -> str | None:
    """The one kind of constant that no conversion gives: an infinity of float8_e5m2, as its bits."""
    if dtype == FLOAT8_E5M2 and isinf(value):
        return f"fp8_e5m2_t{{{'0xfc' if value < 0 else '0x7c'}}}"
    return None


def narrow_literal(value: float, dtype: DType, need: Need) -> str:
    """The shortest float constant that becomes `value` when it is converted to a narrow type: 0.1f for the half 0.09998."""
    exact = round_float(value, dtype)
    if isnan(exact) or isinf(exact) or exact == 0.0:
        return float_literal(exact, dtype, need)
    for digits in range(1, 10):
        text = f"{abs(exact):.{digits}g}"
        if round_float(round_float(float(text), FLOAT32), dtype) == abs(exact):
            break
    return ("-" if exact < 0 else "") + _tidy(text) + "f"


def _shortest_double(value: float) -> str:
    return _tidy(repr(value))


def _shortest_float(value: float) -> str:
    """The shortest decimal that reads as this float32, whether it is rounded once or by way of double."""
    for digits in range(1, 18):
        mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
        once = round_decimal(int(mantissa.replace(".", "")), int(exponent) - digits + 1, FLOAT32)
        if once == value == round_float(float(f"{mantissa}e{exponent}"), FLOAT32):
            return _tidy(f"{value:.{digits}g}")
    return value.hex()


def _tidy(text: str) -> str:
    """1e+20 becomes 1e20, 1e-05 becomes 1e-5, 5 becomes 5.0; 100000000 stays readable as 100000000.0."""
    mantissa, e, exponent = text.partition("e")
    if not e:
        return text if "." in text else text + ".0"
    power = int(exponent)
    if 0 <= power <= 9:
        return str(int(float(text))) + ".0"
    return f"{mantissa}e{power}"
