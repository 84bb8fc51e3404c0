"""Views of a shared tile look at the bytes of their owner, in the generated code too."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import compile_text, run_emulated, run_reference
from tests.toolchain import needs_gxx

TEXT = """
import tilelang.language as T
@T.prim_func
def views(A: T.Tensor((4096,), "float16"), B: T.Tensor((64, 64), "float16"), D: T.Tensor((64, 64), "float32"), W: T.Tensor((32, 64), "uint32")):
    with T.Kernel(1, threads=128):
        line = T.alloc_shared((4096,), "float16")
        b = T.alloc_shared((64, 64), "float16")
        acc = T.alloc_fragment((64, 64), "float32")
        T.copy(A, line)
        T.copy(B, b)
        T.clear(acc)
        square = T.reshape(line, (64, 64))
        T.gemm(square, b, acc)
        T.copy(acc, D)
        words = T.view(b, (32, 64), "uint32")
        for i, j in T.Parallel(32, 64):
            W[i, j] = words[i, j]
"""


@needs_gxx
@pytest.mark.parametrize("mode", ["lazy", "eager"])
def test_reshaped_operand_and_reinterpreted_words(mode: str) -> None:
    rng = np.random.default_rng(5)
    a, b = rng.integers(-3, 4, 4096).astype(np.float16), rng.integers(-3, 4, (64, 64)).astype(np.float16)
    values = {"A": a, "B": b, "D": np.full((64, 64), np.nan, np.float32), "W": np.full((32, 64), 7, np.uint32)}
    compiled = compile_text(TEXT)
    for got in (run_emulated(compiled, values, mode), run_reference(compiled, values)):
        assert np.array_equal(got["D"], a.reshape(64, 64).astype(np.float32) @ b.astype(np.float32))
        assert np.array_equal(got["W"], b.view(np.uint32).reshape(32, 64))
