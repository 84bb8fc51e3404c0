"""The CUDA text of a kernel that chains products; see `plan.hopper.chain` for what it does.

    ChainWriter(spell, comment, write, tile_lines).text("gradients", parameters, ["K_map", "V_map", ...])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import assert_never

from tilec.record import record
from tilec.analysis.facts import Facts
from tilec.diagnostics import Span
from tilec.emit.cliteral import ctype
from tilec.emit.hopper.writer import ProductCall, Writer, exchange_of
from tilec.emit.hopper.tiles import Tiles, registers_of, thread_places
from tilec.emit.render import render
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Buffer, Const
from tilec.plan.domains import static_shape
from tilec.plan.hopper.chain_plan import ChainProduct, Multiply, Publish, Settle, TileRead
from tilec.plan.hopper.plan import WARP_GROUP, Operand
from tilec.plan.plan import BulkAdd, BulkStore, Chained, ChainStep, PSeq
from tilec.plan.walk import walk_plan

RESERVED = frozenset(
    "warp_group tiles rows others tile section section_top section_width in_section end other full empty stage phase held_full "
    "held_empty held_phase before a b j r s row col mine staged place".split()
)  # fmt: skip
"""C names that the text declares for itself, besides those made from names of tiles."""

MEETING = 4
"""The named barrier at which all consumers meet."""


@record
class _Numbers:
    """What the template says in figures and short expressions."""

    threads: int
    first: int
    consumers: int
    stages: int
    barriers: int
    give: int
    take: int
    var: str
    start: str
    stop: str


@record
class _Exchange:
    """The context of a fragment's way into a shared tile."""

    type: str
    tile: str
    group: int
    n: int
    columns: int
    block: int
    exchange: str
    words: str
    meet: str


@record
class ChainWriter(Writer):
    """Writes one kernel."""

    described: dict[TileRead, tuple[str, str]] = field(default_factory=dict)  # descriptors: name and declaration

    def text(self, symbol: str, parameters: str, maps: Sequence[str]) -> str:
        """The __global__ function."""
        spell, variant = self.spell, self.spell.variant
        s = variant.body.body[0]
        assert isinstance(s, Chained)
        stores = any(isinstance(x, BulkStore | BulkAdd) for x in walk_plan(s))
        self.need("wgmma_settle", "warp_sync", stores=stores)
        author = Tiles(spell, s)
        known, lets = author.lets(variant.facts.with_range(WARP_GROUP, 0, s.schedule.consumers - 1))
        inner = known.with_loop(s.var, s.start, s.stop, Const(1, INT32))
        spell.var(s.var)
        spell.variables[WARP_GROUP] = "warp_group"
        names = dict(zip(variant.tensor_maps, maps, strict=True))
        declared = "\n".join(registers_of(spell, b) for b in s.fragments)
        prologue, epilogue = f"{declared}\n{self.write(s.prologue, known)}", self.write(s.epilogue, known)
        versioned = [o.tile for o in s.streams] + list(s.exchanged)
        with spell.versions(versioned, "stage"):
            steps = "\n".join(self.step(s, x, inner) for x in s.steps)
        c = s.schedule
        numbers = _Numbers(
            c.threads, 128 * c.consumers, c.consumers, c.stages, c.barriers, c.give, c.take, spell.var(s.var), spell.expr(s.start, known),
            spell.expr(s.stop, known),
        )  # fmt: skip
        held = zip(s.held, s.spans[1 : 1 + len(s.held)], strict=True)
        streams = zip(s.streams, s.spans[1 + len(s.held) :], strict=True)
        held_loads = "\n".join(self.loads(o, names[o.map], "held_full", 1, span, known) for o, span in held)
        stream_loads = "\n".join(self.loads(o, names[o.map], "full + stage", c.stages, span, inner) for o, span in streams)
        used = "\n".join((numbers.start, numbers.stop, prologue, epilogue, steps))
        produced = "\n".join((numbers.start, numbers.stop, held_loads, stream_loads))
        descriptors = [line for _, line in self.described.values()]
        pieces = {
            "counts": author.counts(variant.facts), "producer_places": author.places(produced),
            "consumer_places": author.front(used, lets),
            "held_loads": held_loads, "stream_loads": stream_loads, "passing": "\n".join(registers_of(spell, b) for b in s.passing),
            "prologue": prologue, "steps": steps, "epilogue": epilogue,
        }  # fmt: skip
        tiles = self.tile_lines("\n".join((*pieces.values(), *descriptors)))
        return render(
            "pipeline/chained.cu.jinja", k=numbers, symbol=symbol, parameters=parameters, tiles=tiles, maps=maps,
            places=thread_places(used), arch=self.spell.variant.arch, stores=stores, held=bool(s.held),
            held_bytes=sum(o.bytes for o in s.held), stream_bytes=sum(o.bytes for o in s.streams), descriptors=descriptors,
            loop_comment=self.comment(s.spans[0]), carried=self.settled(s, s.carried),
            next_tile=author.following, **pieces,
        )  # fmt: skip

    # ---- steps -----------------------------------------------------------------------------------------------------

    def step(self, s: Chained, x: ChainStep, facts: Facts) -> str:
        """One part of what the consumers do in a step."""
        match x:
            case Multiply(number, span):
                return self.product(s, s.products[number], span)
            case Settle(pending, accumulators, releases):
                later = f"{self.spell.var(s.var)} > {self.spell.expr(s.start, facts)}" if releases else ""
                return render("pipeline/settle.cu.jinja", pending=pending, settled=self.settled(s, accumulators), releases=later)
            case Publish():
                return self.publish(s, x)
            case PSeq():
                return self.write(x, facts)
            case _:
                assert_never(x)

    def settled(self, s: Chained, accumulators: Sequence[Buffer]) -> list[str]:
        """No use of accumulators moves in front of the wait for their products."""
        counts = {p.c: p.registers for p in s.products}
        return [f"wgmma_settle<{counts[b]}>({self.spell.buffer(b)});" for b in accumulators]

    def descriptor(self, s: Chained, read: TileRead) -> str:
        """The descriptor of a tile's first version for this consumer, declared in front of everything."""
        if read not in self.described:
            spell = self.spell
            tile = spell.buffer(read.tile)
            name = spell.names.fresh(f"{tile}_across" if read.transposed else f"{tile}_along")
            shift = read.group_step // read.tile.dtype.bytes
            pointer = f"{tile} + warp_group * {shift}" if shift and s.schedule.consumers > 1 else tile
            line = f"const unsigned long long {name} = wgmma_descriptor({pointer}, {read.leading}, {read.stride}, {read.mode});"
            self.described[read] = name, line
        return self.described[read][0]

    def product(self, s: Chained, p: ChainProduct, span: Span) -> str:
        """The instructions of a product, closed as a group."""
        spell = self.spell
        spell.need(p.instruction)
        versioned = {o.tile for o in s.streams} | set(s.exchanged)
        lines: list[str] = []

        def start(read: TileRead, name: str) -> str:
            base = self.descriptor(s, read)
            if read.tile not in versioned:
                return base
            lines.append(f"const unsigned long long {name} = {base} + stage * {read.bytes >> 4};")
            return name

        b = start(p.b, "b")
        if isinstance(p.a, TileRead):
            a, steps = start(p.a, "a"), [n >> 4 for n in p.a.slices]
            flags = f"{int(p.a.transposed)}, {int(p.b.transposed)}"
        else:
            a, steps = f"reinterpret_cast<const unsigned*>({spell.buffer(p.a)})", [4 * n for n in range(len(p.b.slices))]
            flags = f"{int(p.b.transposed)}"
        c, name = spell.buffer(p.c), f"{p.instruction}<{flags}>"
        calls = [
            ProductCall(name, c, f"{a} + {x}" if x else a, f"{b} + {y >> 4}" if y else b, "false" if p.fresh and not n else "true")
            for n, (x, y) in enumerate(zip(steps, p.b.slices, strict=True))
        ]
        if p.fresh:
            spell.need("wgmma_forget")
        return render(
            "gemm/wgmma_group.cu.jinja", comment=self.comment(span), operands=lines, products=calls, c=c,
            fresh=p.registers if p.fresh else 0,
        )  # fmt: skip

    def publish(self, s: Chained, x: Publish) -> str:
        """A fragment into the version in use of a shared tile, behind which all consumers meet."""
        spell = self.spell
        for entry in ("stmatrix_x4", "fence_proxy_async", "barrier_sync"):
            spell.need(entry)
        place = spell.tile(x.tile)
        columns = place.layout.pitch
        rows, n = static_shape(x.tile)
        src = spell.buffer(x.src)
        exchange = exchange_of(columns * x.tile.dtype.bytes)
        words = ", ".join(f"reinterpret_cast<const unsigned*>({src})[j / 4{f' + {i}' if i else ''}]" for i in range(4))
        meet = f"barrier_sync<{MEETING}>({128 * s.schedule.consumers});"
        group = 64 * columns if s.schedule.consumers > 1 else 0
        context = _Exchange(ctype(x.tile.dtype), spell.tile_pointer(x.tile), group, n, columns, rows * columns, exchange, words, meet)
        return render("copy/publish.cu.jinja", s=context, comment=self.comment(x.span))

    # ---- loads -----------------------------------------------------------------------------------------------------

    def loads(self, o: Operand, map_name: str, barrier: str, stages: int, span: Span, facts: Facts) -> str:
        """The boxes of one tile."""
        tile = self.spell.buffer(o.tile)
        version = f"{tile} + stage * {self.spell.tile(o.tile).layout.elements}" if stages > 1 else tile
        return self.loads_of(o, self.boxes(o, version, facts), map_name, barrier, span)
