"""Leaves out declarations that nothing uses: nvcc warns about them, and a reader asks what they are for.

    without_unused([("const int x = 1;", "x"), ("y = 2;", None)]) -> ["y = 2;"]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_ASSIGNED = re.compile(r"(?:\[[^;=]*\])? = (?!=)")


def _uses(text: str, name: str) -> Iterator[int]:
    """Where C text uses an identifier; comments and members of that name aside."""
    at = text.find(name)
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(name) : at + len(name) + 1]
        alone = not (before.isalnum() or before in ("_", ".") or after.isalnum() or after == "_")
        if alone and "//" not in text[text.rfind("\n", 0, at) + 1 : at]:
            yield at
        at = text.find(name, at + len(name))


def mentions(text: str, name: str) -> bool:
    """True when C text uses an identifier; comments and members of that name aside."""
    return any(True for _ in _uses(text, name))


def only_assigned(text: str, name: str) -> bool:
    """True when C text does nothing with a variable, or with the elements of an array, but give it values."""
    return all(_ASSIGNED.match(text, at + len(name)) and _begins(text, at) for at in _uses(text, name))


def _begins(text: str, at: int) -> bool:
    """True when a statement begins there."""
    line = text[text.rfind("\n", 0, at) + 1 : at].rstrip()
    return not line or line[-1] in ";{)"


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
