"""A long run: `python -m tests.fuzz N SEED [FIRST]` checks N programs, shrinks what fails and sums up."""

from __future__ import annotations

import sys
import time
import traceback
from collections import Counter

from tests.fuzz.checking import REFUSED, check, program, replay
from tests.fuzz.choices import shrink


def main(count: int, seed: int, first: int = 0, shrink_s: float = 60) -> int:
    """Prints every finding with its smallest program; the number of programs that failed."""
    tally: Counter[str] = Counter()
    began = time.monotonic()
    for number in range(first, first + count):
        try:
            p = program(seed, number)
        except Exception:
            print(f"# the generator fails at {seed}/{number}:\n{traceback.format_exc()}", flush=True)
            tally["generator"] += 1
            continue
        found = check(p, number, races=number % 3 == 0, nvrtc=number % 8 == 0)
        tally[found.kind if found else "agree"] += 1
        if number % 50 == 49:
            print(f"# up to {seed}/{number}: {dict(tally)}", flush=True)
        if found is None:
            continue
        print(f"\n===== {seed}/{number} {found.kind}: {found.detail}", flush=True)
        if found.kind == REFUSED:
            continue
        record, _detail = p.choices.taken, found.detail[:50] if found.kind == "internal" else ""

        def fails(candidate: list[int], kind: str = found.kind, number: int = number) -> bool:
            again = check(replay(candidate), number, races=kind == "race", nvrtc=kind == "nvrtc")
            return again is not None and again.kind == kind

        small = replay(shrink(record, fails, shrink_s))
        print(f"--- smallest ({small.arch}), {check(small, number, races=True)}\n{small.text()}", flush=True)
    print(f"{count} programs of seed {seed} in {time.monotonic() - began:.0f} s: {dict(tally)}", flush=True)
    return sum(n for kind, n in tally.items() if kind not in ("agree", REFUSED))


if __name__ == "__main__":
    arguments = [int(a) for a in sys.argv[1:]]
    sys.exit(main(*(arguments or [100])[:1], *(arguments[1:] or [0])) > 0)
