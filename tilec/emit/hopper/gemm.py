"""The CUDA text of a GEMM with warp groups; see `plan.hopper.gemm` for what it does.

    GemmWriter(spell, comment, write, tile_lines).text("gemm", parameters, ["A_map", "B_map", "C_map"])
"""

from __future__ import annotations

from collections.abc import Sequence

from tilec.record import record
from tilec.analysis.facts import Facts
from tilec.analysis.proofs import prove
from tilec.emit.cliteral import ctype
from tilec.emit.hopper.lines import line_producers
from tilec.emit.hopper.tiles import thread_places
from tilec.emit.hopper.writer import BoxLoad, ProductCall, Writer, factor
from tilec.emit.render import render
from tilec.emit.unused import mentions
from tilec.ir.dtypes import FLOAT16, INT32
from tilec.ir.expr import Binary, Call, Compare, Const, Expr
from tilec.plan.hopper.plan import Operand
from tilec.plan.plan import BulkStore, PSeq, WarpSpecialized
from tilec.plan.walk import walk_plan

@record
class _Numbers:
    """What the template of the kernel says in figures and short expressions."""

    threads: int
    first: int
    arrivals: int
    consumers: int
    stages: int
    barriers: int
    give: int
    take: int
    lag: int
    rows: int
    bytes: int
    var: str
    start: str
    stop: str
    advance: str
    steps: str
    a: str
    b: str
    a_descriptor: str
    b_descriptor: str
    a_step: int
    b_step: int
    pair: bool
    first_tile: str
    next_tile: str


@record
class GemmWriter(Writer):
    """Writes one kernel."""

    def text(self, symbol: str, parameters: str, maps: Sequence[str]) -> str:
        """The __global__ function."""
        spell, variant = self.spell, self.spell.variant
        s = variant.body.body[0]
        assert isinstance(s, WarpSpecialized)
        stores = any(isinstance(x, BulkStore) for x in walk_plan(s.epilogue))
        pair = _PAIR_ENTRIES if s.schedule.pair is not None else ()
        entries = ("barrier_sync", "barrier_arrive", "warp_sync", s.gemm.instruction, *pair)
        self.need(*entries, stores=stores, loads=s.schedule.lines is None, maps=bool(maps))
        facts = variant.facts
        numbers = self.numbers(s, facts)
        loads = self.loads(s, maps, facts) if maps else ""
        acc = spell.buffer(s.acc)
        registers = s.gemm.layout.registers
        spell.need_type(s.acc.dtype)
        align = "alignas(16) " if s.acc.dtype.bytes < 4 else ""
        epilogue, consumer = self.consumer(s, facts)
        zero = render("gemm/clear.cu.jinja", c=acc, count=registers, condition="") if s.zero else ""
        pieces = {
            "counts": self.counts(s, facts), "producer_places": self.producer(s, f"{loads}\n{numbers.start}{numbers.stop}", facts),
            "loads": loads, "consumer_places": consumer, "accumulator": f"{align}{ctype(s.acc.dtype)} {acc}[{registers}];",
            "products": self.products(s, acc), "zero": zero, "epilogue": epilogue, "loop_comment": self.comment(s.spans[0]),
            "gemm_comment": self.comment(s.spans[3]),
        }  # fmt: skip
        lines = self.lines(s, numbers, facts) if s.schedule.lines is not None else ""
        tiles = self.tile_lines("\n".join([*pieces.values(), numbers.a, numbers.b, lines]))
        anew, places = "", thread_places(epilogue)
        if s.schedule.anew and any(mentions(epilogue, w) for w in ("thread", "warp", "lane")):
            spell.need("thread_index_anew")
            anew, places = ", ".join(["thread = thread_index_anew()", *places.split(", ")[:-1]]), ""
        return render(
            "pipeline/warp_specialized.cu.jinja", k=numbers, symbol=symbol, parameters=parameters, tiles=tiles, maps=maps, anew=anew,
            places=places, stores=stores, lines=lines, arch=variant.arch, guard=self.guard(s, facts), **pieces,
        )  # fmt: skip

    def numbers(self, s: WarpSpecialized, facts: Facts) -> _Numbers:
        """Figures and short texts."""
        c, spell = s.schedule, self.spell
        start, stop = spell.expr(s.start, facts), spell.expr(s.stop, facts)
        var = spell.var(s.var)
        trips: Expr = s.stop if isinstance(s.start, Const) and s.start.value == 0 else Binary("sub", s.stop, s.start, s.stop.dtype)
        if s.step > 1:
            trips = Call("ceildiv", (trips, Const(s.step, trips.dtype)), trips.dtype)

        def tile(o: Operand) -> str:
            name = spell.buffer(o.tile)
            return f"{name} + warp_group * {o.group_step // o.tile.dtype.bytes}" if o.group_step and c.consumers > 1 else name

        def descriptor(o: Operand) -> str:
            return f"{o.leading}, {o.stride}, {o.mode}"

        return _Numbers(
            c.threads, 128 * c.consumers, 1 if c.lines is None else 4 * c.lines.producers, c.consumers,
            c.stages, c.barriers, c.give, c.take, c.lag, s.gemm.m // c.consumers, s.a.bytes + s.b.bytes,
            var, start, stop, f"++{var}" if s.step == 1 else f"{var} += {s.step}",
            spell.expr(trips, facts),
            tile(s.a), tile(s.b), descriptor(s.a), descriptor(s.b), s.a.bytes >> 4, s.b.bytes >> 4, c.pair is not None,
            "blockIdx.x" if c.pair is None else "blockIdx.x / 2", "gridDim.x" if c.pair is None else "gridDim.x / 2",
        )  # fmt: skip

    def lines(self, s: WarpSpecialized, numbers: _Numbers, facts: Facts) -> str:
        """What producers do that bring rows which start anywhere."""
        steps = f"const int steps = {numbers.steps};"
        text = line_producers(self, s, "", steps, facts)
        return line_producers(self, s, self.producer(s, text, facts), steps, facts)

    def counts(self, s: WarpSpecialized, facts: Facts) -> str:
        """Declarations of the numbers of tiles."""
        texts = [self.spell.expr(e, facts) for e in s.grid]
        if len(texts) == 1:
            return f"const int tiles = {texts[0]};"
        x, y = self.panels(s)
        pairs = "".join(f"{n} = (tiles_{n[-1]} + 1) / 2, " for n in (x, y) if n.startswith("pairs"))
        product = f"{x} * {y}" if len(texts) == 2 else f"{x} * {y} * {factor(texts[2])}"
        return f"const int tiles_x = {texts[0]}, tiles_y = {texts[1]}, {pairs}tiles = {product};"

    @staticmethod
    def panels(s: WarpSpecialized) -> tuple[str, str]:
        """The names of the numbers of tiles, or pairs of them, along x and y."""
        axis = -1 if s.schedule.pair is None else s.schedule.pair.axis
        return "pairs_x" if axis == 0 else "tiles_x", "pairs_y" if axis == 1 else "tiles_y"

    def guard(self, s: WarpSpecialized, facts: Facts) -> str:
        """What tells a tile from the one that fills up the last pair of a row; empty where there is no such."""
        if s.schedule.pair is None:
            return ""
        axis = s.schedule.pair.axis
        count = s.grid[axis]
        even = prove(Compare("eq", Binary("mod", count, Const(2, count.dtype), count.dtype), Const(0, count.dtype)), facts)
        return "" if even else f"{self.spell.var(s.block_vars[axis])} < tiles_{'xy'[axis]}"

    def guarded(self, s: WarpSpecialized, facts: Facts) -> str:
        """Passes tiles over for which there is nothing to do."""
        return "" if s.guard is None else f"if (!({self.spell.expr(s.guard, facts)})) continue;"

    def places(self, s: WarpSpecialized, used: str) -> str:
        """Declarations of the author's block indices from the number of a tile, as far as `used` mentions them."""
        guard = "" if s.early else self.guarded(s, self.spell.variant.facts)
        used += f"{guard} {self.guard(s, self.spell.variant.facts)}"
        names = [self.spell.var(v) for v in s.block_vars]
        if len(names) == 1:
            return "\n".join(t for t in (f"const int {names[0]} = tile;" if mentions(used, names[0]) else "", guard) if t)
        z = names[2] if len(names) > 2 else ""
        x, y = self.panels(s)
        return render(
            "kernel/tile_raster.cu.jinja", z=z, number="in_layer" if z else "tile", panel=s.schedule.group, x=names[0], y=names[1],
            uses_x=mentions(used, names[0]), uses_y=mentions(used, names[1]), guard=guard, columns=x, rows=y,
        )  # fmt: skip

    def producer(self, s: WarpSpecialized, used: str, facts: Facts) -> str:
        """What the producer finds out about a tile before it loads any of it: block indices, and the author's scalars that places need."""
        with self.spell.scope():
            return self.found_out(s, used, facts)

    def found_out(self, s: WarpSpecialized, used: str, facts: Facts) -> str:
        """Block indices and the author's scalars that the text `used` behind them needs; and whether there is anything to do."""
        guard = self.guarded(s, facts) if s.early else ""
        ahead = self.write(PSeq((*s.setup.body, *s.ahead.body)), facts, f"{guard}\n{used}") if s.ahead.body else ""
        return "\n".join(t for t in (self.places(s, f"{used}\n{ahead}"), ahead, guard) if t)

    def loads(self, s: WarpSpecialized, maps: Sequence[str], facts: Facts) -> str:
        """The loads of one step."""
        inner = facts.with_loop(s.var, s.start, s.stop, Const(s.step, INT32))
        parts = []
        for o, name, span in ((s.a, maps[0], s.spans[1]), (s.b, maps[1], s.spans[2])):
            boxes = self.boxes(o, f"{self.spell.buffer(o.tile)} + stage * {o.elements}", inner)
            if o.halved:  # a block brings its half of the rows to both blocks
                width, rows = o.map.box[:2]
                boxes = [BoxLoad(f"{x.dst} + rank * {width * rows}", f"{x.at} + rank * {rows}, 3") for x in boxes]
            parts.append(self.loads_of(o, boxes, name, "full + stage", span))
        return "\n".join(parts)

    def products(self, s: WarpSpecialized, acc: str) -> str:
        """The instructions of one k-block."""
        g = s.gemm
        name = g.instruction if g.transposes is None else f"{g.instruction}<{g.transposes[0]}, {g.transposes[1]}>"
        first = "true" if s.zero else "step > 0"
        calls = []
        seen: set[int] = set()
        for p in g.products:
            d = f"{acc} + {p.register}" if p.register else acc
            if s.acc.dtype == FLOAT16:
                d = f"reinterpret_cast<unsigned*>({d})"
            flag = first if p.register not in seen else "true"
            seen.add(p.register)
            calls.append(ProductCall(name, d, f"a + {p.a >> 4}" if p.a else "a", f"b + {p.b >> 4}" if p.b else "b", flag))
        return render("gemm/wgmma.cu.jinja", products=calls)

    def consumer(self, s: WarpSpecialized, facts: Facts) -> tuple[str, str]:
        """The epilogue with the author's scalars in front of it, and the block indices that a tile needs."""
        epilogue = self.write(PSeq(s.epilogue.body if s.early else (*s.setup.body, *s.epilogue.body)), facts)
        used = f"{epilogue}\n{self.spell.expr(s.start, facts)} {self.spell.expr(s.stop, facts)}"
        return epilogue, self.found_out(s, used, facts) if s.early else self.places(s, used)


_PAIR_ENTRIES = ("cluster_rank", "cluster_arrive", "cluster_wait", "mbarrier_arrive_at")
"""Prelude entries of kernels whose blocks work in pairs."""
