"""Tiles taken across their rows: threads hold whole blocks, so that memory moves by vectors on both sides of the transpose."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.compiling import MODES, compile_text, run_emulated
from tests.toolchain import needs_gxx
from tilec.plan.fragments import spread_blocks

READS = """import tilelang.language as T

@T.prim_func
def f(A: T.Tensor(({m}, {n}), "{dtype}"), B: T.Tensor(({n}, {m}), "{dtype}")):
    with T.Kernel(1, threads={threads}) as bx:
        tile = T.alloc_shared(({m}, {n}), "{dtype}")
        x = T.alloc_fragment(({n}, {m}), "{dtype}")
        T.copy(A, tile)
        for i, j in T.Parallel({n}, {m}):
            x[i, j] = tile[j, i]
        T.copy(x, B)
"""
WRITES = """import tilelang.language as T

@T.prim_func
def f(A: T.Tensor(({m}, {n}), "{dtype}"), B: T.Tensor(({n}, {m}), "{dtype}")):
    with T.Kernel(1, threads={threads}) as bx:
        tile = T.alloc_shared(({n}, {m}), "{dtype}")
        x = T.alloc_fragment(({m}, {n}), "{dtype}")
        T.copy(A, x)
        for i, j in T.Parallel({m}, {n}):
            tile[j, i] = x[i, j]
        T.copy(tile, B)
"""


@pytest.mark.parametrize("shape", [(64, 64), (128, 128), (128, 32), (32, 128), (16, 8), (24, 40), (64, 12), (6, 10), (256, 16), (7,)])
@pytest.mark.parametrize("threads", [32, 64, 96, 128, 256])
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_blocks_hold_every_element_once(shape: tuple[int, ...], threads: int, itemsize: int) -> None:
    layout = spread_blocks(shape, threads, itemsize)
    if layout is None:
        return
    held = [index for _, _, index in layout.table()]
    assert sorted(held) == sorted(product(*map(range, shape)))
    assert layout.regs[0].dim == 1 and layout.regs[0].size * itemsize == 16 and layout.regs[1].dim == 0


@pytest.mark.parametrize(("shape", "threads", "itemsize", "tall"), [((128, 128), 256, 2, 8), ((64, 64), 128, 2, 4), ((64, 64), 128, 4, 4)])
def test_blocks_are_as_tall_as_the_threads_allow(shape: tuple[int, int], threads: int, itemsize: int, tall: int) -> None:
    layout = spread_blocks(shape, threads, itemsize)
    assert layout is not None and layout.regs[1].size == tall


@needs_gxx
@pytest.mark.parametrize("text", [READS, WRITES])
@pytest.mark.parametrize(
    ("dtype", "m", "n", "threads", "wide"),
    [
        ("float16", 64, 64, 64, 8), ("float16", 128, 64, 128, 8), ("float16", 64, 64, 128, 4), ("float32", 64, 32, 64, 4),
        ("int8", 64, 64, 32, 8), ("float64", 32, 16, 64, 2), ("float16", 40, 24, 32, None), ("float16", 36, 20, 32, None),
    ],
)  # fmt: skip
def test_transposes_move_vectors(text: str, dtype: str, m: int, n: int, threads: int, wide: int | None) -> None:
    built = compile_text(text.format(dtype=dtype, m=m, n=n, threads=threads))
    if wide is not None:
        if text is READS:
            assert f"load_vec<{wide}>(tile" in built.cu
        else:
            assert "store_vec(tile" in built.cu and f", {wide}> tile_v;" in built.cu
    a = np.random.default_rng().integers(-99, 100, (m, n)).astype(dtype)
    for mode in MODES:
        got = run_emulated(built, {"A": a, "B": np.full((n, m), 111).astype(dtype)}, mode)["B"]
        assert np.array_equal(got, a.T)
