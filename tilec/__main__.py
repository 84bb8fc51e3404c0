"""`python -m tilec` and the `tilec` command: the way in, and the last line of defence against a bare traceback.

    python -m tilec compile gemm.py -o gemm.cu
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

OK, FAULT_IN_INPUT, INTERNAL = 0, 1, 70
"""Exit codes; a command also ends with 2 for wrong usage and 3 for something that the machine lacks."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; the result is its exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args in (["--version"], ["-V"]):
        from tilec.version import __version__

        print(f"tilec {__version__}")
        return OK
    if args in (["--make-include"], ["--cmake-dir"]):
        print(shipped(args[0]))
        return OK
    gc.set_threshold(50_000)  # start-up makes many objects that live to the end: looking for dead ones costs 4 % of it
    try:
        from tilec import cli

        return cli.run(args)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read the output has gone; nothing is left to tell
        return FAULT_IN_INPUT
    except KeyboardInterrupt:
        return 130
    except Exception as fault:
        from tilec.fault import report

        print(report(fault, args), file=sys.stderr)
        return INTERNAL


def shipped(option: str) -> str:
    """Where the files for make and CMake lie; for make, as its include directive reads a name."""
    from pathlib import Path

    here = Path(__file__).resolve().parent
    return str(here / "cmake") if option == "--cmake-dir" else str(here / "make" / "tilec.mk").replace(" ", "\\ ")


if __name__ == "__main__":
    sys.exit(main())
