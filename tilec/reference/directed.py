"""Sums, products, quotients and roots rounded to nearest, to zero, up or down: exactly, as IEEE 754 says.

    rounded("add_ru", [np.float32(1), np.float32(1e-20)], FLOAT32) -> 1.0000001

A result is computed in float64 together with the sign of what is left of the true value, from which the neighbour to take follows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tilec.ir.dtypes import DType
from tilec.reference.values import Value, np_dtype

Wide = npt.NDArray[np.float64]

NAMES = frozenset(f"{op}_{mode}" for op in ("add", "sub", "mul", "div", "fma", "sqrt") for mode in ("rn", "rz", "ru", "rd"))
"""Every intrinsic of this kind: the operation and its rounding, as CUDA's __fadd_rz has them."""


def rounded(name: str, args: Sequence[Value], dtype: DType) -> Value:
    """The value of a call in a type of 32 or 64 bits."""
    op, mode = name.split("_")
    with np.errstate(all="ignore"):
        high, low = _exact(op, [np.asarray(a).astype(np.float64) for a in args])
        near = high.astype(np_dtype(dtype))
        return _directed(near, np.sign(high - near.astype(np.float64)), np.sign(low), mode)


def _directed(near: npt.NDArray[np.floating], first: Wide, second: Wide, mode: str) -> Value:
    """The neighbour of `near` that a rounding takes, from the signs of how far the true value is off it."""
    beyond = np.where(first != 0, first, second)  # 1: the true value is larger
    beyond = np.where(np.isnan(beyond), 0, beyond)
    if mode == "rn":
        return near
    kind = near.dtype.type
    up, down = np.nextafter(near, kind(np.inf)), np.nextafter(near, kind(-np.inf))
    if mode == "rz":
        mode_up = np.signbit(near)
        return np.where((beyond > 0) & mode_up, up, np.where((beyond < 0) & ~mode_up, down, near))
    return np.where(beyond > 0, up, near) if mode == "ru" else np.where(beyond < 0, down, near)


def _exact(op: str, v: Sequence[Wide]) -> tuple[Wide, Wide]:
    """The result in float64, and a number with the sign of what is left of the true one."""
    match op:
        case "add":
            return _sum(v[0], v[1])
        case "sub":
            return _sum(v[0], -v[1])
        case "mul":
            return _product(v[0], v[1])
        case "div":
            quotient = v[0] / v[1]
            high, low = _product(quotient, v[1])
            return quotient, _finite(quotient, ((v[0] - high) - low) * np.sign(v[1]))
        case "sqrt":
            root = np.sqrt(v[0])
            high, low = _product(root, root)
            return root, _finite(root, (v[0] - high) - low)
        case _:
            high, low = _product(v[0], v[1])
            total, rest = _sum(high, v[2])
            return _sum(total, rest + low)


def _finite(value: Wide, rest: Wide) -> Wide:
    return np.where(np.isfinite(value), rest, 0)


def _sum(a: Wide, b: Wide) -> tuple[Wide, Wide]:
    total = a + b
    part = total - a
    return total, _finite(total, (a - (total - part)) + (b - part))


def _product(a: Wide, b: Wide) -> tuple[Wide, Wide]:
    """Dekker's: each factor in two halves, whose products are exact."""
    product = a * b
    halves = []
    for x in (a, b):
        wide = x * 134217729.0
        top = wide - (wide - x)
        halves.append((top, x - top))
    (p, q), (r, s) = halves
    return product, _finite(product, ((p * r - product) + p * s + q * r) + q * s)
