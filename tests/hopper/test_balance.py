"""Sections that even out the shares of persistent blocks: counted as the kernel's own text walks the tiles."""

from __future__ import annotations

import re

import pytest

from tests.hopper.attention import Attention
from tests.hopper.chains import Gradients
from tilec.plan.hopper.balance import AROUND, balanced, excess

CASES = [(32, 128, 24, 64, 2), (64, 64, 5, 64, 1), (11, 256, 48, 16, 1), (32, 128, 8, 64, 2), (5, 3, 2, 10, 1), (64, 16, 6, 128, 2)]


def walked(rows: int, others: int, section: int, steps: list[int], blocks: int) -> float:
    """The longest share over the mean, block by block, as the kernel finds its tiles."""
    shares = []
    for block in range(blocks):
        share, tile = 0, block
        while tile < rows * others:
            top = tile // (section * rows) * section
            width = min(section, others - top)
            share += steps[(tile - top * rows) // width] + AROUND
            tile = 2 * blocks * (tile // blocks + 1) - 1 - tile
        shares.append(share)
    return max(shares) * blocks / sum(shares)


@pytest.mark.parametrize("rows, others, most, top, slope", CASES)
def test_sections(rows: int, others: int, most: int, top: int, slope: int) -> None:
    steps = [max(1, top - slope * n) for n in range(rows)]
    for section in {1, most, others}:
        for blocks in (132, 7):
            assert excess(rows, others, section, steps, blocks) == pytest.approx(walked(rows, others, section, steps, blocks))
    found = balanced(rows, others, most, steps)
    assert 1 <= found <= others
    assert walked(rows, others, found, steps, 132) <= walked(rows, others, most, steps, 132)


def test_kernels_take_them() -> None:
    forward = Attention(dim=128, bn=128, seq=4096, heads=32, kv_heads=32, batch=4).compiled().cu
    backward = Gradients(dim=128, seq=4096, heads=32, batch=4, causal=True).compiled().cu
    for text, steps in ((forward, [n + 1 for n in reversed(range(32))]), (backward, [64 - 2 * n for n in range(32)])):
        found = re.search(r"const int section = (\d+);", text)
        assert found is not None
        assert walked(32, 128, int(found[1]), steps, 132) < 1.03
