"""Scalar parameters of 16 bits travel as their bits, under the author's name."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.compiling import compile_text, run_emulated, run_reference
from tests.toolchain import needs_gxx

TEXT = """
import tilelang.language as T
@T.prim_func
def scaled(X: T.Tensor((32,), "float32"), h: T.{dtype}, Y: T.Tensor((32,), "float32")):
    with T.Kernel(1, threads=32):
        for i in T.Parallel(32):
            Y[i] = X[i] * T.cast(h, "float32")
"""


@needs_gxx
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_scalar(dtype: str) -> None:
    compiled = compile_text(TEXT.format(dtype=dtype))
    assert re.search(r"scaled\(const float\* __restrict__ X, unsigned short h, float\* __restrict__ Y\)", compiled.cu)
    values = {"X": np.arange(32, dtype=np.float32), "h": 0.625, "Y": np.full(32, np.nan, np.float32)}
    for got in (run_reference(compiled, values), run_emulated(compiled, values)):
        assert np.array_equal(got["Y"], values["X"] * np.float32(0.625))
