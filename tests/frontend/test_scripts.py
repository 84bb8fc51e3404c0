"""What scripts around kernels hold: seeds set through modules, rows between named bounds, arrays of another name of their type."""

from __future__ import annotations

import pytest

from tests.frontend.conftest import read_text
from tilec.diagnostics import CompileError
from tilec.frontend import ArgSpec
from tilec.ir.expr import Const
from tilec.ir.tile import Copy
from tilec.ir.visit import walk_stmt

SEEDED = """
import torch
import tilelang.testing
torch.manual_seed(0)
tilelang.testing.set_random_seed(42)
torch.backends.cuda.matmul.allow_tf32 = True
limits = []
limits.append(unknown())

@tilelang.jit
def make():
    torch.cuda.synchronize()
    d = torch.float16
    @T.prim_func
    def k(O: T.Tensor((%s,), d)):
        with T.Kernel(1, threads=1):
            O[0] = 1
    return k
"""


def test_calls_through_modules_change_no_module() -> None:
    (kernel,) = read_text(SEEDED % "8", kernels=("make",)).kernels
    assert str(kernel.params[0].dtype) == "float16"


def test_what_a_list_holds_is_unknown_after_a_call_that_is() -> None:
    with pytest.raises(CompileError) as caught:
        read_text(SEEDED % "len(limits)", kernels=("make",))
    assert "unknown" in caught.value.diagnostics[0].message


ROWS = """
@T.prim_func
def k(A: T.Tensor((8, 256, 64), "float16"), S: T.Tensor((8,), "int32"), B: T.Tensor((8, 256, 64), "float16")):
    with T.Kernel(8, 2, threads=128) as (bx, by):
        f = T.alloc_fragment((64, 64), "float16")
        {bounds}
        T.copy(A[bx, lo:hi, :], f)
        T.copy(f, B[bx, lo:hi, :])
"""


@pytest.mark.parametrize("bounds", [
    "lo = by % 2 * 64; hi = lo + 64",
    "half = by * 64; lo = half + S[bx]; hi = lo + 64",
    "lo = by * 64; hi = (by + 1) * 64",
    "step = 64; lo = S[bx] * step; next = lo; hi = next + step",
])  # fmt: skip
def test_rows_between_names_are_counted(bounds: str) -> None:
    (kernel,) = read_text(ROWS.format(bounds=bounds)).kernels
    copies = [s for s in walk_stmt(kernel.launches[0].body) if isinstance(s, Copy)]
    assert len(copies) == 2
    for copy in copies:
        for region in (copy.src, copy.dst):
            assert [e.value if isinstance(e, Const) else e for e in region.extents][-2:] == [64, 64]


@pytest.mark.parametrize("bounds", [
    "lo = S[bx]; hi = S[bx] + 64",  # two loads: another thread may have stored in between
    "lo = S[bx]; hi = S[by]",
])  # fmt: skip
def test_rows_between_values_of_memory_are_not(bounds: str) -> None:
    with pytest.raises(CompileError) as caught:
        read_text(ROWS.format(bounds=bounds))
    assert caught.value.diagnostics[0].code == "TL0312"


def test_float32_arrays_are_tfloat32_tensors() -> None:
    text = """
@tilelang.jit
def k(X, n: int = 4):
    M = T.const("M")
    X: T.Tensor((M, n), "tfloat32")
    with T.Kernel(1, threads=1):
        X[0, 0] = 1
"""
    (kernel,) = read_text(text, args={"X": ArgSpec("float32", (32, 4))}).kernels
    assert str(kernel.params[0].dtype) == "tfloat32"
