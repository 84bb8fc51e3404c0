"""Pipelined loops whose work stands in one branch: the copies run ahead under the branch's condition."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracles.kernels import cuda, emulate, kernel
from tests.toolchain import needs_gxx
from tilec import emulator
from tilec.plan.plan import PIf, Pipeline, Plan
from tilec.plan.planner import PlanOptions, plan
from tilec.plan.walk import walk_plan
from tilec.targets import lookup

CHOSEN = """
kernel chosen[](A: float16[64, 160], B: float16[160, 64], Use: int32[5], C: float32[64, 64]):
  launch (b) in (1) threads (128, 1, 1):
    alloc a: shared float16[64, 32]
    alloc w: shared float16[32, 64]
    alloc acc: fragment float32[64, 64]
    alloc use: local int32[5]
    fill acc = 0.0
    for n in serial(0, 5, 1):
      use[n] = Use[n]
    for k in pipelined(0, 5, 1) stages {stages}:
      let base = k * 32
      if {cond}:
        copy A[0 +: 64, base +: 32] -> a
        copy B[base +: 32, 0 +: 64] -> w
        gemm acc += a @ w square
{more}
    copy acc -> C[0 +: 64, 0 +: 64]
"""


def planned(cond: str, stages: int = 3, more: str = "") -> Plan:
    target = lookup("sm_80")
    assert target is not None
    return plan(kernel(CHOSEN.format(cond=cond, stages=stages, more=more)), PlanOptions(target), "chosen")


def pipelines(p: Plan) -> list[Pipeline]:
    return [s for s in walk_plan(p.launches[0].variants[0].body) if isinstance(s, Pipeline)]


@pytest.mark.parametrize("cond", ["use[k] != 0", "k % 2 == 0", "Use[k] > 0 and base < 100"])
def test_copies_run_ahead_under_the_condition(cond: str) -> None:
    (p,) = pipelines(planned(cond))
    assert len([s for s in walk_plan(p.producers) if isinstance(s, PIf)]) == 2


@pytest.mark.parametrize(
    "cond, more", [("use[k] != 0", "        use[4] = 0"), ("use[k] != 0", "      else:\n        fill acc = 0.0"), ("float32(a[0, 0]) > 0.0", "")]
)
def test_they_do_not_where_the_condition_may_change(cond: str, more: str) -> None:
    assert not pipelines(planned(cond, more=more))


@needs_gxx
@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("asynchrony", ["lazy", "eager"])
def test_the_result(stages: int, asynchrony: str) -> None:
    rng = np.random.default_rng()
    a, b = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((64, 160), (160, 64)))
    use = rng.integers(0, 2, 5).astype(np.int32)
    values = {"A": a, "B": b, "Use": use, "C": np.full((64, 64), np.nan, np.float32)}
    text = cuda(kernel(CHOSEN.format(cond="use[k] != 0", stages=stages, more="")))
    outcome, out = emulate(text, "chosen_launch", values, emulator.Mode(asynchrony=asynchrony, shared="real", seed=3))
    assert outcome.ok, outcome.message
    kept = np.repeat(use, 32)
    assert np.array_equal(out["C"], (a.astype(float) * kept) @ b.astype(float))
