"""Random integer expressions over small ranges: every claim of the analysis is checked on every value."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tilec.analysis.facts import Facts
from tilec.analysis.proofs import prove
from tilec.analysis.ranges import bounds, cannot_overflow, divisor, fits_int32
from tilec.analysis.simplify import simplify
from tilec.ir.dtypes import BOOL, INT8, INT32, INT64, UINT8, UINT32, DType, Kind, int_range, wrap
from tilec.ir.expr import Binary, Call, Cast, Compare, Const, Expr, Logical, Select, Unary, Var, VarKind
from tilec.ir.visit import walk_expr


def toward_zero(a: int, b: int) -> int:
    return 0 if b == 0 else int(abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


def shifted(op: str, a: int, n: int, bits: int) -> int:
    if not 0 <= n < bits:
        return 0 if op == "shl" or a >= 0 else -1
    return a << n if op == "shl" else a >> n


def power(a: int, n: int) -> int:
    return a**n if n >= 0 else {1: 1, -1: 1 if n % 2 == 0 else -1}.get(a, 0)


OPERATIONS = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b if b else 0, "mod": lambda a, b: a % b if b else 0,
    "truncdiv": toward_zero, "truncmod": lambda a, b: a - b * toward_zero(a, b) if b else 0,
    "min": min, "max": max, "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
}  # fmt: skip
COMPARISONS = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip


def exact(e: Expr, env: dict[Var, int]) -> int:
    """The last operation over Python's integers, on operands that have wrapped."""
    match e:
        case Const(value=n):
            return int(n)
        case Var():
            return env[e]
        case Unary("neg", a):
            return -value(a, env)
        case Unary("invert", a):
            return ~value(a, env)
        case Unary("not", a):
            return int(not value(a, env))
        case Binary("shl" | "shr" as op, a, b):
            return shifted(op, value(a, env), value(b, env), e.dtype.bits)
        case Binary("pow", a, b):
            return power(value(a, env), value(b, env))
        case Binary(op, a, b):
            return int(OPERATIONS[op](value(a, env), value(b, env)))
        case Compare(op, a, b):
            return int(COMPARISONS[op](value(a, env), value(b, env)))
        case Logical(op, a, b):
            return int((value(a, env) and value(b, env)) if op == "and" else (value(a, env) or value(b, env)))
        case Select(c, a, b):
            return value(a, env) if value(c, env) else value(b, env)
        case Cast(a):
            return int(value(a, env) != 0) if e.dtype == BOOL else value(a, env)
        case Call("ceildiv", (a, b)):
            x, y = value(a, env), value(b, env)
            return -(-x // y) if y else 0
        case Call("abs", (a,)):
            return abs(value(a, env))
        case _:
            raise AssertionError(e)


def value(e: Expr, env: dict[Var, int]) -> int:
    return wrap(exact(e, env), e.dtype) if e.dtype.kind is not Kind.BOOL else exact(e, env) & 1


def true_value(e: Expr, env: dict[Var, int]) -> int:
    """Sums and products without any wrap-around; the rest at the width of its type."""
    match e:
        case Binary("add" | "sub" | "mul" as op, a, b):
            return int(OPERATIONS[op](true_value(a, env), true_value(b, env)))
        case Unary("neg", a):
            return -true_value(a, env)
        case _:
            return value(e, env)


# A few variables of each type with few values, so that all assignments can be tried.
VALUES: dict[Var, list[int]] = {}


def variable(name: str, dtype: DType, values: list[int]) -> Var:
    v = Var(name, dtype)
    VALUES[v] = values
    return v


POOL = {
    INT32: [variable("i", INT32, [0, 1, 2, 3, 4, 5, 6, 7]), variable("k", INT32, [0, 32, 64, 96]), variable("s", INT32, [-5, -2, -1, 0, 3]),
            variable("big", INT32, [0, 1 << 30, (1 << 31) - 1])],
    INT8: [variable("c", INT8, [-128, -3, 0, 5, 127])],
    UINT8: [variable("u", UINT8, [0, 1, 200, 255])],
    UINT32: [variable("w", UINT32, [0, 3, 1 << 31, (1 << 32) - 1])],
    INT64: [variable("l", INT64, [-(1 << 40), 0, 7, 1 << 33])],
}  # fmt: skip


def facts_of(v: Var) -> tuple[int, int, int]:
    return min(VALUES[v]), max(VALUES[v]), math.gcd(*VALUES[v])


FACTS = Facts()
for _v in VALUES:
    FACTS = FACTS.with_range(_v, *facts_of(_v))


def constants(dtype: DType) -> st.SearchStrategy[Expr]:
    lo, hi = int_range(dtype)
    small = st.sampled_from([n for n in (-32, -3, -1, 0, 1, 2, 3, 4, 8, 31, 32, 64) if lo <= n <= hi])
    return st.builds(Const, small | st.sampled_from([lo, hi]), st.just(dtype))


def leaves(dtype: DType) -> st.SearchStrategy[Expr]:
    return st.sampled_from(POOL[dtype]) | constants(dtype)


@st.composite
def integers(draw: st.DrawFn, dtype: DType, depth: int) -> Expr:
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return draw(leaves(dtype))
    a = draw(integers(dtype, depth - 1))
    kind = draw(st.integers(0, 11))
    if kind == 0:
        return Unary(draw(st.sampled_from(["neg", "invert"])), a, dtype)
    if kind == 1:
        return Select(draw(conditions(depth - 1)), a, draw(integers(dtype, depth - 1)), dtype)
    if kind == 2:
        return Cast(draw(integers(draw(st.sampled_from(list(POOL))), depth - 1)), dtype)
    if kind == 3:
        return Call("ceildiv", (a, draw(leaves(dtype))), dtype) if draw(st.booleans()) else Call("abs", (a,), dtype)
    if kind == 4:
        return Binary(draw(st.sampled_from(["shl", "shr"])), a, Const(draw(st.integers(0, 9)), dtype), dtype)
    if kind == 5:
        return Binary("pow", a, Const(draw(st.integers(0, 4)), dtype), dtype)
    op = draw(st.sampled_from(["add", "add", "sub", "mul", *OPERATIONS]))
    return Binary(op, a, draw(leaves(dtype) if op.endswith(("div", "mod")) else integers(dtype, depth - 1)), dtype)


@st.composite
def conditions(draw: st.DrawFn, depth: int) -> Expr:
    if depth > 0 and draw(st.integers(0, 3)) == 0:
        return Logical(draw(st.sampled_from(["and", "or"])), draw(conditions(depth - 1)), draw(conditions(depth - 1)))
    if draw(st.integers(0, 6)) == 0:
        return Unary("not", draw(conditions(max(depth - 1, 0))), BOOL)
    dtype = draw(st.sampled_from([INT32, INT32, INT32, *POOL]))
    return Compare(draw(st.sampled_from(list(COMPARISONS))), draw(integers(dtype, depth)), draw(integers(dtype, depth)))


def any_integer(depth: int = 3) -> st.SearchStrategy[Expr]:
    return st.sampled_from([INT32, INT32, *POOL]).flatmap(lambda d: integers(d, depth))


def environments(e: Expr, limit: int = 400) -> Iterator[dict[Var, int]]:
    variables = list(dict.fromkeys(v for v in walk_expr(e) if isinstance(v, Var)))
    for choice in itertools.islice(itertools.product(*(VALUES[v] for v in variables)), limit):
        yield dict(zip(variables, choice, strict=True))


@given(any_integer())
@settings(max_examples=120, deadline=None)
def test_bounds_and_divisor_hold(e: Expr) -> None:
    lo, hi = bounds(e, FACTS)
    d = divisor(e, FACTS)
    assert lo is not None and hi is not None
    for env in environments(e):
        v = value(e, env)
        assert lo <= v <= hi
        assert v == 0 if d == 0 else v % d == 0


@given(any_integer())
@settings(max_examples=120, deadline=None)
def test_simplify_keeps_the_value(e: Expr) -> None:
    shorter = simplify(e, FACTS)
    assert shorter.dtype == e.dtype
    for env in environments(e):
        assert value(shorter, env) == value(e, env), (e, shorter, env)


@given(conditions(2))
@settings(max_examples=120, deadline=None)
def test_proofs_hold(cond: Expr) -> None:
    known = prove(cond, FACTS)
    if known is not None:
        for env in environments(cond):
            assert bool(value(cond, env)) is known
    shorter = simplify(cond, FACTS)
    for env in environments(cond):
        assert value(shorter, env) == value(cond, env)


@given(any_integer(2))
@example(Binary("shl", Unary("neg", Const(1, UINT32), UINT32), Const(0, UINT32), UINT32))
@settings(max_examples=120, deadline=None)
def test_overflow_claims_hold(e: Expr) -> None:
    fits, last = fits_int32(e, FACTS), isinstance(e, Binary | Unary) and cannot_overflow(e, FACTS)
    lo, hi = int_range(INT32)
    for env in environments(e):
        if fits:
            assert lo <= true_value(e, env) <= hi
        if last:
            assert exact(e, env) == value(e, env)


@st.composite
def tiled(draw: st.DrawFn) -> tuple[Expr, Facts, dict[Var, list[int]], list[tuple[Expr, Var]]]:
    """A comparison of a tiled index with a symbolic extent: by < ceildiv(M, t), row < t, M a multiple of d or not."""
    tile, step = draw(st.sampled_from([2, 3, 4, 8])), draw(st.sampled_from([1, 2, 3, 4, 8, 16]))
    M, by, row = Var("M"), Var("by"), Var("row")
    size = Const(tile, INT32)
    extent: Expr = Call("ceildiv", (M, size), INT32) if draw(st.booleans()) else Binary("floordiv", M, size, INT32)
    if draw(st.booleans()):
        extent = Binary("add", extent, Const(draw(st.integers(-2, 2)), INT32), INT32)
    facts = Facts().with_range(M, 0, 48, step).with_index(by, extent).with_range(row, 0, tile - 1)
    index = Binary("add", Binary("mul", by, Const(tile, INT32), INT32), row, INT32)
    slack = Const(draw(st.integers(-tile, tile)), INT32)
    left = Binary("add", index, slack, INT32) if draw(st.booleans()) else index
    right: Expr = draw(st.sampled_from([M, Binary("mul", extent, Const(tile, INT32), INT32)]))
    cond = Compare(draw(st.sampled_from(list(COMPARISONS))), left, right)
    return cond, facts, {M: list(range(0, 49, step)), row: list(range(tile)), by: []}, [(extent, by)]


@given(tiled())
@settings(max_examples=120, deadline=None)
def test_symbolic_proofs_hold(case: tuple[Expr, Facts, dict[Var, list[int]], list[tuple[Expr, Var]]]) -> None:
    cond, facts, values, [(extent, by)] = case
    known, shorter = prove(cond, facts), simplify(cond, facts)
    M, row = (v for v in values if v is not by)
    for m in values[M]:
        for b in range(value(extent, {M: m})):
            for r in values[row]:
                truth = bool(value(cond, {M: m, by: b, row: r}))
                assert known in (None, truth)
                assert bool(value(shorter, {M: m, by: b, row: r})) is truth


@pytest.mark.parametrize("dtype", list(POOL), ids=str)
def test_the_pool_lies_in_its_types(dtype: DType) -> None:
    lo, hi = int_range(dtype)
    assert all(lo <= n <= hi for v in POOL[dtype] for n in VALUES[v])


def test_an_expression_that_holds_another_many_times_over_is_looked_into_once() -> None:
    """Each step names the one before twice: 2^40 ways lead to x."""
    x = Var("x", INT32, VarKind.LOOP)
    e: Expr = x
    for _ in range(40):
        e = Binary("max", Binary("shr", e, Const(1, INT32), INT32), Binary("min", e, Const(5, INT32), INT32), INT32)
    assert bounds(e) == (-1, 5)  # 40 halvings of the range of int32
    assert bounds(e, Facts().with_range(x, 0, 9)) == (0, 5)
