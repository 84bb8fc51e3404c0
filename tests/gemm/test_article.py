"""A kernel in the article's form: nothing but tiles, copies and a product; everything else is inferred."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compiling import compile_text, run_emulated, run_reference
from tests.toolchain import needs_gxx, needs_nvcc, needs_nvrtc, nvcc_compile, nvrtc_compile
from tilec.ir.dtypes import FLOAT16
from tilec.reference.compare import compare, tolerance

TEXT = """
import tilelang as T

@T.jit(target="cuda")
def product(A, B, C, M, N, K):
    rows, columns, depth = 128, 128, 32
    A_tile = T.alloc_shared((rows, depth), "float16")
    B_tile = T.alloc_shared((depth, columns), "float16")
    total = T.alloc_fragment((rows, columns), "float16")
    for step in T.Pipelined(T.ceildiv(K, depth), num_stages=3):
        T.copy(A[by * rows, step * depth], A_tile)
        T.copy(B[step * depth, bx * columns], B_tile)
        T.gemm(A_tile, B_tile, total)
    for i, j in T.Parallel(rows, columns):
        C[by * rows + i, bx * columns + j] = total[i, j]
"""
SIZES = [(128, 128, 32), (256, 384, 96), (130, 70, 45), (1, 1, 1), (64, 64, 0)]


@needs_gxx
@pytest.mark.parametrize(("size", "fixed"), [(s, f) for s in SIZES for f in (False, True) if s[2] or not f])
def test_it_is_right_at_any_size(size: tuple[int, int, int], fixed: bool) -> None:
    m, n, k = size
    names = dict(zip("MNK", size, strict=True))
    compiled = compile_text(TEXT, names if fixed else {})
    rng = np.random.default_rng(m * 7 + n + k)
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    values = {"A": a, "B": b, "C": np.full((m, n), np.nan, np.float16), **({} if fixed else names)}
    exact = a.astype(np.float64) @ b.astype(np.float64)
    limit = tolerance(FLOAT16, max(k, 1), FLOAT16, FLOAT16)
    for got in (run_reference(compiled, values), run_emulated(compiled, values, "lazy"), run_emulated(compiled, values, "eager")):
        assert compare(got["C"], exact, FLOAT16, limit=limit) is None


def test_every_inference_is_told() -> None:
    told = " ".join(d.message for d in compile_text(TEXT).diagnostics)
    for fact in ("`A`", "`B`", "`C`", "`M`, `N`, `K`", "bx", "by", "grid", "total", "threads"):
        assert fact in told


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90"])
def test_nvcc_accepts_it_without_a_warning(arch: str, tmp_path: Path) -> None:
    nvcc_compile(compile_text(TEXT).cu, arch, tmp_path)


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90"])
def test_nvrtc_accepts_it_without_a_warning(arch: str) -> None:
    assert "product" in nvrtc_compile(compile_text(TEXT).cu, arch)
