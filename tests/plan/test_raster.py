"""Blocks are renumbered in panels only where that lets them share tiles both ways."""

import pytest

from tests.oracles.kernels import GEMM, SOFTMAX, kernel
from tilec.plan.planner import PlanOptions, plan
from tilec.targets import lookup

SCORES = """
kernel scores[](Q: float16[256, 4, 64], K: float16[256, 4, 64], S: float32[4, 256, 256]):
  launch (bx, by) in (4, 4) threads (128, 1, 1):
    alloc q: shared float16[64, 64]
    alloc k: shared float16[64, 64]
    alloc s: fragment float32[64, 64]
    let head = by
    copy Q[bx * 64 +: 64, {head} +: 1, 0 +: 64] -> q
    for n in pipelined(0, 4, 1) stages 2:
      copy K[n * 64 +: 64, head +: 1, 0 +: 64] -> k
      gemm s += q @ k.T square clear true
      copy s -> S[head +: 1, bx * 64 +: 64, n * 64 +: 64]
"""


@pytest.mark.parametrize("text, panel", [(GEMM, 8), (SOFTMAX, 0), (SCORES.format(head="head"), 0), (SCORES.format(head="0"), 8)])
def test_panels(text: str, panel: int) -> None:
    target = lookup("sm_80")
    assert target is not None
    assert plan(kernel(text), PlanOptions(target), "k").launches[0].panel == panel
