"""`python -m tilec` and the `tilec` command: the way in, and the last line of defence against a bare traceback.

    python -m tilec compile gemm.py -o gemm.cu
"""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path

OK, FAULT_IN_INPUT, LACKING, INTERNAL = 0, 1, 3, 70
"""Exit codes; 3 is for something that the machine lacks. A command also ends with 2 for wrong usage."""

_OF_THE_CPU = ("numpy", "ml_dtypes")
"""Packages that running a kernel takes and compiling one does not."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; the result is its exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    if sys.stderr is None:  # closed by the caller (`2>&-`): there is nobody to tell, and that is no fault
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    gc.set_threshold(200_000)  # start-up makes many objects that live to the end: looking for dead ones costs 4 % of it
    if argv is None:  # a process of its own, which looks through all of them once more when it ends: 10 % of its time
        atexit.register(gc.freeze)
    try:
        code = _command(args, alone=argv is None)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        sys.stderr.close()  # whoever read the output has gone; nothing is left to tell
        return FAULT_IN_INPUT
    except KeyboardInterrupt:
        return 130
    except MemoryError as fault:
        print(f"error: not enough memory: {fault or 'nothing is left'}", file=sys.stderr)
        return LACKING
    except Exception as fault:
        if isinstance(fault, OSError) and fault.errno in (errno.ENOSPC, errno.EIO, errno.EDQUOT) and fault.filename is None:
            print(f"error: cannot write the output: {fault.strerror}", file=sys.stderr)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still buffered must not fail again at the exit
            return FAULT_IN_INPUT
        if isinstance(fault, FileNotFoundError) and not _folder_exists():
            print("error: the current folder does not exist any more", file=sys.stderr)
            return FAULT_IN_INPUT
        if isinstance(fault, ModuleNotFoundError) and fault.name in _OF_THE_CPU:
            print(f"error: {fault.name} is not here: pip install 'tilec[cpu]'", file=sys.stderr)
            return LACKING
        from tilec.fault import report

        print(report(fault, args), file=sys.stderr)
        return INTERNAL


def _folder_exists() -> bool:
    try:
        return bool(Path.cwd())
    except FileNotFoundError:
        return False


def _command(args: list[str], alone: bool) -> int:
    """Runs a command; `alone`, without anything else in this process."""
    if args in (["--version"], ["-V"]):
        from tilec.version import __version__

        print(f"tilec {__version__}")
        return OK
    if args in (["--make-include"], ["--cmake-dir"]):
        print(shipped(args[0]))
        return OK
    from tilec import aside

    reader = aside.begin() if alone and args and args[0] in aside.COMMANDS else None
    from tilec import cli

    return cli.run(args, reader)


def shipped(option: str) -> str:
    """Where the files for make and CMake lie; for make, as its include directive reads a name."""
    here = Path(__file__).resolve().parent
    return str(here / "cmake") if option == "--cmake-dir" else str(here / "make" / "tilec.mk").replace(" ", "\\ ")


if __name__ == "__main__":
    sys.exit(main())
