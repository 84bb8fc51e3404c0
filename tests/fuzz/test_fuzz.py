"""Random programs agree with the reference: always the same ones here, `python -m tests.fuzz RUNS SEED` finds others.

TILEC_FUZZ_PROGRAMS=1000 checks more of them, TILEC_FUZZ_SEED=7 others.
"""

from __future__ import annotations

import os

import pytest

from tests.fuzz.checking import TOO_LARGE, Depth, check, check_all
from tests.fuzz.gathering import gather, smallest
from tests.fuzz.program import Program
from tests.toolchain import needs_gxx

PROGRAMS = int(os.environ.get("TILEC_FUZZ_PROGRAMS", "300"))
SEED = int(os.environ.get("TILEC_FUZZ_SEED", "2026"))
PART = 30
EXAMPLES = 3 * PART


@needs_gxx
@pytest.mark.parametrize("part", range(-(-PROGRAMS // PART)))
def test_programs_agree_with_the_reference(part: int) -> None:
    seed = SEED + part
    programs = gather(seed, EXAMPLES)[-PART:]  # the last ones, as the first of every seed are the simplest and much alike
    assert len(programs) == PART
    depth = Depth(races=part % 4 == 0, level=(2, 2, 1, 3)[part % 4])
    for p, found in zip(programs, check_all(programs, depth), strict=True):
        if found is None or found.kind == TOO_LARGE:
            continue
        kind = found.kind

        def fails(candidate: Program, kind: str = kind) -> bool:
            again = check(candidate, depth)
            return again is not None and again.kind == kind

        small = smallest(seed, EXAMPLES, p, fails, 30)
        pytest.fail(f"seed {seed}: {kind}: {found.detail}\nsmallest ({small.arch}):\n{small.text()}")


def test_shrinking_keeps_what_fails_and_leaves_the_rest_out() -> None:
    def fails(p: Program) -> bool:
        return "T.cumsum" in p.text()

    first = min((p for p in gather(5, EXAMPLES) if fails(p) and len(p.lines) > 5), key=lambda p: len(p.lines))
    small = smallest(5, EXAMPLES, first, fails, seconds=20)
    assert fails(small) and len(small.lines) < len(first.lines)
