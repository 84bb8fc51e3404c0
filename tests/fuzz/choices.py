"""The random decisions of a program, drawn from hypothesis, which replays and simplifies them.

    @st.composite
    def letters(draw): return Choices(draw).pick("abc")

A decision is a number below some n; 0 stands for the simplest alternative. What is repeated or nested is drawn as a group, so
that shrinking can leave out a statement whole, or put a part of an expression in the place of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


@st.composite
def _statement(draw: st.DrawFn, act: Callable[[], T]) -> T:
    """The decisions of one statement."""
    draw(st.just(None))  # hypothesis wants one draw of its own here
    return act()


@st.composite
def _expression(draw: st.DrawFn, act: Callable[[], T]) -> T:
    """The decisions of one expression."""
    draw(st.just(None))  # hypothesis wants one draw of its own here
    return act()


@dataclass(slots=True)
class Choices:
    """Decisions that `draw` makes."""

    draw: st.DrawFn

    def below(self, n: int) -> int:
        """A number from 0 to n - 1."""
        return self.draw(st.integers(0, n - 1)) if n > 1 else 0

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

    def expression(self, act: Callable[[], T]) -> T:
        """What `act` makes, its decisions in a group."""
        return self.draw(_expression(act))

    def repeat(self, least: int, most: int, percent: int, act: Callable[[], object]) -> None:
        """Does `act` from `least` to `most` times, each time with this chance to go on, each time in a group."""

        def again(count: int) -> bool:
            if count >= least and not self.chance(percent):
                return False
            act()
            return True

        for count in range(most):
            if not self.draw(_statement(partial(again, count))):
                return
