"""What ptxas says of Hopper kernels: no serialised product, no ignored register hand-over, no spill, no stack."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.hopper.kernels import Gemm
from tests.toolchain import needs_nvcc, needs_nvrtc, nvrtc_compile

SAMPLES = [
    Gemm(bn=256, bk=64), Gemm(bn=256, trans_b=True), Gemm(bm=256, bn=192, trans_b=True), Gemm(bm=64, bn=128), Gemm(bm=192, bn=160, trans_b=True),
    Gemm(bn=256, epilogue="bias", dtype="bfloat16", out="bfloat16"), Gemm(bn=128, bk=32, acc="float16"), Gemm(bn=128, out="float32", epilogue="mirror"),
    Gemm(bn=256, dtype="float8_e4m3", trans_b=True, bk=128), Gemm(dtype="int8", acc="int32", out="int32", trans_b=True, bk=128, bn=128), Gemm(batch=3),
]  # fmt: skip


@needs_nvcc
@pytest.mark.parametrize("g", SAMPLES, ids=str)
def test_ptxas_has_nothing_to_complain_about(g: Gemm, tmp_path: Path) -> None:
    source = tmp_path / "gemm.cu"
    source.write_text(g.compiled().cu, encoding="utf-8")
    flags = ["-std=c++17", "-gencode", "arch=compute_90a,code=sm_90a", "-Xptxas", "-v", "-cubin", "-o", str(tmp_path / "gemm.cubin")]
    done = subprocess.run(["nvcc", *flags, str(source)], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert not re.search(r"C75\d\d|C76\d\d", said), said
    found = re.search(r"properties for gemm\n\s*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", said)
    assert found is not None, said
    assert found.groups() == ("0", "0", "0"), said


@needs_nvrtc
def test_nvrtc_takes_the_same_file() -> None:
    ptx = nvrtc_compile(Gemm(bn=256).compiled().cu, "sm_90a")
    assert ptx.count("wgmma.mma_async") == 4 and ".entry gemm(" in ptx and ".entry gemm__general(" in ptx
