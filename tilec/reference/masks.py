"""Which lanes execute: True (all), False (none) or a bool array that broadcasts against the lanes.

    mask_and(True, m) is m;  mask_any(False) is False
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Mask: TypeAlias = "bool | np.ndarray[Any, np.dtype[np.bool_]]"


def as_mask(value: Any) -> Mask:
    """A condition's value as a mask: uniform ones become plain bools."""
    return value.astype(np.bool_) if isinstance(value, np.ndarray) and value.ndim else bool(value)


def mask_and(a: Mask, b: Mask) -> Mask:
    """Lanes in both."""
    if isinstance(a, bool):
        return b if a else False
    if isinstance(b, bool):
        return a if b else False
    return np.logical_and(a, b)


def mask_or(a: Mask, b: Mask) -> Mask:
    """Lanes in either."""
    return mask_not(mask_and(mask_not(a), mask_not(b)))


def mask_not(a: Mask) -> Mask:
    """Lanes not in `a`."""
    return not a if isinstance(a, bool) else np.logical_not(a)


def mask_any(a: Mask) -> bool:
    """True when at least one lane is in `a`."""
    return a if isinstance(a, bool) else bool(a.any())


def mask_all(a: Mask) -> bool:
    """True when every lane is in `a`."""
    return a if isinstance(a, bool) else bool(a.all())
