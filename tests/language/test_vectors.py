"""Values of several lanes: what operations of them record, and what is refused."""

from __future__ import annotations

import pytest

from tests.language.kit import call, fault, kernel_builder
from tilec.ir.dtypes import FLOAT16, FLOAT32, INT32, UINT8, UINT32, lookup, vector_of
from tilec.ir.expr import Const, Var
from tilec.language import vectors
from tilec.language.values import Vec


def test_types_of_lanes() -> None:
    found = lookup("float16x8")
    assert found is not None and (found.lanes, found.bits, found.bytes, found.lane) == (8, 16, 16, FLOAT16)
    assert found == vector_of(FLOAT16, 8) and str(found) == "float16x8"
    assert lookup("bfloat16x2") is not None and lookup("float4_e2m1fnx2") is not None
    assert [lookup(n) for n in ("float32x3", "float32x1", "boolx2", "x4", "floatx")] == [None] * 5


def test_operations_are_done_lane_by_lane() -> None:
    b = kernel_builder()
    x, y = (Var(n, FLOAT32) for n in "xy")
    both = Vec((x, y))
    doubled = vectors.binary(b, "mul", both, 2)
    assert isinstance(doubled, Vec) and [e.dtype for e in doubled.lanes] == [FLOAT32] * 2
    assert [e.a for e in doubled.lanes] == [x, y]
    assert call(b, "extract_lane", both, 1) is y
    assert call(b, "Shuffle", [both, both], [1, 2]).lanes == (y, x)
    assert call(b, "Shuffle", [both], [0]) is x
    assert call(b, "Ramp", 3, 2, 4).lanes == tuple(Const(n, INT32) for n in (3, 5, 7, 9))
    assert call(b, "Broadcast", x, 2).lanes == (x, x)
    assert call(b, "vectorcombine", "float32x4", both, both).lanes == (x, y, x, y)
    assert call(b, "vectorhigh", "float32", both) is y


def test_bits_of_literals() -> None:
    b = kernel_builder()
    bytes_ = vectors.reinterpret(b, Const(0x04030201, UINT32), "uint8x4")
    assert [e.dtype for e in bytes_.lanes] == [UINT8] * 4
    whole = vectors.reinterpret(b, Vec((Const(1, UINT8), Const(2, UINT8))), "uint16")
    assert whole.dtype == lookup("uint16")


@pytest.mark.parametrize(
    ("name", "args", "code"),
    [
        ("extract_lane", (Var("x", FLOAT32), 0), "TL0206"),
        ("extract_lane", (Vec((Const(1, INT32),) * 2), 2), "TL0305"),
        ("add2", (Vec((Const(1, INT32),) * 2), Vec((Const(1, INT32),) * 2)), "TL0302"),
        ("add2", (Vec((Const(1.0, FLOAT32),) * 4), Vec((Const(1.0, FLOAT32),) * 4)), "TL0302"),
        ("reinterpret", (Vec((Const(1.0, FLOAT32),) * 2), "float32"), "TL0317"),
        ("cast", (Vec((Const(1.0, FLOAT32),) * 2), "float16x4"), "TL0302"),
        ("cast", (Vec((Const(1.0, FLOAT32),) * 2), "float16"), "TL0302"),
        ("Ramp", (0, 1, 3), "TL0206"),
        ("Shuffle", ([Vec((Const(1, INT32),) * 2)], [5]), "TL0305"),
        ("infinity", ("float32x4",), "TL0302"),
    ],
)
def test_refused(name: str, args: tuple[object, ...], code: str) -> None:
    assert fault(lambda: call(kernel_builder(), name, *args)).code == code


def test_lanes_must_agree() -> None:
    b = kernel_builder()
    two, four = (Vec((Const(1.0, FLOAT32),) * n) for n in (2, 4))
    assert fault(lambda: vectors.binary(b, "add", two, four)).code == "TL0301"
