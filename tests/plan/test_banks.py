"""Shared tiles that are read across their rows get a layout without bank conflicts; others keep plain rows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import MODES, compile_text, run_emulated
from tests.toolchain import needs_gxx
from tilec.layout.shared import SharedLayout, Swizzle, dense
from tilec.plan.banks import Use, cost
from tilec.plan.plan import SharedTile

KERNEL = """import tilelang.language as T

@T.prim_func
def f(A: T.Tensor(({n}, {n}), "{dtype}"), B: T.Tensor(({n}, {n}), "{dtype}")):
    with T.Kernel(1, threads=128) as bx:
        tile = T.alloc_shared(({n}, {n}), "{dtype}")
        T.copy(A, tile)
        for i, j in T.Parallel({n}, {n}):
            B[i, j] = tile[{index}]
"""


def test_the_cost_counts_words_of_the_busiest_bank() -> None:
    rows = dense((32, 32), 4)
    column, row = tuple((t, 0) for t in range(32)), tuple((0, t) for t in range(32))
    assert cost(rows, [Use(column, 1, 1)]) == 32 and cost(rows, [Use(row, 1, 3)]) == 3
    assert cost(SharedLayout((32, 32), 4, 33), [Use(column, 1, 1)]) == 1
    assert cost(rows, [Use(tuple((0, 0) for _ in range(32)), 1, 1)]) == 1
    assert cost(rows, [Use(tuple((t // 8, t % 8 * 4) for t in range(32)), 4, 1)]) == 4
    halves = dense((64, 64), 2)
    across = tuple((t % 8 * 8, t // 8) for t in range(32))
    assert cost(halves, [Use(across, 1, 1)]) == 8
    assert cost(SharedLayout((64, 64), 2, 64, Swizzle(7, 6)), [Use(across, 1, 1)]) == 1


@needs_gxx
@pytest.mark.parametrize(("dtype", "n", "at_most"), [("float16", 64, 2), ("float32", 32, 4), ("int8", 64, 4), ("float32", 24, 4)])
def test_a_transpose_does_not_wait_for_banks(dtype: str, n: int, at_most: int) -> None:
    compiled = compile_text(KERNEL.format(n=n, dtype=dtype, index="j, i"))
    a = np.random.default_rng().integers(-99, 100, (n, n)).astype(dtype)
    for mode in MODES:
        assert np.array_equal(run_emulated(compiled, {"A": a, "B": np.zeros_like(a)}, mode)["B"], a.T)
    (tile,) = [p for p in compiled.plans[0].launches[0].variants[0].placements.values() if isinstance(p, SharedTile)]
    assert tile.layout != dense((n, n), tile.layout.itemsize)
    vector = 16 // tile.layout.itemsize
    across = tuple((t * vector % n, t * vector // n) for t in range(32))
    assert cost(tile.layout, [Use(across, 1, 1)]) <= at_most


def test_rows_that_are_read_along_stay_plain() -> None:
    variant = compile_text(KERNEL.format(n=64, dtype="float16", index="i, j")).plans[0].launches[0].variants[0]
    (tile,) = [p for p in variant.placements.values() if isinstance(p, SharedTile)]
    assert tile.layout == dense((64, 64), 2)
