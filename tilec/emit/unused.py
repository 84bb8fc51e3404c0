"""Leaves out declarations that nothing uses: nvcc warns about them, and a reader asks what they are for.

    without_unused([("const int x = 1;", "x"), ("y = 2;", None)]) -> ["y = 2;"]
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_COMMENT = re.compile(r"//[^\n]*")


def mentions(text: str, name: str) -> bool:
    """True when C text uses an identifier; comments and members of that name aside."""
    return name in text and re.search(rf"(?<!\.)\b{re.escape(name)}\b", _COMMENT.sub("", text)) is not None


def only_assigned(text: str, name: str) -> bool:
    """True when C text does nothing with a variable, or with the elements of an array, but give it values."""
    code = _COMMENT.sub("", text)
    uses = len(re.findall(rf"(?<!\.)\b{re.escape(name)}\b", code))
    return uses == len(re.findall(rf"(?m)(?:^|[;{{)])\s*{re.escape(name)}(?:\[[^;=]*\])? = (?!=)", code))


def without_unused(parts: Sequence[tuple[str, str | None]]) -> list[str]:
    """The texts of consecutive statements, declarations left out that no later one mentions.

    Each part is a text and the name it declares, or None. A variable that is only ever assigned is marked as such.
    """
    out: list[str] = []
    rest = ""
    for text, name in reversed(parts):
        if name is not None and not mentions(rest, name):
            continue
        if name is not None and text.endswith((" = {};", "];")) and only_assigned(rest, name):
            lead, _, last = text.rpartition("\n")
            text = f"{lead}\n[[maybe_unused]] {last}" if lead else f"[[maybe_unused]] {last}"
        out.append(text)
        rest = f"{text}\n{rest}"
    return out[::-1]
