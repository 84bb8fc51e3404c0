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
    assert "load_vec<4>(A" in compiled.cu and "store_vec(B" in compiled.cu


@needs_gxx
def test_an_atomic_outside_of_parallel_loops_happens_once_a_thread() -> None:
    compiled = compile_text(COUNT)
    values = {"A": np.array([5], np.int32)}
    assert run_reference(compiled, values)["A"][0] == 5 + 3 * 64
    assert run_emulated(compiled, values)["A"][0] == 5 + 3 * 64


VECTORIZED = HEAD + """
def scale(A: T.Tensor((6, 40), "float16"), B: T.Tensor((6, 40), "float16"), C: T.Tensor((6,), "float32")):
    with T.Kernel(1, threads=32) as bx:
        a = T.alloc_fragment((6,), "float32")
        for i in T.Parallel(6):
            a[i] = 0
            for v in T.vectorized(24):
                B[i, v] = A[i, v] * 2
            for v in T.vectorized(8):
                a[i] += A[i, v + 32]
        T.copy(a, C)
"""


@needs_gxx
@pytest.mark.parametrize("mode", MODES)
def test_vectorized_loops_move_whole_chunks_inside_of_parallel_ones(mode: str) -> None:
    """Also under a loop whose threads hold copies of a fragment: each row is written once."""
    compiled = compile_text(VECTORIZED)
    a = np.random.default_rng().integers(-9, 9, (6, 40)).astype(np.float16)
    b = np.random.default_rng().integers(-9, 9, (6, 40)).astype(np.float16)
    got = run_emulated(compiled, {"A": a, "B": b, "C": np.full(6, np.nan, np.float32)}, mode)
    assert np.array_equal(got["B"], np.concatenate([a[:, :24] * 2, b[:, 24:]], axis=1))
    assert np.array_equal(got["C"], a[:, 32:].astype(np.float32).sum(axis=1))
    assert compiled.cu.count("load_vec<8>(A") == 2


def test_branches_that_are_decided_leave_no_trace() -> None:
    """A test that the ranges of block and loop variables decide is not made at run time."""
    text = HEAD + """
def f(A: T.Tensor((1024,), "float32"), B: T.Tensor((1024,), "float32")):
    with T.Kernel(4, threads=64) as bx:
        s = T.alloc_fragment((1,), "float32")
        T.clear(s)
        for k in T.serial(4):
            if bx * 4 + k < 16:
                for i in T.Parallel(64):
                    if i + k < 80:
                        B[(bx * 4 + k) * 64 + i] = A[(bx * 4 + k) * 64 + i] + s[0]
                    else:
                        B[0] = 0
"""
    kernel = compile_text(text).cu.split("__global__")[1].split("\n}\n")[0]
    assert "if (" not in kernel and "B[0]" not in kernel and "for (int reg" not in kernel


def test_a_loop_variable_named_like_a_member_is_not_kept_for_it() -> None:
    """The elements of vectors are called v: a variable of that name whose place is fixed is still left out."""
    text = PRIVATE.replace("T.copy(A[row, 0], mine)", "for v in T.vectorized(4):\n            mine[v] = A[row, v]")
    kernel = compile_text(text).cu
    assert ".v[" in kernel and "const int v = 0;" not in kernel
