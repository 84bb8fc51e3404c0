"""Pipelines whose author asked for one version of each tile: two, where a multiprocessor holds as many blocks all the same."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import MODES, compile_text, run_emulated
from tests.toolchain import needs_gxx

TEXT = """import tilelang.language as T
@T.prim_func
def gemm(A: T.Tensor((128, 320), "float16"), B: T.Tensor((320, 128), "float16"), C: T.Tensor((128, 128), "float32")):
    with T.Kernel(128 // {n}, 1, threads=128) as (bx, by):
        A_s = T.alloc_shared((128, {k}), "float16")
        B_s = T.alloc_shared(({k}, {n}), "float16")
        acc = T.alloc_fragment((128, {n}), "float32")
        T.clear(acc)
        for k in T.Pipelined(320 // {k}, num_stages={stages}):
            T.copy(A[by * 128, k * {k}], A_s)
            T.copy(B[k * {k}, bx * {n}], B_s)
            T.gemm(A_s, B_s, acc)
        T.copy(acc, C[by * 128, bx * {n}])
"""


def text(k: int = 32, stages: int = 1, n: int = 128) -> str:
    return TEXT.format(k=k, stages=stages, n=n)


def test_the_second_version_is_taken_where_it_is_free() -> None:
    one = compile_text(text()).cu
    assert "cp_async_16(" in one and one.replace("num_stages=1", "") == compile_text(text(stages=2)).cu.replace("num_stages=2", "")


def test_not_where_fewer_blocks_would_fit() -> None:
    assert "cp_async" not in compile_text(text(k=160, n=32)).cu
    assert "cp_async" in compile_text(text(k=160, n=32, stages=2)).cu


def test_not_where_the_author_asked_for_no_pipeline_or_is_taken_literally() -> None:
    assert "cp_async" not in compile_text(text(stages=0)).cu
    assert "cp_async" not in compile_text(text(), opt_level=1).cu


@needs_gxx
@pytest.mark.parametrize("mode", MODES)
def test_the_product_is_right(mode: str) -> None:
    rng = np.random.default_rng()
    a, b = rng.standard_normal((128, 320)).astype(np.float16), rng.standard_normal((320, 128)).astype(np.float16)
    got = run_emulated(compile_text(text()), {"A": a, "B": b, "C": np.full((128, 128), np.nan, np.float32)}, mode)["C"]
    want = a.astype(np.float64) @ b.astype(np.float64)
    assert np.linalg.norm(got - want) <= 1e-5 * np.linalg.norm(want)
