"""Thread numbers as the compiler is to see them: never negative, counted from 0 in every team."""

from __future__ import annotations

import pytest

from tests.compiling import compile_text
from tilec.emit.by_hand import numbered


@pytest.mark.parametrize(("first", "count"), [(0, 32), (0, 96), (0, 1024), (128, 128), (128, 256), (256, 128), (96, 32), (64, 96), (384, 1)])
def test_a_number_among_its_team(first: int, count: int) -> None:
    text = numbered("threadIdx.x", first, count)
    got = [eval(text.replace("threadIdx.x", str(t))) for t in range(first, first + count)]
    assert got == list(range(count)) and "%" in text


def test_blocks_of_two_axes() -> None:
    text = numbered("threadIdx.x + 8 * threadIdx.y", 0, 24)
    got = [eval(text.replace("threadIdx.x", str(x)).replace("threadIdx.y", str(y))) for y in range(3) for x in range(8)]
    assert got == list(range(24))


def test_kernels_and_their_own_variables_have_such_numbers() -> None:
    cu = compile_text("""import tilelang.language as T
@T.prim_func
def k(A: T.Tensor((96,), "float32")):
    with T.Kernel(1, threads=96):
        tx = T.get_thread_binding()
        s = T.alloc_shared((96,), "float32")
        for i in T.Parallel(96):
            s[i] = A[i]
        A[95 - tx] = s[tx]
""").cu
    assert "const int tx = threadIdx.x % 128;" in cu and "thread = threadIdx.x % 128" in cu
