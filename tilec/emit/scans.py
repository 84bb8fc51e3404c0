"""Running sums and maxima of a register tile as CUDA text."""

from __future__ import annotations

from math import prod

from tilec.record import record
from tilec.analysis.facts import Facts
from tilec.emit.cliteral import ctype
from tilec.emit.memory import Spelling
from tilec.emit.reductions import combine, identity
from tilec.emit.render import render
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Compare, Const, Expr, Var, VarKind
from tilec.layout.fragment import Digit
from tilec.plan.access import layout_values, times, total
from tilec.plan.plan import THREAD, PScan
from tilec.plan.scans import line_of


@record
class _Level:
    """A loop over one register digit: C name and count."""

    var: str
    count: int


def scan_text(spell: Spelling, s: PScan, facts: Facts, threads: int, meet: str = "__syncthreads();") -> str:
    """Statements that replace each element of `s.buffer` by the sum or maximum of those up to it; `meet` waits for all `threads`."""
    dtype, line = s.buffer.dtype, line_of(s.layout, s.dim)
    sums, value = Var("sum", dtype), Var("value", dtype)
    carry = Var("carry", dtype)
    merge = spell.expr(combine(s.op, sums, value, dtype, False), facts)
    advance = spell.expr(combine(s.op, carry, value, dtype, False), facts)
    outer: list[_Level] = []
    along: list[_Level] = []
    digits: list[Expr] = []
    known = facts
    inner = Var("n", INT32, VarKind.LOOP)
    for g in s.layout.regs:
        run = g.dim == s.dim and g.stride == 1 and g.size == line.run
        v = inner if run else Var("pass" if g.dim == s.dim else "line", INT32, VarKind.LOOP)
        known = known.with_range(v, 0, g.size - 1)
        digits.append(v)
        if not run:
            (along if g.dim == s.dim else outer).append(_Level(spell.var(v), g.size))
    # Threads beyond the last whole set of copies have no warps of their own to go on from: they read where the first set met.
    whole = s.layout.used_threads
    number = "thread" if threads % whole == 0 else f"(thread % {whole})"
    spell.need_type(dtype)
    shuffle = "shfl_down" if s.reverse else "shfl_up"
    for name in (shuffle, *(["shfl_idx"] if line.warps == 1 and line.passes > 1 else [])):
        spell.need(name)
    return render(
        "reduce/scan.cu.jinja", meet=meet, type=ctype(dtype), name=spell.buffer(s.buffer), sum=spell.var(sums), value=spell.var(value),
        merge=merge, advance=advance, identity=spell.expr(identity(s.op, dtype), facts),
        outer=outer[::-1], along=along[::-1], n=spell.var(inner), line=line,
        register=spell.expr(_register(s.layout.regs, digits), known), valid=_valid(spell, s, digits, known), reverse=s.reverse,
        shuffle=shuffle, scratch="" if s.scratch is None else spell.buffer(s.scratch), slots=threads // line.lanes,
        number=_number([*outer, *along]), results=prod(x.count for x in (*outer, *along)), before=spell.names.fresh("before"),
        whole=spell.names.fresh("whole"), carry=spell.var(carry), step=spell.names.fresh("step"), part=spell.names.fresh("p"),
        digit=_digit("thread", line.place, line.lanes), warp=_digit("thread", line.place * line.lanes, line.warps),
        slot=_slot("thread", line.place, line.lanes), first=_slot(number, line.place, line.lanes * line.warps, line.warps),
    )  # fmt: skip


def _register(regs: tuple[Digit, ...], digits: list[Expr]) -> Expr:
    weight, parts = 1, []
    for g, e in zip(regs, digits, strict=True):
        parts.append(times(e, weight))
        weight *= g.size
    return total(parts[::-1])


def _valid(spell: Spelling, s: PScan, digits: list[Expr], facts: Facts) -> str:
    """The condition that keeps the padding of a line out; "" where it does not come first or there is none."""
    if not s.reverse or s.layout.padded(s.dim) <= s.layout.shape[s.dim]:
        return ""
    at = layout_values(s.layout, THREAD, digits)[s.dim]
    return spell.expr(Compare("lt", at, Const(s.layout.shape[s.dim], INT32)), facts)


def _number(levels: list[_Level]) -> str:
    """The running number of a line and pass, as C text."""
    out = ""
    for level in levels:
        out = level.var if not out else f"({out}) * {level.count} + {level.var}"
    return out or "0"


def _digit(number: str, place: int, size: int) -> str:
    """The digit of a number at a place."""
    text = number if place == 1 else f"{number} / {place}"
    return f"{text} % {size}"


def _slot(number: str, place: int, size: int, step: int = 1) -> str:
    """The number of a thread without the digit of `size` at `place`, times `step` where warps of one line follow one another."""
    high = f"{number} / {place * size}"
    low = "" if place == 1 else f" + {number} % {place}"
    if step == 1:
        return high if place == 1 else f"{high} * {place}{low}"
    return f"{high} * {step * place}{low}"
