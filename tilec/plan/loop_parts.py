"""What lowering asks of one loop: names for its register digits, what is known inside, which memory its statements touch.

    register_digits(i, j over an accumulator) -> i_0, j_0, j_1: one for each register digit
"""

from __future__ import annotations

from tilec.analysis.facts import Facts
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Binary, Const, Expr, Var, VarKind
from tilec.ir.tile import Parallel
from tilec.layout.fragment import FragmentLayout
from tilec.plan.plan import Spread


def register_digits(s: Parallel, layout: FragmentLayout) -> tuple[Var, ...]:
    """A variable for each register digit, named after the index it is part of: i_0, i_1, j_0 and so on, fastest first."""
    count: dict[int, int] = {}
    out: list[Var] = []
    for g in layout.regs:
        n = count[g.dim] = count.get(g.dim, -1) + 1
        out.append(Var(f"{s.vars[g.dim].name}_{n}", kind=VarKind.LOOP))
    return tuple(out)


def indexed(s: Parallel, facts: Facts) -> Facts:
    """Facts inside a loop."""
    for v, e in zip(s.vars, s.extents, strict=True):
        facts = facts.with_index(v, e)
    return facts


def as_int32(e: Expr) -> Expr:
    """A literal as int32, any other expression as it is."""
    return e if e.dtype == INT32 else Const(int(e.value), INT32) if isinstance(e, Const) else e


def alone(n: int, width: int) -> tuple[Spread, tuple[Var, ...], tuple[Expr, ...]]:
    """Chunks of `width` of `n` elements, one after the other by the same thread: how, the digits that count them, their first elements."""
    turn = Var("turn", kind=VarKind.LOOP)
    place: Expr = Binary("mul", turn, Const(width, INT32), INT32) if n > width else Const(0, INT32)
    return Spread(1, width, Const(n // width, INT32)), (turn,) if n > width else (), (place,)
