"""Long chains of names that stand for expressions of names: answers in time, and still true."""

from __future__ import annotations

from tilec.analysis.facts import MAX_DEPTH, Facts
from tilec.analysis.proofs import prove
from tilec.analysis.ranges import bounds, divisor
from tilec.analysis.simplify import simplify
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Binary, Compare, Const, Expr, Var, VarKind

FIRST = Var("x", INT32, VarKind.BLOCK)


def op(name: str, a: Expr, b: Expr | int) -> Expr:
    return Binary(name, a, Const(b, INT32) if isinstance(b, int) else b, INT32)


def chain(length: int, step: str) -> tuple[Var, Facts]:
    """The last of `length` names, each made of the one before."""
    facts, last = Facts().with_range(FIRST, 0, 3), FIRST
    for n in range(length):
        new = Var(f"x{n}")
        doubled = op("add", last, last)
        facts = facts.with_let(new, doubled if step == "doubled" else op("mod", op("add", doubled, op("floordiv", last, 2)), 1024))
        last = new
    return last, facts


def test_a_chain_of_doubled_names_is_one_product() -> None:
    last, facts = chain(28, "doubled")
    assert bounds(last, facts) == (0, 3 << 28)
    assert divisor(last, facts) == 1 << 28
    assert simplify(op("mod", last, 1 << 27), facts) == Const(0, INT32)


def test_chains_of_any_length_end() -> None:
    for step in ("doubled", "mixed"):
        for length in (MAX_DEPTH, 500):
            last, facts = chain(length, step)
            lo, hi = bounds(op("mod", last, 7), facts)
            assert 0 <= lo <= hi <= 6
            assert divisor(op("mul", last, 4), facts) % 4 == 0
            assert prove(Compare("lt", op("mod", last, 7), Const(7, INT32)), facts) is True


def test_far_behind_a_name_is_only_a_name() -> None:
    last, facts = chain(MAX_DEPTH + 1, "mixed")
    assert facts.about(last).equals is None
    assert bounds(last, facts)[1] == (1 << 31) - 1
