"""What ptxas says of kernels that stream tiles: no serialised product, no spill, no stack."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.hopper.attention import Attention
from tests.toolchain import needs_nvcc

SAMPLES = [
    Attention(dim=128, bn=128, seq=4096), Attention(bm=192, bn=128, seq=2048, lse=True), Attention(dim=256, seq=4096, mask="tail"),
    Attention(bm=64, bn=128, dim=128, seq=1000, power="exp", dtype="bfloat16"),
]  # fmt: skip


@needs_nvcc
@pytest.mark.parametrize("a", SAMPLES, ids=str)
def test_ptxas_has_nothing_to_complain_about(a: Attention, tmp_path: Path) -> None:
    source = tmp_path / "attention.cu"
    text = a.compiled().cu
    general = text.index('extern "C" __global__', text.index("__launch_bounds__(") + 1)
    source.write_text(text[:general] + "\n", encoding="utf-8")  # the general body is the portable path's business
    flags = ["-std=c++17", "-gencode", "arch=compute_90a,code=sm_90a", "-Xptxas", "-v", "-cubin", "-o", str(tmp_path / "attention.cubin")]
    done = subprocess.run(["nvcc", *flags, str(source)], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert not re.search(r"C75\d\d|C76\d\d", said), said
    found = re.search(r"properties for attention\n\s*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", said)
    assert found is not None and found.groups() == ("0", "0", "0"), said
