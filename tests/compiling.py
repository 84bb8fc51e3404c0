"""Compiles kernel text in the test's own process and runs it both ways: the NumPy meaning, and the CUDA on the CPU.

    compiled = compile_text("import tilelang.language as T ...", {"M": 64})
    run_emulated(compiled, {"A": a, "C": poisoned}, "lazy")["C"]
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tilec import emulator
from tilec.driver import Compiled, Options, compile_source
from tilec.reference import run
from tilec.targets import lookup

Array = npt.NDArray[Any]
MODES = {
    "lazy": emulator.Mode(asynchrony="lazy", shared="apart", seed=1),
    "eager": emulator.Mode(asynchrony="eager", shared="real", seed=2),
}


def compile_text(text: str, defines: Mapping[str, Any] | None = None, arch: str = "sm_80", **options: Any) -> Compiled:
    """The compilation of a source text, as `tilec compile` would do it; as it would without nvcc in tests that are not about that."""
    target = lookup(arch)
    assert target is not None
    if "ptxas" not in os.environ.get("PYTEST_CURRENT_TEST", ""):
        options = {"ptxas": "never", **options}
    return compile_source(Options("kernel.py", text.encode(), target, defines=defines or {}, **options))


def run_reference(compiled: Compiled, values: Mapping[str, Any]) -> dict[str, Any]:
    """Copies of `values` after the kernel's meaning has been carried out on them."""
    out = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in values.items()}
    arrays = {k: v for k, v in out.items() if isinstance(v, np.ndarray)}
    scalars = {k: v for k, v in out.items() if not isinstance(v, np.ndarray)}
    (kernel,) = compiled.module.kernels
    run(kernel, arrays, scalars)
    return out


def run_emulated(compiled: Compiled, values: Mapping[str, Any], mode: str = "lazy", timeout_s: int = 60) -> dict[str, Any]:
    """Copies of `values` after the generated CUDA has run on the emulator."""
    out = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in values.items()}
    (plan,) = compiled.plans
    outcome = emulator.build(compiled.cu).run(f"{plan.symbol}_launch", out, MODES[mode], timeout_s)
    assert outcome.ok, f"{outcome.status}: {outcome.message}"
    return out
