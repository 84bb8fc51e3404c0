"""Which type an operation computes in.

    common(FLOAT16, FLOAT32) -> FLOAT32;  common(INT8, UINT8) -> UINT8;  literal(2.5, FLOAT16) -> FLOAT32

A literal adapts: an integer takes the other operand's type when that holds it, a float is a float32. An integer and a float
meet in that float; of two integers the wider wins, of equal widths the unsigned one. Narrow integers stay narrow and wrap.
"""

from __future__ import annotations

from tilec.ir.dtypes import (
    BFLOAT16,
    BOOL,
    FLOAT4_E2M1,
    FLOAT8_E4M3,
    FLOAT8_E5M2,
    FLOAT8_E8M0,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT4,
    INT8,
    INT16,
    INT32,
    INT64,
    TFLOAT32,
    UINT4,
    UINT8,
    DType,
    Kind,
)  # fmt: skip
from tilec.language.constants import fits, literal_dtype

_FLOAT_RANK = {FLOAT8_E4M3: 0, FLOAT8_E5M2: 0, BFLOAT16: 1, FLOAT16: 2, TFLOAT32: 3, FLOAT32: 4, FLOAT64: 5}
VALUES = {INT4: INT8, UINT4: UINT8, FLOAT4_E2M1: FLOAT16, FLOAT8_E8M0: FLOAT32}
"""The types in which values of the stored types are computed; they hold all of them."""
_SIGNED = (INT8, INT16, INT32, INT64)


def common(a: DType, b: DType) -> DType:
    """The type that values of types `a` and `b` meet in; bool gives way to everything."""
    a, b = VALUES.get(a, a), VALUES.get(b, b)
    if a is BOOL or b is BOOL:
        return b if a is BOOL else a
    if a.is_float and b.is_float:
        return _common_float(a, b)
    if a.is_float or b.is_float:
        return arithmetic(a if a.is_float else b)
    if a.bits != b.bits:
        return a if a.bits > b.bits else b
    return a if a.kind is Kind.UINT else b


def _common_float(a: DType, b: DType) -> DType:
    if a is b:
        return arithmetic(a)
    if _FLOAT_RANK[a] == _FLOAT_RANK[b]:
        return FLOAT16  # the two 8-bit types; float16 holds both exactly
    return arithmetic(a if _FLOAT_RANK[a] > _FLOAT_RANK[b] else b)


def arithmetic(dtype: DType) -> DType:
    """tfloat32 is a storage type: its arithmetic is float32's."""
    return FLOAT32 if dtype is TFLOAT32 else dtype


def literal(value: int | float, other: DType) -> DType | None:
    """The type of a literal beside an operand of type `other`; None when no type holds it."""
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, float):
        return FLOAT32
    other = VALUES.get(other, other)
    if other is BOOL or not fits(value, other):
        return literal_dtype(value) if not other.is_float else (FLOAT32 if fits(value, FLOAT32) else FLOAT64)
    return other


def comparison(a: DType, b: DType) -> DType | None:
    """The type in which a comparison is exact, as Python's is; None for int64 beside uint64, which no type holds."""
    a, b = VALUES.get(a, a), VALUES.get(b, b)
    if a.is_int and b.is_int and a.kind is not b.kind:
        signed, unsigned = (a, b) if a.kind is Kind.INT else (b, a)
        return next((d for d in _SIGNED if d.bits >= signed.bits and d.bits > unsigned.bits), None)
    result = common(a, b)
    if result.is_float and result.bits < 32 and not (a.is_float and b.is_float):
        return FLOAT32
    return result
