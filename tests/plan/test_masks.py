"""Masks: what is proven goes, what one test can vouch for is tested once a tile, and the tests mean what they should."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.kernels import kernel
from tests.plan.values import value
from tilec.analysis.facts import Facts
from tilec.ir.expr import Select, Var
from tilec.ir.tile import For, Parallel
from tilec.ir.visit import stmt_exprs, walk_expr, walk_stmt
from tilec.plan.masks import settled, unmasked

MASKED = """
kernel masked[n](S: float32[64, 64]):
  launch (bx) in (8) threads (128, 1, 1):
    alloc s: fragment float32[16, 8]
    for k in serial(0, 100, 1):
      parallel i, j in 16, 8:
        let row = bx * 16 + i
        let read = int32(S[i, j])
        s[i, j] = select({cond}, s[i, j], 0.0)
"""


def loop(cond: str) -> tuple[Parallel, Facts, dict[str, Var]]:
    (launch,) = kernel(MASKED.format(cond=cond)).launches
    (around,) = [s for s in walk_stmt(launch.body) if isinstance(s, For)]
    (inner,) = [s for s in walk_stmt(around.body) if isinstance(s, Parallel)]
    facts = Facts().with_launch(launch, (128, 1, 1)).with_loop(around.var, around.start, around.stop, around.step)
    return inner, facts, {"bx": launch.block_vars[0], "k": around.var}


def selections(s: Parallel) -> int:
    return sum(isinstance(e, Select) for x in walk_stmt(s.body) for root in stmt_exprs(x) for e in walk_expr(root))


@pytest.mark.parametrize("cond", ["k * 8 + j < 800", "row >= 0", "row < 128 and k < 100"])
def test_a_condition_that_always_holds_is_gone(cond: str) -> None:
    s, facts, _ = loop(cond)
    assert selections(settled(s, facts)) == 0


@pytest.mark.parametrize("cond", ["k * 8 + j < 799", "row >= 1", "k * 8 + j < n"])
def test_one_that_may_fail_stays(cond: str) -> None:
    s, facts, _ = loop(cond)
    assert selections(settled(s, facts)) == 1


@pytest.mark.parametrize("cond", ["i * j < k", "s[i, j] > 0.0", "k < 5 or j < k", "read >= 0", "i < read + k"])
def test_what_has_no_corner_is_left_alone(cond: str) -> None:
    s, facts, _ = loop(cond)
    assert unmasked(s, facts) is None


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["<", "<=", ">", ">="]), st.integers(-3, 3), st.integers(-3, 3), st.integers(-40, 40), st.booleans(),
    st.integers(0, 7), st.integers(0, 99),
)  # fmt: skip
def test_the_test_implies_every_element_and_is_as_weak_as_can_be(op: str, a: int, b: int, c: int, both: bool, bx: int, k: int) -> None:
    def holds(i: int, j: int) -> bool:
        left, right = a * (bx * 16 + i), b * (k * 8 + j) + c
        one = {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[op]
        return one and (not both or bx * 16 + i >= k * 8 + j)

    text = f"row * {a} {op} (k * 8 + j) * {b} + {c}" + (" and row >= k * 8 + j" if both else "")
    s, facts, names = loop(text)
    found = unmasked(s, facts)
    if found is None:  # proven, or refuted: nothing to test
        return
    assert selections(found.loop) == 0
    assert bool(value(found.test, {names["bx"]: bx, names["k"]: k})) == all(holds(i, j) for i, j in product(range(16), range(8)))
