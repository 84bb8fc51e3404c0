"""Places in a source file and what there is to say about them.

Diagnostics are values: the rooms of the compiler create them, `tilec.diagnostics.render` turns them into text or JSON.

    Diagnostic(Severity.ERROR, "TL0101", "unknown name `T.cpoy`", span, help="did you mean `T.copy`?")
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tilec.record import record


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A range of a source file: 1-based lines, 1-based columns, `end_col` is exclusive. `file` is as the user spelled it."""

    file: str
    line: int
    col: int
    end_line: int
    end_col: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.col}"


NOWHERE = Span("<none>", 0, 0, 0, 0)


class Severity(Enum):
    """How much a diagnostic matters: an error stops the compilation, the others do not."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
    REMARK = "remark"


@record
class Label:
    """A second place with the fact that it contributes, such as `A_s is 128x32`."""

    span: Span
    text: str


@record
class Diagnostic:
    """One thing to tell: what (`message`), where (`span`), the facts in conflict (`labels`), one thing to do (`help`).

    `chain` holds the call sites, innermost first, when the place lies in an inlined helper or macro.
    """

    severity: Severity
    code: str
    message: str
    span: Span
    labels: tuple[Label, ...] = ()
    help: str = ""
    chain: tuple[Span, ...] = ()


class CompileError(Exception):
    """Raised by any room of the compiler when the input is at fault; carries one or more error diagnostics."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__("; ".join(f"{d.span}: {d.code}: {d.message}" for d in diagnostics))
        self.diagnostics = diagnostics


def error(code: str, message: str, span: Span, *labels: Label, help: str = "", chain: tuple[Span, ...] = ()) -> CompileError:
    """A `CompileError` with one error diagnostic; the caller raises it."""
    return CompileError(Diagnostic(Severity.ERROR, code, message, span, labels, help, chain))


def note(code: str, message: str, span: Span, help: str = "") -> Diagnostic:
    """A note: something the compiler decided or inferred that the author may want to know."""
    return Diagnostic(Severity.NOTE, code, message, span, help=help)
