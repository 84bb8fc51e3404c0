"""Plans a GEMM kernel for Hopper: tiles in a ring filled by the copy engine, products of warp groups, persistent blocks.

The rules are those that measurements on an H200 gave (see `RULES`); every number is in the plan. Kernels of another form, and
tensors whose rows the copy engine cannot reach, go the portable way, and a remark says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilec.record import record
from tilec.analysis.affine import coefficient, depends_on
from tilec.analysis.facts import Facts
from tilec.analysis.proofs import prove
from tilec.diagnostics import Diagnostic, Severity
from tilec.ir.dtypes import INT32, INT64
from tilec.ir.expr import Binary, Buffer, Compare, Const, Load, Scope
from tilec.ir.tile import Alloc, Atomic, Copy, Parallel, Seq, Stmt, Store
from tilec.ir.visit import regions, stmt_exprs, storage, substitute, walk_expr, walk_stmt
from tilec.layout import atoms
from tilec.layout.fragment import FragmentLayout
from tilec.plan.barriers import place_barriers
from tilec.plan.clusters import ALONE
from tilec.plan.domains import cast, paired, static, static_shape
from tilec.plan.hopper.gemm_join import join_columns
from tilec.plan.hopper.gemm_lines import astray, lines_of, registers_of, words_bytes, words_tile
from tilec.plan.hopper.gemm_match import Match, match
from tilec.plan.hopper.gemm_pairs import CLUSTERED, chosen_pair, halved, pair_grid, without
from tilec.plan.hopper.parts import (
    Request,
    alignment,
    bulk_store_of,
    direct_stores,
    finished,
    in_parts,
    mapped_facts,
    operand_of,
    ring_of,
    staging_tile,
    touched_elsewhere,
)
from tilec.plan.hopper.plan import Operand, Pair, Product, Schedule, WarpGroupGemm
from tilec.plan.hopper.gemm_waves import one_tile_a_block
from tilec.plan.ladder import FIRST, Rung, lines_strain, next_rung, product_strain, rung_of
from tilec.plan.legal import legalise
from tilec.plan.lower import Lowering, Setting
from tilec.plan.pipelines import reads_tensors, touched
from tilec.plan.plan import (
    BulkStore,
    PBarrier,
    PFor,
    PIf,
    Placement,
    Private,
    PSeq,
    PStmt,
    PWhile,
    Registers,
    SharedTile,
    Stepped,
    THREAD,
    TileLoop,
    Variant,
    WarpSpecialized,
)  # fmt: skip
from tilec.plan.shared import place_tiles, tile_layouts
from tilec.plan.walk import plan_children, walk_plan

EPILOGUE_BARRIER = 6
"""The named barrier of all consumers; 1 to 3 are those of single warp groups, 4 is for the start, 5 for the lag."""


@record
class Rules:
    """What measurements on an H200 settled, as data.

    `registers`: (producer, consumer) by the number of consumers. `accumulators`: the most registers of accumulators a thread
    may hold, by the same. `most_stages`: more bring nothing. `panel`: height of a raster panel in tiles. `lag`: steps that the
    second consumer starts later.
    """

    registers: Mapping[int, tuple[int, int]]
    accumulators: Mapping[int, int]
    most_stages: int = 8
    panel: int = 16
    lag: int = 1


RULES = Rules(registers={1: (40, 232), 2: (40, 232), 3: (32, 160)}, accumulators={1: 160, 2: 192, 3: 96})


def plan_gemm(r: Request) -> list[Variant] | str:
    """The bodies of a launch for Hopper, of which each says when it is the one; or the reason why there is none."""
    recognised = _recognised(r)
    if isinstance(recognised, str):
        return recognised
    r, found, remarks = recognised
    number, rung = rung_of(r.choice, "product", r.symbol)
    facts = mapped_facts(r, found.copies)
    shared = _shares(found, facts)
    if isinstance(shared, str):
        return shared
    consumers, join, operands = shared
    if rung.portable:
        return f"{rung.why}: its products spill registers whatever else is tried"
    out = _Builder(r, found, facts, consumers, join, *operands, rung=rung).variant()
    if isinstance(out, str):
        return out

    def effect(x: Rung) -> object:
        takes = x.take[1] > RULES.registers[consumers][1] and x.take
        return _parts_of(x, found), x.anew, x.lag and consumers == 2, takes, x.pairs, x.cut, x.portable

    out = replace(out, ladder="product", rung=number, below=next_rung("product", number, effect))
    pair = chosen_pair(r.launch, found, *operands, r.pairs)
    if r.launch.cluster != ALONE and r.pairs != "off" and (pair is None or pair.when is not CLUSTERED):
        text = f"clusters of {'x'.join(map(str, r.launch.cluster))} blocks share no operand of this product: blocks pair up where that pays"
        remarks = (*remarks, Diagnostic(Severity.REMARK, "TL0510", text, r.launch.span))
    pays = pair is not None and prove(pair.when, facts)
    if pair is None or pays is False:
        return [replace(out, remarks=(*remarks, *out.remarks))]
    a, b = (halved(o) if name == pair.shared else o for name, o in zip("ab", operands, strict=True))
    both = r if pays else replace(r, symbol=f"{r.symbol}__pairs")
    number, rung = rung_of(r.choice, "pairs", both.symbol)
    if not rung.pairs:
        return [replace(out, remarks=(*remarks, *out.remarks))]
    paired_up = _Builder(both, found, facts, consumers, join, a, b, pair, rung).variant()
    assert isinstance(paired_up, Variant)
    paired_up = replace(paired_up, ladder="pairs", rung=number, below=next_rung("pairs", number, effect))
    alone = replace(out, when=without(out.when, pair))
    return [replace(v, remarks=(*remarks, *v.remarks)) for v in ((paired_up,) if pays else (alone, paired_up))]


def _recognised(r: Request) -> tuple[Request, Match, tuple[Diagnostic, ...]] | str:
    """The launch as one tile a block, cut or joined, its parts, and a remark where two blocks became one; or why it is none of these
    kernels."""
    r = replace(r, launch=one_tile_a_block(r.launch))
    written = frozenset(touched([r.launch.body])[1])
    found = match(r.launch, written, r.ieee)
    if isinstance(found, str):
        return found
    cut = rung_of(r.choice, "product", r.symbol)[1].cut > 1
    joins = r.opt_level >= 3 and static_shape(found.acc) == (128, 128) and r.launch.cluster == ALONE
    if cut and not joins:
        r = in_parts(r, "product")
        again = match(r.launch, written, r.ieee)
        assert not isinstance(again, str)
        return r, again, ()
    joined = join_columns(r.launch, found) if joins and not cut else None
    again = match(joined, written, r.ieee) if joined is not None else ""
    if joined is None or isinstance(again, str):
        return r, found, ()
    text = "two neighbouring blocks of 128x128 are one of 128x256"
    return replace(r, launch=joined), again, (Diagnostic(Severity.REMARK, "TL0506", text, r.launch.span),)


def plan_lines(r: Request) -> Variant | str:
    """The body of a launch for Hopper that takes any alignment: threads bring the operands (see `gemm_lines`); or why there is none."""
    recognised = _recognised(replace(r, divisors={}))
    if isinstance(recognised, str):
        return recognised
    r, found, remarks = recognised
    number, rung = rung_of(r.choice, "lines", r.symbol)
    if rung.portable:
        return f"{rung.why}: its products spill registers whatever else is tried"
    facts = Facts().with_launch(r.launch, (128, 1, 1))
    shared = _shares(found, facts, anywhere=True)
    if isinstance(shared, str):
        return shared
    consumers, join, operands = shared
    if consumers > 2:
        return "three warp groups of consumers leave threads that bring operands too few registers"
    start, stop = (substitute(e, found.resolved) for e in (found.loop.start, found.loop.stop))
    inside = facts.with_loop(found.loop.var, start, stop, Const(join, INT32))
    for o in operands:
        if reason := astray(o, inside):
            return reason
    builder = _Builder(r, found, facts, consumers, join, *operands, rung=rung, anywhere=True)
    out = builder.variant()
    if isinstance(out, str):
        return out
    if out.strain > 0:
        return "its products may need more registers than there are"

    def effect(x: Rung) -> object:
        return _parts_of(x, found), x.anew and bool(found.epilogue), x.lag and consumers == 2, x.take, x.portable

    computes = any(isinstance(x, Store) and x.buffer.scope is Scope.FRAGMENT for s in found.epilogue for x in walk_stmt(s))
    bytewise = computes and all(o.tile.dtype.bits == 8 for o in operands)
    read, written = (sum(b.scope is Scope.GLOBAL for b in side) for side in touched(found.epilogue))
    strain = lines_strain(out.strain, read, written, builder.registers()[1])
    strain = max(1, strain) if bytewise and not any(rung.take) else strain  # who brings bytes is given more than it can do with
    out = replace(out, ladder="lines", rung=number, below=next_rung("lines", number, effect), strain=strain)
    return replace(out, remarks=(*remarks, *out.remarks))


def _parts_of(x: Rung, found: Match) -> int:
    """How many iterations behind the products a rung lets load together; 0 where none of them loads."""
    return x.parts if any(map(reads_tensors, found.epilogue)) else 0


def _shares(found: Match, facts: Facts, anywhere: bool = False) -> tuple[int, int, tuple[Operand, Operand]] | str:
    """How many warp groups multiply, how many steps of the author's loop go together, and both operands; or why there are none."""
    m, n = static_shape(found.acc)
    k = static_shape(found.gemm.a.buffer)[0 if found.gemm.trans_a else 1]
    consumers = _consumers(m, n, found)
    if isinstance(consumers, str):
        return consumers
    join = _join(found, k, facts)
    operands = _operands(found, k * join, m // consumers, facts, anywhere)
    return operands if isinstance(operands, str) else (consumers, join, operands)


def _consumers(m: int, n: int, found: Match) -> int | str:
    """How many warp groups multiply a tile of m x n; or why none can."""
    if m % 64 or n % 8 or n > 256 or (found.depth == 32 and found.acc.dtype == INT32 and n > 32 and n % 16):
        return f"warp groups do not multiply tiles of {m}x{n}"
    for count in (2, 3, 1):
        if m % (64 * count) == 0 and m * n * found.acc.dtype.bytes // (512 * count) <= RULES.accumulators[count]:
            return count
    return f"an accumulator of {m}x{n} takes more registers than two warp groups have for it"


def _join(found: Match, k: int, facts: Facts) -> int:
    """How many steps of the author's loop go together, so that a row of a tile fills the 128 bytes of the widest swizzle.

    Only where the loop runs through all of k from 0, so that what is read too much is out of range and therefore zero.
    """
    row = k * found.gemm.a.buffer.dtype.bytes
    loop = found.loop
    if row >= 128 or 128 % row or static(loop.start) != 0:
        return 1
    for copy, trans in zip(found.copies, (found.gemm.trans_a, not found.gemm.trans_b), strict=True):
        along = paired(copy.src)[0 if trans else 1]
        for d, start in enumerate(copy.src.starts):
            e = substitute(start, found.resolved)
            if d != along and depends_on(e, (loop.var,)):
                return 1
        e = substitute(copy.src.starts[along], found.resolved)
        step = Binary("mul", loop.var, Const(k, INT32), INT32)
        if coefficient(e, loop.var) != k or prove(Compare("eq", e, cast(step, e.dtype)), facts) is not True:
            return 1
        end = Binary("mul", cast(substitute(loop.stop, found.resolved), INT64), Const(k, INT64), INT64)  # 32 bits may not hold it
        if prove(Compare("ge", end, cast(copy.src.buffer.shape[along], INT64)), facts) is not True:
            return 1
    return 128 // row


def _operands(found: Match, k: int, rows: int, facts: Facts, anywhere: bool = False) -> tuple[Operand, Operand] | str:
    """Both tiles of the ring, `k` long; `rows` are those of a consumer. Or why the copy engine or wgmma cannot take one."""
    if k % found.depth:
        return f"K = {k} is no multiple of {found.depth}"
    g = found.gemm
    out: list[Operand] = []
    for copy, k_major, group_rows in ((found.copies[0], not g.trans_a, rows), (found.copies[1], g.trans_b, 0)):
        one = operand_of(copy, k_major, k, group_rows, found.resolved, facts, anywhere)
        if isinstance(one, str):
            return one
        out.append(one)
    return out[0], out[1]


def _products(found: Match, a: Operand, b: Operand, m: int, n: int) -> tuple[Product, ...]:
    """The instructions of one k-block: along k first, and for each step the 64-row parts of a consumer."""
    item = a.tile.dtype.bytes
    tiles = m // 64
    k = a.shape[1] if a.k_major else a.shape[0]
    count = n // 2  # elements of the accumulator a thread holds of 64 x n

    def along(o: Operand, step: int) -> int:
        """Bytes from the tile's start to a step of `depth` elements along k."""
        if not o.k_major:
            return step * found.depth * o.span
        byte = step * found.depth * item
        return byte // o.span * o.shape[0] * o.span + byte % o.span

    def down(i: int) -> int:
        """Bytes to the i-th 64 rows of a."""
        return i * 64 * a.span if a.k_major else i * 64 * item // a.span * a.leading

    return tuple(Product(along(a, s) + down(i), along(b, s), i * count) for s in range(k // found.depth) for i in range(tiles))


class _Epilogue(Lowering):
    """Lowers what follows the loop; copies of a whole accumulator go through the copy engine where it can write them."""

    def __init__(self, at: Setting, builder: _Builder) -> None:
        super().__init__(at)
        self.builder = builder
        self.stores: list[BulkStore] = []

    def copy(self, s: Copy, facts: Facts, ahead: bool = False) -> PStmt:
        found = self.builder.bulk_store(s, self.at, facts)
        if found is None:
            return super().copy(s, facts, ahead)
        self.stores.append(found)
        return found

    def by_register(self, s: Parallel, layout: FragmentLayout, facts: Facts) -> TileLoop:
        found = super().by_register(s, layout, facts)
        return replace(found, parted=self.builder.rung.parts if not found.rows and reads_tensors(s) else 0)


@dataclass(slots=True)
class _Builder:
    """Puts one body together."""

    r: Request
    found: Match
    facts: Facts
    consumers: int
    join: int
    a: Operand
    b: Operand
    pair: Pair | None = None
    rung: Rung = FIRST
    anywhere: bool = False

    def variant(self) -> Variant | str:
        """The finished body; or why it does not fit."""
        found, launch = self.found, self.r.launch
        m, n = static_shape(found.acc)
        threads = 128 * self.consumers
        layout = atoms.warp_group_accumulator(m, n, self.consumers)
        products = _products(found, self.a, self.b, m // self.consumers, n)
        gemm = WarpGroupGemm(
            f"wgmma_m64n{n}k{found.depth}_{found.kind}", m, n, self._depth(), layout, products,
            (int(not self.a.k_major), int(not self.b.k_major)) if found.depth == 16 else None,
        )  # fmt: skip
        facts = self.facts.with_range(THREAD, 0, threads - 1)
        for s in found.lets:
            facts = facts.with_let(s.var, s.value)
        epilogue = Seq(direct_stores(self.found.epilogue), launch.span)
        legal = legalise(epilogue, threads, self.r.target, self.r.ieee, {found.acc: layout})
        layouts = tile_layouts(shared_buffers(legal.body), frozenset())
        aligned = (lambda b: b.dtype.bytes) if self.anywhere else alignment
        setting = Setting(threads, (), legal.layouts, legal.gemms, layouts.__getitem__, aligned, legal.body, 1, adds=True)
        lowering = _Epilogue(setting, self)
        setup = lowering.sequence(found.lets, facts, True)
        ahead = lowering.sequence(found.ahead, facts, True)
        lowering.note_loads(() if found.guard is None else (found.guard,), facts)
        lowered = lowering.sequence((legal.body,), facts, True)
        reads, writes = touched([legal.body])
        both = frozenset(b for b in reads & writes if b.scope is Scope.GLOBAL)
        body = named_barriers(place_barriers(lowered, both, lowering.varies), threads)
        if layouts or both:
            body = PSeq((*body.body, PBarrier("named", Const(EPILOGUE_BARRIER, INT32), Const(threads, INT32), "the next tile")))
        tiles, extra = place_tiles(layouts, {})
        return self._assemble(gemm, legal.layouts, (setup, ahead), body, lowering, tiles, extra, legal.remarks)

    def registers(self) -> tuple[int, int]:
        """Those of a producer and a consumer once they have exchanged some."""
        if self.anywhere:
            _, give, take = registers_of(self.consumers, self._accumulators())
            return min(give, self.rung.take[0] or give), take
        give, take = RULES.registers[self.consumers]
        return self.rung.take if self.rung.take[1] > take else (give, take)

    def _strain(self, fragments: Mapping[Buffer, FragmentLayout], epilogue: PSeq) -> int:
        """By how many registers the body may exceed what is known to fit."""
        computes = any(not isinstance(s, PSeq | Stepped | BulkStore) and plan_children(s) for s in walk_plan(epilogue))
        read = sum(b.scope is Scope.GLOBAL for b in touched(self.found.epilogue)[0])
        least = 4 if read else 1  # bytes: what is loaded beside 16-bit results takes as many registers as beside wide ones
        held = sum(-(-layout.registers * max(b.dtype.bytes, least) // 4) for b, layout in fragments.items())
        by_threads = 32 if self.anywhere else 0  # bodies whose threads bring operands as well have been swept by themselves
        stored = max((s.map.tensor.dtype.bits for s in walk_plan(epilogue) if isinstance(s, BulkStore)), default=by_threads)
        m, n = static_shape(self.found.acc)
        return product_strain((m, n, stored), held, computes, read, self.rung, self.registers()[1])

    def _accumulators(self) -> int:
        """Registers of the accumulator a thread."""
        m, n = static_shape(self.found.acc)
        return m * n * self.found.acc.dtype.bytes // (512 * self.consumers)

    def _depth(self) -> int:
        return self.a.shape[1] if self.a.k_major else self.a.shape[0]

    def bulk_store(self, s: Copy, at: Setting, facts: Facts) -> BulkStore | None:
        """The copy of a whole fragment with the accumulator's map to a box of a tensor, as a store of the copy engine."""
        if self.anywhere or touched_elsewhere(s.dst.buffer, at.launch_body):
            return None
        m, n = static_shape(self.found.acc)
        return bulk_store_of(s, at.layouts.get(s.src.buffer), (m, n), self.consumers, facts)

    def _assemble(
        self, gemm: WarpGroupGemm, fragments: Mapping[Buffer, FragmentLayout], before: tuple[PSeq, PSeq], epilogue: PSeq,
        lowering: _Epilogue, tiles: Mapping[Buffer, SharedTile], extra: int, remarks: tuple[Diagnostic, ...],
    ) -> Variant | str:  # fmt: skip
        """Shared memory, the schedule, and the condition under which the launcher may choose the body."""
        found, r = self.found, self.r
        stagings = list({id(s.staging.tile): s for s in lowering.stores}.values())
        staged = max((_bytes(s.staging.tile) for s in stagings), default=0)
        producers = registers_of(self.consumers, self._accumulators())[0]
        lines = lines_of(self.a, self.b, producers, found.loop.var, self.join) if self.anywhere else None
        words = [words_bytes(b) for b in (lines.a, lines.b)] if lines is not None else [0, 0]
        room = r.target.shared_per_block_max - staged - extra - 1024 - sum(words)
        stages = min(RULES.most_stages, room // (self.a.bytes + self.b.bytes))
        if stages < 2:
            return f"two pairs of tiles of {self.a.bytes + self.b.bytes} bytes do not fit the shared memory"
        at_b = stages * self.a.bytes
        at_c = at_b + stages * self.b.bytes
        at_more = at_c + staged
        at_words = at_more + extra
        barriers = at_words + sum(words)
        panel = r.launch.panel or RULES.panel
        schedule = Schedule(
            self.consumers, stages, *self.registers(), barriers, barriers + 16 * stages,
            RULES.lag if self.consumers == 2 and self.rung.lag and stages > 2 else 0,
            max(1, panel // 2) if self.pair is not None and self.pair.axis == 1 else panel, self.pair, self.rung.anew, lines,
        )  # fmt: skip
        placements: dict[Buffer, Placement] = {
            self.a.tile: ring_of(self.a, 0, stages), self.b.tile: ring_of(self.b, at_b, stages),
        }  # fmt: skip
        if lines is not None:
            placements |= {lines.a: words_tile(lines.a, at_words), lines.b: words_tile(lines.b, at_words + words[0])}
        for s in stagings:
            placements[s.staging.tile] = staging_tile(s.staging, at_c)
        placements |= {b: replace(t, offset=t.offset + at_more) for b, t in tiles.items()}
        placements |= {b: Registers(f) for b, f in fragments.items()}
        placements[found.acc] = Registers(gemm.layout)
        placements |= {s.buffer: Private() for s in found.epilogue if isinstance(s, Alloc) and s.buffer.scope in (Scope.LOCAL, Scope.VAR)}
        loop = found.loop
        start, stop = substitute(loop.start, found.resolved), substitute(loop.stop, found.resolved)
        zero = prove(Compare("lt", start, stop), self.facts) is not True
        if len(stagings) > 1:
            epilogue = _draining(epilogue)
        body = WarpSpecialized(
            schedule, gemm, found.acc, self.a, self.b, r.launch.block_vars, r.launch.grid, loop.var, start, stop, self.join, zero, *before,
            epilogue, found.guard, found.early, (loop.span, found.copies[0].span, found.copies[1].span, found.gemm.span),
        )  # fmt: skip
        maps = () if lines is not None else (self.a.map, self.b.map, *(s.map for s in lowering.stores))
        strain = self._strain({**fragments, found.acc: gemm.layout}, epilogue)
        out = replace(finished(r, self.facts, body, placements, lowering, maps), remarks=remarks, strain=strain)
        if self.pair is None:
            return out
        one = Const(1, INT32)
        return replace(out, grid=(pair_grid(r.launch.grid, self.pair.axis), one, one), cluster=2)


def _bytes(tile: Buffer) -> int:
    rows, columns = static_shape(tile)
    return rows * columns * tile.dtype.bytes


def _draining(s: PSeq) -> PSeq:
    """Stores that share one staging area: each waits for those before it."""

    def visit(x: PStmt) -> PStmt:
        match x:
            case BulkStore():
                return replace(x, drains=True)
            case Stepped(span, body):
                return Stepped(span, _draining(body))
            case PSeq():
                return _draining(x)
            case PIf():
                return replace(x, then=_draining(x.then), orelse=_draining(x.orelse))
            case PFor() | PWhile():
                return replace(x, body=_draining(x.body))
            case _:
                return x

    return PSeq(tuple(map(visit, s.body)))


def named_barriers(s: PSeq, threads: int) -> PSeq:
    """Barriers of the block turned into those of the consumers."""

    def visit(x: PStmt) -> PStmt:
        match x:
            case PBarrier("block"):
                return replace(x, kind="named", id=Const(EPILOGUE_BARRIER, INT32), count=Const(threads, INT32))
            case PSeq():
                return named_barriers(x, threads)
            case Stepped(span, body):
                return Stepped(span, named_barriers(body, threads))
            case PIf():
                return replace(x, then=named_barriers(x.then, threads), orelse=named_barriers(x.orelse, threads))
            case PFor() | PWhile() | TileLoop():
                return replace(x, body=named_barriers(x.body, threads))
            case _:
                return x

    return PSeq(tuple(map(visit, s.body)))


def shared_buffers(body: Stmt) -> list[Buffer]:
    """Every shared buffer that `body` mentions, owners and views, in order of appearance."""
    found: dict[Buffer, None] = {}

    def keep(b: Buffer) -> None:
        if b.scope is Scope.SHARED:
            found.setdefault(storage(b))
            found.setdefault(b)

    for s in walk_stmt(body):
        if isinstance(s, Store | Atomic):
            keep(s.buffer)
        for side in regions(s):
            for r in side:
                keep(r.buffer)
        for root in stmt_exprs(s):
            for e in walk_expr(root):
                if isinstance(e, Load):
                    keep(e.buffer)
    return list(found)
