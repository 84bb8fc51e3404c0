"""Rows of a tile that are wider than the exchange of their chunks: addresses along them are constants of the instructions, not registers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compiling import compile_text
from tests.ptxas.kit import bodies, codes
from tests.ptxas.test_gate import clean
from tests.toolchain import needs_nvcc

TEXT = """import tilelang.language as T
@T.prim_func
def squares(X: T.Tensor((512, 4096), "bfloat16"), W: T.Tensor((32, 4096), "float32"), S: T.Tensor((512,), "float32"), C: T.Tensor((512, 32), "float32")):
    with T.Kernel(16, threads=128) as b:
        acc = T.alloc_fragment((32, 32), "float32")
        part = T.alloc_fragment((32, 4), "float32")
        total = T.alloc_fragment((32,), "float32")
        T.clear(acc)
        T.clear(part)
        for n in T.Pipelined(16, num_stages=2):
            x_s = T.alloc_shared((32, 256), "bfloat16")
            w_s = T.alloc_shared((32, 256), "float32")
            x16 = T.alloc_fragment((32, 256), "bfloat16")
            x = T.alloc_fragment((32, 256), "float32")
            T.copy(X[b * 32, n * 256], x_s)
            T.copy(W[0, n * 256], w_s)
            T.copy(x_s, x16)
            T.copy(x16, x)
            for k in T.serial(64):
                for i, j in T.Parallel(32, 4):
                    part[i, j] += x[i, k * 4 + j] * x[i, k * 4 + j]
            T.gemm(x, w_s, acc, transpose_B=True)
        T.reduce_sum(part, total)
        T.copy(total, S[b * 32])
        T.copy(acc, C[b * 32, 0])
"""


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_product_of_rows_in_registers_does_not_spill(arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    compiled = compile_text(TEXT, arch=arch)
    assert all(not v.rung for v in bodies(compiled).values()) and not codes(compiled)
    clean(compiled.cu, arch)
