"""The gate: what leaves the compiler has no stack, no spills, no serialised products, for tiles whose first configuration has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compiling import compile_text
from tests.hopper.attention import Attention
from tests.hopper.kernels import Gemm
from tests.ptxas.kit import at, bodies, codes
from tests.toolchain import needs_nvcc
from tilec import ptxas
from tilec.targets import lookup

NARROW = {"float32": ("float32", "float32", 32), "int8": ("int32", "int32", 128), "float8_e4m3": ("float32", "float16", 128)}
FALL = [
    (Gemm(bm=256, bn=256, acc="float16", trans_b=True), 512, "sm_90a"),
    (Gemm(bm=256, bn=192, trans_b=True, epilogue="bias"), 256, "sm_90a"),
    (Gemm(bm=128, bn=256, out="float32", epilogue="bias"), 256, "sm_90a"),
    (Gemm(bm=256, bn=128, bk=128, dtype="float8_e4m3", trans_b=True, epilogue="bias"), 256, "sm_90a"),
    (Gemm(bm=256, bn=256, stages=2, trans_b=True), 256, "sm_80"),
    (Gemm(bm=192, bn=192, bk=32, stages=1, dtype="float32", out="float32", trans_a=True, epilogue="direct"), 128, "sm_90a"),
    (Gemm(bm=256, bn=192, stages=2, epilogue="direct"), 256, "sm_80"),
    (Gemm(bm=128, bn=256, stages=2, dtype="bfloat16", out="float32"), 384, "sm_80"),
]  # fmt: skip
KNOWN = [
    (Gemm(m, n, NARROW[dtype][2], 3, dtype, NARROW[dtype][1], NARROW[dtype][0], trans_b=True, epilogue=epilogue), threads)
    for (m, n), threads, epilogue in (((128, 128), 256, "copy"), ((128, 256), 256, "copy"), ((256, 128), 256, "direct"))
    for dtype in NARROW
]  # fmt: skip


def clean(cu: str, arch: str) -> None:
    """Asks anew and wants nothing to complain about."""
    report = ptxas.hear(cu, arch.split(","))
    assert isinstance(report, ptxas.Report), report
    assert all(b.clean for b in report.bodies.values()), {s: str(b) for s, b in report.bodies.items()}


@needs_nvcc
@pytest.mark.parametrize("g, threads, arch", FALL, ids=str)
def test_tiles_that_spill_at_first(g: Gemm, threads: int, arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    compiled = compile_text(g.source().replace("threads=256", f"threads={threads}"), arch=arch)
    assert any(v.rung for v in bodies(compiled).values()), "its first configuration is fine: it shows nothing"
    assert not codes(compiled)
    clean(compiled.cu, arch)


@needs_nvcc
@pytest.mark.parametrize("g, threads", KNOWN, ids=str)
def test_tiles_that_the_rules_vouch_for(g: Gemm, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    compiled = compile_text(g.source().replace("threads=256", f"threads={threads}"), arch="sm_90a")
    assert "ptxas" not in compiled.seconds
    clean(compiled.cu, "sm_90a")


@needs_nvcc
def test_attention_beyond_the_registers_of_hoppers_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    compiled = Attention(dim=96, bm=192, bn=128, seq=4096, mask="tail", where="after", order="bhsd", refill=True).compiled()
    assert "ptxas" in compiled.seconds and not codes(compiled)
    clean(compiled.cu, "sm_90a")


@needs_nvcc
def test_heads_of_256_on_older_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    text = Attention(dim=256, seq=4096).source()  # its mask takes what the plain one leaves
    compiled = compile_text(text, arch="sm_80")
    assert bodies(compiled)["attention"].strain > 0 and "ptxas" in compiled.seconds and not codes(compiled)
    clean(compiled.cu, "sm_80")


def test_three_warp_groups_are_not_vouched_for_as_two_are() -> None:
    three = Gemm(bm=192, bn=192, bk=32, trans_b=True, epilogue="bias").compiled(ptxas="never")
    two = Gemm(bm=128, bn=192, bk=32, trans_b=True, epilogue="bias").compiled(ptxas="never")
    assert bodies(three)["gemm"].rung and not bodies(two)["gemm"].rung


@pytest.mark.parametrize("threads", [256, 384])
def test_more_threads_leave_less_beside_their_tiles(threads: int) -> None:
    text = Gemm(bm=256, bn=192, acc="float16", epilogue="direct").source().replace("threads=256", f"threads={threads}")
    first = at(text, {}, "sm_80")
    assert (bodies(first)["gemm"].strain > 0) is (threads > 256)


@needs_nvcc
def test_both_architectures_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    hopper = lookup("sm_90a")
    assert hopper is not None
    g = Gemm(bm=256, bn=192, stages=2, trans_b=True, epilogue="bias")
    compiled = compile_text(g.source(), arch="sm_80", also=(hopper,))
    assert {v.symbol: v.arch for v in bodies(compiled).values()}["gemm__sm90a"] == "sm_90a"
    assert not codes(compiled) and bodies(compiled)["gemm__sm90a"].rung and bodies(compiled)["gemm"].rung
    clean(compiled.cu, "sm_80,sm_90a")
