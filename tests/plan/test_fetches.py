"""Copies of a pipeline step are issued in two places where the step has two products, and in one where it has one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracles.kernels import GEMM, cuda, emulate, kernel
from tests.toolchain import needs_gxx
from tilec import emulator
from tilec.plan.plan import Fetch, PGemm, Pipeline, Stepped
from tilec.plan.planner import PlanOptions, plan
from tilec.plan.walk import walk_plan
from tilec.targets import lookup

TWO = """
kernel two[](Q: float16[{m}, 32], K: float16[320, 32], V: float16[320, 32], O: float32[{m}, 32]):
  launch (b) in (1) threads ({threads}, 1, 1):
    alloc q: shared float16[{m}, 32]
    alloc k: shared float16[{n}, 32]
    alloc v: shared float16[{n}, 32]
    alloc s: fragment float32[{m}, {n}]
    alloc p: fragment float16[{m}, {n}]
    alloc o: fragment float32[{m}, 32]
    copy Q[0 +: {m}, 0 +: 32] -> q
    fill o = 0.0
    for step in pipelined(0, ceildiv(320, {n}), 1) stages {stages}:
      copy K[step * {n} +: {n}, 0 +: 32] -> k
      gemm s += q @ k.T square clear true
      copy s -> p
      copy V[step * {n} +: {n}, 0 +: 32] -> v
      gemm o += p @ v square
    copy o -> O[0 +: {m}, 0 +: 32]
"""


def two(stages: int = 2, m: int = 64, n: int = 64, threads: int = 128) -> str:
    return TWO.format(stages=stages, m=m, n=n, threads=threads)


def pipelines(text: str) -> list[Pipeline]:
    target = lookup("sm_80")
    assert target is not None
    body = plan(kernel(text), PlanOptions(target), "k").launches[0].variants[0].body
    return [s for s in walk_plan(body) if isinstance(s, Pipeline)]


def test_the_first_products_tile_is_fetched_in_front_of_the_last() -> None:
    (p,) = pipelines(two())
    inside = [x for s in p.consumers.body for x in (s.body.body if isinstance(s, Stepped) else (s,))]
    order = [type(x).__name__ for x in inside if isinstance(x, PGemm | Fetch)]
    assert order == ["PGemm", "Fetch", "PGemm"]
    assert [p.versioned[n].name for x in inside if isinstance(x, Fetch) for n in x.producers] == ["k"]


def test_a_block_that_fills_the_multiprocessor_fetches_behind_the_first_product() -> None:
    (p,) = pipelines(two(m=256, n=128, threads=256))
    names = [type(x).__name__ for s in p.consumers.body for x in (s.body.body if isinstance(s, Stepped) else (s,))]
    assert names[:2] == ["PGemm", "Fetch"]


def test_a_single_product_keeps_its_copies_together() -> None:
    (p,) = pipelines(GEMM)
    assert not any(isinstance(s, Fetch) for s in walk_plan(p.consumers))


@needs_gxx
@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("asynchrony", ["lazy", "eager"])
def test_the_result(stages: int, asynchrony: str) -> None:
    rng = np.random.default_rng()
    q, k, v = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((64, 32), (320, 32), (320, 32)))
    values = {"Q": q, "K": k, "V": v, "O": np.full((64, 32), np.nan, np.float32)}
    mode = emulator.Mode(asynchrony=asynchrony, shared="real", seed=5)
    outcome, out = emulate(cuda(kernel(two(stages))), "two_launch", values, mode)
    assert outcome.ok, outcome.message
    assert np.array_equal(out["O"], (q.astype(float) @ k.astype(float).T) @ v.astype(float))
