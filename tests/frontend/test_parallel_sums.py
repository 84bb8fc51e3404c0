"""A parallel loop that adds to one element again and again gives the whole sum, whatever lives where."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import compile_text, run_emulated, run_reference
from tests.toolchain import needs_gxx

TEXT = """
import tilelang.language as T
@T.prim_func
def sums(A: T.Tensor((12, {n}), "int32"), R: T.Tensor((12,), "int32"), S: T.Tensor((1,), "int32")):
    with T.Kernel(1, threads=128):
        rows = T.{alloc}((12,), "int32")
        total = T.alloc_fragment((1,), "int32")
        T.clear(rows)
        T.clear(total)
        for i, j in T.Parallel(12, {n}):
            rows[i] += A[i, j]
        for i in T.Parallel(12):
            total[0] += rows[i]
        T.copy(rows, R)
        T.copy(total, S)
"""


@needs_gxx
@pytest.mark.parametrize("n", [1, 40, 127])
@pytest.mark.parametrize("alloc", ["alloc_fragment", "alloc_shared"])
def test_sum(n: int, alloc: str) -> None:
    a = np.random.default_rng(n).integers(-99, 99, (12, n)).astype(np.int32)
    values = {"A": a, "R": np.full(12, -7, np.int32), "S": np.full(1, -7, np.int32)}
    compiled = compile_text(TEXT.format(n=n, alloc=alloc))
    assert any(d.code == "TL0319" for d in compiled.diagnostics)
    for got in (run_reference(compiled, values), run_emulated(compiled, values, "lazy"), run_emulated(compiled, values, "eager")):
        assert np.array_equal(got["R"], a.sum(axis=1)) and got["S"][0] == a.sum()


def test_independent_iterations_stay_parallel() -> None:
    text = TEXT.format(n=4, alloc="alloc_fragment").replace("rows[i] += A[i, j]", "A[i, j] += 1").replace("total[0] += rows[i]", "rows[i] += 1")
    assert not any(d.code == "TL0319" for d in compile_text(text).diagnostics)
