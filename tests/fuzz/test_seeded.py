"""The random programs find faults: each fault is planted in the generated CUDA, and one of the first programs it touches tells."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.compiling import compile_text
from tests.fuzz import checking
from tests.fuzz.checking import Depth, check
from tests.fuzz.gathering import gather
from tests.toolchain import needs_gxx

MOST_TOUCHED = 24


def _at(text: str, pattern: str, change: Callable[[re.Match[str]], str], every: bool = False) -> str:
    """The kernels of a file with a change where the pattern is found: the last place, or all."""
    start = text.index("__global__")
    found = list(re.finditer(pattern, text[start:]))
    for m in reversed(found if every else found[-1:]):
        text = text[: start + m.start()] + change(m) + text[start + m.end() :]
    return text


FAULTS: dict[str, Callable[[str], str]] = {
    "a barrier is missing": lambda t: _at(t, r"\n *__syncthreads\(\);", lambda m: "", every=True),
    "a tail mask lets one more through": lambda t: _at(t, r"(if \(.*\w) < (\d+\) \{)", lambda m: f"{m[1]} <= {m[2]}", every=True),
    "a reduction asks the wrong lane": lambda t: _at(t, r"step(\w*) \*= 2\)", lambda m: f"step{m[1]} *= 4)", every=True),
    "a wait leaves one copy more in flight": lambda t: _at(t, r"cp_async_wait<(\d+)>", lambda m: f"cp_async_wait<{int(m[1]) + 1}>", every=True),
    "an element of a row is skipped": lambda t: _at(t, r"(for \(int turn\w* = )0;", lambda m: f"{m[1]}1;", every=True),
}


@needs_gxx
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(text: str, **options: Any) -> Any:
        compiled = compile_text(text, **options)
        return dataclasses.replace(compiled, cu=FAULTS[fault](compiled.cu))

    touched = 0
    monkeypatch.setattr(checking, "compile_text", faulty)
    for p in gather(2027, 200):
        cu = compile_text(p.text(), arch=p.arch).cu
        if FAULTS[fault](cu) == cu:
            continue
        touched += 1
        found = check(p, Depth())
        if found is not None:
            assert found.kind in ("differs", "overrun", "race", "fault", "deadlock"), found
            return
        assert touched < MOST_TOUCHED, f"{touched} programs have the fault and none shows it"
    pytest.fail(f"only {touched} programs have the fault, and none shows it")
