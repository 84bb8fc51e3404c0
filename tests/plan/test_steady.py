"""Tiles allocated in every step of a pipelined loop: their copies run ahead as those of tiles allocated in front of it do."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import MODES, compile_text, run_emulated
from tests.toolchain import needs_gxx
from tilec.plan.plan import SharedTile

INSIDE = """import tilelang.language as T
@T.prim_func
def product(A: T.Tensor((128, 160), "float16"), B: T.Tensor((160, 64), "float16"), C: T.Tensor((128, 64), "float32")):
    with T.Kernel(2, threads=128) as by:
        acc = T.alloc_fragment((64, 64), "float32")
        T.clear(acc)
        for k in T.Pipelined(T.ceildiv(160, 32), num_stages=3):
            A_s = T.alloc_shared((64, 32), "float16")
            T.copy(A[by * 64, k * 32], A_s)
            B_s = T.alloc_shared((32, 64), "float16")
            T.copy(B[k * 32, 0], B_s)
            {more}
            T.gemm(A_s, B_s, acc)
        T.copy(acc, C[by * 64, 0])
"""
CHANGED = "for i, j in T.Parallel(64, 32): A_s[i, j] = A_s[i, j] * 2"


@needs_gxx
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("more", "ahead"), [("", True), (CHANGED, False)])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_tiles_of_a_step_are_fetched_ahead(arch: str, more: str, ahead: bool, mode: str) -> None:
    compiled = compile_text(INSIDE.format(more=more), arch=arch)
    body = compiled.plans[0].launches[0].variants[0]
    versions = {b.name: place.stages for b, place in body.placements.items() if isinstance(place, SharedTile)}
    assert (versions["A_s"] > 1) == ahead and versions["B_s"] > 1
    rng = np.random.default_rng()
    a, b = rng.integers(-4, 5, (128, 160)).astype(np.float16), rng.integers(-4, 5, (160, 64)).astype(np.float16)
    got = run_emulated(compiled, {"A": a, "B": b, "C": np.full((128, 64), np.nan, np.float32)}, mode)["C"]
    assert np.array_equal(got, a.astype(np.float64) @ b.astype(np.float64) * (2 if more else 1))
