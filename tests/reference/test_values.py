"""Arithmetic and conversions of single values, against Python's exact numbers."""

import math
import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilec.ir import dtypes as dt
from tilec.reference.intrinsics import intrinsic, known
from tilec.reference.values import binary, cast, compare_values, constant, np_dtype, reinterpret, unary

INTS = [d for d in dt.ALL if d.is_int]


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def int_pairs():
    def pair(d):
        low, high = dt.int_range(d)
        one = st.integers(low, high) | st.integers(max(low, -5), 5)
        return st.tuples(st.just(d), one, one)

    return st.sampled_from(INTS).flatmap(pair)


def c_div(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


EXACT = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b, "truncdiv": c_div, "truncmod": lambda a, b: a - b * c_div(a, b), "min": min, "max": max,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
}  # fmt: skip


@given(int_pairs(), st.sampled_from(sorted(EXACT)))
def test_integer_operations_wrap(pair, op):
    d, a, b = pair
    if op in ("floordiv", "mod", "truncdiv", "truncmod") and b == 0:
        return
    with np.errstate(all="ignore"):
        x, y = constant(a, d), constant(b, d)
        got = binary(op, x, y, d)
        many = binary(op, np.array([a, a], np_dtype(d)), y, d)
    want = dt.wrap(EXACT[op](a, b), d)
    assert int(got) == want and got.dtype == np_dtype(d)
    assert many.tolist() == [want, want] and many.dtype == np_dtype(d)


@given(int_pairs(), st.integers(0, 7))
def test_shifts_negation_and_powers(pair, n):
    d, a, _ = pair
    with np.errstate(all="ignore"):
        x, by = constant(a, d), np.int32(n)
        assert int(binary("shl", x, by, d)) == dt.wrap(a << n, d)
        assert int(binary("shr", x, by, d)) == a >> n
        assert int(unary("neg", x, d)) == dt.wrap(-a, d)
        assert int(unary("invert", x, d)) == dt.wrap(~a, d)
        assert int(binary("pow", x, constant(n, d), d)) == dt.wrap(a**n, d)


def test_integer_power_with_negative_exponent():
    bases = np.array([1, -1, -1, 2, 7], np.int32)
    assert binary("pow", bases, np.array([-3, -3, -2, -1, -2], np.int32), dt.INT32).tolist() == [1, -1, 1, 0, 0]


floats = st.floats(width=32)


@given(floats, floats)
def test_min_and_max_drop_nan(a, b):
    x, y = np.float32(a), np.float32(b)
    for op, choose in (("min", min), ("max", max)):
        got = float(binary(op, x, y, dt.FLOAT32))
        present = [v for v in (a, b) if not math.isnan(v)]
        assert math.isnan(got) if not present else got == choose(present)


@given(st.floats(-1e3, 1e3, width=32), st.floats(-1e3, 1e3, width=32).filter(lambda b: abs(b) > 1e-3))
def test_float_division_follows_python(a, b):
    x, y = np.float64(a), np.float64(b)
    assert float(binary("floordiv", x, y, dt.FLOAT64)) == a // b
    assert float(binary("mod", x, y, dt.FLOAT64)) == a % b
    assert float(binary("truncmod", x, y, dt.FLOAT64)) == math.fmod(a, b)


@pytest.mark.parametrize("d", [dt.FLOAT16, dt.BFLOAT16, dt.FLOAT32])
def test_every_operation_rounds_to_its_type(d):
    rng = np.random.default_rng(1)
    a, b = (cast(rng.standard_normal(500), d) for _ in range(2))
    for op, exact in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply)):
        got = binary(op, a, b, d)
        assert got.dtype == np_dtype(d)
        np.testing.assert_array_equal(got.astype(np.float64), cast(exact(a.astype(np.float64), b.astype(np.float64)), d).astype(np.float64))


def test_compare_treats_nan_as_unordered():
    nan, one = np.float16(np.nan), np.float16(1)
    for op in ("eq", "lt", "le", "gt", "ge"):
        assert not compare_values(op, nan, one, dt.FLOAT16)
    assert compare_values("ne", nan, nan, dt.FLOAT16)


@pytest.mark.parametrize("d", INTS)
def test_float_to_int_truncates_and_clamps(d):
    low, high = dt.int_range(d)
    values = [1.9, -1.9, 0.5, np.nan, np.inf, -np.inf, 1e30, -1e30, float(high) * 4, 77.99]
    want = [1, max(low, -1), 0, 0, high, low, high, low, high, 77]
    assert [int(v) for v in cast(np.array(values), d)] == want
    assert int(cast(np.float32(3e38), d)) == high


@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from(INTS))
def test_int_to_int_wraps(value, d):
    assert int(cast(np.int64(value), d)) == dt.wrap(value, d)


def test_fp8_saturates_and_keeps_nan():
    for d, top in ((dt.FLOAT8_E4M3, 448.0), (dt.FLOAT8_E5M2, 57344.0)):
        got = cast(np.array([1e9, -1e9, np.inf, -np.inf, np.nan, top, 0.5], np.float32), d).astype(np.float64)
        np.testing.assert_array_equal(got, [top, -top, top, -top, np.nan, top, 0.5])
        assert float(cast(np.float16(60000), d)) == min(top, 57344.0)


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e30, max_value=1e30))
def test_bfloat16_is_rounded_once(x):
    got = float(cast(np.float64(x), dt.BFLOAT16))
    bits = struct.unpack("<I", struct.pack("<f", x))[0] >> 16
    near = [struct.unpack("<f", struct.pack("<I", (bits + step) << 16))[0] for step in (-1, 0, 1) if 0 <= bits + step < 1 << 16]
    near = [v for v in near if math.isfinite(v)]
    distance = [abs(x - v) for v in near]
    assert abs(x - got) == min(distance)


def test_double_rounding_is_avoided():
    """Just above half way between two bfloat16 numbers: float32 in between would land on the tie and round down."""
    x = 1 + 2.0**-8 + 2.0**-40
    assert float(cast(np.float64(x), dt.BFLOAT16)) == 1 + 2.0**-7


def test_bool_casts():
    got = cast(np.array([0.0, -0.0, np.nan, 0.25]), dt.BOOL)
    assert got.tolist() == [False, False, True, True]
    assert cast(np.int8(-3), dt.BOOL) and not cast(np.int8(0), dt.BOOL)
    assert float(cast(np.bool_(True), dt.FLOAT16)) == 1.0


@given(st.integers(0, 2**32 - 1))
def test_reinterpret_keeps_bits(bits):
    got = reinterpret(np.uint32(bits), dt.FLOAT32)
    assert got.dtype == np.float32 and int(reinterpret(got, dt.UINT32)) == bits


@pytest.mark.parametrize(
    ("name", "args", "want"),
    [
        ("exp", [1.0], math.e), ("exp2", [10.0], 1024.0), ("rsqrt", [16.0], 0.25), ("sigmoid", [0.0], 0.5), ("erf", [0.5], math.erf(0.5)),
        ("round", [2.5], 2.0), ("round", [-3.5], -4.0), ("trunc", [-3.5], -3.0), ("atan2", [1.0, -1.0], math.atan2(1, -1)),
        ("fma", [3.0, 5.0, 7.0], 22.0), ("fmod", [-7.0, 4.0], -3.0), ("copysign", [3.0, -0.0], -3.0), ("abs", [-2.0], 2.0),
    ],
)  # fmt: skip
def test_float_intrinsics(name, args, want):
    got = intrinsic(name, [np.float32(a) for a in args], dt.FLOAT32)
    assert got.dtype == np.float32 and got == np.float32(want)


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-1000, 1000).filter(bool))
def test_integer_intrinsics(a, b):
    with np.errstate(all="ignore"):
        x, y = np.int32(a), np.int32(b)
        assert int(intrinsic("ceildiv", [x, y], dt.INT32)) == dt.wrap(-(-a // b), dt.INT32)
        assert int(intrinsic("popcount", [x], dt.INT32)) == (a % 2**32).bit_count()
        assert int(intrinsic("clz", [x], dt.INT32)) == 32 - (a % 2**32).bit_length()
        assert int(intrinsic("abs", [x], dt.INT32)) == dt.wrap(abs(a), dt.INT32)


def test_classes_of_floats():
    values = np.array([1.0, np.nan, np.inf], ml_dtypes.bfloat16)
    assert intrinsic("isnan", [values], dt.BOOL).tolist() == [False, True, False]
    assert intrinsic("isinf", [values], dt.BOOL).tolist() == [False, False, True]
    assert intrinsic("isfinite", [values], dt.BOOL).tolist() == [True, False, False]


def test_every_intrinsic_of_the_language_has_a_meaning():
    from tilec.language.mathfns import INTRINSICS

    assert [name for name in INTRINSICS if not known(name)] == []
    assert intrinsic("nextafter", [np.float16(1), np.float16(2)], dt.FLOAT16) == np.float16(1 + 2**-10)
