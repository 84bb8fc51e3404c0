"""The CUDA text of a warp-specialised kernel, and how its launcher and its manifest describe tensors to the copy engine.

    kernel_text(...) -> the __global__ function;  map_names(plan, variant) -> ["A_map", "B_map", "C_map"]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tilec.record import record
from tilec.analysis.facts import Facts
from tilec.analysis.proofs import prove
from tilec.diagnostics import Span
from tilec.emit.cliteral import ctype
from tilec.emit.memory import Spelling
from tilec.emit.names import LAUNCHER_NAMES, Names
from tilec.emit.render import render
from tilec.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT32, INT64, DType
from tilec.ir.expr import Binary, Call, Compare, Const, Expr
from tilec.plan.access import row_strides
from tilec.plan.domains import cast, static_shape
from tilec.plan.hopper.plan import Operand, TensorMap
from tilec.plan.plan import BulkStore, Chained, PSeq, Streamed, Variant, WarpSpecialized
from tilec.plan.reach import ELEMENT_TYPES
from tilec.plan.walk import walk_plan

RESERVED = frozenset(
    "full empty warp_group tiles tiles_x tiles_y tile stage phase steps step previous lag a b a_tiles b_tiles part column staged row r j s "
    "in_layer multiprocessors rank pairs_x pairs_y again".split()
)
"""C names that the text declares for itself."""

Write = Callable[[PSeq, Facts], str]


def data_type(dtype: DType) -> int:
    """The driver's number of an element type."""
    return ELEMENT_TYPES[dtype.name]


def map_names(variant: Variant, taken: Sequence[str]) -> list[str]:
    """The C names of a body's tensor maps; `taken` are those of the parameters."""
    names = Names(LAUNCHER_NAMES | RESERVED | set(taken))
    return [names.fresh(f"{m.tensor.name}_map") for m in variant.tensor_maps]


def map_extents(m: TensorMap) -> tuple[Expr, ...]:
    """The tensor's extents, innermost first."""
    return tuple(reversed(m.tensor.shape))


def map_strides(m: TensorMap) -> tuple[Expr, ...]:
    """Bytes between neighbours along each dimension but the innermost, from the second innermost on."""
    item = Const(m.tensor.dtype.bytes, INT64)
    return tuple(Binary("mul", cast(e, INT64), item, INT64) for e in reversed(row_strides(m.tensor)[:-1]))


@record
class _Numbers:
    """What the template of the kernel says in figures and short expressions."""

    threads: int
    first: int
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
class KernelWriter:
    """Writes one kernel. `write` gives the text of planned statements, `tile_lines` the declarations of shared tiles."""

    spell: Spelling
    comment: Callable[[Span], str]
    write: Write
    tile_lines: Callable[[str], list[str]]

    def text(self, symbol: str, parameters: str, maps: Sequence[str]) -> str:
        """The __global__ function."""
        spell, variant = self.spell, self.spell.variant
        s = variant.body.body[0]
        assert isinstance(s, WarpSpecialized)
        for entry in _ENTRIES:
            spell.need(entry)
        spell.need(s.gemm.instruction)
        facts = variant.facts
        for entry in _PAIR_ENTRIES if s.schedule.pair is not None else ():
            spell.need(entry)
        stores = [x for x in walk_plan(s.epilogue) if isinstance(x, BulkStore)]
        if stores:
            spell.need("bulk_wait_read")
        numbers = self.numbers(s, facts)
        loads = self.loads(s, maps, facts)
        acc = spell.buffer(s.acc)
        registers = s.gemm.layout.registers
        spell.need_type(s.acc.dtype)
        align = "alignas(16) " if s.acc.dtype.bytes < 4 else ""
        epilogue, consumer = self.consumer(s, facts)
        zero = render("gemm/clear.cu.jinja", c=acc, count=registers, condition="") if s.zero else ""
        pieces = {
            "counts": self.counts(s, facts), "producer_places": self.places(s, f"{loads}\n{numbers.start}{numbers.stop}"),
            "loads": loads, "consumer_places": consumer, "accumulator": f"{align}{ctype(s.acc.dtype)} {acc}[{registers}];",
            "products": self.products(s, acc), "zero": zero, "epilogue": epilogue, "loop_comment": self.comment(s.spans[0]),
            "gemm_comment": self.comment(s.spans[3]),
        }  # fmt: skip
        tiles = self.tile_lines("\n".join([*pieces.values(), numbers.a, numbers.b]))
        places = "".join(f"{w} = thread {by} 32, " for w, by in (("warp", "/"), ("lane", "%")) if _mentions(epilogue, w))
        return render(
            "pipeline/warp_specialized.cu.jinja", k=numbers, symbol=symbol, parameters=parameters, tiles=tiles, places=places, maps=maps,
            stores=bool(stores), arch=variant.arch, guard=self.guard(s, facts), **pieces,
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
            c.threads, 128 * c.consumers, c.consumers, c.stages, c.barriers, c.give, c.take, c.lag, s.gemm.m // c.consumers,
            s.a.bytes + s.b.bytes, var, start, stop, f"++{var}" if s.step == 1 else f"{var} += {s.step}", spell.expr(trips, facts),
            tile(s.a), tile(s.b), descriptor(s.a), descriptor(s.b), s.a.bytes >> 4, s.b.bytes >> 4, c.pair is not None,
            "blockIdx.x" if c.pair is None else "blockIdx.x / 2", "gridDim.x" if c.pair is None else "gridDim.x / 2",
        )  # fmt: skip

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

    def places(self, s: WarpSpecialized, used: str) -> str:
        """Declarations of the author's block indices from the number of a tile, as far as `used` mentions them."""
        guard = "" if s.guard is None else f"if (!({self.spell.expr(s.guard, self.spell.variant.facts)})) continue;"
        used += f"{guard} {self.guard(s, self.spell.variant.facts)}"
        names = [self.spell.var(v) for v in s.block_vars]
        if len(names) == 1:
            return "\n".join(t for t in (f"const int {names[0]} = tile;" if _mentions(used, names[0]) else "", guard) if t)
        z = names[2] if len(names) > 2 else ""
        x, y = self.panels(s)
        return render(
            "kernel/tile_raster.cu.jinja", z=z, number="in_layer" if z else "tile", panel=s.schedule.group, x=names[0], y=names[1],
            uses_x=_mentions(used, names[0]), uses_y=_mentions(used, names[1]), guard=guard, columns=x, rows=y,
        )  # fmt: skip

    def loads(self, s: WarpSpecialized, maps: Sequence[str], facts: Facts) -> str:
        """The loads of one step."""
        inner = facts.with_loop(s.var, s.start, s.stop, Const(s.step, INT32))
        parts, full = [], "full + stage"
        for o, name, span in ((s.a, maps[0], s.spans[1]), (s.b, maps[1], s.spans[2])):
            rank = len(o.at)
            function = f"tma_load_{rank}d{'_multicast' if o.halved else ''}"
            self.spell.need(function)
            tile = f"{self.spell.buffer(o.tile)} + stage * {o.elements}"
            boxes = []
            for box in o.boxes:
                first = o.at[0] if not box.shift else Binary("add", o.at[0], Const(box.shift, INT32), INT32)
                at = ", ".join(self.spell.expr(e, inner) for e in (first, *o.at[1:]))
                place = f"{tile} + {box.offset}" if box.offset else tile
                if o.halved:  # a block brings its half of the rows to both blocks
                    place, at = f"{place} + rank * {o.map.box[0] * o.map.box[1]}", f"{at} + rank * {o.map.box[1]}, 3"
                boxes.append(BoxLoad(place, at))
            lines = render("copy/tma_load.cu.jinja", comment=self.comment(span), boxes=boxes, load=function, map=name, barrier=full)
            parts.append(lines.lstrip("\n"))
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
            calls.append(ProductCall(d, f"a + {p.a >> 4}" if p.a else "a", f"b + {p.b >> 4}" if p.b else "b", flag))
        return render("gemm/wgmma.cu.jinja", instruction=name, products=calls)

    def consumer(self, s: WarpSpecialized, facts: Facts) -> tuple[str, str]:
        """The epilogue with the author's scalars in front of it, and the block indices that a tile needs."""
        epilogue = self.write(PSeq((*s.setup.body, *s.epilogue.body)), facts)
        return epilogue, self.places(s, f"{epilogue}\n{self.spell.expr(s.start, facts)} {self.spell.expr(s.stop, facts)}")


@record
class BoxLoad:
    """One load: where to, and its coordinates."""

    dst: str
    at: str


@record
class ProductCall:
    """One product: accumulator, descriptors, and whether it adds."""

    d: str
    a: str
    b: str
    accumulate: str


@record
class _Store:
    """The context of a bulk store."""

    parts: int
    n: int
    columns: int
    buffers: int
    drains: bool
    type: str
    tile: str
    src: str
    exchange: str
    words: str
    rank: int
    map: str
    at: str


def bulk_store_text(spell: Spelling, s: BulkStore, map_name: str, variant: Variant, facts: Facts) -> str:
    """A fragment through the staging area to the tensor."""
    whole = variant.body.body[0]
    assert isinstance(whole, WarpSpecialized | Streamed | Chained)
    consumers = whole.schedule.consumers
    m, n = static_shape(s.src)
    wide = s.src.dtype.bits == s.map.tensor.dtype.bits == 32
    written = "store_vec" if wide else "stmatrix_x4"
    for entry in (written, "fence_proxy_async", "warp_group_sync", "bulk_commit", "bulk_wait_read", f"tma_store_{len(s.at)}d"):
        spell.need(entry)
    columns, src = s.staging.columns, spell.buffer(s.src)
    exchange = {128: "row % 8", 64: "row / 2 % 4", 32: "row / 4 % 2"}[s.staging.span]
    row = next(d for d in range(1, len(s.at)) if s.map.box[d] == 64)
    at: list[str] = []
    for d, e in enumerate(s.at):
        text = spell.expr(e, facts)
        text = "" if text == "0" and d in (0, row) else text
        if d == 0:
            text = f"{text} + column" if text else "column"
        elif d == row:
            group = f"warp_group * {m // consumers}" if consumers > 1 else ""
            part = "part * 64" if m // consumers > 64 else ""
            text = " + ".join(t for t in (text, group, part) if t) or "0"
        at.append(text)
    return render(
        "copy/bulk_store.cu.jinja",
        s=_Store(
            m // consumers // 64, n, columns, s.staging.buffers, s.drains and s.staging.buffers > 1, ctype(s.map.tensor.dtype),
            spell.buffer(s.staging.tile), src, exchange, "" if wide else _words(spell, src, s.src.dtype, s.map.tensor.dtype), len(s.at),
            map_name, ", ".join(at),
        ),
    )  # fmt: skip


def _words(spell: Spelling, src: str, held: DType, stored: DType) -> str:
    """The four words of an stmatrix: pairs of neighbouring columns, rows 0 and 8, then eight columns further."""
    if held != FLOAT32:
        return ", ".join(f"reinterpret_cast<const unsigned*>({src})[r / 2{f' + {i}' if i else ''}]" for i in range(4))
    pack = {FLOAT16: "pack_half2", BFLOAT16: "pack_bfloat162"}[stored]
    spell.need(pack)
    return ", ".join(f"{pack}({src}[r{f' + {2 * i}' if i else ''}], {src}[r + {2 * i + 1}])" for i in range(4))


def factor(text: str) -> str:
    """C text that may stand in a product: in brackets unless it is one word."""
    return text if re.fullmatch(r"\w+", text) else f"({text})"


def _mentions(text: str, word: str) -> bool:
    return re.search(rf"\b{word}\b", re.sub(r"//.*", "", text)) is not None


_ENTRIES = (
    "tensor_map", "shared_tile", "warp_group_index", "registers_give", "registers_take", "mbarrier_init", "mbarrier_init_fence",
    "mbarrier_arrive", "mbarrier_expect", "mbarrier_wait", "tma_prefetch", "barrier_sync", "barrier_arrive", "warp_sync",
    "wgmma_descriptor", "wgmma_fence", "wgmma_commit", "wgmma_wait",
)  # fmt: skip
"""Prelude entries that every such kernel uses."""

_PAIR_ENTRIES = ("cluster_rank", "cluster_arrive", "cluster_wait", "mbarrier_arrive_at")
"""Prelude entries of kernels whose blocks work in pairs."""

