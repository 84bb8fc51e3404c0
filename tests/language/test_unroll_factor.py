"""T.unroll with a factor: the CUDA compiler writes out so many steps at a time, and the meaning stays."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import MODES, compile_text, run_emulated, run_reference
from tests.toolchain import needs_gxx
from tilec.diagnostics import CompileError
from tilec.ir.text import parse, show

KERNEL = """import tilelang.language as T

@T.prim_func
def f(A: T.Tensor((7, 64), "float32"), B: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64) as bx:
        x = T.alloc_fragment((64,), "float32")
        T.clear(x)
        for k in T.unroll(7{factor}):
            for j in T.Parallel(64):
                x[j] += A[k, j] * (k + 1)
        T.copy(x, B)
"""


@needs_gxx
@pytest.mark.parametrize(("factor", "pragma"), [("", "#pragma unroll\n"), (", unroll_factor=1", "#pragma unroll 1\n"), (", unroll_factor=3", "#pragma unroll 3\n")])
def test_the_factor_reaches_the_compiler(factor: str, pragma: str) -> None:
    built = compile_text(KERNEL.format(factor=factor))
    (line,) = [n for n, text in enumerate(built.cu.splitlines()) if "for (int k = 0; k < 7; ++k)" in text]
    assert built.cu.splitlines()[line - 1] + "\n" == pragma
    a = np.random.default_rng().integers(-9, 10, (7, 64)).astype(np.float32)
    values = {"A": a, "B": np.full(64, np.nan, np.float32)}
    want = (a * np.arange(1, 8, dtype=np.float32)[:, None]).sum(0)
    for out in (run_reference(built, values), *(run_emulated(built, values, mode) for mode in MODES)):
        assert np.array_equal(out["B"], want)


def test_the_text_of_the_ir_keeps_it() -> None:
    text = show(compile_text(KERNEL.format(factor=", unroll_factor=3")).module.kernels[0])
    assert "unroll(0, 7, 1) factor 3:" in text and show(parse(text)) == text


def test_no_step_at_a_time_is_an_error() -> None:
    with pytest.raises(CompileError, match="unroll_factor must be positive"):
        compile_text(KERNEL.format(factor=", unroll_factor=0"))
