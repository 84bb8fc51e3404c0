"""What nvcc makes of kernels for sm_90a. `nvcc -arch=sm_90a -c` compiles for plain sm_90 as well, which lacks their instructions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compiling import compile_text
from tests.hopper.attention import Attention
from tests.hopper.by_hand import Hand
from tests.hopper.chains import Gradients
from tests.hopper.kernels import Gemm
from tests.toolchain import needs_nvcc, needs_nvrtc, nvcc_compile, nvrtc_compile
from tilec.emit.manifest import parse
from tilec.targets import lookup

GEMM = Gemm(bn=128, trans_b=True)
SOURCES = {
    "gemm": GEMM.source(), "attention": Attention(heads=1, kv_heads=1, seq=256).source(), "gradients": Gradients().source(),
    "by hand": Hand().source(),
}  # fmt: skip
ARCHS = [("sm_90a",), ("sm_80", "sm_90a")]


def compiled(name: str, archs: tuple[str, ...]) -> str:
    also = tuple(t for t in map(lookup, archs[1:]) if t is not None)
    return compile_text(SOURCES[name], arch=archs[0], also=also).cu


@needs_nvcc
@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("archs", ARCHS, ids="+".join)
def test_the_short_option_of_nvcc(name: str, archs: tuple[str, ...], tmp_path: Path) -> None:
    nvcc_compile(compiled(name, archs), "sm_90a", tmp_path)


@needs_nvrtc
@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("archs", ARCHS, ids="+".join)
def test_a_machine_without_the_instructions_gets_a_body_that_no_launch_takes(name: str, archs: tuple[str, ...]) -> None:
    """Empty, for one warp: a launch of more threads fails, and the launcher of a file for several machines asks before."""
    text = compiled(name, archs)
    variants = [v for kernel in parse(text)["kernels"] for launch in kernel["launches"] for v in launch["variants"]]
    special = next(v["symbol"] for v in variants if v["arch"] == "sm_90a")
    plain, own = nvrtc_compile(text, "sm_90"), nvrtc_compile(text, "sm_90a")
    assert "wgmma" in own and "wgmma" not in plain
    entry = plain.partition(f".entry {special}(")[2].partition("ret;")[0]
    assert ".maxntid 32" in entry and "st." not in entry
    assert ".maxntid 32" not in own.partition(f".entry {special}(")[2].partition("{")[0]
