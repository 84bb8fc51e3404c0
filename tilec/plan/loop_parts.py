"""What lowering asks of one loop: names for its register digits, what is known inside, which memory its statements touch.

    register_digits(i, j over an accumulator) -> i_0, j_0, j_1: one for each register digit
"""

from __future__ import annotations

from tilec.analysis.facts import Facts
from tilec.analysis.proofs import prove
from tilec.analysis.simplify import simplify
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Binary, Call, Const, Expr, Var, VarKind
from tilec.ir.tile import Parallel
from tilec.layout.fragment import FragmentLayout
from tilec.plan.access import compare
from tilec.plan.domains import static
from tilec.plan.plan import THREAD, Spread


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


def spread(s: Parallel, width: int, threads: int, facts: Facts) -> tuple[Spread, tuple[Var, ...], tuple[Expr, ...], Expr | None]:
    """Cuts a domain into chunks of `width` along its last variable, dealt out to the threads round by round."""
    thread = THREAD
    counts = [as_int32(e) for e in s.extents]
    counts[-1] = counts[-1] if width == 1 else simplify(Binary("floordiv", counts[-1], Const(width, INT32), INT32), facts)
    chunks = counts[0]
    for c in counts[1:]:
        chunks = simplify(Binary("mul", chunks, c, INT32), facts)
    rounds = simplify(Call("ceildiv", (chunks, Const(threads, INT32)), INT32), facts)
    digit = Var("turn", kind=VarKind.LOOP)
    known = facts.with_range(thread, 0, threads - 1).with_loop(digit, Const(0, INT32), rounds, Const(1, INT32))
    number: Expr = thread if static(rounds) == 1 else Binary("add", Binary("mul", digit, Const(threads, INT32), INT32), thread, INT32)
    values: list[Expr] = []
    left = number
    for n, c in reversed(list(enumerate(counts))):
        one = left if n == 0 else Binary("mod", left, c, INT32)
        values.append(Binary("mul", one, Const(width, INT32), INT32) if n == len(counts) - 1 and width > 1 else one)
        left = Binary("floordiv", left, c, INT32)
    guard: Expr | None = compare("lt", number, chunks)
    assert guard is not None
    guard = None if prove(guard, known) is True else simplify(guard, known)
    digits = () if static(rounds) == 1 else (digit,)
    return Spread(threads, width, rounds), digits, tuple(simplify(v, known) for v in reversed(values)), guard
