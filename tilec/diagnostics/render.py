"""Diagnostics as text for people and as JSON for tools.

    error[TL0312]: cannot copy between tiles of different extents
      --> gemm.py:31:17
    24 |         A_s = T.alloc_shared((block_M, block_K), "float16")
       |               --------------------------------------------- A_s is 128x32
    31 |                 T.copy(A[by * block_M, ko * block_N], A_s)
       |                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ source region is 128x64
       = help: did you mean `ko * block_K`?

`text(diagnostic, lines)` writes this; `lines(file)` gives the lines of a source file, or None when it cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tilec.record import record
from tilec.diagnostics.core import NOWHERE, Diagnostic, Severity, Span

Lines = Callable[[str], Sequence[str] | None]
"""The lines of a source file by its name, or None."""

TAB = 4
WIDEST = 150
_COLOURS = {Severity.ERROR: "1;31", Severity.WARNING: "1;35", Severity.NOTE: "1;36", Severity.REMARK: "1;32"}
_QUIET = "1;34"


@record
class _Mark:
    """An underlined place: `sign` is ^ for the place of the diagnostic and - for a label."""

    span: Span
    sign: str
    text: str


def text(diagnostic: Diagnostic, lines: Lines, colour: bool = False) -> str:
    """The diagnostic with its source lines; several lines, no newline at the end."""
    head = f"{diagnostic.severity.value}[{diagnostic.code}]" if diagnostic.code else diagnostic.severity.value
    out = [f"{_paint(head, _COLOURS[diagnostic.severity], colour)}: {diagnostic.message}"]
    marks = _marks(diagnostic)
    gutter = max((len(str(m.span.line)) for m in marks), default=1)
    files = dict.fromkeys(m.span.file for m in marks)
    for i, file in enumerate(files):
        place = next(m.span for m in marks if m.span.file == file)
        out.append(f"{' ' * gutter}{_paint(':::' if i else '-->', _QUIET, colour)} {place}")
        out += _excerpt([m for m in marks if m.span.file == file], lines(file), gutter, diagnostic.severity, colour)
    bar = f"{' ' * gutter} {_paint('=', _QUIET, colour)} "
    out += [f"{bar}called from {span}" for span in diagnostic.chain]
    if diagnostic.help:
        out.append(f"{bar}help: {diagnostic.help}")
    return "\n".join(out)


def as_json(diagnostic: Diagnostic) -> dict[str, object]:
    """The diagnostic as plain data: one line of `--error-format json`."""
    return {
        "severity": diagnostic.severity.value,
        "code": diagnostic.code,
        "message": diagnostic.message,
        **_place(diagnostic.span),
        "labels": [{"text": label.text, **_place(label.span)} for label in diagnostic.labels],
        "help": diagnostic.help,
        "chain": [_place(span) for span in diagnostic.chain],
    }


def _place(span: Span) -> dict[str, object]:
    return {"file": span.file, "line": span.line, "column": span.col, "end_line": span.end_line, "end_column": span.end_col}


def _paint(what: str, colour: str, on: bool) -> str:
    return f"\x1b[{colour}m{what}\x1b[0m" if on else what


def _marks(d: Diagnostic) -> list[_Mark]:
    """The place of the diagnostic first, with the text of a label that has the same place, then the other labels."""
    if d.span == NOWHERE:
        return []
    here = "; ".join(label.text for label in d.labels if label.span == d.span)
    return [_Mark(d.span, "^", here), *(_Mark(label.span, "-", label.text) for label in d.labels if label.span not in (d.span, NOWHERE))]


def _excerpt(marks: Sequence[_Mark], lines: Sequence[str] | None, gutter: int, severity: Severity, colour: bool) -> Iterator[str]:
    """Source lines of one file in order, each with the marks below it."""
    previous = 0
    for number in sorted({m.span.line for m in marks}):
        if lines is None or not 0 < number <= len(lines):
            continue
        if previous and number > previous + 1:
            yield f"{'...':<{gutter + 2}}".rstrip()
        previous = number
        source = lines[number - 1]
        here = sorted((m for m in marks if m.span.line == number), key=lambda m: (m.span.col, m.sign))
        first, last = _window(source, here)
        bar = _paint("|", _QUIET, colour)
        yield f"{_paint(f'{number:>{gutter}}', _QUIET, colour)} {bar} {_shown(source, first, last)}".rstrip()
        for m in here:
            line = _underline(source, m, first, last)
            tint = _COLOURS[severity] if m.sign == "^" else _QUIET
            yield f"{' ' * gutter} {bar} {line[0]}{_paint(line[1] + (f' {m.text}' if m.text else ''), tint, colour)}"


def _window(source: str, marks: Sequence[_Mark]) -> tuple[int, int]:
    """The part of a line to show, as character indices: all of it, unless the line is very long."""
    if len(source) <= WIDEST:
        return 0, len(source)
    focus = min(max(0, marks[0].span.col - 1), len(source))
    first = max(0, min(focus - WIDEST // 3, len(source) - WIDEST))
    return first, first + WIDEST


def _shown(source: str, first: int, last: int) -> str:
    """The characters of a line from `first` to `last`; tabs as blanks, what does not print as a dot, cuts as an ellipsis."""
    body = "".join(_glyph(c) for c in source[first:last])
    return f"{'…' if first else ''}{body}{'…' if last < len(source) else ''}"


def _glyph(c: str) -> str:
    return " " * TAB if c == "\t" else c if c.isprintable() else "·"


def _underline(source: str, m: _Mark, first: int, last: int) -> tuple[str, str]:
    """Blanks up to a mark, and the mark; a span of several lines is marked to the end of its first."""
    start = min(max(m.span.col - 1, first), last)
    stop = len(source.rstrip()) if m.span.end_line > m.span.line else m.span.end_col - 1
    stop = min(max(stop, start + 1), max(last, start + 1))
    before = _width(source[first:start]) + (1 if first else 0)
    return " " * before, m.sign * max(1, _width(source[start:stop]) if stop <= len(source) else 1)


def _width(part: str) -> int:
    """Columns that a terminal takes for some text."""
    if part.isascii():
        return sum(TAB if c == "\t" else 1 for c in part)
    import unicodedata  # only lines that are not ASCII pay for the tables

    total = 0
    for c in part:
        if c == "\t":
            total += TAB
        elif c.isprintable() and unicodedata.combining(c):
            continue
        else:
            total += 2 if unicodedata.east_asian_width(c) in "WF" else 1
    return total
