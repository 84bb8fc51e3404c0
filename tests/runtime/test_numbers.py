"""Scalars as bits: against ml_dtypes and NumPy where these round once, and against exact fractions everywhere."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tilec.runtime.numbers import ArgumentError, bits, pack_format, packable

FLOATS = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64,
          "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}  # fmt: skip


def number_of(pattern: int, dtype: str) -> float:
    kind = np.dtype(FLOATS[dtype])
    return float(np.array([pattern], f"u{kind.itemsize}").view(kind)[0])


@pytest.mark.parametrize("dtype", [d for d in FLOATS if d != "float64"])
def test_rounding_is_to_the_nearest_ties_to_even(dtype: str) -> None:
    rng = np.random.default_rng()
    kind = np.dtype(FLOATS[dtype])
    top = 0x7E if dtype == "float8_e4m3fn" else int(np.array([ml_dtypes.finfo(kind).max], kind).view(f"u{kind.itemsize}")[0])
    for low in [0, 1, 2, top - 1, *(int(n) for n in rng.integers(0, top, 200))]:
        a, b = number_of(low, dtype), number_of(low + 1, dtype)
        middle = (Fraction(a) + Fraction(b)) / 2
        assert bits("x", a, dtype) == low
        exact = float(middle)
        if Fraction(exact) == middle:
            assert bits("x", exact, dtype) == low + low % 2
            assert bits("x", math.nextafter(exact, 0), dtype) == low
            assert bits("x", math.nextafter(exact, math.inf), dtype) == low + 1
            assert bits("x", -math.nextafter(exact, math.inf), dtype) == (low + 1) | 1 << (8 * kind.itemsize - 1)
    with pytest.raises(ArgumentError, match="does not fit"):
        bits("x", 1e39, dtype)


@pytest.mark.parametrize("dtype", [d for d in FLOATS if not d.startswith("float8")])
def test_what_no_double_holds_is_rounded_once(dtype: str) -> None:
    """Integers and fractions a hair from the middle between two neighbours: a double in between would land on the middle."""
    rng = np.random.default_rng()
    kind = np.dtype(FLOATS[dtype])
    for low in rng.integers(1, 0x7000 if kind.itemsize == 2 else 0x7000_0000 if kind.itemsize == 4 else 0x4800_0000_0000_0000, 100).tolist():
        middle = (Fraction(number_of(low, dtype)) + Fraction(number_of(low + 1, dtype))) / 2
        hair = middle / 2**80
        assert bits("x", middle - hair, dtype) == low and bits("x", middle + hair, dtype) == low + 1
        assert bits("x", -middle - hair, dtype) == (low + 1) | 1 << (8 * kind.itemsize - 1)
    assert bits("x", 2**60 + 2**36 + 1, "float32") == bits("x", 2.0**60 + 2.0**37, "float32")
    assert bits("x", 2**60 + 2**36, "float32") == bits("x", 2.0**60, "float32")


@pytest.mark.parametrize("dtype", FLOATS)
def test_special_values(dtype: str) -> None:
    kind = np.dtype(FLOATS[dtype])
    assert math.isnan(number_of(bits("x", math.nan, dtype), dtype))
    infinity = number_of(bits("x", -math.inf, dtype), dtype)
    assert infinity == (-448.0 if dtype == "float8_e4m3fn" else -math.inf)
    assert bits("x", -0.0, dtype) == 1 << (8 * kind.itemsize - 1) and bits("x", 0.0, dtype) == 0
    assert bits("x", 1, dtype) == int(np.array([1], kind).view(f"u{kind.itemsize}")[0])


@pytest.mark.parametrize(("dtype", "low", "high"), [(f"{u}int{n}", 0 if u else -(1 << n - 1), (1 << (n if u else n - 1)) - 1) for u in ("", "u") for n in (8, 16, 32, 64)])
def test_integers(dtype: str, low: int, high: int) -> None:
    kind = np.dtype(dtype)
    for value in (low, high, 0, 1, np.dtype(dtype).type(high), 1.0, np.float32(1.0)):
        assert bits("n", value, dtype) == int(np.array([value], kind).view(f"u{kind.itemsize}")[0])
    for value in (low - 1, high + 1):
        with pytest.raises(ArgumentError, match="does not fit"):
            bits("n", value, dtype)
    for value in (0.5, math.nan, math.inf, "1", None, np.zeros(1)):
        with pytest.raises(ArgumentError, match="`n`"):
            bits("n", value, dtype)


def test_booleans() -> None:
    assert [bits("b", v, "bool") for v in (True, False, 1, np.bool_(True), 0.0)] == [1, 0, 1, 1, 0]
    with pytest.raises(ArgumentError):
        bits("b", 2, "bool")


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_quick_way_gives_the_same_bits(dtype: str) -> None:
    letters = pack_format(dtype)
    assert (letters == "Q") is (dtype not in ("float64", "float32", "float16"))
    rng = np.random.default_rng()
    numbers = [0.0, -0.0, math.inf, -math.inf, 5e-324, 1e-40, 440.0, 2.0**-24, 2.0**-25, *(rng.standard_normal(200) * 2.0 ** rng.integers(-30, 8, 200)).tolist()]
    for value in numbers:
        slow = struct.pack(f"<{letters}", packable("x", value, dtype))
        assert slow == bits("x", value, dtype).to_bytes(8, "little")
        assert letters == "Q" or struct.pack(f"<{letters}", value) == slow, value
    if letters != "Q":
        assert math.isnan(struct.unpack(f"<{letters}", struct.pack(f"<{letters}", packable("x", math.nan, dtype)))[0])
