"""Conditions inside an element-wise loop that hold for the whole tile, most of the time.

A causal or ragged mask decides about each element, yet most tiles lie wholly on one side of it. The condition at the worst
corner of the tile tells so for all elements at once: one test a tile instead of one an element.

    s[i, j] = bx * 64 + i >= k * 64 + j ? 0 : -inf   for i, j in 64, 64
 -> if bx * 64 >= k * 64 + 63: s[i, j] = 0           else the loop as it stands
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations

from tilec.record import record
from tilec.analysis.affine import coefficient
from tilec.analysis.facts import Facts
from tilec.analysis.proofs import prove
from tilec.analysis.ranges import is_exact
from tilec.analysis.simplify import simplify
from tilec.ir.expr import Binary, Compare, Const, Expr, Load, Logical, Select, Var
from tilec.ir.tile import If, Let, Parallel, Seq, Stmt, Store
from tilec.ir.visit import map_expr, map_stmt, stmt_exprs, substitute, walk_expr, walk_stmt
from tilec.plan.domains import static
from tilec.plan.pipelines import rename

MOST = 4
"""Conditions of a loop that are looked at."""


@record
class Unmasked:
    """`loop` is what a masked loop means where `test`, the same for every element, holds."""

    test: Expr
    loop: Parallel


def settled(s: Parallel, facts: Facts) -> Parallel:
    """`s` without the conditions that are proven for every element."""
    lets = _lets(s)
    known = _inside(s, facts)
    choices = {c: value for c in _conditions(s.body) if (value := prove(_resolved(c, lets), known)) is not None}
    return replace(s, body=_decided(s.body, choices)) if choices else s


def unmasked(s: Parallel, facts: Facts) -> Unmasked | None:
    """The loop without the conditions that one test can vouch for; None when there are none, or the body is more than stores."""
    if not all(isinstance(x, Seq | Store | Let | If) for x in walk_stmt(s.body)) or any(static(e) is None for e in s.extents):
        return None
    lets, known = _lets(s), _inside(s, facts)
    bound = {x.var for x in walk_stmt(s.body) if isinstance(x, Let)}  # those that are left may differ from element to element
    choices: dict[Expr, bool] = {}
    tests: dict[Expr, None] = {}
    for c in list(dict.fromkeys(_conditions(s.body)))[:MOST]:
        plain = _resolved(c, lets)
        found = None if bound.intersection(walk_expr(plain)) else _corner(plain, s, known)
        if found is not None:
            choices[c] = True
            tests |= dict.fromkeys(t for t in (simplify(t, facts) for t in found) if not (isinstance(t, Const) and t.value))
    if not tests or any(isinstance(t, Const) for t in tests):
        return None
    first, *rest = tests
    if any(_exclusive(x, y, facts) for x, y in combinations(tests, 2)):
        return None  # a window that is narrower than the tile never holds for all of it
    for t in rest:
        first = Logical("and", first, t)
    return Unmasked(first, _renewed(replace(s, body=_decided(s.body, choices))))


def _exclusive(x: Expr, y: Expr, facts: Facts) -> bool:
    """True when two comparisons cannot both hold: what they leave over adds up to less than nothing."""
    a, b = _slack(x), _slack(y)
    if a is None or b is None or a.dtype != b.dtype:
        return False
    return prove(Compare("lt", Binary("add", a, b, a.dtype), Const(0, a.dtype)), facts) is True


def _slack(test: Expr) -> Expr | None:
    """What is not negative where a comparison holds."""
    if not isinstance(test, Compare) or test.op not in ("lt", "le", "gt", "ge"):
        return None
    low, high = (test.a, test.b) if test.op in ("lt", "le") else (test.b, test.a)
    left = Binary("sub", high, low, low.dtype)
    return left if test.op in ("le", "ge") else Binary("sub", left, Const(1, low.dtype), low.dtype)


def _renewed(s: Parallel) -> Parallel:
    """The same loop with variables of its own: the plan tells accesses apart by their indices."""
    table = {v: replace(v) for v in s.vars}
    body = s.body
    for old, new in table.items():
        body = rename(body, old, new)
    return replace(s, vars=tuple(table.values()), body=body)


def _lets(s: Parallel) -> dict[Var, Expr]:
    """Names bound in the loop body to values that read no memory."""
    return {
        x.var: x.value for x in walk_stmt(s.body) if isinstance(x, Let) and not any(isinstance(e, Load) for e in walk_expr(x.value))
    }  # fmt: skip


def _resolved(e: Expr, lets: Mapping[Var, Expr]) -> Expr:
    while any(isinstance(x, Var) and x in lets for x in walk_expr(e)):
        e = substitute(e, lets)
    return e


def _inside(s: Parallel, facts: Facts) -> Facts:
    for v, e in zip(s.vars, s.extents, strict=True):
        facts = facts.with_index(v, e)
    return facts


def _conditions(body: Stmt) -> Iterator[Expr]:
    """What branches and selections of the body ask."""
    for s in walk_stmt(body):
        if isinstance(s, If):
            yield s.cond
        for root in stmt_exprs(s):
            yield from (e.cond for e in walk_expr(root) if isinstance(e, Select))


def _corner(cond: Expr, s: Parallel, facts: Facts) -> list[Expr] | None:
    """Tests that together imply `cond` for every element; None when it does not depend on the element, or not linearly."""
    if isinstance(cond, Logical) and cond.op == "and":
        sides = _corner(cond.a, s, facts), _corner(cond.b, s, facts)
        return [*sides[0], *sides[1]] if sides[0] is not None and sides[1] is not None else None
    if not isinstance(cond, Compare) or cond.op not in ("lt", "le", "gt", "ge") or not cond.a.dtype.is_int:
        return None
    if any(isinstance(e, Load) for e in walk_expr(cond)) or not (is_exact(cond.a, facts) and is_exact(cond.b, facts)):
        return None
    table: dict[Var, Expr] = {}
    for v, extent in zip(s.vars, s.extents, strict=True):
        slopes = coefficient(cond.a, v), coefficient(cond.b, v)
        if slopes[0] is None or slopes[1] is None:
            return None
        rising = slopes[0] - slopes[1] if cond.op in ("lt", "le") else slopes[1] - slopes[0]  # towards where the condition fails
        table[v] = Const((static(extent) or 1) - 1 if rising > 0 else 0, v.dtype)
    return [substitute(cond, table)]


def _decided(body: Stmt, choices: Mapping[Expr, bool]) -> Stmt:
    """`body` with conditions replaced by what they are known to be."""

    def expr(e: Expr) -> Expr:
        e = map_expr(e, expr)
        if isinstance(e, Select) and e.cond in choices:
            return e.a if choices[e.cond] else e.b
        return e

    def stmt(s: Stmt) -> Stmt:
        if isinstance(s, If) and s.cond in choices:
            return stmt(s.then if choices[s.cond] else s.orelse)
        return map_stmt(s, expr, stmt)

    return stmt(body)
