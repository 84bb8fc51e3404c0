"""The element types a kernel may hold, as data.

    FLOAT16.bits -> 16;  lookup("half") -> FLOAT16;  lookup("nope") -> None
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from tilec.record import record


class Kind(Enum):
    """The family of a type: decides promotion, wrap-around and how a value is printed."""

    BOOL = "bool"
    INT = "int"
    UINT = "uint"
    FLOAT = "float"
    HANDLE = "handle"


@record
class DType:
    """An element type: its TileLang name, family and width. Stored width is `bytes` (bool and sub-byte types take one).

    A type of several `lanes` (float32x4, `bits` are those of a lane) is a word of the language only: the Tile IR computes each lane.
    """

    name: str
    kind: Kind
    bits: int
    lanes: int = 1

    @property
    def bytes(self) -> int:
        """Bytes one element takes in memory."""
        return max(1, self.bits * self.lanes // 8)

    @property
    def lane(self) -> DType:
        """The type of one lane; the type itself when it is no vector."""
        return self if self.lanes == 1 else _BY_NAME[self.name.rpartition("x")[0]]

    @property
    def is_float(self) -> bool:
        """True for every floating type, the 8-bit ones included."""
        return self.kind is Kind.FLOAT

    @property
    def is_int(self) -> bool:
        """True for signed and unsigned integers, false for bool."""
        return self.kind in (Kind.INT, Kind.UINT)

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)  # equal types have equal names; every expression hashes its type, so this is worth a line

    def __reduce__(self) -> Any:
        """A type that comes from another process is the one that is here, by which it may be compared."""
        return (lookup, (self.name,)) if lookup(self.name) is self else (DType, (self.name, self.kind, self.bits, self.lanes))


BOOL = DType("bool", Kind.BOOL, 1)
INT8, INT16, INT32, INT64 = (DType(f"int{n}", Kind.INT, n) for n in (8, 16, 32, 64))
UINT8, UINT16, UINT32, UINT64 = (DType(f"uint{n}", Kind.UINT, n) for n in (8, 16, 32, 64))
FLOAT16 = DType("float16", Kind.FLOAT, 16)
BFLOAT16 = DType("bfloat16", Kind.FLOAT, 16)
TFLOAT32 = DType("tfloat32", Kind.FLOAT, 32)
FLOAT32 = DType("float32", Kind.FLOAT, 32)
FLOAT64 = DType("float64", Kind.FLOAT, 64)
FLOAT8_E4M3 = DType("float8_e4m3fn", Kind.FLOAT, 8)
FLOAT8_E5M2 = DType("float8_e5m2", Kind.FLOAT, 8)
INT4, UINT4 = DType("int4", Kind.INT, 4), DType("uint4", Kind.UINT, 4)
FLOAT4_E2M1 = DType("float4_e2m1fn", Kind.FLOAT, 4)
FLOAT8_E8M0 = DType("float8_e8m0fnu", Kind.FLOAT, 8)
HANDLE = DType("handle", Kind.HANDLE, 64)

ALL = (
    BOOL, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64,
    FLOAT16, BFLOAT16, TFLOAT32, FLOAT32, FLOAT64, FLOAT8_E4M3, FLOAT8_E5M2,
)  # fmt: skip

STORED = (INT4, UINT4, FLOAT4_E2M1, FLOAT8_E8M0)
"""Types that the language stores in bytes of another type and computes in a wider one: the Tile IR never sees them."""

_ALIASES = {
    "half": FLOAT16, "fp16": FLOAT16, "bf16": BFLOAT16, "tf32": TFLOAT32, "float": FLOAT32, "fp32": FLOAT32,
    "double": FLOAT64, "int": INT32, "uint": UINT32, "long": INT64, "short": INT16, "char": INT8,
    "float8_e4m3": FLOAT8_E4M3, "e4m3": FLOAT8_E4M3, "e4m3_float8": FLOAT8_E4M3,
    "float8_e5m2fn": FLOAT8_E5M2, "e5m2": FLOAT8_E5M2, "e5m2_float8": FLOAT8_E5M2,
}  # fmt: skip
_BY_NAME = {d.name: d for d in (*ALL, *STORED)} | _ALIASES
_COUNTS = ("2", "4", "8", "16", "32", "64")


LANES = (2, 4, 8, 16, 32, 64)
"""How many lanes a vector may have."""


def lookup(name: str) -> DType | None:
    """The type with this TileLang name or alias, `float32x4` for a vector; None when there is none."""
    found = _BY_NAME.get(name)
    if found is None and "x" in name:
        base, _, count = name.rpartition("x")
        lane = _BY_NAME.get(base)
        if lane is not None and lane is not BOOL and count in _COUNTS:
            return vector_of(lane, int(count))
    return found


def vector_of(lane: DType, count: int) -> DType:
    """The type of `count` lanes of a type."""
    return DType(f"{lane.name}x{count}", lane.kind, lane.bits, count) if count > 1 else lane


def int_range(dtype: DType) -> tuple[int, int]:
    """Smallest and largest value of an integer or bool type."""
    if dtype.kind is Kind.INT:
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1


def wrap(value: int, dtype: DType) -> int:
    """`value` reduced to the width of an integer type, two's complement for signed ones."""
    value &= (1 << dtype.bits) - 1
    if dtype.kind is Kind.INT and value >> (dtype.bits - 1):
        value -= 1 << dtype.bits
    return value
