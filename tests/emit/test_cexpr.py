"""Expressions as C: compiled by g++ with the host twin of the prelude and compared with NumPy over edge values."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.emit.cexpr_cases import FAMILIES, STORED, Case, complaint
from tilec.emit.cexpr import ctype

TEMPLATES = Path(__file__).parents[2] / "templates"
GXX = (
    "g++ -std=c++20 -O1 -ffp-contract=off -Wall -Wno-unused-function -Wno-bool-operation -Wno-tautological-compare -Werror -shared -fPIC "
    "-fsanitize=undefined -fno-sanitize-recover -static-libubsan"
).split()
"""Undefined behaviour ends the run: what may overflow must have been written some other way."""


def run(cases: list[Case], folder: Path) -> list[np.ndarray]:
    """Compiles one function a case into one library and runs all of them."""
    lines = [f'#include "{TEMPLATES / "emulator" / "numeric.h"}"', 'extern "C" {']
    for n, case in enumerate(cases):
        parameters = ", ".join(f"const {ctype(STORED[a.dtype])}* {name}" for name, a in case.inputs.items())
        lines.append(f"void f{n}({parameters}, {ctype(case.expr.dtype)}* out, int count) {{")
        lines.append(f"  for (int i = 0; i < count; ++i) out[i] = {case.text};\n}}")
    source, library = folder / "cases.cpp", folder / "cases.so"
    source.write_text("\n".join([*lines, "}"]))
    subprocess.run([*GXX, str(source), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))
    results = []
    for n, case in enumerate(cases):
        out = np.frombuffer(b"\xa5" * case.expected.nbytes, case.expected.dtype).copy()
        inputs = [np.ascontiguousarray(a) for a in case.inputs.values()]
        getattr(loaded, f"f{n}")(*(a.ctypes.data_as(ctypes.c_void_p) for a in (*inputs, out)), out.size)
        results.append(out)
    return results


@pytest.mark.parametrize("family", FAMILIES)
def test_agrees_with_numpy(family: str, tmp_path: Path, require_tool: Callable[[str], str]) -> None:
    require_tool("g++")
    cases = FAMILIES[family]()
    wrong = [text for case, got in zip(cases, run(cases, tmp_path), strict=True) if (text := complaint(case, got))]
    assert wrong == []
