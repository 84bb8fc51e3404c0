"""Reads kernels in a second process while the first one loads what plans and writes: loading is most of a short compilation.

    reader = begin()               as early as possible: the second process loads libcst and the frontend; None where that is of no use
    module = reader.read(options)  what `driver.read_source` gives, or the CompileError that it raises; None where the process is lost

The second process is a fork of the first. It gets the options through a pipe, reads, and sends the Tile IR back. What it cannot send, such
as a fault of tilec itself, the first process reads once more, so that everything ends as it would without.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import sys
from typing import TYPE_CHECKING, NoReturn

from tilec.record import record

if TYPE_CHECKING:
    from tilec.diagnostics import Diagnostic
    from tilec.driver import Options
    from tilec.ir.kernel import Module

COMMANDS = ("compile", "check", "explain", "run")
"""Commands that read one file."""
_LATER = ("tilec.plan.planner", "tilec.emit.kernel")
"""What planning and writing begin with."""


def begin() -> Reader | None:
    """Starts the second process. A program with threads must not: it would be forked without them."""
    if sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2:
        return None
    asked, ask = os.pipe()
    heard, tell = os.pipe()
    try:
        process = os.fork()
    except OSError:  # no more processes for this user
        for end in (asked, ask, heard, tell):
            os.close(end)
        return None
    if not process:
        os.close(ask)
        os.close(heard)
        _serve(asked, tell)
    os.close(asked)
    os.close(tell)
    return Reader(process, ask, heard)


@record
class Reader:
    """The second process, and the ends of the pipes to it; it ends by itself when the first does."""

    process: int
    ask: int
    heard: int

    def read(self, options: Options) -> Module | None:
        """The kernels of a file. Loads what comes next while it waits."""
        told = b""
        with contextlib.suppress(OSError), os.fdopen(self.heard, "rb") as answer:
            with os.fdopen(self.ask, "wb") as question:
                pickle.dump(options, question)
            for name in _LATER:
                importlib.import_module(name)
            told = answer.read()
        with contextlib.suppress(OSError):
            os.waitpid(self.process, 0)
        if not told:
            return None
        from tilec.diagnostics import CompileError

        found, faults = pickle.loads(told)
        if faults:
            raise CompileError(*faults)
        module: Module = found
        return module


def _serve(asked: int, tell: int) -> NoReturn:
    """What the second process does: answers one question. It says nothing on its own, and holds none of the streams of the first."""
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        from tilec.diagnostics import CompileError
        from tilec.driver import read_source

        importlib.import_module("tilec.frontend")  # before there is a question
        with os.fdopen(asked, "rb") as question:
            options = pickle.load(question)
        answer: tuple[Module | None, tuple[Diagnostic, ...]]
        try:
            answer = read_source(options), ()
        except CompileError as fault:
            answer = None, fault.diagnostics
        with os.fdopen(tell, "wb") as out:
            out.write(pickle.dumps(answer))
    finally:
        os._exit(0)  # whatever happened: the first process sees that nothing was sent
