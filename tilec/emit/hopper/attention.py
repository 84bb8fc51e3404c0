"""The CUDA text of a kernel that streams tiles past a held one; see `plan.hopper.attention` for what it does.

    StreamWriter(spell, comment, write, tile_lines).text("attention", parameters, ["Q_map", "K_map", "V_map", "O_map"])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilec.record import record
from tilec.analysis.facts import Facts
from tilec.diagnostics import Span
from tilec.emit.hopper.tiles import Tiles, registers_of, thread_places
from tilec.emit.hopper.writer import ProductCall, Writer
from tilec.emit.render import render
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Binary, Const, Expr, Var
from tilec.plan.hopper.plan import WARP_GROUP, Operand
from tilec.plan.plan import BulkStore, PSeq, Streamed
from tilec.plan.walk import walk_plan

RESERVED = frozenset("warp_group tiles rows others tile section section_top section_width in_section clean_end other end chain".split())
"""C names that the text declares for itself, besides those made from names of tiles."""


@record
class _Ring:
    """One tile's barriers, counters and texts: how it is filled, and how products find it."""

    full: str
    empty: str
    stage: str
    phase: str
    tiles: str
    at: int
    stages: int
    bytes: int
    loads: str
    pointer: str
    descriptor: str
    advance: str


@record
class _Numbers:
    """What the template says in figures and short expressions."""

    threads: int
    first: int
    consumers: int
    give: int
    take: int
    var: str
    start: str
    stop: str
    some: bool
    scores: int
    out: int
    held_words: int
    held_whole: bool
    turns: bool
    skips: bool


@record
class _Loop:
    """Steps that treat their scores alike: up to which, and the statements under the second product."""

    comment: str
    stop: str
    rows: str


@record
class StreamWriter(Writer):
    """Writes one kernel."""

    def text(self, symbol: str, parameters: str, maps: Sequence[str]) -> str:
        """The __global__ function."""
        spell, variant = self.spell, self.spell.variant
        s = variant.body.body[0]
        assert isinstance(s, Streamed)
        stores = any(isinstance(x, BulkStore) for x in walk_plan(s.epilogue))
        self.need("wgmma_settle", stores=stores)
        author = Tiles(spell, s)
        known, lets = author.lets(variant.facts)
        inner = known.with_loop(s.var, s.start, s.stop, Const(1, INT32))
        spell.var(s.var)
        spell.variables[WARP_GROUP] = "warp_group"
        allocs = "\n".join(registers_of(spell, b) for b in s.fragments)
        prologue, epilogue = f"{allocs}\n{self.write(s.prologue, known)}", self.write(s.epilogue, known)
        masked, plain = self.write(PSeq((*s.mask.body, *s.rows.body)), inner), self.write(s.rows, inner)
        late = self.write(s.late, inner)
        held, a, b = self.rings(s, maps, variant.facts)
        words = spell.names.fresh(f"{spell.buffer(s.held.tile)}_words") if s.schedule.held_words else ""
        wants = {"ldmatrix_x4": bool(words), "barrier_sync_at": s.schedule.turns, "barrier_arrive_at": s.schedule.turns}
        for entry, used_here in {**wants, "warp_group_sync": s.dead is not None or not s.some}.items():
            if used_here:
                spell.need(entry)
        numbers = self.numbers(s, variant.facts)
        edges, loops = self.loops(s, masked, plain, known)
        used = "\n".join((numbers.start, numbers.stop, prologue, epilogue, masked, late, *edges))
        produced = "\n".join((numbers.start, numbers.stop, held.loads, a.loads, b.loads))
        pieces = {
            "counts": author.counts(variant.facts),
            "producer_places": author.places(produced), "consumer_places": author.front(used, lets),
            "first": self.product(s, held.tiles, words, a, True), "second": self.product(s, "", "", b, False),
            "prologue": prologue, "first_rows": self.first_rows(s, edges, masked, plain, inner), "late": late, "epilogue": epilogue,
        }  # fmt: skip
        tiles = self.tile_lines("\n".join((*pieces.values(), held.pointer, a.pointer, b.pointer)))
        return render(
            "pipeline/streamed.cu.jinja", k=numbers, symbol=symbol, parameters=parameters, tiles=tiles, maps=maps,
            places=thread_places(used), stores=stores, arch=variant.arch, rings=(held, a, b), held=held, a=a, b=b, edges=edges, loops=loops,
            scores=spell.buffer(s.scores), out=spell.buffer(s.out),
            next_tile=author.following,
            words=words, held_tile=spell.buffer(s.held.tile), held_block=s.held.shape[0] * 64, **pieces,
        )  # fmt: skip

    def numbers(self, s: Streamed, facts: Facts) -> _Numbers:
        """Figures and short texts."""
        c, spell = s.schedule, self.spell
        return _Numbers(
            c.threads, 128 * c.consumers, c.consumers, c.give, c.take,
            spell.var(s.var), spell.expr(s.start, facts), spell.expr(s.stop, facts), s.some,
            s.first.n // 2, s.second.n // 2, c.held_words, s.first.held == len(s.first.a), c.turns, s.dead is not None,
        )  # fmt: skip

    def loops(self, s: Streamed, masked: str, plain: str, facts: Facts) -> tuple[list[str], list[_Loop]]:
        """The steps whose scores are all kept, then those with a mask; one loop where there is no such difference. In front of
        them, the declarations of where one ends and the other begins."""
        lead = self.comment(s.spans[0])
        if not s.mask.body:
            return [], [_Loop(lead, "end", plain)]
        if s.clean is None:
            return [], [_Loop(lead, "end", masked)]
        facts = facts.with_range(WARP_GROUP, 0, s.schedule.consumers - 1)
        clean, last, lines = self.spell.expr(s.clean, facts), "end", list[str]()
        if s.dead is not None:
            dead, last = self.spell.expr(s.dead, facts), "live_end"
            lines.append("// From this step on no score of the warp group's rows is kept.")
            lines.append(f"const int live_end = {dead} < end ? {dead} : end;")
        lines += ["// Below this step every score of them is.", f"const int clean_end = {clean} < {last} ? {clean} : {last};"]
        return lines, [_Loop(lead, "clean_end", plain), _Loop("", last, masked)]

    def first_rows(self, s: Streamed, edges: Sequence[str], masked: str, plain: str, facts: Facts) -> str:
        """The row statements of a tile's first step; its mask is passed over where nothing is dropped."""
        if not edges:
            return masked
        mask = render("parallel/if.cu.jinja", cond=f"{self.spell.var(s.var)} >= clean_end", then=self.write(s.mask, facts), orelse="")
        return f"{mask}\n{plain}"

    def rings(self, s: Streamed, maps: Sequence[str], facts: Facts) -> tuple[_Ring, _Ring, _Ring]:
        """The held tile and both streamed ones."""
        c = s.schedule
        here = facts.with_loop(s.var, s.start, Binary("add", s.stop, Const(1, INT32), INT32), Const(1, INT32))
        before = Binary("sub", s.var, Const(1, INT32), INT32)
        held = self.ring(s.held, maps[0], c.barriers, 1, s.spans[1], {}, here)
        a = self.ring(s.a, maps[1], c.barriers + 16, c.stages, s.spans[2], {}, here)
        b = self.ring(s.b, maps[2], c.barriers + 16 + 16 * c.stages, c.stages, s.spans[3], {s.var: before}, here)
        return held, a, b

    def ring(self, o: Operand, map_name: str, at: int, stages: int, span: Span, shift: Mapping[Var, Expr], facts: Facts) -> _Ring:
        """One tile; `shift` says at which step of the producer's loop it is loaded."""
        spell = self.spell
        tile = spell.buffer(o.tile)
        names = {n: spell.names.fresh(f"{tile}_{n}") for n in ("full", "empty", "stage", "phase", "tiles")}
        version = f"{tile} + {names['stage']} * {o.elements}" if stages > 1 else tile
        full = f"{names['full']} + {names['stage']}" if stages > 1 else names["full"]
        loads = self.loads_of(o, self.boxes(o, version, facts, shift), map_name, full, span)
        groups = o.group_step and spell.variant.threads and spell.variant.threads[0] > 256
        pointer = f"{tile} + warp_group * {o.group_step // o.tile.dtype.bytes}" if groups else tile
        descriptor = f"{o.leading}, {o.stride}, {o.mode}"
        advance = render("pipeline/advance.cu.jinja", stage=names["stage"], phase=names["phase"], stages=stages)
        return _Ring(
            **names, at=at, stages=stages, bytes=o.bytes, loads=loads, pointer=pointer, descriptor=descriptor, advance=advance
        )

    def product(self, s: Streamed, held: str, words: str, ring: _Ring, first: bool) -> str:
        """The instructions of a product of one step, closed as a group; `held` and `words` are where the first one's left operand is."""
        spell = self.spell
        p, operand = (s.first, s.a) if first else (s.second, s.b)
        d = spell.buffer(s.scores if first else s.out)
        b = spell.names.fresh("b")
        words = words if first else f"reinterpret_cast<const unsigned*>({spell.buffer(s.probs)})"
        calls = []
        for n, (x, y) in enumerate(zip(p.a, p.b, strict=True)):
            name = f"{p.instruction}_held" if n < p.held else p.instruction
            spell.need(name)
            call = f"{name}<{int(p.trans_b)}>" if n < p.held else f"{name}<0, {int(p.trans_b)}>"
            left, at = (words, x) if n < p.held else (held, x >> 4)
            adds = "false" if first and n == 0 else "true"
            calls.append(ProductCall(call, d, f"{left} + {at}" if at else left, f"{b} + {y >> 4}" if y else b, adds))
        start = f"const unsigned long long {b} = {ring.tiles} + {ring.stage} * {operand.bytes >> 4};"
        comment = self.comment(s.spans[4 if first else 5])
        return render("gemm/wgmma_group.cu.jinja", comment=comment, operands=[start], products=calls, c=d, fresh=0)
