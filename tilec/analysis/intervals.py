"""Interval arithmetic on exact integers: the rules behind `ranges.bounds`. An interval is (lo, hi), both inclusive.

    floordiv((-7, 9), (2, 2)) -> (-4, 4)
"""

from __future__ import annotations

from collections.abc import Callable

Interval = tuple[int, int]


def join(a: Interval, b: Interval) -> Interval:
    """The smallest interval that holds both."""
    return min(a[0], b[0]), max(a[1], b[1])


def corners(f: Callable[[int, int], int], a: Interval, b: Interval) -> Interval:
    """The range of an f that is monotone in each argument."""
    values = [f(x, y) for x in a for y in b]
    return min(values), max(values)


def scale(a: Interval, n: int) -> Interval:
    """n times an interval."""
    return (a[0] * n, a[1] * n) if n >= 0 else (a[1] * n, a[0] * n)


def trunc_div(a: int, b: int) -> int:
    """C's division: towards zero; 0 for a zero divisor."""
    if b == 0:
        return 0
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def floor_div(a: int, b: int) -> int:
    """Python's division; 0 for a zero divisor."""
    return a // b if b else 0


def ceil_div(a: int, b: int) -> int:
    """Division rounded up; 0 for a zero divisor."""
    return -(-a // b) if b else 0


def divide(f: Callable[[int, int], int], a: Interval, b: Interval) -> Interval:
    """The range of a division f: monotone on each side of a zero divisor, which gives 0."""
    parts: list[Interval] = []
    if b[1] >= 1:
        parts.append(corners(f, a, (max(b[0], 1), b[1])))
    if b[0] <= -1:
        parts.append(corners(f, a, (b[0], min(b[1], -1))))
    if b[0] <= 0 <= b[1]:
        parts.append((0, 0))
    out = parts[0]
    for p in parts[1:]:
        out = join(out, p)
    return out


def floormod(a: Interval, b: Interval) -> Interval:
    """The range of Python's a % b (0 for a zero divisor)."""
    if b[0] == b[1] != 0 and a[0] // b[0] == a[1] // b[0]:
        ends = (a[0] % b[0], a[1] % b[0])
        return min(ends), max(ends)
    if b[0] > 0 and a[0] >= 0 and a[1] < b[0]:
        return a
    hi = max(0, b[1] - 1)
    if a[0] >= 0 and b[0] >= 0:
        hi = min(hi, a[1])
    return min(0, b[0] + 1), hi


def truncmod(a: Interval, b: Interval) -> Interval:
    """The range of C's a % b (0 for a zero divisor): the sign of a, smaller than b."""
    most = max(abs(b[0]), abs(b[1])) - 1
    if most < 0:
        return 0, 0
    smallest = 0 if b[0] <= 0 <= b[1] else min(abs(b[0]), abs(b[1]))
    if max(abs(a[0]), abs(a[1])) < smallest:
        return a
    return max(min(a[0], 0), -most), min(max(a[1], 0), most)


def bitwise(op: str, a: Interval, b: Interval) -> Interval | None:
    """The range of and / or / xor where signs allow a simple answer, else None."""
    if op == "and":
        if a[0] >= 0 and b[0] >= 0:
            return 0, min(a[1], b[1])
        if a[0] >= 0 or b[0] >= 0:
            return 0, a[1] if a[0] >= 0 else b[1]
        return None
    if a[0] < 0 or b[0] < 0:
        return None
    most = (1 << max(a[1], b[1]).bit_length()) - 1
    return (max(a[0], b[0]) if op == "or" else 0), most
