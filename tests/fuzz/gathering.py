"""Programs from hypothesis: many different ones of a seed to check together, and the smallest one of a seed that fails.

    programs = gather(seed=7, examples=100);  smallest(7, 100, first=programs[3], fails=lambda p: check(p) is not None)
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable

from hypothesis import HealthCheck, Phase, given
from hypothesis import seed as seeded
from hypothesis import settings
from hypothesis import strategies as st

from tests.fuzz.choices import Choices
from tests.fuzz.program import Program
from tests.fuzz.statements import generate

MOST_STATEMENTS = 10
_NUMBER = re.compile(r"\d+")


@st.composite
def programs(draw: st.DrawFn, most: int = MOST_STATEMENTS) -> Program:
    """Random programs of up to so many statements."""
    return generate(Choices(draw), most)


def _explore(seed: int, examples: int, phases: tuple[Phase, ...], test: Callable[[Program], None]) -> None:
    """Runs a property of programs under hypothesis; the same seed draws the same programs as long as none fails."""
    limits = settings(max_examples=examples, phases=phases, database=None, deadline=None, suppress_health_check=list(HealthCheck), print_blob=False)
    seeded(seed)(limits(given(programs())(test)))()


def gather(seed: int, examples: int) -> list[Program]:
    """The different programs among so many examples of a seed, in the order in which hypothesis draws them.

    Those that only differ in numbers, of which hypothesis likes to draw many, count as one.
    """
    found: dict[str, Program] = {}

    def keep(p: Program) -> None:
        found.setdefault(_NUMBER.sub("0", p.text()), p)

    _explore(seed, examples, (Phase.generate,), keep)
    return list(found.values())


class _Enough(KeyboardInterrupt):
    """Ends hypothesis, which has no limit for the time that shrinking takes."""


def smallest(seed: int, examples: int, first: Program, fails: Callable[[Program], bool], seconds: float = 60) -> Program:
    """The simplest program that shrinking finds within so many seconds from `first`, which is among the examples and fails."""
    verdicts: dict[str, bool] = {first.text(): True}
    failing: list[Program] = []
    end = time.monotonic() + seconds

    def test(p: Program) -> None:
        if time.monotonic() > end:
            raise _Enough
        text = p.text()
        if text not in verdicts:
            verdicts[text] = bool(failing) and fails(p)
        if verdicts[text]:
            failing.append(p)
            raise AssertionError

    with contextlib.suppress(AssertionError, _Enough):
        _explore(seed, examples, (Phase.generate, Phase.shrink), test)
    return failing[-1] if failing else first
