"""Extents of 0 that are known while compiling do what run-time ones do: nothing. A tile of extent 0 is an error."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.compiling import compile_text, run_emulated, run_reference
from tilec.diagnostics import CompileError
from tilec.emit.manifest import parse as manifest_of

HEAD = "import tilelang\nimport tilelang.language as T\n@tilelang.jit\ndef f(N):\n    @T.prim_func\n"
GRID = HEAD + """    def k(A: T.Tensor((N, 64), "float32"), C: T.Tensor((N, 64), "float32")):
        with T.Kernel(T.ceildiv(N, 16), 2, threads=64) as (bx, by):
            s = T.alloc_shared((16, 32), "float32")
            T.copy(A[bx * 16, by * 32], s)
            for i, j in T.Parallel(16, 32):
                s[i, j] = s[i, j] + 1
            T.copy(s, C[bx * 16, by * 32])
    return k
"""
LOOPS = HEAD + """    def k(A: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32"), S: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((64,), "float32")
            T.fill(s, 3)
            for i in T.Parallel(N):
                C[i] = A[i]
            for i, j in T.grid(N, 4):
                C[i] = A[i]
            for i in T.vectorized(N):
                C[i] = A[i]
            for i in T.unroll(N):
                C[i] = A[i]
            for i in T.serial(4, N + 4):
                C[i] = A[i]
            for i in T.Pipelined(N, num_stages=2):
                T.copy(A, s)
            T.copy(A[0:N], C[0:N])
            T.copy(A[0:N], s[64:64 + N])
            T.copy(s[4:4 + N], C[4:4 + N])
            T.fill(C[0:N], 7)
            T.clear(s[64 - N:64])
            T.atomic_add(C[0:N], s[0:N])
            T.copy(s, S)
    return k
"""
PRODUCT = HEAD + """    def k(A: T.Tensor(({M}, {K}), "float16"), B: T.Tensor(({K}, {J}), "float16"), C: T.Tensor(({M}, {J}), "float32")):
        with T.Kernel(T.ceildiv({J}, 64), T.ceildiv({M}, 64), threads=128) as (bx, by):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv({K}, 32), num_stages=2):
                T.copy(A[by * 64, k * 32], a)
                T.copy(B[k * 32, bx * 64], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 64, bx * 64])
    return k
"""
ARCHES = ("sm_80", "sm_90a")


def both(text: str, arch: str, arrays: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """What the meaning and the emulated CUDA leave in the arrays."""
    compiled = compile_text(text, {"N": 0}, arch)
    return run_reference(compiled, arrays), run_emulated(compiled, arrays)


@pytest.mark.parametrize("arch", ARCHES)
def test_a_grid_of_no_blocks_is_not_launched(arch: str) -> None:
    compiled = compile_text(GRID, {"N": 0}, arch)
    launch = json.loads(json.dumps(manifest_of(compiled.cu)))["kernels"][0]["launches"][0]
    assert launch["variants"][0]["grid"][0] == "0" and "<<<" not in compiled.cu
    arrays = {"A": np.empty((0, 64), np.float32), "C": np.empty((0, 64), np.float32)}
    assert [d.code for d in compiled.module.notes] == ["TL0408"]
    for out in both(GRID, arch, arrays):
        assert out["C"].shape == (0, 64)


@pytest.mark.parametrize("arch", ARCHES)
def test_loops_and_regions_of_nothing_change_nothing(arch: str) -> None:
    rng = np.random.default_rng()
    arrays = {n: rng.random(64, np.float32) for n in "ACS"}
    for out in both(LOOPS, arch, arrays):
        assert np.array_equal(out["C"], arrays["C"]) and np.all(out["S"] == 3)


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("none", ["M", "J", "K"])
def test_products_without_rows_columns_or_terms(arch: str, none: str) -> None:
    sizes = {"M": "64", "J": "128", "K": "96", none: "N"}
    m, j, k = (0 if none == n else int(sizes[n]) for n in "MJK")
    rng = np.random.default_rng()
    arrays = {
        "A": rng.standard_normal((m, k)).astype(np.float16), "B": rng.standard_normal((k, j)).astype(np.float16),
        "C": np.full((m, j), np.nan, np.float32),
    }  # fmt: skip
    text = PRODUCT
    for name, size in sizes.items():
        text = text.replace("{" + name + "}", size)
    for out in both(text, arch, arrays):
        assert out["C"].shape == (m, j) and np.all(out["C"] == 0)


@pytest.mark.parametrize(
    ("body", "code", "word"),
    [
        ("s = T.alloc_shared((N, 4), 'float32')", "TL0310", "must be positive, got 0"),
        ("s = T.alloc_fragment((N,), 'float32')", "TL0310", "must be positive, got 0"),
        ("s = T.alloc_local((N,), 'float32')", "TL0310", "must be positive, got 0"),
        ("T.copy(A[4:3], C[4:3])", "TL0307", "reversed"),
        ("T.copy(A[0:N], C[0:4])", "TL0312", "0"),
    ],
)
def test_what_cannot_be_nothing(body: str, code: str, word: str) -> None:
    text = HEAD + "    def k(A: T.Tensor((64,), 'float32'), C: T.Tensor((64,), 'float32')):\n"
    text += f"        with T.Kernel(1, threads=64):\n            {body}\n            C[0] = A[0]\n    return k\n"
    with pytest.raises(CompileError) as caught:
        compile_text(text, {"N": 0})
    assert caught.value.diagnostics[0].code == code and word in str(caught.value.diagnostics[0])


def test_a_grid_of_fewer_than_no_blocks_is_an_error() -> None:
    with pytest.raises(CompileError) as caught:
        compile_text(GRID, {"N": -32})
    assert caught.value.diagnostics[0].code in ("TL0401", "TL0304", "TL0207", "TL0310")


@pytest.mark.parametrize("grid", ["0", "4, 0", "T.ceildiv(64, 16), 0x0"])
def test_a_grid_that_is_written_as_none_is_an_error(grid: str) -> None:
    text = f"import tilelang.language as T\n@T.prim_func\ndef k(A: T.Tensor((64,), 'float32')):\n    with T.Kernel({grid}, threads=32):\n        A[0] = 1\n"
    with pytest.raises(CompileError) as caught:
        compile_text(text)
    (found,) = caught.value.diagnostics
    assert found.code == "TL0401" and "got 0" in str(found) and found.span.line == 4
