"""The map at the end of docs/architecture.md: every module in the first words of its own docstring.

    python tests/docs/module_map.py        writes it anew
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
HEADING = "## Every module\n"
ROOMS = (
    "", "diagnostics", "ir", "targets", "layout", "analysis", "language", "frontend", "plan", "plan/by_hand", "plan/hopper", "emit",
    "emit/hopper", "reference", "emulator", "runtime", "runtime/bench", "runtime/tune",
)  # fmt: skip


def said(module: Path) -> str:
    """The first sentence of a module's docstring."""
    text = " ".join((ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or "").split("\n\n")[0].split())
    return text.removesuffix(".")


def lines() -> Iterator[str]:
    """The map."""
    package = ROOT / "tilec"
    for room in ROOMS:
        yield f"\n**{room or 'tilec'}**\n\n| module | |\n| --- | --- |\n"
        for module in sorted((package / room).glob("*.py")):
            if module.name not in ("__init__.py", "version.py"):
                yield f"| `{module.stem}` | {said(module).replace('|', chr(92) + '|')} |\n"


def page() -> str:
    """The page with the map as it should be."""
    before, _, _ = PAGE.read_text(encoding="utf-8").partition(HEADING)
    return before.rstrip("\n") + "\n\n" + HEADING + "".join(lines())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
