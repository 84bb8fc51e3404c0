"""Scans go on from the sums of their own line's warps, also where copies of the lines do not divide the block."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import compile_text, run_reference
from tests.toolchain import needs_gxx
from tilec import emulator

TEXT = """
import tilelang.language as T
@T.prim_func
def copies(A: T.Tensor((8, 32), "int32"), B: T.Tensor((480,), "int32"), O: T.Tensor((8, 32), "int32"), P: T.Tensor((1,), "int32")):
    with T.Kernel(1, threads={threads}):
        a = T.alloc_shared((8, 32), "int32")
        b = T.alloc_shared((480,), "int32")
        o = T.alloc_fragment((8, 32), "int32")
        p = T.alloc_shared((1,), "int32")
        T.copy(A, a)
        T.copy(B, b)
        T.cumsum(a, o, dim=0{reverse})
        T.reduce_sum(b, p, dim=0)
        T.copy(o, O)
        T.copy(p, P)
"""


@needs_gxx
@pytest.mark.parametrize("threads", [32, 96, 128, 160, 192, 224])
@pytest.mark.parametrize("reverse", [False, True])
def test_no_thread_reads_beside_the_sums(threads: int, reverse: bool) -> None:
    rng = np.random.default_rng(threads)
    a, b = (rng.integers(-999, 999, shape).astype(np.int32) for shape in ((8, 32), 480))
    compiled = compile_text(TEXT.format(threads=threads, reverse=", reverse=True" if reverse else ""))
    sums = np.cumsum(a[::-1], axis=0)[::-1] if reverse else np.cumsum(a, axis=0)
    for mode in (emulator.Mode(shared="real", races=True), emulator.Mode(shared="apart")):
        values = {"A": a, "B": b, "O": np.full((8, 32), -1, np.int32), "P": np.full(1, -1, np.int32)}
        assert (run_reference(compiled, values)["O"] == sums).all()
        outcome = emulator.build(compiled.cu).run("copies_launch", values, mode)
        assert outcome.ok, f"{outcome.status}: {outcome.message}"
        assert (values["O"] == sums).all() and values["P"] == b.sum()
