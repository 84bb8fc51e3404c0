"""Products that meet in registers agree on how their warps lie, so that nothing has to move between threads."""

import pytest

from tests.oracles.kernels import kernel
from tilec.plan.plan import PGemm, Variant
from tilec.plan.planner import PlanOptions, plan
from tilec.plan.walk import walk_plan
from tilec.targets import lookup

TWO = """
kernel two[](Q: float16[{m}, 64], K: float16[{n}, 64], V: float16[{n}, 64], O: float32[{m}, 64]):
  launch (b) in (1) threads ({threads}, 1, 1):
    alloc q: shared float16[{m}, 64]
    alloc k: shared float16[{n}, 64]
    alloc v: shared float16[{n}, 64]
    alloc s: fragment float32[{m}, {n}]
    alloc p: fragment float16[{m}, {n}]
    alloc o: fragment float32[{m}, 64]
    copy Q[0 +: {m}, 0 +: 64] -> q
    copy K[0 +: {n}, 0 +: 64] -> k
    copy V[0 +: {n}, 0 +: 64] -> v
    gemm s += q @ k.T square clear true
    parallel i, j in {m}, {n}:
      p[i, j] = float16(s[i, j] * 2.0)
    gemm o += p @ v square clear true
    copy o -> O[0 +: {m}, 0 +: 64]
"""

SUM = """
kernel sum[](A: float16[64, 32], B: float16[32, 64], O: float32[64, 64]):
  launch (b) in (1) threads (128, 1, 1):
    alloc a: shared float16[64, 32]
    alloc r: fragment float16[64, 32]
    alloc b_s: shared float16[32, 64]
    alloc o: fragment float32[64, 64]
    copy A[0 +: 64, 0 +: 32] -> a
    copy B[0 +: 32, 0 +: 64] -> b_s
    copy A[0 +: 64, 0 +: 32] -> r
    gemm o += a @ b_s square clear true
    gemm o += r @ b_s square
    copy o -> O[0 +: 64, 0 +: 64]
"""


def planned(text: str) -> Variant:
    target = lookup("sm_80")
    assert target is not None
    return plan(kernel(text), PlanOptions(target), "k").launches[0].variants[0]


def warps(v: Variant) -> list[tuple[int, int]]:
    return [s.plan.warps for s in walk_plan(v.body) if isinstance(s, PGemm)]


@pytest.mark.parametrize("m, n, threads", [(64, 64, 128), (128, 128, 256), (64, 32, 64)])
def test_a_cast_accumulator_is_the_next_operand(m: int, n: int, threads: int) -> None:
    v = planned(TWO.format(m=m, n=n, threads=threads))
    assert not v.remarks
    assert warps(v) == [(threads // 32, 1)] * 2


def test_too_few_rows_for_the_warps_take_the_operand_through_shared_memory_in_its_own_type() -> None:
    v = planned(TWO.format(m=16, n=64, threads=128))
    assert warps(v) == [(1, 4), (1, 4)]
    assert [r.message for r in v.remarks] == ["operand p of this gemm takes a trip through shared memory"]
    (tile,) = [b for b in v.placements if b.name == "p_staged"]
    assert str(tile.dtype) == "float16"


def test_products_of_one_accumulator_lie_alike() -> None:
    v = planned(SUM)
    assert not v.remarks
    assert warps(v) == [(4, 1), (4, 1)]
