"""Random programs agree with the reference: always the same ones here, `python -m tests.fuzz N SEED` finds others.

TILEC_FUZZ_PROGRAMS=1000 checks more of them.
"""

from __future__ import annotations

import os

import pytest

from tests.fuzz.checking import REFUSED, check, program, replay
from tests.fuzz.choices import Choices, shrink
from tests.toolchain import needs_gxx

PROGRAMS = int(os.environ.get("TILEC_FUZZ_PROGRAMS", "96"))
BATCH = 8
MOST_STATEMENTS = 6


@needs_gxx
@pytest.mark.parametrize("first", range(0, PROGRAMS, BATCH))
def test_programs_agree_with_the_reference(first: int) -> None:
    for number in range(first, min(first + BATCH, PROGRAMS)):
        p = program(2026, number, MOST_STATEMENTS)
        found = check(p, number, races=number % 4 == 0)
        if found is None:
            continue
        kind = found.kind

        def fails(record: list[int], number: int = number, kind: str = kind) -> bool:
            again = check(replay(record, MOST_STATEMENTS), number, races=kind == "race")
            return again is not None and again.kind == kind

        small = replay(shrink(p.choices.taken, fails, 0 if kind == REFUSED else 30), MOST_STATEMENTS)
        pytest.fail(f"program {number}: {found.kind}: {found.detail}\nsmallest ({small.arch}):\n{small.text()}")


def test_a_record_gives_the_program_again() -> None:
    for number in range(20):
        p = program(1, number)
        assert replay(p.choices.taken).text() == p.text()


def test_shrinking_keeps_what_fails() -> None:
    def fails(record: list[int]) -> bool:
        return sum(Choices.replay(record).below(10) for _ in range(1)) + len(record) >= 5 and 7 in record

    small = shrink([3, 1, 4, 7, 5, 9, 2, 6], fails)
    assert fails(small) and len(small) <= 5
