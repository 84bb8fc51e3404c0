"""The random decisions of a program, recorded so that they can be replayed and made simpler.

    Choices(random.Random(3)).pick("abc"); Choices.replay([2]).pick("abc") -> "c"; past the end every decision is the simplest

A decision is a number below some n; 0 stands for the simplest alternative, so a shorter or smaller record makes a simpler program.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class Choices:
    """Decisions from a random source, or from a record; `taken` is the record of this run."""

    rng: random.Random | None = None
    given: Sequence[int] = ()
    taken: list[int] = field(default_factory=list)

    @classmethod
    def replay(cls, given: Sequence[int]) -> Choices:
        """The decisions of a record; 0 after its end."""
        return cls(None, given)

    def below(self, n: int) -> int:
        """A number from 0 to n - 1."""
        at = len(self.taken)
        value = self.rng.randrange(n) if self.rng is not None else self.given[at] % n if at < len(self.given) else 0
        self.taken.append(value)
        return value

    def between(self, low: int, high: int) -> int:
        """A number from low to high, both included."""
        return low + self.below(high - low + 1)

    def pick(self, items: Sequence[T]) -> T:
        """One of the items, the first being the simplest."""
        return items[self.below(len(items))]

    def chance(self, percent: int) -> bool:
        """True in so many of a hundred cases; False is simpler."""
        return self.below(100) >= 100 - percent

    def weighted(self, items: Sequence[tuple[int, T]]) -> T:
        """One of the items by weight."""
        at = self.below(sum(w for w, _ in items))
        for weight, item in items:
            if at < weight:
                return item
            at -= weight
        raise AssertionError("the weights add up")

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in another order."""
        rest = list(items)
        return [rest.pop(self.below(len(rest))) for _ in items]


def shrink(record: Sequence[int], fails: Callable[[Sequence[int]], bool], seconds: float = 60) -> list[int]:
    """A simpler record that still fails: spans are left out, then decisions lowered, until the time is over."""
    best, end = list(record), time.monotonic() + seconds
    size = max(1, len(best) // 2)
    while size and time.monotonic() < end:
        at, shorter = 0, False
        while at < len(best) and time.monotonic() < end:
            candidate = best[:at] + best[at + size :]
            if fails(candidate):
                best, shorter = candidate, True
            else:
                at += size
        if not shorter or size > 1:
            size //= 2
    for at in range(len(best)):
        for value in (0, best[at] // 2):
            if value < best[at] and time.monotonic() < end and fails([*best[:at], value, *best[at + 1 :]]):
                best[at] = value
                break
    return best
