"""The samples by topic: compiled for Ampere and for Hopper, run on the emulator, held against NumPy in two ways.

The judges are the reference (which has the kernel's own meaning) and a formula at float64 that knows nothing of the kernel.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.clean import assert_clean
from tests.compiling import MODES, Array, compile_text, run_emulated, run_reference
from tests.samples.cases import CASES, Case
from tests.samples.kit import pack
from tests.samples.low_precision import LOW
from tests.toolchain import needs_gxx

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
FOLDERS = ("by_hand", "elementwise", "products", "rows", "scans")
TOPICS = sorted(str(p.relative_to(SAMPLES).with_suffix("")) for folder in FOLDERS for p in (SAMPLES / folder).glob("*.py"))
POISON = 99
ALL = {**CASES, **LOW}


def test_every_sample_has_a_formula() -> None:
    assert set(TOPICS) == set(ALL)


def arguments(case: Case) -> tuple[dict[str, Array], dict[str, Any]]:
    """Fresh inputs, and all arguments with the results poisoned."""
    rng = np.random.default_rng(int.from_bytes(os.urandom(4), "little"))
    inputs = case.inputs(rng)
    return inputs, {**inputs, **{n: np.full(shape, POISON, dtype) for n, (dtype, shape) in case.outputs.items()}}


def check(what: str, got: dict[str, Any], want: dict[str, Array], tolerance: float) -> None:
    """Results within `tolerance` of the larger of 1 and what was expected."""
    for name, expected in want.items():
        here, there = got[name].astype(np.float64), np.asarray(expected, np.float64)
        assert here.shape == there.shape
        worst = float((np.abs(here - there) / np.maximum(1, np.abs(there))).max())
        assert worst <= tolerance, f"{what}, {name}: off by {worst:.3g}"


@needs_gxx
@pytest.mark.parametrize("name", TOPICS)
def test_the_numbers(name: str) -> None:
    case = ALL[name]
    inputs, values = arguments(case)
    want = case.expected(**{n: a.astype(np.float64) for n, a in inputs.items()})
    text = (SAMPLES / f"{name}.py").read_text()
    portable = ""
    for arch in ("sm_80", "sm_90a"):
        compiled = compile_text(text, case.defines, arch)
        assert not re.search(r"\{\n *\}", compiled.cu), "a block with nothing in it"
        if folder := os.environ.get("TILEC_CASES"):
            pack(Path(folder), f"{name.replace('/', '_')}_{arch}", compiled, values, want, case.tolerance)
            continue
        if arch == "sm_90a":
            assert_clean(compiled, arch)
        if not portable:
            reference = run_reference(compiled, values)
            check("reference", reference, want, case.tolerance)
            portable = compiled.cu
        elif "mbarrier" not in compiled.cu and portable.count("\n") == compiled.cu.count("\n"):
            continue  # the same body again
        for mode in MODES:
            got = run_emulated(compiled, values, mode)
            check(f"{arch} {mode}", got, want, case.tolerance)
            check(f"{arch} {mode} and reference", got, {n: reference[n] for n in want}, case.tolerance)
