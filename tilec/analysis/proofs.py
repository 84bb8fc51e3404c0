"""Proofs of conditions over index expressions: cancels common terms, then uses ranges, divisors and symbolic bounds.

    prove(by * 128 + row < M, facts) -> True      when by < ceildiv(M, 128), row < 128 and 128 divides M
"""

from __future__ import annotations

from math import gcd

from tilec.analysis.affine import Linear
from tilec.analysis.facts import Facts
from tilec.analysis.ranges import (
    NO_FACTS,
    compare,
    decide,
    divisor,
    interval,
    is_exact,
    is_integral,
    linear,
    linear_divisor,
    linear_interval,
)  # fmt: skip
from tilec.ir.expr import Binary, Call, Compare, Const, Expr, Load, Logical, Select, Unary, Var
from tilec.ir.visit import walk_expr

_STEPS = 48


def prove(cond: Expr, facts: Facts = NO_FACTS) -> bool | None:
    """True or False when the bool expression always has that value under `facts`, None when it is not known."""
    match cond:
        case Logical(op, a, b):
            x, y = prove(a, facts), prove(b, facts)
            stops = op == "or"
            if x is stops or y is stops:
                return stops
            return (not stops) if x is not None and y is not None else None
        case Unary("not", a):
            inner = prove(a, facts)
            return None if inner is None else not inner
        case Select(c, a, b):
            known = prove(c, facts)
            if known is not None:
                return prove(a if known else b, facts)
            both = prove(a, facts), prove(b, facts)
            return both[0] if both[0] is both[1] else None
        case Compare(op, a, b) if is_integral(a.dtype):
            return _compare(op, a, b, facts)
        case _:
            return decide(cond, facts)


def _compare(op: str, a: Expr, b: Expr, facts: Facts) -> bool | None:
    if a == b:
        return op in ("eq", "le", "ge")
    known = compare(op, interval(a, facts), interval(b, facts))
    if known is not None or not (is_exact(a, facts) and is_exact(b, facts)):
        return known
    diff = linear(b, facts).plus(linear(a, facts), -1)  # b - a
    match op:
        case "lt":
            return _less(diff, facts)
        case "gt":
            return _less(diff.times(-1), facts)
        case "le":
            return _negate(_less(diff.times(-1), facts))
        case "ge":
            return _negate(_less(diff, facts))
        case _:
            same = _equal(diff, facts)
            return same if op == "eq" else _negate(same)


def _negate(known: bool | None) -> bool | None:
    return None if known is None else not known


def _less(diff: Linear, facts: Facts) -> bool | None:
    """The truth of 0 < diff."""
    if _positive(diff, facts):
        return True
    return False if _positive(Linear({t: -c for t, c in diff.terms.items()}, 1 - diff.const), facts) else None


def _equal(diff: Linear, facts: Facts) -> bool | None:
    if not diff.terms:
        return diff.const == 0
    step = gcd(*(c * divisor(t, facts) for t, c in diff.terms.items()))
    if step and diff.const % step:
        return False
    if _positive(diff, facts) or _positive(diff.times(-1), facts):
        return False
    return True if _at_most_zero(diff, facts) and _at_most_zero(diff.times(-1), facts) else None


def _at_most_zero(diff: Linear, facts: Facts) -> bool:
    return _positive(Linear({t: -c for t, c in diff.terms.items()}, 1 - diff.const), facts)


def _positive(form: Linear, facts: Facts) -> bool:
    """True when 0 < form is proven: by its range, or after replacing a term by a bound that only makes the form smaller.

    The search is depth first over the choice of the term, and short.
    """
    pending, seen, steps = [form], set[tuple[frozenset[tuple[Expr, int]], int]](), 0
    while pending and steps < _STEPS:
        form = pending.pop()
        steps += 1
        key = (frozenset(form.terms.items()), form.const)
        if key in seen:
            continue
        seen.add(key)
        if _lower_end(form, facts) > 0:
            return True
        pending += [smaller for term, c in form.terms.items() for smaller in _lowered(form, term, c, facts)]
    return False


def _lower_end(form: Linear, facts: Facts) -> int:
    """The lower end of the range, raised to the next value that the divisors of the terms allow."""
    lo = linear_interval(form, facts)[0]
    step = linear_divisor(Linear(form.terms), facts)
    return lo + (form.const - lo) % step if step else lo


def _lowered(form: Linear, term: Expr, c: int, facts: Facts) -> list[Linear]:
    """Forms that are positive only if... `form` is: each is at most `form` (times a positive number)."""
    rest = Linear({t: k for t, k in form.terms.items() if t is not term}, form.const)
    match term:
        case Var() if term.dtype.is_int:
            return _lowered_variable(rest, term, c, facts)
        case Binary("floordiv", x, Const(value=int(n))) if n > 0 and is_exact(x, facts):
            return [_lowered_quotient(rest, x, c, n, facts, up=False)]
        case Binary("truncdiv", x, Const(value=int(n))) if n > 0 and is_exact(x, facts) and interval(x, facts)[0] >= 0:
            return [_lowered_quotient(rest, x, c, n, facts, up=False)]
        case Call("ceildiv", (x, Const(value=int(n)))) if n > 0 and is_exact(x, facts):
            return [_lowered_quotient(rest, x, c, n, facts, up=True)]
        case Binary("mod", x, Const(value=int(n))) if n > 0 and c < 0 and interval(x, facts)[0] >= 0 and is_exact(x, facts):
            return [rest.plus(linear(x, facts), c)]  # x % n <= x
        case Binary("min", a, b) if c < 0:
            return [rest.plus(linear(arm, facts), c) for arm in (a, b) if is_exact(arm, facts)]
        case Binary("max", a, b) if c > 0:
            return [rest.plus(linear(arm, facts), c) for arm in (a, b) if is_exact(arm, facts)]
        case _:
            return []


def _lowered_variable(rest: Linear, var: Var, c: int, facts: Facts) -> list[Linear]:
    entry = facts.about(var)
    if c < 0 and entry.below is not None and _is_lasting(entry.below) and is_exact(entry.below, facts):
        limit = linear(entry.below, facts)
        # v < limit, and both are multiples of the divisor: v <= limit - divisor.
        step = entry.divisor if linear_divisor(limit, facts) % entry.divisor == 0 else 1
        return [rest.plus(limit.plus(Linear(const=-step)), c)]
    if c > 0 and entry.at_least is not None and _is_lasting(entry.at_least) and is_exact(entry.at_least, facts):
        return [rest.plus(linear(entry.at_least, facts), c)]
    return []


def _is_lasting(bound: Expr) -> bool:
    """False for a bound read from memory: a loop takes it once, and the memory may have changed since."""
    return not any(isinstance(e, Load) for e in walk_expr(bound))


def _lowered_quotient(rest: Linear, x: Expr, c: int, n: int, facts: Facts, up: bool) -> Linear:
    """rest + c * q with q = x / n rounded down (or up), times n where c is not a multiple of n.

    n * q lies in [x - slack, x] rounded down and in [x, x + slack] rounded up.
    """
    slack = 0 if divisor(x, facts) % n == 0 else n - 1
    if c % n == 0:
        factor = c // n
    else:
        rest, factor = rest.times(n), c
    worst = slack if up else -slack
    shift = min(0, factor * worst)
    return Linear(const=shift).plus(rest).plus(linear(x, facts), factor)
