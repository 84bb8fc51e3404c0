"""What kernels with persistent blocks say of the author's tiles: how many there are, which comes next, and where the one at hand lies.

    Tiles(spell, streamed).counts(facts)  ->  const int rows = ceil_div<int>(N, 128), others = B * H, tiles = rows * others;
"""

from __future__ import annotations

from collections.abc import Sequence

from tilec.analysis.facts import Facts
from tilec.emit.cliteral import ctype
from tilec.emit.hopper.writer import factor
from tilec.emit.memory import Spelling
from tilec.emit.render import render
from tilec.emit.unused import mentions
from tilec.ir.expr import Buffer
from tilec.ir.tile import Let
from tilec.plan.plan import Chained, PScalar, Registers, Stepped, Streamed
from tilec.record import record


@record
class Tiles:
    """The tiles of one kernel, as C text."""

    spell: Spelling
    s: Streamed | Chained

    @property
    def uneven(self) -> int:
        """1 where tiles of later rows take longer and go first, -1 where those of earlier rows do, 0 where all take alike."""
        return self.s.schedule.uneven if isinstance(self.s, Chained) else int(self.s.schedule.longest_first)

    @property
    def following(self) -> str:
        """The number of the block's next tile."""
        return "2 * gridDim.x * (tile / gridDim.x + 1) - 1 - tile" if self.uneven else "tile + gridDim.x"

    def counts(self, facts: Facts) -> str:
        """Declarations of the numbers of tiles, and of the section."""
        c = self.s.schedule
        texts = [self.spell.expr(e, facts) for e in self.s.grid]
        others = [t for n, t in enumerate(texts) if n != c.row_axis and t != "1"]
        line = f"const int rows = {texts[c.row_axis]}, others = {' * '.join(map(factor, others)) or '1'}, tiles = rows * others;"
        return f"{line}\nconst int section = {self.spell.expr(c.section, facts)};" if self.uneven else line

    def places(self, used: str) -> str:
        """Declarations of the author's block indices from the number of a tile, as far as `used` mentions them."""
        c, spell = self.s.schedule, self.spell
        names = [spell.var(v) for v in self.s.block_vars]
        left = [n for n in range(len(names)) if n != c.row_axis]
        lines: list[str] = []
        if any(mentions(used, names[n]) for n in left):
            number = "section_top + in_section % section_width" if self.uneven else "tile / rows"
            if len(left) == 1:
                lines.append(f"const int {names[left[0]]} = {number};")
            else:
                width = factor(spell.expr(self.s.grid[left[0]], spell.variant.facts))
                lines.append(f"const int other = {number};")
                both = zip(left, "%/", strict=True)
                lines += [f"const int {names[n]} = other {op} {width};" for n, op in both if mentions(used, names[n])]
        row = names[c.row_axis]
        return render(
            "kernel/tile_sections.cu.jinja", longest_first=self.uneven != 0, row=row, uses_row=mentions(used, row), lines=lines,
            number="in_section / section_width" if self.uneven < 0 else "rows - 1 - in_section / section_width",
        )  # fmt: skip

    def lets(self, facts: Facts) -> tuple[Facts, list[tuple[str, str]]]:
        """The author's scalars: what they say, and each with its declaration."""
        out: list[tuple[str, str]] = []
        for x in self.s.setup.body:
            inner = x.body.body[0] if isinstance(x, Stepped) else x
            assert isinstance(inner, PScalar) and isinstance(inner.stmt, Let)
            var, value = inner.stmt.var, inner.stmt.value
            out.append((self.spell.var(var), f"const {ctype(var.dtype)} {self.spell.var(var)} = {self.spell.expr(value, facts)};"))
            facts = facts.with_let(var, value)
        return facts, out

    def front(self, used: str, lets: Sequence[tuple[str, str]]) -> str:
        """What a tile needs in front of the consumers' statements: block indices and scalars that they mention."""
        kept: list[str] = []
        for name, text in reversed(lets):
            if mentions(used, name):
                kept.insert(0, text)
                used += text
        return "\n".join(t for t in (self.places(used), *kept) if t)


def registers_of(spell: Spelling, b: Buffer) -> str:
    """The declaration of a fragment."""
    place = spell.variant.placements[b]
    assert isinstance(place, Registers)
    spell.need_type(b.dtype)
    return f"{'alignas(16) ' if b.dtype.bytes < 4 else ''}{ctype(b.dtype)} {spell.buffer(b)}[{place.layout.registers}];"


def thread_places(used: str) -> str:
    """The warp and the lane of a thread, as far as `used` mentions them: parts of one declaration."""
    return "".join(f"{w} = thread {by} 32, " for w, by in (("warp", "/"), ("lane", "%")) if mentions(used, w))
