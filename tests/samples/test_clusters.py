"""The samples that need clusters of blocks: held against NumPy at float64 and against their own meaning, and taken by nvcc."""

from typing import Any

import numpy as np
import pytest

from tests.clean import assert_clean
from tests.compiling import run_emulated, run_reference
from tests.samples.kit import compile_sample, fresh, half
from tests.toolchain import needs_gxx, needs_nvcc


@needs_gxx
@pytest.mark.parametrize("defines", [{"M": 3, "N": 4096}, {"M": 2, "N": 4096, "blocks": 8, "threads": 128}, {"M": 3, "N": 2048, "blocks": 2}], ids=str)
def test_softmax_of_long_rows(defines: dict[str, Any]) -> None:
    x = half(fresh().standard_normal((defines["M"], defines["N"])) * 3)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    compiled = compile_sample("clusters/softmax.py", defines, "sm_90")
    values = {"X": x, "Y": np.full_like(x, np.nan)}
    for out in (run_reference(compiled, values), run_emulated(compiled, values, "lazy"), run_emulated(compiled, values, "eager")):
        assert np.abs(out["Y"] - e / e.sum(1, keepdims=True)).max() <= 1e-3


@needs_nvcc
def test_nvcc_takes_them() -> None:
    for name, arch in (("softmax", "sm_90"), ("gemm", "sm_90a")):
        assert_clean(compile_sample(f"clusters/{name}.py", {}, arch), arch)


@needs_gxx
@pytest.mark.parametrize("arch", ["sm_90", "sm_90a"])
def test_gemm_in_pairs(arch: str) -> None:
    defines = {"M": 512, "N": 256, "K": 128, "block_N": 128}
    compiled = compile_sample("clusters/gemm.py", defines, arch)
    assert ("multicast" in compiled.cu) == (arch == "sm_90a")
    a, b = (half(fresh().integers(-3, 4, s)) for s in ((512, 128), (128, 256)))
    values = {"A": a, "B": b, "C": half(np.full((512, 256), np.nan))}
    for out in (run_reference(compiled, values), run_emulated(compiled, values, "lazy"), run_emulated(compiled, values, "eager")):
        np.testing.assert_array_equal(out["C"], half(a.astype(np.float64) @ b.astype(np.float64)))
