"""Asynchronous copies of a pipeline with pointers that walk along instead of indices computed anew.

A producer is called once a step, in the order of the steps. Where a chunk's source moves by a fixed number of elements from step
to step and from round to round, each thread keeps one pointer: the loop then needs no multiplications and few registers, which
is worth 10 to 25 % of a large GEMM.

    const half_t* A_next = A + (by * 128 + A_row) * 4096 + A_col;          in front of the loop
    cp_async_16(A_shared + stage * 4096 + A_put + i * 2048, A_next + i * 262144);  A_next += 32;          each step
"""

from __future__ import annotations

from collections.abc import Iterable

from tilec.record import record
from tilec.analysis.affine import coefficient, depends_on
from tilec.analysis.facts import Facts
from tilec.analysis.ranges import bounds
from tilec.emit.cliteral import ctype
from tilec.emit.gemm_operands import joined, scaled
from tilec.emit.loops import Level
from tilec.emit.memory import Spelling, flat_row, is_wide
from tilec.emit.render import render
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Binary, Const, Expr, Load, Var
from tilec.ir.visit import substitute, walk_expr
from tilec.layout.shared import CHUNK, SharedLayout
from tilec.plan.access import row_strides, times, total
from tilec.plan.domains import static
from tilec.plan.plan import THREAD, AsyncCopy


@record
class Advancing:
    """The text of such a producer: declarations in front of the loop, and its body."""

    setup: str
    body: str


@record
class _Moves:
    """How many elements things move: variables of the copy and source dimensions a round, source dimensions a step, the tile
    a round."""

    variables: dict[Var, int]
    src_round: tuple[int, ...]
    src_step: tuple[int, ...]
    dst_round: int


def advancing(s: AsyncCopy, ahead: Var, start: Expr, spell: Spelling, facts: Facts) -> Advancing | None:
    """The producer `s`, whose steps `ahead` counts from `start`; None where its addresses do not move evenly.

    `facts` are those inside the producer.
    """
    facts = facts.with_range(THREAD, 0, s.how.threads - 1)
    moves = _moves(s, ahead, spell, facts)
    if moves is None:
        return None
    name = spell.buffer(s.src)
    first = {v: Var(f"{name}_{part}") for v, part in zip(s.vars, ("row", "col")[-len(s.vars) :], strict=True)}
    begin = {d: Const(0, INT32) for d in s.digits}
    lines = []
    for v, e in zip(s.vars, s.values, strict=True):
        value = substitute(e, begin)
        lines.append(f"const int {spell.var(first[v])} = {spell.expr(value, facts)};")
        facts = facts.with_range(first[v], 0, bounds(value, facts)[1], divisor=s.chunk if v is s.vars[-1] else 1)
    put, pointer = spell.names.fresh(f"{name}_put"), spell.names.fresh(f"{name}_next")
    at = spell.offset(s.dst, _moved(s.dst_index, first), facts)
    source = spell.offset(s.src, _moved(s.src_index, {ahead: start, **first}), facts)
    lines.append(f"const int {put} = {at};")
    lines.append(f"const {ctype(s.src.dtype)}* {pointer} = {joined(name, source)};")
    return Advancing("\n".join(lines), _body(s, first, moves, pointer, put, spell, facts))


def _moves(s: AsyncCopy, ahead: Var, spell: Spelling, facts: Facts) -> _Moves | None:
    """How far addresses move, if evenly."""
    rounds, layout = static(s.how.rounds), spell.tile(s.dst).layout
    if s.guard is not None or rounds is None or len(s.vars) > 2 or not _fixed(s, ahead, facts):
        return None
    variables = {v: _slope(e, s.digits[0]) if s.digits else 0 for v, e in zip(s.vars, s.values, strict=True)}
    src_round = [_sum((coefficient(e, v), by) for v, by in variables.items()) for e in s.src_index]
    src_step = [coefficient(e, ahead) for e in s.src_index]
    row, col = flat_row(s.dst_index, layout)
    down, right = (_sum((coefficient(e, v), by) for v, by in variables.items()) for e in (row, col))
    if down is None or right != 0 or None in (*src_round, *src_step, *variables.values()):
        return None
    dst_round = down * layout.pitch
    if dst_round % _period(layout):
        return None
    return _Moves(
        {v: n or 0 for v, n in variables.items()}, tuple(n or 0 for n in src_round), tuple(n or 0 for n in src_step), dst_round
    )  # fmt: skip


def _slope(e: Expr, var: Var) -> int | None:
    """By how much `e` grows when `var` does by one; None when that is not always the same."""
    match e:
        case Binary("floordiv", a, Const(value=int(n))) if n > 0:
            inside = _slope(a, var)
            return inside // n if inside is not None and inside % n == 0 else None
        case Binary("mod", a, Const(value=int(n))) if n > 0:
            inside = _slope(a, var)
            return 0 if inside is not None and inside % n == 0 else None
        case Binary("mul", a, Const(value=int(n))):
            return _sum([(_slope(a, var), n)])
        case Binary("add", a, b):
            return _sum([(_slope(a, var), 1), (_slope(b, var), 1)])
        case _:
            return coefficient(e, var)


def _sum(parts: Iterable[tuple[int | None, int | None]]) -> int | None:
    """The sum of products; None when some factor is unknown."""
    out = 0
    for a, b in parts:
        if a is None or b is None:
            return None
        out += a * b
    return out


def _fixed(s: AsyncCopy, ahead: Var, facts: Facts) -> bool:
    """True when nothing but the step changes the source's indices: no memory is read, no name stands for the step."""
    for e in (*s.src_index, *s.dst_index):
        for x in walk_expr(e):
            known = facts.about(x).equals if isinstance(x, Var) else None
            if isinstance(x, Load) or (known is not None and depends_on(known, (ahead, *s.vars))):
                return False
    return not any(depends_on(e, (ahead,)) for e in s.dst_index)


def _period(layout: SharedLayout) -> int:
    """Elements after which the swizzle of a tile repeats."""
    if layout.swizzle is None:
        return 1
    return (layout.swizzle.mask + 1 << layout.swizzle.shift) * CHUNK // layout.itemsize


def _moved(indices: tuple[Expr, ...], table: dict[Var, Var] | dict[Var, Expr]) -> tuple[Expr, ...]:
    return tuple(substitute(e, dict(table)) for e in indices)


def _body(s: AsyncCopy, first: dict[Var, Var], moves: _Moves, pointer: str, put: str, spell: Spelling, facts: Facts) -> str:
    """The copies of a step, and the step of the pointer."""
    strides, wide = row_strides(s.src), is_wide(s.src)
    levels, index = [], Var("")
    source = pointer
    target = joined(spell.tile_pointer(s.dst), put)
    if s.digits:
        (index,) = s.digits
        facts = facts.with_loop(index, Const(0, INT32), s.how.rounds, Const(1, INT32))
        levels = [Level(spell.var(index), str(static(s.how.rounds)), True)]
        writer = spell.writer(facts)
        source = joined(pointer, writer.offset([(times(index, n), d) for n, d in zip(moves.src_round, strides, strict=True)], wide))
        target = joined(target, scaled(spell.var(index), moves.dst_round))
    here: dict[Var, Expr] = {v: total((first[v], times(index, n))) if n else first[v] for v, n in moves.variables.items()}
    size = s.chunk * s.src.dtype.bytes
    function = f"cp_async_{size}"
    spell.need(f"{function}_zfill" if s.valid is not None else function)
    valid = "" if s.valid is None else spell.expr(substitute(s.valid, here), facts)
    copy = render("copy/cp_async.cu.jinja", function=function, dst=target, src=source, valid=valid)
    step = spell.writer(facts).offset([(Const(n, INT32), d) for n, d in zip(moves.src_step, strides, strict=True)], wide)
    text = render("parallel/loop.cu.jinja", loops=levels, values=[], guard="", body=copy)
    return text if step == "0" else f"{text}\n{pointer} += {step};"
