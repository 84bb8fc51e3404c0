"""Rounding to the floating types against ml_dtypes and NumPy."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilec.analysis.rounding import round_decimal, round_float
from tilec.ir.dtypes import BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2, FLOAT16, FLOAT32, FLOAT64, DType

NUMPY = {FLOAT16: np.float16, BFLOAT16: ml_dtypes.bfloat16, FLOAT32: np.float32, FLOAT64: np.float64}
FP8 = {FLOAT8_E4M3: (ml_dtypes.float8_e4m3fn, 448.0), FLOAT8_E5M2: (ml_dtypes.float8_e5m2, 57344.0)}


def same(a: float, b: float) -> bool:
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


@pytest.mark.parametrize("dtype", NUMPY, ids=str)
@given(value=st.floats(width=32))
@settings(max_examples=300, deadline=None)
def test_agrees_with_numpy(dtype: DType, value: float) -> None:
    with np.errstate(over="ignore"):
        assert same(round_float(value, dtype), float(np.float32(value).astype(NUMPY[dtype])))


@given(value=st.floats())
@settings(max_examples=300, deadline=None)
def test_double_to_float(value: float) -> None:
    with np.errstate(over="ignore"):
        assert same(round_float(value, FLOAT32), float(np.float64(value).astype(np.float32)))
    assert same(round_float(value, FLOAT64), value)


@pytest.mark.parametrize("dtype", FP8, ids=str)
@given(value=st.floats(width=32) | st.floats(-500, 500, width=32))
@settings(max_examples=300, deadline=None)
def test_fp8_saturates(dtype: DType, value: float) -> None:
    kind, largest = FP8[dtype]
    expected = value if math.isnan(value) else float(np.float32(np.clip(value, -largest, largest)).astype(kind))
    assert same(round_float(value, dtype), expected)


def test_ties_go_to_even() -> None:
    assert round_float(2049, FLOAT16) == 2048
    assert round_float(2051, FLOAT16) == 2052
    assert round_float((1 << 24) + 1, FLOAT32) == 1 << 24
    assert round_float(65519, FLOAT16) == 65504
    assert round_float(65520, FLOAT16) == math.inf
    assert round_float(10**400, FLOAT64) == math.inf


@given(digits=st.integers(1, 10**12), exponent=st.integers(-60, 30))
@settings(max_examples=300, deadline=None)
def test_decimals(digits: int, exponent: int) -> None:
    assert round_decimal(digits, exponent, FLOAT64) == float(f"{digits}e{exponent}")
