"""Copies and fills that every thread does for itself, and atomics outside of a parallel loop."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import MODES, compile_text, run_emulated, run_reference
from tests.toolchain import needs_gxx

HEAD = "import tilelang.language as T\n\n@T.prim_func\n"
PRIVATE = HEAD + """
def rows(A: T.Tensor((64, 4), "float32"), B: T.Tensor((64, 4), "float32")):
    with T.Kernel(1, threads=64) as bx:
        tx = T.get_thread_binding(0)
        row = tx
        mine = T.alloc_local((4,), "float32")
        sums = T.alloc_local((4,), "float32")
        T.fill(sums, 3)
        T.copy(A[row, 0], mine)
        for v in T.serial(4):
            sums[v] += mine[v] * (tx + 1)
        T.copy(sums, B[row, 0])
"""
COUNT = HEAD + """
def count(A: T.Tensor((1,), "int32")):
    with T.Kernel(3, threads=64) as bx:
        T.atomic_add(A[0], 1)
"""


@needs_gxx
@pytest.mark.parametrize("mode", MODES)
def test_private_arrays_are_filled_and_copied_by_each_thread(mode: str) -> None:
    a = np.random.default_rng().integers(-9, 9, (64, 4)).astype(np.float32)
    compiled = compile_text(PRIVATE)
    values = {"A": a, "B": np.full((64, 4), np.nan, np.float32)}
    want = 3 + a * np.arange(1, 65)[:, None]
    assert np.array_equal(run_reference(compiled, values)["B"], want)
    assert np.array_equal(run_emulated(compiled, values, mode)["B"], want)


@needs_gxx
def test_an_atomic_outside_of_parallel_loops_happens_once_a_thread() -> None:
    compiled = compile_text(COUNT)
    values = {"A": np.array([5], np.int32)}
    assert run_reference(compiled, values)["A"][0] == 5 + 3 * 64
    assert run_emulated(compiled, values)["A"][0] == 5 + 3 * 64
