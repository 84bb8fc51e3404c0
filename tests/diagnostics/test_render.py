"""How diagnostics read: places, carets under the right characters, labels, chains; and that tools can parse the JSON."""

import json

import pytest

from tilec.diagnostics import NOWHERE, Diagnostic, Label, Severity, Span
from tilec.diagnostics.render import as_json, text


def at(line: int, col: int, end: int, file: str = "k.py", end_line: int = 0) -> Span:
    return Span(file, line, col, end_line or line, end)


def lines_of(**files: list[str]):
    return lambda name: files.get(name.removesuffix(".py"))


def test_the_form_of_a_full_diagnostic() -> None:
    source = ["a = 1"] * 23 + ['        A_s = T.alloc_shared((block_M, block_K), "float16")'] + [""] * 6 + ["                T.copy(A[by * block_M, ko * block_N], A_s)"]
    d = Diagnostic(
        Severity.ERROR, "TL0312", "cannot copy between tiles of different extents", at(31, 17, 59),
        (Label(at(24, 15, 60), "A_s is 128x32"), Label(at(31, 17, 59), "source region is 128x64")), "did you mean `ko * block_K`?", (at(40, 9, 20),),
    )  # fmt: skip
    assert text(d, lines_of(k=source)) == "\n".join([
        "error[TL0312]: cannot copy between tiles of different extents",
        "  --> k.py:31:17",
        '24 |         A_s = T.alloc_shared((block_M, block_K), "float16")',
        "   |               " + "-" * 45 + " A_s is 128x32",
        "...",
        "31 |                 T.copy(A[by * block_M, ko * block_N], A_s)",
        "   |                 " + "^" * 42 + " source region is 128x64",
        "   = called from k.py:40:9",
        "   = help: did you mean `ko * block_K`?",
    ])  # fmt: skip


@pytest.mark.parametrize(("source", "col", "end", "before", "marked"), [
    ("\tx = bad(1)", 6, 9, 4 + 4, 3),          # a tab is four columns
    ("行列 = bad", 6, 9, 4 + 3, 3),             # wide characters are two
    ("é = bad", 5, 8, 4, 3),
    ("e\u0301 = bad", 6, 9, 4, 3),              # a combining mark takes no room
    ("x = bad", 5, 8, 4, 3),
])  # fmt: skip
def test_carets_stand_under_their_text(source: str, col: int, end: int, before: int, marked: int) -> None:
    shown = text(Diagnostic(Severity.ERROR, "TL0101", "m", at(1, col, end)), lines_of(k=[source])).split("\n")
    caret = shown[3].removeprefix("  | ")
    assert (len(caret) - len(caret.lstrip(" ")), caret.count("^")) == (before, marked)


def test_a_span_of_several_lines_is_marked_to_the_end_of_its_first() -> None:
    shown = text(Diagnostic(Severity.ERROR, "TL0101", "m", at(1, 5, 2, end_line=3)), lines_of(k=["x = f(1,  ", "  2", ")"]))
    assert shown.split("\n")[3] == "  |     ^^^^"


def test_labels_in_other_files_get_their_own_excerpt() -> None:
    d = Diagnostic(Severity.WARNING, "TL0300", "m", at(1, 1, 2), (Label(at(2, 1, 4, "h.py"), "defined here"),))
    shown = text(d, lines_of(k=["x"], h=["", "def f"]))
    assert " ::: h.py:2:1" in shown.replace(" :::", " :::") and "2 | def f" in shown and "--- defined here" in shown
    assert shown.startswith("warning[TL0300]: m")


@pytest.mark.parametrize("place", [at(9, 1, 2), at(1, 500, 501), at(1, 0, 0), at(0, 0, 0)])
def test_places_outside_of_the_file_do_no_harm(place: Span) -> None:
    shown = text(Diagnostic(Severity.ERROR, "TL0101", "m", place), lines_of(k=["short"]))
    assert shown.split("\n")[0] == "error[TL0101]: m" and f"k.py:{place.line}:{place.col}" in shown


def test_a_file_that_cannot_be_read_leaves_its_place() -> None:
    assert text(Diagnostic(Severity.ERROR, "TL0101", "m", at(3, 4, 5)), lambda name: None).split("\n")[1:] == [" --> k.py:3:4"]


def test_no_place_at_all() -> None:
    assert text(Diagnostic(Severity.NOTE, "TL0001", "m", NOWHERE, help="h"), lambda name: None) == "note[TL0001]: m\n  = help: h"


def test_very_long_lines_are_cut_around_the_place() -> None:
    line = "x" * 5000 + "BAD" + "y" * 5000
    shown = text(Diagnostic(Severity.ERROR, "TL0101", "m", at(1, 5001, 5004)), lines_of(k=[line])).split("\n")
    assert max(map(len, shown)) < 200
    source, caret = shown[2].removeprefix("1 | "), shown[3].removeprefix("  | ")
    assert source[caret.index("^") : caret.rindex("^") + 1] == "BAD"


def test_control_characters_never_reach_the_terminal() -> None:
    shown = text(Diagnostic(Severity.ERROR, "TL0101", "m", at(1, 1, 2)), lines_of(k=["\x1b[31mred\x07"]))
    assert "\x1b" not in shown and "\x07" not in shown


def test_colour_only_on_request() -> None:
    d = Diagnostic(Severity.ERROR, "TL0101", "m", at(1, 1, 2), help="h")
    assert "\x1b[" in text(d, lines_of(k=["x"]), colour=True) and "\x1b[" not in text(d, lines_of(k=["x"]))


def test_json_holds_everything() -> None:
    d = Diagnostic(Severity.ERROR, "TL0312", "m", at(3, 4, 9), (Label(at(1, 2, 3), "fact"),), "do", (at(7, 8, 9),))
    data = json.loads(json.dumps(as_json(d)))
    assert (data["severity"], data["code"], data["message"], data["help"]) == ("error", "TL0312", "m", "do")
    assert (data["file"], data["line"], data["column"], data["end_line"], data["end_column"]) == ("k.py", 3, 4, 3, 9)
    assert data["labels"][0]["text"] == "fact" and data["labels"][0]["line"] == 1 and data["chain"][0]["column"] == 8
