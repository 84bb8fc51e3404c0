"""Barriers between statements that spread a tile over the threads by registers, and by running numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import MODES, compile_text, run_emulated
from tests.toolchain import needs_gxx

TEXT = """import tilelang.language as T
@T.prim_func
def rows(X: T.Tensor((2, {n}), "float32"), Y: T.Tensor((2, {n}), "float32")):
    with T.Kernel(2, threads=128) as b:
        s = T.alloc_shared((1, {n}), "float32")
        f = T.alloc_fragment((1, {n}), "float32")
        T.copy(X[b, 0], s)
        for i, j in T.Parallel(1, {n}):
            f[i, j] = s[i, {read}] * 2
        for i, j in T.Parallel(1, {n}):
            s[i, j] = f[i, j] + 1
        T.copy(s, Y[b, 0])
"""


@needs_gxx
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("n", "read", "barriers"),
    [(1024, "j", 0), (512, "j", 0), (1024, "(j + 4) % 1024", 2), (384, "j", 2), (300, "j", 2)],
    ids=["own elements", "one round", "others' elements", "spread otherwise", "idle threads"],
)
def test_only_elements_of_other_threads_are_waited_for(n: int, read: str, barriers: int, mode: str) -> None:
    compiled = compile_text(TEXT.format(n=n, read=read))
    body = compiled.cu[compiled.cu.index("__global__") :]
    assert body.count("__syncthreads()") <= barriers and (body.count("__syncthreads()") > 0) == (barriers > 0)
    x = np.random.default_rng().integers(-99, 99, (2, n)).astype(np.float32)
    got = run_emulated(compiled, {"X": x, "Y": np.full((2, n), np.nan, np.float32)}, mode)["Y"]
    moved = np.roll(x, -4, 1) if "%" in read else x
    assert np.array_equal(got, 2 * moved + 1)
