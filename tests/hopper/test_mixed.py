"""One file for sm_80 and sm_90a: Hopper's own body beside the portable ones, the launcher choosing by what was compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hopper.kernels import Gemm, run
from tests.toolchain import needs_gxx, needs_nvcc, needs_nvrtc, nvcc_compile, nvrtc_compile
from tilec import emulator
from tilec.driver import Compiled
from tilec.emit.manifest import parse
from tilec.targets import lookup

MIXED = Gemm(bn=128, trans_b=True)


def mixed() -> Compiled:
    newer = lookup("sm_90a")
    assert newer is not None
    return MIXED.compiled("sm_80", also=(newer,))


def test_the_manifest_says_which_body_is_for_which_machine() -> None:
    (launch,) = parse(mixed().cu)["kernels"][0]["launches"]
    assert [(v["symbol"], v["arch"], bool(v["tensor_maps"])) for v in launch["variants"]] == [
        ("gemm__sm90a", "sm_90a", True), ("gemm", "sm_80", False), ("gemm__general", "sm_80", False)
    ]  # fmt: skip


@needs_gxx
@pytest.mark.parametrize("size", [(200, 136, 72), (200, 135, 71), (300, 264, 200)], ids=str)
def test_every_body_is_right(size: tuple[int, int, int]) -> None:
    text = mixed().cu
    assert text.count("runs_here &&") == 1
    for cu in (text, text.replace("runs_here &&", "!runs_here &&")):
        outcome, error = run(cu, MIXED, size, emulator.Mode("lazy", "apart", 1))
        assert outcome.ok, outcome
        assert error < 1e-3


@needs_nvcc
def test_nvcc_takes_it_for_both(tmp_path: Path) -> None:
    nvcc_compile(mixed().cu, "sm_80", tmp_path, "-gencode", "arch=compute_90a,code=sm_90a")


@needs_nvrtc
def test_nvrtc_gives_each_machine_its_body() -> None:
    text = mixed().cu
    assert "wgmma" in nvrtc_compile(text, "sm_90a")
    older = nvrtc_compile(text, "sm_80")
    assert "wgmma" not in older and ".entry gemm__sm90a(" in older and ".maxntid 32" in older
