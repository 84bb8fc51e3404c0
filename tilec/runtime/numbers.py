"""Numbers as a kernel takes them: the bits of a scalar argument, exactly of the type that the manifest declares.

    bits("n", 7, "int32") -> 7;  bits("n", -1, "int32") -> 0xffffffff;  bits("x", 1.0, "bfloat16") -> 0x3f80

Every number is rounded once, to the nearest, ties to even. Integers that do not fit are refused, and so are fractions where an
integer is declared.
"""

from __future__ import annotations

import math
import operator
import struct
from typing import Any

from tilec.ir.dtypes import DType, Kind, int_range, lookup


class ArgumentError(ValueError):
    """An argument that the kernel cannot take; the text names the parameter and says what it takes."""


def bits(name: str, value: Any, dtype: str) -> int:
    """The bits of `value` as an unsigned integer. Raises ArgumentError, which names the parameter."""
    kind = lookup(dtype)
    if kind is None:
        raise ArgumentError(f"`{name}` has the type {dtype}, which this version of tilec does not know")
    if isinstance(value, str | bytes) or (hasattr(value, "shape") and tuple(value.shape)):
        raise _not_a_number(name, value, dtype)
    if kind.is_float:
        return float_bits(name, number(name, value, dtype), kind)
    whole = integer(name, value, dtype)
    low, high = int_range(kind)
    if not low <= whole <= high:
        raise ArgumentError(f"`{name}` = {whole} does not fit {dtype}, which holds {low} to {high}")
    return whole & ((1 << kind.bits) - 1)


def integer(name: str, value: Any, dtype: str) -> int:
    """The integer that `value` is. Raises ArgumentError for anything else."""
    try:
        return operator.index(value)
    except TypeError:
        pass
    try:
        as_float = float(value)
    except (TypeError, ValueError):
        raise _not_a_number(name, value, dtype) from None
    if not as_float.is_integer():
        raise ArgumentError(f"`{name}` is a scalar of type {dtype}; {value!r} is no integer")
    return int(as_float)


def number(name: str, value: Any, dtype: str) -> float:
    """The number that `value` is, as a double. Raises ArgumentError for anything else.

    What no double holds is rounded to the nearest one for a float64, else to the neighbour with an odd last bit: rounding that to a
    narrower type gives what rounding the number itself would, which rounding twice to the nearest does not.
    """
    try:
        nearest = float(value)
        if dtype == "float64" or value == nearest or nearest != nearest:
            return nearest
        if struct.pack("<d", nearest)[0] & 1:
            return nearest
        return math.nextafter(nearest, math.inf if value > nearest else -math.inf)
    except (TypeError, ValueError):
        raise _not_a_number(name, value, dtype) from None
    except OverflowError:
        raise ArgumentError(f"`{name}` = {value} does not fit {dtype}") from None


def _not_a_number(name: str, value: Any, dtype: str) -> ArgumentError:
    return ArgumentError(f"`{name}` is a scalar of type {dtype}; a {type(value).__name__} was given")


def float_bits(name: str, value: float, dtype: DType) -> int:
    """A double rounded to a floating type, as its bits. Raises ArgumentError when it is finite and too large."""
    if dtype.bits == 64:
        return int.from_bytes(struct.pack("<d", value), "little")
    exponent_bits, mantissa_bits = _FORMATS[dtype.name]
    sign = int(math.copysign(1.0, value) < 0) << (exponent_bits + mantissa_bits)
    top = (1 << exponent_bits) - 1
    if math.isnan(value):
        return sign | ((top << mantissa_bits) | (0x7F if dtype.name in _NO_INFINITY else 1 << (mantissa_bits - 1)))
    largest = _largest(dtype.name)
    if math.isinf(value):
        return sign | (largest if dtype.name in _NO_INFINITY else top << mantissa_bits)
    rounded = _round(abs(value), exponent_bits, mantissa_bits)
    if rounded > largest:
        raise ArgumentError(f"`{name}` = {value!r} does not fit {dtype}")
    return sign | rounded


_FORMATS = {
    "float16": (5, 10), "bfloat16": (8, 7), "float32": (8, 23), "tfloat32": (8, 23), "float8_e4m3fn": (4, 3), "float8_e5m2": (5, 2),
}  # fmt: skip
_NO_INFINITY = frozenset(("float8_e4m3fn",))


def _largest(dtype: str) -> int:
    """The bits of the largest finite number."""
    exponent_bits, mantissa_bits = _FORMATS[dtype]
    return 0x7E if dtype in _NO_INFINITY else (((1 << exponent_bits) - 1) << mantissa_bits) - 1


def _round(value: float, exponent_bits: int, mantissa_bits: int) -> int:
    """A positive finite double to the nearest number of a format, ties to even; a carry runs into the exponent, as it should."""
    if value == 0:
        return 0
    bias = (1 << (exponent_bits - 1)) - 1
    exponent = max(math.frexp(value)[1] - 1, 1 - bias)  # subnormal numbers share the smallest exponent
    scaled = math.ldexp(value, mantissa_bits - exponent)  # exact: only the exponent changes
    whole = math.floor(scaled)
    rest = scaled - whole
    if rest > 0.5 or (rest == 0.5 and whole % 2):
        whole += 1
    return whole + ((exponent + bias - 1) << mantissa_bits)  # the leading one adds 1 to the exponent field


def pack_format(dtype: str) -> str:
    """How `struct` writes a scalar into eight bytes: a float of the types that C knows from a Python float, the rest from its bits."""
    return {"float64": "d", "float32": "f4x", "tfloat32": "f4x", "float16": "e6x"}.get(dtype, "Q")


def packable(name: str, value: Any, dtype: str) -> int | float:
    """What `struct` takes for `value` in that format. Raises ArgumentError, which names the parameter."""
    found, letters = bits(name, value, dtype), pack_format(dtype)
    if letters == "Q":
        return found
    number: float = struct.unpack(f"<{letters}", found.to_bytes(8, "little"))[0]
    return number


def is_integer(dtype: str) -> bool:
    """Whether a manifest's type holds integers, so that host expressions may name a scalar of it."""
    kind = lookup(dtype)
    return kind is not None and kind.kind in (Kind.INT, Kind.UINT, Kind.BOOL)
