"""What a person sees while a command takes long: one line on standard error, rewritten on a terminal, rare in a log.

    progress = Progress(sys.stderr, quiet=False);  progress.tell("12 of 40");  progress.done()
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

_LOG_SECONDS = 5.0


@dataclass(slots=True)
class Progress:
    """Tells at once on a terminal; elsewhere every five seconds, so that what is short says nothing; never when `quiet`."""

    out: TextIO
    quiet: bool = False
    clock: Callable[[], float] = time.monotonic
    _told: float = field(init=False)
    _shown: bool = False

    def __post_init__(self) -> None:
        self._told = self.clock()

    def tell(self, text: str) -> None:
        """Shows what is going on now."""
        if self.quiet:
            return
        if self.out.isatty():
            self.out.write(f"\r\x1b[K{text[:110]}")
            self._shown = True
        elif self.clock() - self._told >= _LOG_SECONDS:
            self._told = self.clock()
            self.out.write(f"{text}\n")
        self.out.flush()

    def done(self) -> None:
        """Takes the line away."""
        if self._shown:
            self.out.write("\r\x1b[K")
            self.out.flush()
            self._shown = False
