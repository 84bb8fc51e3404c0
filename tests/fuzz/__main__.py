"""A long run: `python -m tests.fuzz RUNS SEED [FOLDER]` checks the programs of many seeds and shrinks what fails.

Each of the RUNS seeds gives some hundred programs. FOLDER holds one line of JSON for each seed that is done, so that the run
goes on where it was left, and the hashes of the programs that were checked, so that none counts twice;
`python -m tests.fuzz --summary FOLDER...` adds several folders up.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

from tests.fuzz.recording import Record, summary


def main(arguments: list[str]) -> int:
    """Runs or sums up; 1 if a program failed."""
    if arguments[:1] == ["--summary"]:
        print(summary([Path(name) for name in arguments[1:]]))
        return 0
    runs, seed = (int(text) for text in (arguments + ["4", "0"][len(arguments) :])[:2])
    record = Record(Path(arguments[2]) if len(arguments) > 2 else None)
    gc.freeze()
    gc.set_threshold(50_000)  # many small objects, few of them garbage in cycles
    for number in range(seed, seed + runs):
        record.check_seed(number)
    print(record.told())
    return int(record.failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
