"""A block-wide reduction of a register tile as CUDA text."""

from __future__ import annotations

from itertools import pairwise
from math import inf, nan, prod

from tilec.record import record
from tilec.analysis.facts import Facts
from tilec.emit.cliteral import ctype
from tilec.emit.memory import Spelling
from tilec.emit.render import render
from tilec.ir.dtypes import BOOL, INT32, DType, int_range
from tilec.ir.expr import Binary, Call, Cast, Compare, Const, Expr, Logical, Select, Var, VarKind
from tilec.layout.fragment import Digit, FragmentLayout
from tilec.plan.access import layout_values, times, total
from tilec.plan.plan import THREAD, PReduce
from tilec.plan.reductions import lanes_joined


@record
class _Loop:
    """A loop of the reduction: C name and count."""

    var: str
    count: int


@record
class _Partner:
    """A thread digit whose threads meet in shared memory: C name of its loop, and size."""

    var: str
    size: int


@record
class _Meeting:
    """How threads of several warps join a line, as C text.

    Each of `slots` groups of threads writes at `slot`, the threads for which `mine` holds ("" for all); they read at `read`.
    """

    slots: int
    slot: str
    mine: str
    read: str
    partners: tuple[_Partner, ...]


@record
class _Steps:
    """Shuffles over distances that double from `first` to `last`."""

    var: str
    first: int
    last: int


def identity(op: str, dtype: DType) -> Const:
    """The value that changes nothing."""
    low, high = (-inf, inf) if dtype.is_float else int_range(dtype)
    values: dict[str, int | float] = {
        "sum": 0, "abssum": 0, "absmax": 0, "max": low, "min": high, "any": 0, "all": 1, "bitor": 0, "bitxor": 0,
    }  # fmt: skip
    value = values.get(op, -1 if low < 0 else high)
    return Const(float(value) if dtype.is_float else int(value), dtype)


def combine(op: str, a: Expr, b: Expr, dtype: DType, nan_propagate: bool) -> Expr:
    """`a` and `b`, both of `dtype`, joined."""
    match op:
        case "sum" | "abssum":
            return Binary("add", a, b, dtype)
        case "max" | "absmax" | "min":
            best: Expr = Binary("min" if op == "min" else "max", a, b, dtype)
            if nan_propagate and dtype.is_float:
                either = Logical("or", Call("isnan", (a,), BOOL), Call("isnan", (b,), BOOL))
                best = Select(either, Const(nan, dtype), best, dtype)
            return best
        case "any" | "all":
            zero = Const(0.0 if dtype.is_float else 0, dtype)
            both = Logical("or" if op == "any" else "and", Compare("ne", a, zero), Compare("ne", b, zero))
            return both if dtype == BOOL else Cast(both, dtype)
        case _:
            return Binary({"bitand": "and", "bitor": "or", "bitxor": "xor"}[op], a, b, dtype)


def _taken(op: str, value: Expr, dtype: DType) -> Expr:
    """A source element as the reduction takes it."""
    out = value if value.dtype == dtype else Cast(value, dtype)
    if op in ("abssum", "absmax"):
        return Call("abs", (out,), dtype)
    if op in ("any", "all") and dtype != BOOL:
        zero = Const(0.0 if value.dtype.is_float else 0, value.dtype)
        return Cast(Compare("ne", value, zero), dtype)
    return out


def reduce_text(spell: Spelling, s: PReduce, facts: Facts, threads: int, meet: str = "__syncthreads();") -> str:
    """Statements that reduce the registers of `s.src` over a dimension into those of `s.dst`; `meet` waits for all `threads`."""
    dtype = s.dst.dtype
    acc, value, kept_value = Var("acc", dtype), Var("value", dtype), Var("before", dtype)
    taken = Var("value", s.src.dtype)
    shared_name = spell.names.fresh("value")
    spell.variables[value] = spell.variables[taken] = shared_name
    layout = s.src_layout
    kept = [(n, g) for n, g in enumerate(layout.regs) if g.dim != s.dim]
    results = 1
    for _, g in kept:
        results *= g.size
    line = Var("line", INT32, VarKind.LOOP)
    result: Expr = line if results > 1 else Const(0, INT32)
    known = facts.with_range(line, 0, results - 1)
    inner: list[_Loop] = []
    digits: list[Expr] = [Const(0, INT32)] * len(layout.regs)
    for n, g in enumerate(layout.regs):
        if g.dim == s.dim:
            v = Var("n", INT32, VarKind.LOOP)
            inner.append(_Loop(spell.var(v), g.size))
            known = known.with_range(v, 0, g.size - 1)
            digits[n] = v
    weight = 1
    for n, g in kept:
        digits[n] = _digit(result, weight, g, results)
        weight *= g.size
    register = total([times(d, w) for d, w in zip(digits, _weights(layout), strict=True)][::-1])
    spell.need_type(dtype)
    spell.need_type(s.src.dtype)
    if s.lane_steps:
        spell.need("shfl_xor")
    meeting = _meeting(spell, s, threads)
    merge = spell.expr(combine(s.op, acc, value, dtype, s.nan_propagate), known)
    chained = s.chains > 1 and results > 1 and not s.partners and bool(inner) and layout.padded(s.dim) <= layout.shape[s.dim]
    return render(
        "reduce/chains.cu.jinja" if chained else "reduce/block.cu.jinja", chains=s.chains, chain=spell.names.fresh("c") if chained else "",
        last=inner[0].var if inner else "", type=ctype(dtype), source_type=ctype(s.src.dtype),
        result=spell.var(line) if results > 1 else "0", results=results, acc=spell.var(acc),
        identity=spell.expr(identity(s.op, dtype), known), inner=inner[::-1], value=shared_name,
        src=spell.buffer(s.src), register=spell.expr(register, known), valid=_valid(spell, layout, s, digits, known),
        take=spell.expr(combine(s.op, acc, _taken(s.op, taken, dtype), dtype, s.nan_propagate), known),
        steps=_steps(spell, s.lane_steps), merge=merge, meet=meet,
        scratch="" if s.scratch is None else spell.buffer(s.scratch), meeting=meeting, kept="" if s.clear else spell.var(kept_value),
        merge_kept=spell.expr(combine(s.op, acc, kept_value, dtype, s.nan_propagate), known), dst=spell.buffer(s.dst),
    )  # fmt: skip


def _weights(layout: FragmentLayout) -> list[int]:
    out, weight = [], 1
    for g in layout.regs:
        out.append(weight)
        weight *= g.size
    return out


def _digit(result: Expr, weight: int, g: Digit, results: int) -> Expr:
    """The digit of a result number."""
    value: Expr = result if weight == 1 else Binary("floordiv", result, Const(weight, INT32), INT32)
    return value if weight * g.size == results else Binary("mod", value, Const(g.size, INT32), INT32)


def _valid(spell: Spelling, layout: FragmentLayout, s: PReduce, digits: list[Expr], facts: Facts) -> str:
    """The condition that keeps the padding of the reduced dimension out; "" when there is none."""
    if layout.padded(s.dim) <= layout.shape[s.dim]:
        return ""
    at = layout_values(layout, THREAD, digits)[s.dim]
    return spell.expr(Compare("lt", at, Const(layout.shape[s.dim], INT32)), facts)


def _meeting(spell: Spelling, s: PReduce, threads: int) -> _Meeting:
    """Places of the scratch tile as C text: lanes that shuffles have joined share one."""
    joined = lanes_joined(s.lane_steps)
    slot = "thread" if joined == 1 else f"thread / {joined}"
    # Threads beyond the last whole set of copies have no partners of their own: they read where the first set met.
    whole = s.src_layout.used_threads
    number = "thread" if threads % whole == 0 else f"thread % {whole}"
    partners = tuple(_Partner(spell.names.fresh("p"), size) for _, size in s.partners)
    places = [place // joined for place, _ in s.partners]
    first = [number if joined == 1 else f"{number} / {joined}"]
    for place, (_, size) in zip(places, s.partners, strict=True):
        digit = number if joined * place == 1 else f"{number} / {joined * place}"
        first.append(f"{digit} % {size}" + ("" if place == 1 else f" * {place}"))
    alone = prod(size for _, size in s.partners) * joined == threads  # the partners are all places there are
    steps = [p.var if place == 1 else f"{p.var} * {place}" for p, place in zip(partners, places, strict=True)]
    mine = f"thread % {joined} == 0" if joined > 1 else ""
    return _Meeting(threads // joined, slot, mine, " + ".join([*([] if alone else [" - ".join(first)]), *steps]), partners)


def _steps(spell: Spelling, steps: tuple[int, ...]) -> _Steps | None:
    """The distances of shuffles as a loop that doubles them; None when there are none."""
    if not steps:
        return None
    assert all(b == 2 * a for a, b in pairwise(steps)), steps
    return _Steps(spell.names.fresh("step"), steps[0], steps[-1])
