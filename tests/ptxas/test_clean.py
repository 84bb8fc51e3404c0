"""The gate that samples for sm_90a pass (`tests.clean`) closes: each thing that may be lost is seen in what nvcc says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.clean import complaints, said_of
from tests.hopper.in_place import Weighted
from tests.hopper.kernels import Gemm
from tests.toolchain import needs_nvcc

FRAME = "ptxas info    : Function properties for k\n    {} bytes stack frame, {} bytes spill stores, {} bytes spill loads"
LOST = (
    "(C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry in function 'k'",
    "(C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to wgmma pipeline crossing function boundary",
    "(C7517) warpgroup.wait is injected in around line 402 by compiler to allow use of registers defined by GMMA in function 'k'",
    "(C7519) warpgroup.arrive is injected in around line 374 by compiler to allow use of registers in GMMA in function 'k'",
    "(C7602) Insufficient registers (128) to compile instruction at line 3493 in function k",
    "Potential Performance Loss: wgmma.mma_async instructions are serialized", "'setmaxnreg' ignored to maintain minimum register requirements",
)  # fmt: skip


@pytest.mark.parametrize("line", LOST)
def test_each_loss_is_seen(line: str) -> None:
    assert len(complaints(f"{FRAME.format(0, 0, 0)}\nptxas info    : {line}\n")) == 1


@pytest.mark.parametrize(("frame", "arrays", "seen"), [((0, 0, 0), 0, 0), ((8, 0, 0), 0, 1), ((16, 0, 0), 16, 0), ((24, 8, 8), 32, 1), ((0, 0, 4), 0, 1), ((0, 4, 0), 0, 1)])
def test_stack_and_spills_are_seen(frame: tuple[int, int, int], arrays: int, seen: int) -> None:
    assert len(complaints(FRAME.format(*frame), {"k": arrays})) == seen


@needs_nvcc
@pytest.mark.parametrize(("old", "new", "codes"), [
    (r"wgmma_wait<0>\(\);", "", {"7517"}), (r"__launch_bounds__\(128, 1\)", "__launch_bounds__(128, 5)", {"7511", "7512", "stack"}),
    (r"wgmma_fence\(\);", "", {"7519"}),
])  # fmt: skip
def test_a_product_in_place_that_is_broken(old: str, new: str, codes: set[str], tmp_path: Path) -> None:
    text = Weighted(m=64, n=128, bn=128, k=192).compiled().cu
    found = complaints(said_of(re.sub(old, new, text), "sm_90a", tmp_path))
    assert found and re.search(old, text) and any(code in line for line in found for code in codes), found


@needs_nvcc
def test_registers_that_cannot_be_handed_over(tmp_path: Path) -> None:
    text = Gemm(bn=128).compiled().cu
    (bounds,) = set(re.findall(r"__launch_bounds__\(384, 1\)", text))
    assert any("setmaxnreg" in line for line in complaints(said_of(text.replace(bounds, ""), "sm_90a", tmp_path)))
