"""The meaning of every intrinsic that `ir.expr.Call` may name.

Floating ones are computed in float64 and rounded once to the result's type.

    intrinsic("exp2", [np.float32(3.0)], FLOAT32) -> np.float32(8.0)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tilec.ir.dtypes import DType, Kind
from tilec.reference import directed
from tilec.reference.values import Value, cast, is_float, widen

_erf = np.vectorize(math.erf, otypes=[np.float64])

_FLOAT: dict[str, Callable[..., Value]] = {
    "exp": np.exp, "exp2": np.exp2, "exp10": lambda x: np.power(10.0, x), "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p, "sqrt": np.sqrt, "rsqrt": lambda x: 1.0 / np.sqrt(x), "abs": np.abs, "fabs": np.abs,
    "floor": np.floor, "ceil": np.ceil, "round": np.rint, "nearbyint": np.rint, "rint": np.rint, "trunc": np.trunc, "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "atan2": np.arctan2, "erf": _erf,
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)), "fma": lambda a, b, c: a * b + c, "pow": np.power, "fmod": np.fmod,
    "hypot": np.hypot, "copysign": np.copysign, "min": np.fmin, "max": np.fmax,
}  # fmt: skip
_TEST: dict[str, Callable[[Value], Value]] = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}


def _leading_zeros(x: Value) -> Value:
    bits = np.asarray(x).dtype.itemsize * 8
    unsigned = np.asarray(x).astype(f"uint{bits}")
    length = sum(((unsigned >> np.asarray(k, unsigned.dtype)) != 0).astype(np.int64) for k in range(bits))
    return bits - length


def _ones(x: Value) -> Value:
    bits = np.asarray(x).dtype.itemsize * 8
    unsigned = np.asarray(x).astype(f"uint{bits}")
    one = np.asarray(1, unsigned.dtype)
    return sum((unsigned >> np.asarray(k, unsigned.dtype) & one).astype(np.int64) for k in range(bits))


def _first_set(x: Value) -> Value:
    """The place of the lowest bit that is set, from 1; 0 when there is none."""
    bits = np.asarray(x).dtype.itemsize * 8
    unsigned = np.asarray(x).astype(f"uint{bits}")
    lowest = unsigned & (~unsigned + np.asarray(1, unsigned.dtype))
    return np.where(unsigned == 0, 0, bits - _leading_zeros(lowest))


_INT: dict[str, Callable[..., Value]] = {
    "abs": np.abs, "popcount": _ones, "clz": _leading_zeros, "ffs": _first_set, "ceildiv": lambda a, b: a // b + (a % b != 0),
    "min": np.minimum, "max": np.maximum,
    "fma": lambda a, b, c: a * b + c, "floor": lambda x: x, "ceil": lambda x: x, "round": lambda x: x, "trunc": lambda x: x,
}  # fmt: skip


def philox(seed: Value, sequence: Value, draw: Value) -> Value:
    """Number `draw` of a Philox4x32-10 stream: word draw % 4 of the block whose counter is (draw // 4, sequence)."""
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    block, key = np.asarray(draw, np.uint64) >> np.uint64(2), np.asarray(seed, np.uint64)
    words = [block & mask, block >> half, np.asarray(sequence, np.uint64) & mask, np.asarray(sequence, np.uint64) >> half]
    keys = [key & mask, key >> half]
    for _ in range(10):
        x, y = np.uint64(0xD2511F53) * words[0], np.uint64(0xCD9E8D57) * words[2]
        words = [(y >> half) ^ words[1] ^ keys[0], y & mask, (x >> half) ^ words[3] ^ keys[1], x & mask]
        keys = [(keys[0] + np.uint64(0x9E3779B9)) & mask, (keys[1] + np.uint64(0xBB67AE85)) & mask]
    place = np.asarray(draw, np.uint64) & np.uint64(3)
    return np.choose(place.astype(np.intp), np.broadcast_arrays(*words, place)[:4]).astype(np.uint32)


def known(name: str) -> bool:
    """True when `name` has a meaning here."""
    return name == "nextafter" or name in directed.NAMES or name in _FLOAT or name in _TEST or name in _INT


def intrinsic(name: str, args: Sequence[Value], dtype: DType) -> Value:
    """The value of a call; `KeyError` when the name has no meaning for these operands."""
    floats = bool(args) and is_float(np.asarray(args[0]))
    if name in _TEST:
        return cast(_TEST[name](widen(args[0])) if floats else np.full(np.shape(args[0]), name == "isfinite"), dtype)
    if name == "philox":
        return philox(*args)
    if name in directed.NAMES:
        return directed.rounded(name, args, dtype)
    if name == "nextafter":
        return cast(np.nextafter(*args), dtype)
    if floats or (dtype.kind is Kind.FLOAT and name in _FLOAT):
        return cast(_FLOAT[name](*(np.asarray(a).astype(np.float64) for a in args)), dtype)
    return cast(_INT[name](*args), dtype)
