"""Every code that tilec can raise is explained, and nothing else is."""

import re
from pathlib import Path

import tilec
from tilec.diagnostics.codes import CODES

PACKAGE = Path(tilec.__file__).parent


def test_every_code_is_explained_and_every_explanation_is_needed() -> None:
    used = {c for p in PACKAGE.rglob("*.py") if p.name != "codes.py" for c in re.findall(r'"(TL\d{4})"', p.read_text())}
    assert used - CODES.keys() == set()
    assert CODES.keys() - used == set()


def test_explanations_are_sentences() -> None:
    for code, text in CODES.items():
        assert re.fullmatch(r"TL0[1-59]\d\d", code) and text.endswith((".", "`.")) and len(text) > 20, code
