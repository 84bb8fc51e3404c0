"""Operators: types, folding, errors; values are checked by NumPy through the Tile IR's own meaning."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.language.kit import call, fault, kernel_builder, refused, tensor
from tilec.ir.dtypes import (
    ALL,
    BFLOAT16,
    BOOL,
    FLOAT8_E4M3,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    TFLOAT32,
    UINT8,
    UINT32,
    UINT64,
    DType,
    int_range,
)  # fmt: skip
from tilec.ir.expr import Binary, Cast, Compare, Const, Expr, Logical, Scope, Select, Unary, Var
from tilec.language import arith
from tilec.language.values import Ref

B = kernel_builder()


def var(dtype: DType) -> Var:
    return Var("x", dtype)


def value(e: Any) -> Any:
    assert isinstance(e, Const)
    return e.value


@pytest.mark.parametrize(
    ("x", "y", "wanted"),
    [
        (FLOAT16, FLOAT32, FLOAT32), (INT32, FLOAT16, FLOAT16), (INT32, INT64, INT64), (INT8, UINT8, UINT8), (BFLOAT16, FLOAT16, FLOAT16),
        (UINT32, INT64, INT64), (INT32, UINT32, UINT32), (INT8, INT8, INT8), (FLOAT8_E4M3, FLOAT8_E5M2, FLOAT16), (BOOL, FLOAT16, FLOAT16),
        (BOOL, BOOL, INT32), (TFLOAT32, TFLOAT32, FLOAT32), (TFLOAT32, FLOAT16, FLOAT32), (FLOAT64, FLOAT32, FLOAT64),
        (INT64, FLOAT8_E4M3, FLOAT8_E4M3), (UINT8, INT32, INT32), (FLOAT8_E4M3, FLOAT8_E4M3, FLOAT8_E4M3),
    ],
)  # fmt: skip
def test_two_values_meet(x: DType, y: DType, wanted: DType) -> None:
    assert arith.binary(B, "add", var(x), var(y)).dtype == wanted
    assert arith.binary(B, "add", var(y), var(x)).dtype == wanted


@pytest.mark.parametrize(
    ("dtype", "literal", "wanted"),
    [
        (FLOAT16, 2.5, FLOAT32), (BFLOAT16, 1, BFLOAT16), (INT8, 100000, INT32), (INT8, 100, INT8), (UINT32, 127, UINT32),
        (FLOAT64, 0.1, FLOAT64), (INT32, 2**31, INT64), (INT32, 0.5, FLOAT32), (BOOL, 1, INT32), (FLOAT16, 100000, FLOAT32),
        (FLOAT16, 3, FLOAT16), (UINT32, -1, UINT32),
        (INT64, 2**40, INT64), (UINT64, 2**63, UINT64), (FLOAT8_E4M3, 1000, FLOAT32), (INT32, True, INT32), (FLOAT64, 10**39, FLOAT64),
    ],
)  # fmt: skip
def test_a_literal_adapts(dtype: DType, literal: Any, wanted: DType) -> None:
    assert arith.binary(B, "sub", var(dtype), literal).dtype == wanted
    assert arith.binary(B, "sub", literal, var(dtype)).dtype == wanted


def test_a_double_literal_keeps_its_digits_beside_float64() -> None:
    e = arith.binary(B, "mul", var(FLOAT64), 0.1)
    assert isinstance(e, Binary) and e.b == Const(0.1, FLOAT64)
    third = arith.binary(B, "div", arith.cast(B, 1.0, FLOAT64), arith.cast(B, 3.0, FLOAT64))
    assert value(third) == 1 / 3


INTS = [d for d in ALL if d.is_int]


@pytest.mark.parametrize("dtype", INTS, ids=str)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "floordiv", "mod", "and", "or", "xor", "min", "max"])
@settings(max_examples=25)
@given(data=st.data())
def test_integer_literals_fold_as_numpy(dtype: DType, op: str, data: st.DataObject) -> None:
    low, high = int_range(dtype)
    x, y = data.draw(st.integers(low, high)), data.draw(st.integers(low, high))
    if y == 0 and op in ("floordiv", "mod"):
        y = 3
    functions = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "floordiv": np.floor_divide, "mod": np.mod, "and": np.bitwise_and,
        "or": np.bitwise_or, "xor": np.bitwise_xor, "min": np.minimum, "max": np.maximum,
    }  # fmt: skip
    with np.errstate(over="ignore"):
        wanted = functions[op](np.asarray([x], dtype.name), np.asarray([y], dtype.name))[0]
    assert value(arith.binary(B, op, Const(x, dtype), Const(y, dtype))) == int(wanted)


@pytest.mark.parametrize("dtype", [FLOAT16, FLOAT32, FLOAT64], ids=str)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "floordiv", "mod"])
@settings(max_examples=25)
@given(data=st.data())
def test_float_literals_fold_as_numpy(dtype: DType, op: str, data: st.DataObject) -> None:
    number = st.floats(width=dtype.bits, allow_nan=True)
    x, y = data.draw(number), data.draw(number)
    functions = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "floordiv": np.floor_divide, "mod": np.mod,
    }  # fmt: skip
    if op in ("floordiv", "mod") and dtype is FLOAT16:
        return  # NumPy takes these through float32, with two roundings
    with np.errstate(all="ignore"):
        wanted = functions[op](np.asarray(x, dtype.name), np.asarray(y, dtype.name))
    got = value(arith.binary(B, op, Const(x, dtype), Const(y, dtype)))
    assert np.asarray(got, dtype.name).tobytes() == wanted.tobytes() or (math.isnan(got) and np.isnan(wanted))


def test_quotients_of_more_digits_than_the_type_has() -> None:
    """What a float32 quotient is there depends on the steps that are rounded; a quotient in double, rounded once, differs in 1 of 100."""
    rng = np.random.default_rng()
    x, y = (rng.standard_normal(2000) * 10.0 ** rng.uniform(-3, 12, 2000)).astype(np.float32), rng.standard_normal(2000).astype(np.float32)
    x[0], y[0] = 3.0634525406865454e-13, 3.7568795356879645e-20
    got = [value(arith.binary(B, "floordiv", Const(float(a), FLOAT32), Const(float(b), FLOAT32))) for a, b in zip(x, y, strict=True)]
    assert np.array_equal(np.asarray(got, np.float32), np.floor_divide(x, y))


def test_wrapping_constants() -> None:
    x = arith.binary(B, "add", arith.cast(B, 2**63 - 1, UINT64), arith.cast(B, 2**63 - 1, UINT64))
    assert x == Const(18446744073709551614, UINT64)
    assert arith.binary(B, "floordiv", Const(-(2**31), INT32), Const(-1, INT32)) == Const(-(2**31), INT32)
    assert arith.binary(B, "truncdiv", Const(-7, INT32), Const(2, INT32)) == Const(-3, INT32)
    assert arith.binary(B, "truncmod", Const(-7, INT32), Const(2, INT32)) == Const(-1, INT32)
    assert arith.unary(B, "neg", Const(-128, INT8)) == Const(-128, INT8)
    assert arith.unary(B, "invert", Const(0, UINT8)) == Const(255, UINT8)
    assert arith.binary(B, "shl", Const(1, INT32), 31) == Const(-(2**31), INT32)
    assert arith.binary(B, "shr", Const(-8, INT32), 1) == Const(-4, INT32)


def test_nan_is_dropped_in_both_orders() -> None:
    nan, one = Const(math.nan, FLOAT32), Const(1.0, FLOAT32)
    for op in ("min", "max"):
        assert arith.binary(B, op, nan, one) == arith.binary(B, op, one, nan) == one
    assert call(B, "max", math.nan, 1.0) == call(B, "max", 1.0, math.nan) == 1.0
    assert call(B, "clamp", nan, -1.0, 1.0) == Const(-1.0, FLOAT32)


def test_division() -> None:
    assert fault(lambda: arith.binary(B, "div", var(INT32), 2)).code == "TL0314"
    assert fault(lambda: arith.binary(B, "floordiv", var(INT32), 0)).code == "TL0316"
    assert arith.binary(B, "div", var(INT32), 2.0).dtype == FLOAT32
    x = var(FLOAT32)
    assert arith.binary(B, "floordiv", x, 2.0) == Binary("floordiv", x, Const(2.0, FLOAT32), FLOAT32)
    assert arith.binary(B, "mod", x, 2.0) == Binary("mod", x, Const(2.0, FLOAT32), FLOAT32)
    assert value(arith.binary(B, "div", Const(-1.0, FLOAT32), Const(0.0, FLOAT32))) == -math.inf


def test_bits_are_for_integers() -> None:
    assert fault(lambda: arith.binary(B, "and", var(FLOAT32), 1)).code == "TL0315"
    assert fault(lambda: arith.unary(B, "invert", var(FLOAT32))).code == "TL0315"
    assert fault(lambda: arith.binary(B, "shl", var(INT32), 32)).code == "TL0316"
    assert fault(lambda: arith.binary(B, "shl", var(FLOAT32), 1)).code == "TL0315"
    assert arith.binary(B, "shl", var(UINT8), var(INT64)).dtype == UINT8
    assert arith.binary(B, "and", var(BOOL), var(BOOL)).dtype == BOOL


def test_eight_bit_floats_are_computed_in_float32() -> None:
    e = arith.binary(B, "mul", var(FLOAT8_E4M3), var(FLOAT8_E4M3))
    assert isinstance(e, Cast) and e.dtype == FLOAT8_E4M3 and isinstance(e.a, Binary) and e.a.dtype == FLOAT32
    folded = arith.binary(B, "mul", Const(448.0, FLOAT8_E4M3), Const(448.0, FLOAT8_E4M3))
    assert folded == Const(448.0, FLOAT8_E4M3)


def test_negative_literals_beside_unsigned_values() -> None:
    x = var(UINT32)
    assert arith.binary(B, "max", x, -1).dtype == arith.binary(B, "floordiv", -7, x).dtype == INT64
    assert arith.binary(B, "add", x, -1).dtype == UINT32
    assert arith.binary(B, "max", Const(3, UINT32), -1) == Const(3, INT64)
    assert fault(lambda: arith.binary(B, "mod", var(UINT64), -2)).code == "TL0303"


def evaluate(e: Expr, x: float) -> float:
    match e:
        case Const(v):
            return float(v)
        case Var():
            return x
        case Binary("mul", a, b):
            return evaluate(a, x) * evaluate(b, x)
        case Binary("div", a, b):
            return evaluate(a, x) / evaluate(b, x)
        case _:
            raise AssertionError(e)


@pytest.mark.parametrize("exponent", range(-16, 17))
def test_powers_by_multiplication(exponent: int) -> None:
    e = call(B, "pow", var(FLOAT32), exponent)
    assert e.dtype == FLOAT32
    for x in (2.0, -2.0, 0.5, 4.0):
        assert evaluate(e, x) == x**exponent


def test_other_powers() -> None:
    assert call(B, "pow", var(FLOAT32), 17).op == "pow"
    assert call(B, "pow", var(FLOAT32), 0.5).op == "pow"
    assert call(B, "pow", var(FLOAT16), 2).dtype == FLOAT16
    assert refused(B, "pow", var(INT32), -1).code == "TL0316"
    assert arith.binary(B, "pow", Const(3, INT8), Const(5, INT8)) == Const(-13, INT8)
    assert arith.binary(B, "pow", Const(0.0, FLOAT32), -1) == Const(math.inf, FLOAT32)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**64 - 1))
@pytest.mark.parametrize("op", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons_across_signs_are_exact(op: str, x: int, y: int) -> None:
    wanted = {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[op]
    assert value(arith.compare(B, op, Const(x, INT64), Const(y, UINT64))) is wanted
    swapped = {"eq": x == y, "ne": x != y, "lt": y < x, "le": y <= x, "gt": y > x, "ge": y >= x}[op]
    assert value(arith.compare(B, op, Const(y, UINT64), Const(x, INT64))) is swapped


def test_comparison_types() -> None:
    e = arith.compare(B, "lt", var(INT8), var(UINT8))
    assert isinstance(e, Compare) and e.a.dtype.name == "int16"
    assert arith.compare(B, "lt", var(UINT64), -1) == Const(False, BOOL)
    assert arith.compare(B, "ge", var(UINT64), -1) == Const(True, BOOL)
    below = arith.compare(B, "lt", var(UINT32), -1)
    assert isinstance(below, Compare) and below.b == Const(-1, INT64)
    half = arith.compare(B, "lt", var(FLOAT16), 2049)
    assert isinstance(half, Compare) and half.b == Const(2049.0, FLOAT32)
    single = arith.compare(B, "eq", var(FLOAT32), 16777217)
    assert isinstance(single, Compare) and single.b == Const(16777217.0, FLOAT64)
    assert value(arith.compare(B, "ne", Const(math.nan, FLOAT32), Const(math.nan, FLOAT32))) is True


def test_logic_short_circuits() -> None:
    flag = var(BOOL)
    assert arith.logical(B, "and", False, flag) == Const(False, BOOL)
    assert arith.logical(B, "or", False, flag) is flag
    assert isinstance(arith.logical(B, "and", flag, var(INT32)), Logical)
    assert arith.truth(B, Const(0.0, FLOAT32)) is False
    assert arith.truth(B, "text") is True
    assert isinstance(arith.unary(B, "not", var(INT32)), Unary)
    assert arith.unary(B, "not", arith.unary(B, "not", flag)) is flag


def test_select_meets_in_one_type() -> None:
    e = call(B, "if_then_else", var(BOOL), var(FLOAT16), 0.0)
    assert isinstance(e, Select) and e.dtype == FLOAT32 and e.a.dtype == FLOAT32
    x = var(FLOAT16)
    assert call(B, "if_then_else", True, x, 0) is x
    assert call(B, "if_then_else", True, 1, 2) == 1


def test_literals_that_do_not_fit() -> None:
    d = fault(lambda: arith.cast(B, 300, UINT8))
    assert d.code == "TL0303" and "44" in d.help
    assert call(B, "cast", 300, "uint8") == Const(44, UINT8)
    assert call(B, "Cast", "uint8", -1) == Const(255, UINT8)
    assert arith.cast(B, -0.0, FLOAT16) == Const(-0.0, FLOAT16) and math.copysign(1, value(arith.cast(B, -0.0, FLOAT16))) == -1
    b = kernel_builder()
    assert value(arith.cast(b, 1e39, FLOAT32)) == math.inf and len(b.notes) == 1
    assert arith.unary(b, "neg", call(b, "infinity", FLOAT8_E5M2)) == Const(-math.inf, FLOAT8_E5M2)
    assert value(arith.cast(b, "nan", FLOAT32)) != value(arith.cast(b, "nan", FLOAT32))
    assert call(b, "cast", arith.cast(b, 65520.0, FLOAT32), "float16") == Const(math.inf, FLOAT16)


def test_values_that_are_no_numbers() -> None:
    tile = tensor("s", 8, scope=Scope.SHARED)
    d = fault(lambda: arith.binary(B, "add", tile, 1))
    assert d.code == "TL0301" and "s" in d.message and "s[i]" in d.help
    assert fault(lambda: arith.binary(B, "add", Ref(tile, (0,)), "text")).code == "TL0301"
    assert fault(lambda: arith.cast(B, None, FLOAT32)).code == "TL0301"


def test_exact_intrinsics_fold_at_the_type() -> None:
    assert call(B, "ceil", arith.cast(B, 8388608.5, FLOAT32)) == Const(8388608.0, FLOAT32)
    assert call(B, "round", Const(2.5, FLOAT32)) == Const(2.0, FLOAT32)
    assert math.copysign(1, value(call(B, "ceil", Const(-0.5, FLOAT32)))) == -1
    assert value(call(B, "floor", Const(math.inf, FLOAT32))) == math.inf
    assert call(B, "abs", Const(-128, INT8)) == Const(-128, INT8)
    assert call(B, "popcount", Const(-1, INT32)) == Const(32, INT32)
    assert call(B, "clz", Const(1, UINT8)) == Const(7, INT32)
    assert call(B, "isnan", var(INT32)) == Const(False, BOOL)
    assert call(B, "isfinite", Const(math.inf, FLOAT16)) == Const(False, BOOL)


@pytest.mark.parametrize(("x", "y"), [(7, -3), (-7, 3), (6, -3), (7, 3), (2147483647, 2), (0, -5)])
def test_ceildiv_is_exact(x: int, y: int) -> None:
    wanted = -((-x) // y)
    assert call(B, "ceildiv", x, y) == wanted
    assert call(B, "ceildiv", Const(x, INT32), y) == Const(wanted, INT32)


def test_ceildiv_errors_and_types() -> None:
    assert refused(B, "ceildiv", 1, 0).code == "TL0316"
    assert refused(B, "ceildiv", var(FLOAT32), 2).code == "TL0315"
    assert call(B, "ceildiv", var(INT64), 2).dtype == INT64


def test_float_functions_take_and_give_the_operands_type() -> None:
    assert call(B, "exp2", var(FLOAT16)).dtype == FLOAT16
    assert call(B, "sqrt", var(INT32)).dtype == FLOAT32
    assert call(B, "exp", 1).dtype == FLOAT32
    assert call(B, "exp", var(FLOAT8_E4M3)).dtype == FLOAT8_E4M3
    assert call(B, "fma", var(FLOAT16), 2, 1).dtype == FLOAT16
    assert call(B, "max", var(FLOAT16), 0.0).dtype == FLOAT32
    assert call(B, "max", var(FLOAT16), 0, 1).dtype == FLOAT16


def test_infinity_and_limits() -> None:
    assert call(B, "infinity", "float16") == Const(math.inf, FLOAT16)
    assert arith.unary(B, "neg", call(B, "infinity", FLOAT32)) == Const(-math.inf, FLOAT32)
    assert refused(B, "infinity", "float8_e4m3fn").code == "TL0317"
    assert refused(B, "infinity", "int32").code == "TL0317"
    assert call(B, "min_value", "int8") == Const(-128, INT8)


def test_reinterpret() -> None:
    assert call(B, "reinterpret", var(FLOAT32), "int32").dtype == INT32
    assert call(B, "reinterpret", "int32", var(FLOAT32)).dtype == INT32
    assert refused(B, "reinterpret", var(FLOAT16), "int32").code == "TL0317"
