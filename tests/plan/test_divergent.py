"""Threads that walk rows of their own: atomics on one shared tile, tensors that each reads and writes in its own rows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import compile_text, run_emulated, run_reference
from tests.toolchain import needs_gxx

HISTOGRAM = """
import tilelang.language as T

@T.prim_func
def k(X: T.Tensor((1000, 2), "int32"), O: T.Tensor((64,), "int32")):
    with T.Kernel(3, threads=128) as bx:
        tx = T.get_thread_binding()
        counts = T.alloc_shared((64,), "int32")
        T.clear(counts)
        T.sync_threads()
        for i in T.serial(bx * 128 + tx, 1000, 3 * 128):
            for j in T.unroll(2):
                e = X[i, j]
                if e >= 0:
                    T.atomic_add(counts[e], 1)
        T.sync_threads()
        for i in T.serial(tx, 64, 128):
            if counts[i] > 0:
                T.atomic_add(O[i], counts[i])
"""

UNIQUE = """
import tilelang.language as T

@T.prim_func
def k(X: T.Tensor((1000, 6), "int64")):
    with T.Kernel(3, threads=64) as bx:
        tx = T.get_thread_binding()
        seen = T.alloc_local((1,), "uint64")
        for i in T.serial(bx * 64 + tx, 1000, 3 * 64):
            seen[0] = 0
            for j in T.unroll(6):
                bit = T.Select(X[i, j] >= 0, T.uint64(1) << (X[i, j] % 64), T.uint64(0))
                if bit & seen[0]:
                    X[i, j] = -1
                seen[0] |= bit
"""


@needs_gxx
@pytest.mark.parametrize("mode", ["lazy", "eager"])
def test_atomics_in_loops_of_threads(mode: str) -> None:
    x = np.random.default_rng(1).integers(-1, 64, (1000, 2)).astype(np.int32)
    values = {"X": x, "O": np.zeros(64, np.int32)}
    compiled = compile_text(HISTOGRAM)
    wanted = np.bincount(x[x >= 0], minlength=64)
    assert np.array_equal(run_reference(compiled, values)["O"], wanted)
    assert np.array_equal(run_emulated(compiled, values, mode)["O"], wanted)


@needs_gxx
def test_rows_of_a_tensor_that_threads_own() -> None:
    x = np.random.default_rng(2).integers(-1, 5, (1000, 6)).astype(np.int64)
    wanted = x.copy()
    for row in wanted:
        for j in range(6):
            if row[j] in row[:j]:
                row[j] = -1
    found = run_emulated(compile_text(UNIQUE), {"X": x})["X"]
    assert np.array_equal(found, wanted)


STRIDED = """
import tilelang.language as T
rows, columns, pitch = T.dynamic("rows"), T.dynamic("columns"), T.dynamic("pitch")

@T.prim_func
def k(X: T.StridedTensor((3, rows, columns), (rows * pitch, pitch, 1), "float32"), O: T.Tensor((3, rows, columns), "float32")):
    with T.Kernel(3, rows, threads=32) as (bx, by):
        for j in T.Parallel(columns):
            O[bx, by, j] = X[bx, by, j] + pitch
"""


@needs_gxx
def test_strides_made_of_extents_and_a_pitch() -> None:
    compiled = compile_text(STRIDED)
    (kernel,) = compiled.module.kernels
    assert {v.name: str(v.dtype) for v in kernel.extents} == {"rows": "int32", "columns": "int32", "pitch": "int64"}
    x = np.random.default_rng(3).standard_normal((3, 5, 9)).astype(np.float32)
    values = {"X": x, "O": np.zeros((3, 5, 9), np.float32), "rows": 5, "columns": 9, "pitch": 9}
    assert np.array_equal(run_emulated(compiled, values)["O"], x + 9)
