"""Recognises the online softmax among row statements, and lets its maximum lag behind.

The recurrence m = max(m, rowmax(S)); r = exp2((old - m) c); P = exp2(S c - m c); l = l r + rowsum(P); O = O r; at the end O / l,
does not depend on which m is subtracted, as long as all of P, l and O use the same one: any two differ by a factor of the row.
So m may stay as it is while the new one is less than `slack` powers above: nothing overflows, r is 1, and O need not be scaled.
Only rounding changes. Every statement that touches m, r, l or O must be one of these; otherwise nothing is done.

For the same reason each thread can sum up its own part of a row, and the lanes of a row add theirs once, at the end.

    lagging(prologue, rows, late, epilogue, out, scores, probs) -> the rows with `m = old where (m - old) c < 8` added, r and l
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, log

from tilec.record import record
from tilec.analysis.rounding import round_float
from tilec.ir.dtypes import FLOAT32
from tilec.ir.expr import Binary, Buffer, Call, Compare, Const, Expr, Load, Scope, Select, Var, VarKind
from tilec.ir.tile import Alloc, Copy, Fill, Let, Parallel, Reduce, Stmt, Store
from tilec.ir.visit import flat
from tilec.plan.domains import whole
from tilec.plan.pipelines import touched

SLACK = {"exp2": 8.0, "exp": 5.5}
"""How far the maximum may lag, in the exponent of the function used: a factor of 256 or less."""


@record
class Lagging:
    """Row statements whose maximum lags; `factor` is what they scale the accumulator by: 1 in most steps.

    `row_sum` goes into `total` alone, and that is used by the epilogue alone, so both may be of a thread's own columns till then.
    """

    rows: tuple[Stmt, ...]
    factor: Buffer
    row_sum: Buffer
    total: Buffer


@record
class _Softmax:
    """The buffers of the pattern, its function and its factor in the exponent."""

    top: Buffer
    old: Buffer
    factor: Buffer
    function: str
    scale: Const


def lagging(
    prologue: Sequence[Stmt], rows: Sequence[Stmt], late: Sequence[Stmt], epilogue: Sequence[Stmt],
    scores: Buffer, probs: Buffer, out: Buffer,
) -> Lagging | None:  # fmt: skip
    """The rows of an online softmax with a maximum that lags; None where they are anything else."""
    at = next((n for n, s in enumerate(rows) if _factor_of(s) is not None), None)
    found = None if at is None else _factor_of(rows[at])
    if at is None or found is None:
        return None
    row_sum = next((s.dst.buffer for s in rows if isinstance(s, Reduce) and s.op == "sum" and s.src.buffer is scores), None)
    total = next((t for s in rows if (t := _total_of(s, found.factor, row_sum)) is not None), None)
    if row_sum is None or total is None:
        return None
    owned = {found.top, found.old, found.factor, row_sum, total, out}
    before = all(_before_factor(s, found, scores, owned) for s in rows[:at])
    after = all(_behind_factor(s, found, scores, row_sum, total) for s in rows[at + 1 :])
    scaled = all(_scales(s, out, found.factor) or _is_copy(s, scores, probs) for s in late)
    starts = [s for s in prologue if total in touched([s])[1]]
    zero = len(starts) == 1 and isinstance(starts[0], Fill) and isinstance(starts[0].value, Const) and starts[0].value.value == 0
    if not (zero and before and after and scaled and _settled(rows[:at], found, scores) and _normalised(epilogue, found, total, out)):
        return None
    return Lagging((*rows[:at], _lag(found, rows[at]), *rows[at:]), found.factor, row_sum, total)


def folded(s: Stmt) -> Stmt:
    """`exp(S c - m c)` over a tile as `exp2` with log2(e) in the factor: the hardware's exponential has base 2."""
    found = _store(s)
    if found is None or len(found[0].vars) != 2:
        return s
    loop, store = found
    match store.value:
        case Call("exp", (power,)) if power.dtype == FLOAT32:
            parts = _difference(power)
        case _:
            return s
    if parts is None:
        return s
    a, b, c = parts
    scale = Const(round_float(c.value / log(2), FLOAT32), FLOAT32)

    def scaled(x: Expr) -> Expr:
        return Binary("mul", x, scale, FLOAT32)

    apart = isinstance(power, Binary) and power.op == "sub"
    new = Binary("sub", scaled(a), scaled(b), FLOAT32) if apart else scaled(Binary("sub", a, b, FLOAT32))
    return replace(loop, body=replace(store, value=Call("exp2", (new,), FLOAT32)))


def _store(s: Stmt) -> tuple[Parallel, Store] | None:
    """A loop over all of a buffer that does one store at its own indices."""
    if not isinstance(s, Parallel):
        return None
    match flat(s.body):
        case [Store() as store] if tuple(store.indices) == tuple(s.vars):
            return s, store
        case _:
            return None


def _row(e: Expr, at: Var) -> Buffer | None:
    """The buffer of `b[i]`."""
    return e.buffer if isinstance(e, Load) and tuple(e.indices) == (at,) else None


def _difference(e: Expr) -> tuple[Expr, Expr, Const] | None:
    """a, b and c of (a - b) * c or a * c - b * c, with a positive c."""
    match e:
        case Binary("mul", Binary("sub", a, b), Const(value) as c) | Binary("mul", Const(value) as c, Binary("sub", a, b)) if value > 0:
            return a, b, c
        case Binary("sub", Binary("mul", a, Const(x) as c), Binary("mul", b, Const(y))) if x == y and x > 0:
            return a, b, c
        case _:
            return None


def _factor_of(s: Stmt) -> _Softmax | None:
    """r = exp2((old - m) c)."""
    found = _store(s)
    if found is None or len(found[0].vars) != 1 or found[1].buffer.dtype != FLOAT32 or found[1].buffer.scope is not Scope.FRAGMENT:
        return None
    match found[1].value:
        case Call(("exp2" | "exp") as name, (power,)):
            parts = _difference(power)
        case _:
            return None
    if parts is None:
        return None
    i = found[0].vars[0]
    old, top = _row(parts[0], i), _row(parts[1], i)
    if old is None or top is None or old is top:
        return None
    return _Softmax(top, old, found[1].buffer, name, parts[2])


def _total_of(s: Stmt, factor: Buffer, row_sum: Buffer | None) -> Buffer | None:
    """l of l = l r + sum."""
    found = _store(s)
    if found is None or row_sum is None or len(found[0].vars) != 1:
        return None
    i, total = found[0].vars[0], found[1].buffer
    match found[1].value:
        case Binary("add", Binary("mul", a, b), c) if {_row(a, i), _row(b, i)} == {total, factor} and _row(c, i) is row_sum:
            return total
        case _:
            return None


def _before_factor(s: Stmt, x: _Softmax, scores: Buffer, owned: set[Buffer]) -> bool:
    """True for the statements that find the maximum, and for those that have nothing to do with the softmax."""
    match s:
        case Copy(src, dst) if src.buffer is x.top and dst.buffer is x.old:
            return whole(src) and whole(dst)
        case Fill(dst, Const(value)) if dst.buffer is x.top:
            return value == -inf
        case Reduce("max", src, dst) if dst.buffer is x.top:
            return src.buffer is scores and whole(src) and whole(dst)
        case _ if (found := _store(s)) is not None and found[1].buffer is x.top:
            i = found[0].vars[0]
            match found[1].value:
                case Binary("max", a, b):
                    return {_row(a, i), _row(b, i)} == {x.top, x.old}
                case _:
                    return False
        case _:
            return not owned & set().union(*touched([s]))


def _settled(rows: Sequence[Stmt], x: _Softmax, scores: Buffer) -> bool:
    """True when the old maximum is kept before the new one is found, and the scores stay as they are behind that."""
    kept = next((n for n, s in enumerate(rows) if isinstance(s, Copy) and s.dst.buffer is x.old), None)
    first = next((n for n, s in enumerate(rows) if isinstance(s, Reduce) and s.dst.buffer is x.top), None)
    if kept is None or first is None or any(x.top in touched([s])[1] for s in rows[:kept]):
        return False
    return not any(scores in touched([s])[1] for s in rows[first:])


def _behind_factor(s: Stmt, x: _Softmax, scores: Buffer, row_sum: Buffer, total: Buffer) -> bool:
    """True for P = exp2(S c - m c), the sum of a row, and the running total."""
    if isinstance(s, Alloc | Let):
        return True
    if isinstance(s, Reduce):
        return s.op == "sum" and s.src.buffer is scores and s.dst.buffer is row_sum and s.clear
    if _total_of(s, x.factor, row_sum) is total:
        return True
    found = _store(s)
    if found is None or found[1].buffer is not scores:
        return False
    match found[1].value:
        case Call(name, (power,)) if name == x.function:
            parts = _difference(power)
        case _:
            return False
    own = Load(scores, found[1].indices)
    return parts is not None and parts[0] == own and _row(parts[1], found[0].vars[0]) is x.top and parts[2].value == x.scale.value


def _scales(s: Stmt, out: Buffer, factor: Buffer) -> bool:
    """True for O = O r."""
    return _by_row(s, out, lambda value, own, i: _factors(value) == {own, Load(factor, (i,))})


def _factors(e: Expr) -> set[Expr]:
    return {e.a, e.b} if isinstance(e, Binary) and e.op == "mul" else set()


def _by_row(s: Stmt, out: Buffer, test: Callable[[Expr, Load, Var], bool]) -> bool:
    found = _store(s)
    return found is not None and found[1].buffer is out and test(found[1].value, Load(out, found[1].indices), found[0].vars[0])


def _is_copy(s: Stmt, src: Buffer, dst: Buffer) -> bool:
    return isinstance(s, Copy) and s.src.buffer is src and s.dst.buffer is dst


def _normalised(epilogue: Sequence[Stmt], x: _Softmax, total: Buffer, out: Buffer) -> bool:
    """True when all that leaves is O / l and what does not depend on which maximum was subtracted: log(l) + m c."""
    stats = {x.top, x.old, x.factor, total, out}
    divided = False
    free: set[Buffer] = set()  # rows that hold log(l) + m c by now
    for s in epilogue:
        if isinstance(s, Alloc):
            continue
        if not divided and _by_row(s, out, lambda v, own, i: v == Binary("div", own, Load(total, (i,)), out.dtype)):
            divided = True
            stats = stats - {out}
            continue
        found = _store(s)
        if found is not None and len(found[0].vars) == 1 and _is_logarithm(found[1].value, found[0].vars[0], x, total):
            free.add(found[1].buffer)
            stats = stats - {found[1].buffer} if divided else stats
            continue
        if stats & set().union(*touched([s])):
            return False
    return divided


def _is_logarithm(e: Expr, i: Var, x: _Softmax, total: Buffer) -> bool:
    """True for log2(l) + m c."""
    if not isinstance(e, Binary) or e.op != "add":
        return False
    for logarithm, rest in ((e.a, e.b), (e.b, e.a)):
        if logarithm != Call({"exp2": "log2", "exp": "log"}[x.function], (Load(total, (i,)),), FLOAT32):
            continue
        match rest:
            case Binary("mul", a, Const(value)) | Binary("mul", Const(value), a):
                return value == x.scale.value and _row(a, i) is x.top
    return False


def _lag(x: _Softmax, like: Stmt) -> Parallel:
    """m = old where that is near enough."""
    assert isinstance(like, Parallel)
    i = Var(like.vars[0].name, kind=VarKind.LOOP, span=like.span)
    top, old = Load(x.top, (i,)), Load(x.old, (i,))
    rise = Binary("mul", Binary("sub", top, old, FLOAT32), x.scale, FLOAT32)
    value = Select(Compare("lt", rise, Const(SLACK[x.function], FLOAT32)), old, top, FLOAT32)
    return Parallel((i,), like.extents, Store(x.top, (i,), value, like.span), like.span)
