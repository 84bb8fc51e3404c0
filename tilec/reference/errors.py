"""What can go wrong when a kernel is interpreted.

    MeaningError("A_s[128, 0] is outside of 128x32", span)     the kernel does something that has no meaning
"""

from __future__ import annotations

from tilec.diagnostics import NOWHERE, Span


class MeaningError(Exception):
    """The kernel does something without a defined meaning, such as reading a shared tile out of its range."""

    def __init__(self, message: str, span: Span = NOWHERE) -> None:
        super().__init__(f"{span}: {message}" if span is not NOWHERE else message)
        self.message = message
        self.span = span


class TrapError(MeaningError):
    """A Trap statement whose condition was false was reached: the kernel stops itself."""


class InputError(ValueError):
    """The arrays or scalars handed in do not fit the kernel's parameters."""
