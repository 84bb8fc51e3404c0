"""Literals against NumPy and ml_dtypes, which round by themselves."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilec.ir.dtypes import (
    ALL,
    BFLOAT16,
    BOOL,
    FLOAT8_E4M3,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    INT8,
    INT32,
    INT64,
    UINT8,
    UINT64,
    DType,
)  # fmt: skip
from tilec.language.constants import convert, fits, has_infinity, largest, literal_dtype

NUMPY = {FLOAT16: np.float16, BFLOAT16: ml_dtypes.bfloat16, FLOAT32: np.float32}
FP8 = {FLOAT8_E4M3: ml_dtypes.float8_e4m3fn, FLOAT8_E5M2: ml_dtypes.float8_e5m2}
floats = st.floats(allow_nan=False) | st.floats(-70000, 70000) | st.floats(-1e-4, 1e-4)


def same(x: float, y: float) -> bool:
    return (math.isnan(x) and math.isnan(y)) or (x == y and math.copysign(1, x) == math.copysign(1, y))


@pytest.mark.parametrize("dtype", NUMPY, ids=str)
@given(value=floats)
def test_floats_round_as_numpy_does(dtype: DType, value: float) -> None:
    with np.errstate(over="ignore"):
        if dtype is BFLOAT16 and abs(value) > 0:  # ml_dtypes goes through float32; only values without a double rounding can be compared
            value = float(np.float32(value))
        wanted = float(np.asarray(value).astype(NUMPY[dtype]))
    assert same(float(convert(value, dtype)), wanted)


@pytest.mark.parametrize("dtype", FP8, ids=str)
@given(value=st.floats(-1e6, 1e6) | st.floats(-1e-3, 1e-3))
def test_fp8_rounds_as_ml_dtypes_and_saturates(dtype: DType, value: float) -> None:
    value = float(np.float32(value))
    rounded = float(np.asarray(value, np.float32).astype(FP8[dtype]))
    limit = float(largest(dtype))
    wanted = rounded if math.isfinite(rounded) else math.copysign(limit, value)
    assert same(float(convert(value, dtype)), wanted)


@pytest.mark.parametrize("dtype", [d for d in ALL if d.is_float], ids=str)
def test_special_values_survive(dtype: DType) -> None:
    assert math.isnan(convert(math.nan, dtype))
    assert same(float(convert(-0.0, dtype)), -0.0)
    top = math.inf if dtype not in FP8 else largest(dtype)
    assert convert(math.inf, dtype) == top
    assert convert(-math.inf, dtype) == -top
    assert convert(largest(dtype), dtype) == largest(dtype)


def test_subnormal_and_extreme_float32() -> None:
    assert np.float32(convert(1e-40, FLOAT32)).view(np.uint32) == 0x000116C2
    assert convert(3.4028234663852886e38, FLOAT32) == 3.4028234663852886e38
    assert convert(16777217, FLOAT32) == convert(16777217.0, FLOAT32) == 16777216.0
    assert convert(65520.0, FLOAT16) == math.inf
    assert convert(65519.99, FLOAT16) == 65504.0


@given(st.integers(-(2**80), 2**80))
def test_integers_are_rounded_once(value: int) -> None:
    quantum = max(abs(value).bit_length() - 24, 0)
    down = abs(value) >> quantum << quantum
    up = down + (1 << quantum)
    got = abs(int(convert(value, FLOAT32)))
    assert got in (down, up)
    assert abs(got - abs(value)) * 2 <= 1 << quantum


@pytest.mark.parametrize("dtype", [d for d in ALL if d.is_int], ids=str)
@given(value=st.integers(-(2**70), 2**70))
def test_integers_wrap(dtype: DType, value: int) -> None:
    wanted = int(np.asarray([value & (2**64 - 1)], np.uint64).astype(dtype.name)[0])
    assert convert(value, dtype) == wanted


def test_floats_to_integers_truncate_and_stop_at_the_ends() -> None:
    assert convert(-2.9, INT8) == -2
    assert convert(300.0, INT8) == 127
    assert convert(-1.0, UINT8) == 0
    assert convert(math.inf, INT32) == 2**31 - 1
    assert convert(-math.inf, INT64) == -(2**63)
    assert convert(math.nan, INT32) == 0
    assert convert(1e30, UINT64) == 2**64 - 1


def test_bool_is_nonzero() -> None:
    assert convert(0.5, BOOL) is True
    assert convert(-0.0, BOOL) is False
    assert convert(math.nan, BOOL) is True
    assert convert(True, FLOAT16) == 1.0


def test_literal_types() -> None:
    assert [literal_dtype(v) for v in (True, 1, 2**31, 2**63, 2**64, 0.5)] == [BOOL, INT32, INT64, UINT64, None, FLOAT32]
    assert fits(255, UINT8) and not fits(256, UINT8) and not fits(-1, UINT8)
    assert fits(65504, FLOAT16) and not fits(65505, FLOAT16)


def test_only_e4m3_has_no_infinity() -> None:
    assert [d for d in ALL if d.is_float and not has_infinity(d)] == [FLOAT8_E4M3]
