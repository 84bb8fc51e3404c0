"""T.thread_return: what follows in the launch is for the threads that stay."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import compile_text, run_emulated, run_reference
from tests.toolchain import needs_gxx
from tilec.diagnostics import CompileError

HEAD = "import tilelang.language as T\n"

THREADS = HEAD + """
n = T.dynamic("n")

@T.prim_func
def k(X: T.Tensor((n, 3), "int32"), Y: T.Tensor((n,), "int32")):
    with T.Kernel(T.ceildiv(n, 32), threads=32) as bx:
        row = bx * 32 + T.get_thread_binding()
        if row >= n:
            T.thread_return()
        mine = T.alloc_local((3,), "int32")
        for j in T.unroll(3):
            mine[j] = X[row, j]
        if mine[0] < 0:
            Y[row] = -1
            if mine[1] < 0:
                T.thread_return()
            Y[row] = -2
        else:
            Y[row] = mine[0] + mine[1]
        Y[row] += mine[2]
"""

BLOCKS = HEAD + """
@T.prim_func
def k(X: T.Tensor((10, 64), "float32"), count: T.int32, Y: T.Tensor((10, 64), "float32")):
    with T.Kernel(10, threads=64) as bx:
        f = T.alloc_fragment((64,), "float32")
        s = T.alloc_shared((64,), "float32")
        if bx >= count:
            T.fill(f, 7)
            T.copy(f, Y[bx, :])
            T.thread_return()
        T.copy(X[bx, :], s)
        for i in T.Parallel(64):
            f[i] = s[63 - i] * 2
        T.copy(f, Y[bx, :])
"""


@needs_gxx
@pytest.mark.parametrize("mode", ["lazy", "eager"])
def test_threads_that_have_no_row(mode: str) -> None:
    x = np.random.default_rng(4).integers(-50, 50, (77, 3)).astype(np.int32)
    wanted = np.where(x[:, 0] >= 0, x[:, 0] + x[:, 1] + x[:, 2], np.where(x[:, 1] < 0, -1, -2 + x[:, 2]))
    values = {"X": x, "Y": np.full(77, 1 << 20, np.int32), "n": 77}
    assert np.array_equal(run_emulated(compile_text(THREADS), values, mode)["Y"], wanted)


@needs_gxx
def test_blocks_that_are_done_early() -> None:
    x = np.random.default_rng(5).standard_normal((10, 64)).astype(np.float32)
    values = {"X": x, "count": 6, "Y": np.full((10, 64), np.nan, np.float32)}
    wanted = np.where(np.arange(10)[:, None] >= 6, np.float32(7), x[:, ::-1] * 2)
    compiled = compile_text(BLOCKS)
    assert np.array_equal(run_reference(compiled, values)["Y"], wanted)
    assert np.array_equal(run_emulated(compiled, values)["Y"], wanted)


@pytest.mark.parametrize("loop", ["for i in T.serial(4):", "while X[0] > 0:"])
def test_not_out_of_a_loop(loop: str) -> None:
    text = HEAD + f"""
@T.prim_func
def k(X: T.Tensor((8,), "int32")):
    with T.Kernel(1, threads=8):
        {loop}
            if X[1] > 2:
                T.thread_return()
            X[0] = X[0] - 1
"""
    with pytest.raises(CompileError) as caught:
        compile_text(text)
    assert caught.value.diagnostics[0].code == "TL0204" and caught.value.diagnostics[0].span.line == 8
