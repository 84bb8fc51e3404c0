"""Normalisations of rows that are hard on their sums: far from zero, with outliers, constant."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import run_emulated, run_reference
from tests.samples.kit import compile_sample, fresh, half
from tests.toolchain import needs_gxx

N, DEFINES = 4096, {"M": 6, "N": 4096, "held": 1024, "threads": 64}


@needs_gxx
@pytest.mark.parametrize(("sample", "defines"), [("rows/layer_norm_long.py", DEFINES), ("rows/layer_norm.py", {"M": 6, "N": N})])
def test_layer_norm_of_rows_far_from_zero(sample: str, defines: dict[str, int]) -> None:
    rng = fresh()
    x = rng.standard_normal((6, N))
    x[1] += 1000
    x[2] = x[2] * 30 - 20000
    x[3, :32] += 1000  # where the pivot comes from, and nothing else is like it
    x[4, 0] = 60000
    x[5] = 7
    x, gain, bias = half(x), half(rng.standard_normal(N)), half(rng.standard_normal(N))
    exact = x.astype(np.float64)
    centred = exact - exact.mean(1, keepdims=True)
    want = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * gain.astype(np.float64) + bias.astype(np.float64)
    compiled = compile_sample(sample, defines, "sm_80")
    values = {"X": x, "gain": gain, "bias": bias, "Y": np.full_like(x, np.nan)}
    for out in (run_reference(compiled, values), run_emulated(compiled, values, "lazy"), run_emulated(compiled, values, "eager")):
        error = np.linalg.norm(out["Y"] - want, axis=1) / np.linalg.norm(want, axis=1)
        assert np.all(error <= 6e-4), error
