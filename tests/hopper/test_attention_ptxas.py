"""What ptxas says of kernels that stream tiles: no serialised product, no spill, no stack."""

from __future__ import annotations

import pytest

from tests.clean import assert_clean
from tests.hopper.attention import Attention
from tests.toolchain import needs_nvcc

SAMPLES = [
    Attention(dim=128, bn=128, seq=4096), Attention(bm=192, bn=128, seq=2048, lse=True), Attention(dim=256, seq=4096, mask="tail"),
    Attention(bm=64, bn=128, dim=128, seq=1000, power="exp", dtype="bfloat16"),
]  # fmt: skip


@needs_nvcc
@pytest.mark.parametrize("a", SAMPLES, ids=str)
def test_ptxas_has_nothing_to_complain_about(a: Attention) -> None:
    assert_clean(a.compiled(), "sm_90a")
