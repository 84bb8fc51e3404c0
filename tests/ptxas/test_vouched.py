"""What the rules vouch for body by body, where nobody can ask: kinds of bodies that a sweep found to spill although they were vouched for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hopper.chains import Gradients
from tests.ptxas.kit import at, bodies

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
SPILLED = {  # body: (text, options), each with what ptxas said of it
    "gradients": (Gradients(dim=128, bm=64, bn=64), {}),  # 56 bytes, C7512: 24 registers beside the fragments of a chain
}  # fmt: skip


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_the_short_way_down_the_ladder_is_the_long_one(arch: str) -> None:
    """The rung that the rules go to at once is one that the walk step by step comes to; those between are beyond the registers."""
    text = (SAMPLES / "products/norm_projection.py").read_text()
    args = {"X": ("bfloat16", (200, 1000)), "W": ("float32", (24, 1000))}  # whose operand in registers leaves rungs without effect
    for symbol, first in bodies(at(text, {}, arch, args=args)).items():
        assert first.strain > 0 and first.sure != first.below, "it goes no short way: it shows nothing"
        walked = at(text, {(first.ladder, symbol): first.below}, arch, args=args)
        while (now := bodies(walked)[symbol]).rung < first.sure:
            assert now.strain > 0
            walked = at(text, {(first.ladder, symbol): now.below}, arch, args=args)
        assert now.rung == first.sure
