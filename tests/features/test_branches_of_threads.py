"""What a whole block does together, under a branch that only some of its threads take, which are no team."""

from __future__ import annotations

import pytest

from tests.compiling import compile_text
from tilec.diagnostics import CompileError

KERNEL = """
import tilelang.language as T

@T.prim_func
def k(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), n: T.int32):
    with T.Kernel(1, threads=128) as bx:
        tx = T.get_thread_binding(0)
        s = T.alloc_shared((64, 64), "float16")
        f = T.alloc_fragment((64, 64), "float32")
        m = T.alloc_fragment((64,), "float32")
        T.clear(f)
        T.clear(m)
        T.copy(A, s)
        {branch}
            {statement}
        T.copy(s, B)
"""
BRANCHES = ("if tx < 40:", "if tx % 2 == 0:", "if tx < n:", "if A[0, tx] > 0:")
STATEMENTS = (
    "T.copy(A, s)",
    "T.copy(A, f)",
    "T.clear(f)",
    "T.gemm(s, s, f)",
    "T.reduce_sum(f, m, dim=1)",
    "T.cumsum(s, dim=0)",
    "T.Parallel",
)


def _compile(branch: str, statement: str) -> None:
    if statement == "T.Parallel":
        statement = "for i, j in T.Parallel(64, 64):\n                s[i, j] = A[j, i]"
    compile_text(KERNEL.format(branch=branch, statement=statement))


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_work_of_the_block_under_a_branch_of_some_threads_is_refused(branch: str, statement: str) -> None:
    with pytest.raises(CompileError) as caught:
        _compile(branch, statement)
    assert "TL0502" in str(caught.value)


@pytest.mark.parametrize("branch", ["if bx == 0:", "if n > 3:", "if A[0, 0] > 0:"])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_work_of_the_block_under_a_branch_of_all_threads_is_planned(branch: str, statement: str) -> None:
    _compile(branch, statement)
