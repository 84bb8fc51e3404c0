"""Stores of 16-bit elements from mma accumulators, 16 bytes of a row at a time.

A lane of an accumulator holds two neighbouring columns; the four lanes of a quad hold eight. Over four tiles side by side they
exchange words, after which each lane holds the eight columns of one tile and stores them at once: full sectors instead of
quarters, which is worth 5 to 8 % of a large GEMM.

    for (part < 4) words.v[part] = two columns of tile part;  quad_transpose(words.v, lane);  store_vec(C + ..., words);
"""

from __future__ import annotations

import re

from tilec.record import record
from tilec.analysis.facts import Facts
from tilec.analysis.ranges import bounds
from tilec.emit.gemm_operands import lines
from tilec.emit.loops import Level, LoopWriter
from tilec.emit.render import render
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Const, Var
from tilec.ir.tile import Store
from tilec.ir.visit import substitute
from tilec.layout.fragment import FragmentLayout
from tilec.plan.access import layout_values
from tilec.plan.plan import THREAD, PScalar, TileLoop
from tilec.plan.rows import group_of, row_layout


@record
class RowWriter(LoopWriter):
    """Writes the elements of a chunk into word `part` of `words` instead of memory."""

    words: str
    part: str

    def store_vector(self, key: object, count: int, name: str, facts: Facts, once: str) -> str:
        """Keeps the chunk for the exchange."""
        self.spell.need("bits_as")
        return f"{self.words}.v[{self.part}] = bits_as<unsigned>({name});"


def rows_text(writer: LoopWriter, s: TileLoop, facts: Facts) -> str:
    """A tile loop of one store whose plan asks for `rows`."""
    spell, layout = writer.spell, s.how
    assert isinstance(layout, FragmentLayout)
    for name in ("vec", "store_vec", "quad_transpose"):
        spell.need(name)
    words, part = spell.names.fresh("words"), spell.names.fresh("part")
    group = group_of(layout)
    levels, texts = _nest(writer, s, group, part)
    known = writer.within(layout, s.digits, facts)
    inside = known
    for n, (v, e) in enumerate(zip(s.vars, s.values, strict=True)):
        top, spare = bounds(e, known)[1], s.vector - 1 if v is s.vars[-1] else 0
        inside = inside.with_range(v, 0, None if top is None else top + spare, below=s.extents[n] if s.extents else None)
    chunk = RowWriter(spell, writer.inner, writer.threads, words, part).by_vectors(s, s.body, texts, inside, "")
    pair = {s.digits[0]: Const(0, INT32)}
    with spell.meaning(texts):
        column = _declared(f"{spell.var(s.vars[-1])} = {spell.expr(substitute(s.values[-1], pair), known)}", chunk)
    fill = render("parallel/loop.cu.jinja", loops=[Level(part, "4", True)], values=[], guard="", body=lines(column, chunk))
    store = _store(writer, s, layout, words, known)
    rest = lines(f"vec<unsigned, 4> {words} = {{}};", fill, f"quad_transpose({words}.v, lane);", store)
    rows = lines(*(_declared(f"{spell.var(v)} = {spell.expr(e, known)}", rest) for v, e in zip(s.vars[:-1], s.values[:-1], strict=True)))
    return render("parallel/loop.cu.jinja", loops=levels, values=[], guard="", body=lines(rows, rest))


def _nest(writer: LoopWriter, s: TileLoop, group: int, part: str) -> tuple[list[Level], dict[Var, str]]:
    """The loops around an exchange, slowest first, and what the register digits read as inside the filling of its words."""
    layout, spell = s.how, writer.spell
    assert isinstance(layout, FragmentLayout)
    levels, texts = [], {s.digits[0]: "0"}
    for n, (v, g) in enumerate(zip(s.digits, layout.regs, strict=True)):
        count = g.size // 4 if n == group else g.size
        if n > 0 and count > 1:
            levels.append(Level(spell.var(v), str(count), True))
        if n == group:
            texts[v] = part if count == 1 else f"({spell.var(v)} * 4 + {part})"
    return levels[::-1], texts


def _declared(declaration: str, user: str) -> str:
    """A constant, if anything uses it."""
    name = declaration.partition(" ")[0]
    return f"const int {declaration};" if re.search(rf"\b{name}\b", user) else ""


def _store(writer: LoopWriter, s: TileLoop, layout: FragmentLayout, words: str, facts: Facts) -> str:
    """The store of the 16 bytes that a lane holds after the exchange."""
    spell, last = writer.spell, s.vars[-1]
    (leaf,) = s.body.body
    assert isinstance(leaf, PScalar) and isinstance(leaf.stmt, Store)
    store = leaf.stmt
    column = Var(f"{last.name}_first")
    group = group_of(layout)
    digits = [v for n, (v, g) in enumerate(zip(s.digits, layout.regs, strict=True)) if n > 0 and not (n == group and g.size == 4)]
    value = layout_values(row_layout(layout), THREAD, digits)[-1]
    facts = facts.with_range(s.digits[group], 0, layout.regs[group].size // 4 - 1)
    facts = facts.with_range(column, 0, bounds(value, facts)[1], divisor=8)
    for v, e in zip(s.vars[:-1], s.values[:-1], strict=True):
        facts = facts.with_range(v, 0, bounds(e, facts)[1])
    indices = tuple(substitute(e, {last: column}) for e in store.indices)
    checks = tuple(substitute(c, {last: column}) for c in spell.checks(store.buffer, store.indices))
    text = f"store_vec(reinterpret_cast<unsigned*>({spell.address(store.buffer, indices, facts)}), {words});"
    tests = " && ".join(t for t in ("" if s.once is None else spell.expr(s.once, facts), spell.tests(checks, facts)) if t)
    guarded = render("parallel/if.cu.jinja", cond=tests, then=text, orelse="") if tests else text
    return lines(f"const int {spell.var(column)} = {spell.expr(value, facts)};", guarded)


