"""Pairs of blocks by option and by the author's cluster_dims: which body results, that it is right, and that ptxas takes it whole."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.clean import complaints
from tests.compiling import compile_text, run_emulated
from tests.toolchain import needs_gxx, needs_nvcc, nvcc_compile
from tilec.driver import Compiled
from tilec.emit.explain import explain_text

TEXT = """
import tilelang.language as T

@T.prim_func
def gemm(A: T.Tensor(({m}, {k}), "float16"), B: T.Tensor({b}, "float16"), C: T.Tensor(({m}, {n}), "float16")):
    with T.Kernel(T.ceildiv({n}, {bn}), T.ceildiv({m}, 128), threads=256{clusters}) as (bx, by):
        A_s = T.alloc_shared((128, 64), "float16")
        B_s = T.alloc_shared({tile}, "float16")
        acc = T.alloc_fragment((128, {bn}), "float32")
        T.clear(acc)
        for ko in T.Pipelined(T.ceildiv({k}, 64), num_stages=3):
            T.copy(A[by * 128, ko * 64], A_s)
            T.copy({place}, B_s)
            T.gemm(A_s, B_s, acc, transpose_B={nk})
        T.copy(acc, C[by * 128, bx * {bn}])
"""


def text(m: int, n: int, k: int, nk: bool = False, bn: int = 128, clusters: str = "") -> str:
    """A GEMM of these sizes."""
    return TEXT.format(
        m=m, n=n, k=k, nk=nk, bn=bn, clusters=clusters and f", cluster_dims={clusters}", b=(n, k) if nk else (k, n),
        tile=(bn, 64) if nk else (64, bn), place=f"B[bx * {bn}, ko * 64]" if nk else f"B[ko * 64, bx * {bn}]",
    )  # fmt: skip


def pairs_of(compiled: Compiled) -> list[Any]:
    """The pairs of the bodies that go through the copy engine."""
    return [v.body.body[0].schedule.pair for v in compiled.plans[0].launches[0].variants if v.tensor_maps]  # type: ignore[union-attr]


def right(compiled: Compiled, m: int, n: int, k: int, nk: bool) -> None:
    """The emulator in both modes, held against exact integers."""
    rng = np.random.default_rng()
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((m, k), (n, k) if nk else (k, n)))
    exact = a.astype(np.float64) @ (b.T if nk else b).astype(np.float64)
    for mode in ("lazy", "eager"):
        out = run_emulated(compiled, {"A": a, "B": b, "C": np.full((m, n), np.nan, np.float16)}, mode)
        np.testing.assert_array_equal(out["C"], exact.astype(np.float16))


@needs_gxx
@pytest.mark.parametrize("nk", [True, False])
@pytest.mark.parametrize("size", [(512, 256, 128), (300, 384, 192), (128, 256, 64)], ids=str)
def test_the_option(size: tuple[int, int, int], nk: bool) -> None:
    off, auto, on = (compile_text(text(*size, nk), arch="sm_90a", pairs=p) for p in ("off", "auto", "on"))
    assert pairs_of(off) == pairs_of(auto) == [None]  # rows on cache lines, few tiles: not worth it
    (pair,) = pairs_of(on)
    if pair is None:  # along an axis of one tile there are no neighbours
        assert 1 in (-(-size[0] // 128), -(-size[1] // 128))
    right(on, *size, nk)
    if pair is not None:
        told = f"clusters of 2 blocks along {'xy'[pair.axis]}: each fetches half of {pair.shared.upper()}_s into both"
        assert told in explain_text(on.plans[0])
        assert "__cluster_dims__(2, 1, 1)" in on.cu and "__cluster_dims__" not in off.cu


@needs_gxx
@pytest.mark.parametrize(("clusters", "axis"), [("2", 0), ("(1, 2)", 1), ("(2, 1, 1)", 0)])
def test_cluster_dims_ask_for_pairs(clusters: str, axis: int) -> None:
    compiled = compile_text(text(512, 512, 128, clusters=clusters), arch="sm_90a")
    (pair,) = pairs_of(compiled)
    assert pair.axis == axis and pair.shared == "ab"[axis]
    right(compiled, 512, 512, 128, False)
    assert pairs_of(compile_text(text(512, 512, 128, clusters=clusters), arch="sm_90a", pairs="off")) == [None]


@needs_gxx
def test_other_clusters_are_left_to_the_plan() -> None:
    compiled = compile_text(text(512, 512, 128, clusters="(2, 2)"), arch="sm_90a")
    assert pairs_of(compiled) == [None]
    assert any(d.code == "TL0510" and "2x2x1" in d.message for d in compiled.diagnostics)
    right(compiled, 512, 512, 128, False)


@needs_gxx
def test_clusters_of_the_portable_body() -> None:
    compiled = compile_text(text(512, 512, 128, clusters="(2, 2)"), arch="sm_90")
    assert "__cluster_dims__(2, 2, 1)" in compiled.cu
    right(compiled, 512, 512, 128, False)


@needs_nvcc
@pytest.mark.parametrize("nk", [True, False])
def test_ptxas_takes_them_whole(nk: bool, tmp_path: Path) -> None:
    source = tmp_path / "gemm.cu"
    source.write_text(compile_text(text(4096, 4096, 4096, nk, 256), arch="sm_90a", pairs="on").cu)
    command = ["nvcc", "-std=c++17", "-cubin", "-arch=sm_90a", "-Xptxas", "-v", "-o", str(tmp_path / "gemm.cubin"), str(source)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    (own,) = [part for part in said.split("Compiling entry function '")[1:] if part.startswith("gemm'")]
    assert "stack frame" in own and complaints(own) == [] and not re.search(r"\(C7\d\d\d\)", said)
    nvcc_compile(compile_text(text(512, 512, 128, nk, clusters="(1, 2)"), arch="sm_90a").cu, "sm_90a", tmp_path)


@needs_gxx
def test_a_multicast_of_the_author_becomes_the_engines() -> None:
    """T.copy_cluster with a mask, of the operand that both blocks share: the same kernel as with T.copy."""
    plain = text(512, 512, 128, clusters="(1, 2)")
    shared = plain.replace("T.copy(B[ko * 64, bx * 128], B_s)", "T.copy_cluster(B[ko * 64, bx * 128], B_s, cluster_mask=3)")
    assert shared != plain
    compiled = compile_text(shared, arch="sm_90a")
    (pair,) = pairs_of(compiled)
    assert pair.axis == 1 and pair.shared == "b" and "_multicast(B_s" in compiled.cu
    right(compiled, 512, 512, 128, False)
