"""Every thread that holds a copy of a reduced element holds the right one, also where copies do not divide the block."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import compile_text, run_reference
from tests.toolchain import needs_gxx
from tilec import emulator

TEXT = """
import tilelang.language as T
@T.prim_func
def copies(A: T.Tensor((96, 7), "int32"), O: T.Tensor(({threads},), "int32")):
    with T.Kernel(1, threads={threads}):
        t = T.get_thread_binding()
        f = T.alloc_fragment((96, 7), "int32")
        rest = T.alloc_fragment((7,), "int32")
        total = T.alloc_fragment((1,), "int32")
        T.copy(A, f)
        T.reduce_sum(f, rest, dim=0)
        T.reduce_sum(rest, total, dim=0)
        O[t] = total[0]
"""


@needs_gxx
@pytest.mark.parametrize("threads", [32, 96, 128, 160, 224, 100])
@pytest.mark.parametrize("races", [False, True])
def test_every_thread_has_the_sum(threads: int, races: bool) -> None:
    a = np.random.default_rng(threads).integers(-999, 999, (96, 7)).astype(np.int32)
    values = {"A": a, "O": np.full(threads, -1, np.int32)}
    compiled = compile_text(TEXT.format(threads=threads))
    assert (run_reference(compiled, values)["O"] == a.sum()).all()
    outcome = emulator.build(compiled.cu).run("copies_launch", values, emulator.Mode(shared="real", races=races))
    assert outcome.ok, f"{outcome.status}: {outcome.message}"
    assert (values["O"] == a.sum()).all()
