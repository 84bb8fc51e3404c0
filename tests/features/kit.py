"""One kernel text, three ways of running it: its NumPy meaning, the emulator in both modes, and the caller's own formula.

    check(TEXT, {"A": a, "C": poison((64,), np.float32)}, {"C": a.sum(1)})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.compiling import MODES, compile_text, run_emulated, run_reference
from tilec.diagnostics import CompileError, Diagnostic
from tilec.driver import Compiled

HEAD = "import tilelang\nimport tilelang.language as T\n\n"


def poison(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """An array that no kernel would leave behind: NaN, or 0xA5 in every byte."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return np.full(shape, np.nan, kind)
    return np.frombuffer(b"\xa5" * int(np.prod(shape) * kind.itemsize), kind).reshape(shape).copy()


def check(
    text: str, values: Mapping[str, Any], wanted: Mapping[str, Any], tolerance: float = 0.0, reference: bool = True, **options: Any
) -> Compiled:
    """Runs the kernel each way and compares every array of `wanted`, exactly or within a relative `tolerance`."""
    compiled = compile_text(HEAD + text, **options)
    runs = {"reference": run_reference(compiled, values)} if reference else {}
    runs |= {mode: run_emulated(compiled, values, mode) for mode in MODES}
    for how, out in runs.items():
        for name, expected in wanted.items():
            if tolerance:
                np.testing.assert_allclose(out[name].astype(np.float64), expected, tolerance, tolerance, err_msg=f"{name}, {how}")
            else:
                np.testing.assert_array_equal(out[name], expected, err_msg=f"{name}, {how}")
    return compiled


def refused(text: str, **options: Any) -> Diagnostic:
    """The first error that a kernel gets."""
    with pytest.raises(CompileError) as caught:
        compile_text(HEAD + text, **options)
    return caught.value.diagnostics[0]
