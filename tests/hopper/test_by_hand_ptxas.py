"""What nvcc, ptxas and NVRTC say of kernels written by hand: no warning, no serialised product, no spill."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.clean import assert_clean
from tests.compiling import compile_text
from tests.hopper.by_hand import Hand
from tests.toolchain import needs_nvcc, needs_nvrtc, nvrtc_compile
from tilec.driver import Compiled
from tilec.targets import lookup

SAMPLES = Path(__file__).resolve().parents[2] / "samples" / "by_hand"
KERNELS = {
    "T.gemm": Hand(queued=False), "half sums": Hand(acc="float16"), "A in registers": Hand(held=True, bk=32), "int8": Hand(dtype="int8", out="int32", acc="int32", trans_b=True, k=352, bn=64),
}  # fmt: skip
DEFINES = {"gemm_warp_specialized": {"M": 4096, "N": 4096, "K": 4096}, "attention": {"S": 2048}}


def compiled(name: str, arch: str = "sm_90a") -> Compiled:
    if name in KERNELS:
        return KERNELS[name].compiled(arch)
    return compile_text((SAMPLES / f"{name}.py").read_text(encoding="utf-8"), DEFINES.get(name), arch)


@needs_nvcc
@pytest.mark.parametrize("name", [*KERNELS, *sorted(p.stem for p in SAMPLES.glob("*.py"))])
def test_ptxas_has_nothing_to_complain_about(name: str) -> None:
    assert_clean(compiled(name), "sm_90a")


@needs_nvcc
def test_one_file_for_two_architectures(tmp_path: Path) -> None:
    hopper = lookup("sm_90a")
    assert hopper is not None
    source = tmp_path / "k.cu"
    source.write_text(Hand().compiled("sm_80", also=(hopper,)).cu, encoding="utf-8")
    archs = ["-gencode", "arch=compute_80,code=sm_80", "-gencode", "arch=compute_90a,code=sm_90a"]
    done = subprocess.run(["nvcc", "-std=c++17", *archs, "-c", "-o", str(tmp_path / "k.o"), str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "warning" not in done.stdout + done.stderr, done.stdout + done.stderr


@needs_nvrtc
def test_nvrtc_takes_the_same_file() -> None:
    ptx = nvrtc_compile(Hand().compiled().cu, "sm_90a")
    assert "wgmma.mma_async" in ptx and "mbarrier.expect_tx" in ptx and ".entry gemm__general(" in ptx
