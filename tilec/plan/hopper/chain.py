"""Plans kernels that chain products for Hopper: the gradients of attention, and whatever else multiplies three times and more a step.

A producer warp group brings the held tiles once a block and the streamed ones step by step, all of a step through one ring. Each
consumer warp group owns 64 rows of the products. Products are queued as soon as what they read is there, and waited for where a
statement uses their result, so that row statements of one run under products of others. A fragment that another product wants
from all warp groups goes through a shared tile in as many versions as the ring has, so one barrier a step suffices.

    K, V 128x128 held, Q, dO 64x128 streamed: 2 consumers, 5 products a step, 2 stages, 24/240 registers, 225 KB
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TypeAlias

from tilec.analysis.affine import depends_on
from tilec.analysis.facts import Facts
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Buffer, Const, Expr, Scope, Var
from tilec.ir.tile import Copy, Fill, Gemm, Let, Parallel, Reduce, Seq, Stmt, Store
from tilec.ir.visit import flat, substitute, walk_stmt
from tilec.layout import atoms
from tilec.layout.fragment import FragmentLayout, same_map
from tilec.layout.shared import CHUNK, SharedLayout
from tilec.plan.domains import static, static_shape, whole
from tilec.plan.hopper.balance import balanced_section, row_axis, section_of
from tilec.plan.hopper.chain_match import Chain, match
from tilec.plan.hopper.chain_plan import ChainProduct, ChainSchedule, Multiply, Publish, Settle, TileRead
from tilec.plan.hopper.chain_rows import RowLowering
from tilec.plan.hopper.parts import Request, alignment, finished, in_parts, legalised, mapped_facts, operand_of, ring_of, staging_tile
from tilec.plan.hopper.plan import WARP_GROUP, Box, Operand, TensorMap
from tilec.plan.hopper.softmax import folded
from tilec.plan.ladder import chain_strain, next_rung, rung_of
from tilec.plan.legal import legalise
from tilec.plan.lower import Setting
from tilec.plan.pipelines import touched
from tilec.plan.plan import THREAD, Chained, ChainStep, Placement, PSeq, Registers, SharedTile, Variant
from tilec.plan.copy_engine import span_swizzle, unreachable, widest_span
from tilec.record import record


@record
class Rules:
    """What measurements on an H200 settled, as data.

    `registers`: (producer, consumer) by the number of consumers; `spare`: those that a consumer needs at least
    besides its tiles. `stages`:
    versions of the streamed tiles. `cache`: bytes of streamed tensors that blocks in work at the same time should share.
    """

    registers: Mapping[int, tuple[int, int]]
    spare: int = 24
    stages: int = 2
    cache: int = 24 << 20


RULES = Rules(registers={1: (40, 232), 2: (24, 240), 3: (32, 160)})


def plan_chain(r: Request) -> Variant | str:
    """The body of a launch that chains products; the reason why not, empty for kernels of another form."""
    r = in_parts(r, "chain")
    found = match(r.launch, r.written)
    if isinstance(found, str):
        return found
    rows = max(static_shape(g.c.buffer)[0] for g in found.gemms)
    if rows not in (64, 128, 192):
        return f"warp groups of 64 rows do not share blocks of {rows} rows"
    facts = mapped_facts(r, (*found.held, *found.streams))
    loads = _loads(found, facts)
    if isinstance(loads, str):
        return loads
    products = _products(found, rows // 64, {o.tile: o for o in loads})
    if isinstance(products, str):
        return products
    number, rung = rung_of(r.choice, "chain", r.symbol)
    if rung.portable:
        return f"{rung.why}: it spills registers whatever else is tried"
    there = RULES.registers[rows // 64][1]
    cap = there - RULES.spare
    ways = (True, False) if rung.carries else (False,)
    step = next((x for on in ways if _registers(found, products, (x := step_of(found, on)).carried) <= cap), None)
    if step is None:
        need = _registers(found, products, ()) + RULES.spare
        return f"its tiles take about {need} registers a thread, more than {rows // 64} warp groups have"
    out = _Builder(r, found, facts, rows // 64, loads, products, step).variant()
    if isinstance(out, str):
        return out
    below = next_rung("chain", number, lambda x: (x.carries and bool(step.carried), x.cut, x.portable))
    return replace(out, ladder="chain", rung=number, below=below, strain=chain_strain(there - _registers(found, products, step.carried)))


# ---- tiles -----------------------------------------------------------------------------------------------------------


def _loads(found: Chain, facts: Facts) -> tuple[Operand, ...] | str:
    """How each held and streamed tile is filled, in order; or why the copy engine cannot."""
    out: list[Operand] = []
    for c in (*found.held, *found.streams):
        tile = c.dst.buffer
        one = operand_of(c, True, static_shape(tile)[1], 0, found.resolved, facts) if tile.rank == 2 else _row(c, found.resolved, facts)
        if isinstance(one, str):
            return one
        out.append(one)
    return tuple(out)


def _row(copy: Copy, lets: Mapping[Var, Expr], facts: Facts) -> Operand | str:
    """A row of numbers as the copy engine brings it: one box, not swizzled."""
    tile, source = copy.dst.buffer, copy.src.buffer
    reason = unreachable(source, facts)
    if reason:
        return reason
    n = static_shape(tile)[0]
    at = tuple(substitute(e, lets) for e in reversed(copy.src.starts))
    if any(e.dtype != INT32 for e in at):
        return f"{source.name} is indexed with {next(e.dtype for e in at if e.dtype != INT32)}"
    return Operand(tile, TensorMap(source, (n, *(1 for _ in at[1:])), 0), at, (Box(0, 0),), (1, n), True, 0, 0, 0, 0)


def _products(found: Chain, consumers: int, loads: Mapping[Buffer, Operand]) -> tuple[ChainProduct, ...] | str:
    """How warp groups do each product; or why they cannot do one."""
    out: list[ChainProduct] = []
    for g in found.gemms:
        m, n = static_shape(g.c.buffer)
        k = static_shape(g.a.buffer)[0 if g.trans_a else 1]
        by_columns = m == 64 and consumers > 1
        width = n // consumers if by_columns else n
        shared = n % consumers == 0 if by_columns else m == 64 * consumers
        if not shared or k % 16 or width % 16 or width > 256:
            return f"{consumers} warp groups do not share a product of {m}x{n}x{k}"
        held = g.a.buffer.scope is Scope.FRAGMENT
        if held and by_columns:
            return f"{g.a.buffer.name} is held by rows, its product by columns"
        b = _read(g.b.buffer, g.trans_b, k, width if by_columns else 0)
        a = g.a.buffer if held else _read(g.a.buffer, not g.trans_a, k, 0 if by_columns else 64)
        if isinstance(a, str) or isinstance(b, str):
            return a if isinstance(a, str) else str(b)
        name = f"wgmma_m64n{width}k16_{found.kind}{'_held' if held else ''}"
        out.append(ChainProduct(name, a, b, g.c.buffer, width // 2, isinstance(g.clear, Const) and bool(g.clear.value), by_columns))
    return tuple(out)


def span_of(tile: Buffer) -> int:
    """The bytes over which rows of a tile are swizzled: 128, 64 or 32; 0 when they are no multiple."""
    return widest_span(static_shape(tile)[1] * tile.dtype.bytes)


def _read(tile: Buffer, k_major: bool, k: int, part: int) -> TileRead | str:
    """A tile as an operand whose consumers take `part` rows or columns each, 0 for all of it; or why wgmma cannot read it."""
    span = span_of(tile)
    if not span:
        return f"rows of {tile.name} are no multiple of 32 bytes"
    rows, _ = static_shape(tile)
    block, item = rows * span, tile.dtype.bytes
    if k_major:
        slices = tuple(32 * s // span * block + 32 * s % span for s in range(k // 16))
        step = part * span
    else:
        slices = tuple(16 * span * s for s in range(k // 16))
        step = part * item // span * block
        step += part * item % span
    mode = {128: 1, 64: 2, 32: 3}[span]
    size = prod(static_shape(tile)) * item
    return TileRead(tile, CHUNK if k_major else block, 8 * span, mode, step, slices, size, not k_major)


# ---- order and registers ---------------------------------------------------------------------------------------------


Part: TypeAlias = tuple[Stmt, ...] | int | Settle | Copy
"""A part of a step: row statements, the number of a product to queue, a wait, a copy into an exchanged tile."""


def schedule_of(work: Sequence[Stmt], exchanged: Iterable[Buffer], carried: Sequence[Gemm] = ()) -> tuple[list[Part], list[Gemm]]:
    """A step as rows of statements, numbers of products to queue, waits, and copies into exchanged tiles; and what it leaves queued.

    Products end in the order in which they were queued. A statement waits for those whose accumulator it uses, and for those that
    read a fragment it changes. Behind the last statement some are left: those that `carried` has from the step before are over by
    then.
    """
    tiles = set(exchanged)
    out: list[Part] = []
    flying = list(carried)
    number = 0
    for s in work:
        if isinstance(s, Gemm):
            out.append(number)
            number += 1
            flying.append(s)
            continue
        reads, writes = touched([s])
        last = max((n for n, g in enumerate(flying) if g.c.buffer in reads | writes or g.a.buffer in writes - tiles), default=-1)
        if last >= 0:
            done, flying = flying[: last + 1], flying[last + 1 :]
            out.append(Settle(len(flying), tuple(g.c.buffer for g in done if g not in carried), any(g in carried for g in done)))
        if isinstance(s, Copy) and s.dst.buffer in tiles:
            out.append(s)
        elif out and isinstance(out[-1], tuple):
            out[-1] = (*out[-1], s)
        else:
            out.append((s,))
    return out, flying


@record
class Step:
    """What the consumers do in a step, and the products that run on into the next one."""

    parts: list[Part]
    carried: Sequence[Gemm]


def step_of(found: Chain, carries: bool) -> Step:
    """A step of the loop. With `carries`, products at its end that are added up for good run on; else all are waited for."""
    parts, left = schedule_of(found.work, found.exchanged)
    rows = set().union(*touched([s for s in found.work if not isinstance(s, Gemm)]))
    if carries and left and not any(g.c.buffer in rows for g in left):
        again, same = schedule_of(found.work, found.exchanged, left)
        if same == left and any(isinstance(p, Settle) and p.releases for p in again):
            return Step(again, left)
    return Step([*parts, *([Settle(0, tuple(g.c.buffer for g in left))] if left else [])], ())


def _registers(found: Chain, products: Sequence[ChainProduct], carried: Sequence[Gemm]) -> int:
    """The most registers that fragments of a thread take at the same time, if products run on as `carried` says.

    A fragment counts from its first writing to its last use; one that is used outside of the step, or read before it is
    written, always. Products use what they read until they are waited for.
    """
    words = {p.c: p.registers for p in products}
    for a in found.allocs:
        if a.buffer.scope is Scope.FRAGMENT and a.buffer not in words:
            words[a.buffer] = -(-prod(static_shape(a.buffer)) * a.buffer.dtype.bytes // (512 * _groups(found)))
    spans = _lives(found, carried)
    always = sum(n for b, n in words.items() if b not in spans)
    steps = len(found.work)
    return always + max(sum(words[b] for b, (first, last) in spans.items() if first <= at < last) for at in range(steps))


def _groups(found: Chain) -> int:
    return max(static_shape(g.c.buffer)[0] for g in found.gemms) // 64


def _lives(found: Chain, carried: Sequence[Gemm]) -> dict[Buffer, tuple[int, int]]:
    """For each fragment of one step: the statements between which it holds something. What `carried` products read lives on."""
    outside = set().union(*touched([*found.prologue, *found.epilogue])) | {g.a.buffer for g in carried}
    out: dict[Buffer, tuple[int, int]] = {}
    used: dict[Buffer, list[int]] = {}
    for n, s in enumerate(found.work):
        for b in set().union(*touched([s])):
            if b.scope is Scope.FRAGMENT:
                used.setdefault(b, []).append(n)
    for b, at in used.items():
        if b not in outside and _overwrites(found.work[at[0]], b):
            out[b] = (at[0], at[-1])
    for n, s in enumerate(found.work):
        if isinstance(s, Gemm) and s.a.buffer in out and s.c.buffer not in out:
            first, last = out[s.a.buffer]  # its words must stay until the product is done: about the next two statements
            out[s.a.buffer] = (first, max(last, min(n + 2, len(found.work))))
    return out


def _overwrites(s: Stmt, b: Buffer) -> bool:
    """True when a statement writes all of a fragment and reads nothing of it."""
    if b in touched([s])[0] and not isinstance(s, Gemm):
        return False
    match s:
        case Gemm(c=c, clear=Const(value)):
            return c.buffer is b and bool(value)
        case Fill(dst) | Copy(dst=dst):
            return dst.buffer is b and whole(dst)
        case Reduce(dst=dst, clear=clear):
            return dst.buffer is b and clear
        case Parallel(variables, extents, body):
            stores = [x for x in flat(body) if isinstance(x, Store) and x.buffer is b]
            fits = tuple(map(static, extents)) == static_shape(b)
            return fits and any(tuple(x.indices) == tuple(variables) for x in stores)
        case _:
            return False


# ---- the body ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Builder:
    """Puts one body together."""

    r: Request
    found: Chain
    facts: Facts
    consumers: int
    loads: tuple[Operand, ...]
    products: tuple[ChainProduct, ...]
    step: Step
    placements: dict[Buffer, Placement] = field(default_factory=dict)

    def variant(self) -> Variant | str:
        """The finished body; or why it does not fit."""
        found, threads = self.found, 128 * self.consumers
        fixed: dict[Buffer, FragmentLayout] = {}
        for p in self.products:
            m, n = static_shape(p.c)
            fixed[p.c] = (atoms.warp_group_columns if p.by_columns else atoms.warp_group_accumulator)(m, n, self.consumers)
            if isinstance(p.a, Buffer):
                fixed[p.a] = _by_rows(p.a, self.consumers)
        steps = self.step.parts
        for s in steps:
            if isinstance(s, Copy):
                fixed[s.src.buffer] = _by_rows(s.src.buffer, self.consumers)
        parts = [found.prologue, *(tuple(map(folded, s)) for s in steps if isinstance(s, tuple)), found.epilogue]
        every = Seq((*found.allocs, *(s for p in parts for s in p)))
        legal = legalise(every, threads, self.r.target, self.r.ieee, fixed)
        if legal.remarks:
            return legal.remarks[0].message
        for b, layout in fixed.items():
            if not same_map(legal.layouts.get(b, layout), layout):
                return f"{b.name} is used by other threads than those that multiply it"
        return self._lowered(parts, {**fixed, **legal.layouts})

    def _lowered(self, parts: Sequence[tuple[Stmt, ...]], layouts: dict[Buffer, FragmentLayout]) -> Variant | str:
        """The parts as planned statements, with what they know."""
        found, threads = self.found, 128 * self.consumers
        bodies = legalised(parts, threads, self.r, layouts)
        rows = {o.tile: SharedLayout(o.shape[1:], 4, o.shape[1], None) for o in self.loads if o.tile.rank == 1}
        whole_body = Seq(tuple(bodies))
        setting = Setting(threads, (), layouts, {}, rows.__getitem__, alignment, whole_body, 1, adds=True)
        columns = frozenset(p.c for p in self.products if p.by_columns)
        lowering = RowLowering(setting, self.consumers, columns, whole_body)
        facts = self.facts.with_range(THREAD, 0, threads - 1).with_range(WARP_GROUP, 0, self.consumers - 1)
        setup = lowering.sequence(found.lets, facts, True)
        for s in found.lets:
            facts = facts.with_let(s.var, s.value)
        inner = facts.with_loop(found.loop.var, found.loop.start, found.loop.stop, found.loop.step)
        done = [lowering.sequence((bodies[0],), facts, True)]
        lowering.loops = 1  # masks are worth a test
        for b in bodies[1:-1]:
            done.append(lowering.sequence((b,), inner, True))
            for x in walk_stmt(b):
                if isinstance(x, Let):
                    inner = inner.with_let(x.var, x.value)
        lowering.loops = 0
        done.append(lowering.sequence((bodies[-1],), facts, True))
        if lowering.scratch:
            return f"rows of {lowering.scratch[0].name.removesuffix('_parts')} are reduced across warps"
        return self._assemble(lowering, layouts, setup, done)

    def _assemble(
        self, lowering: RowLowering, layouts: Mapping[Buffer, FragmentLayout], setup: PSeq, done: Sequence[PSeq]
    ) -> Variant | str:
        """Shared memory, the schedule, and the condition under which the launcher may choose the body."""
        r, stages = self.r, RULES.stages
        end = self._place(lowering, stages)
        if end + 16 + 16 * stages > r.target.shared_per_block_max - 1024:
            return f"{stages} versions of its tiles do not fit the shared memory"
        schedule = self._schedule(stages, end, end + 16 + 16 * stages)
        self.placements |= {b: Registers(f) for b, f in layouts.items()}
        body = self._body(schedule, setup, done)
        maps = tuple(dict.fromkeys((*(o.map for o in self.loads), *(s.map for s in lowering.stores))))
        return finished(r, self.facts, body, self.placements, lowering, maps)

    def _place(self, lowering: RowLowering, stages: int) -> int:
        """Places of all tiles; the first byte behind them, on a multiple of 8. What leaves shares one staging area."""
        held = len(self.found.held)
        at = 0
        swizzled = [(o, 1 if n < held else stages) for n, o in enumerate(self.loads) if o.tile.rank == 2]
        for o, count in swizzled:
            at = _up(at, 1024)
            self.placements[o.tile] = ring_of(o, at, count)
            at += count * o.bytes
        for tile in self.found.exchanged:
            at = _up(at, 1024)
            rows, columns = static_shape(tile)
            span = span_of(tile)
            per = span // tile.dtype.bytes
            layout = SharedLayout((rows * columns // per, per), tile.dtype.bytes, per, span_swizzle(span))
            self.placements[tile] = SharedTile(layout, at, stages)
            at += stages * rows * columns * tile.dtype.bytes
        areas: dict[int, int] = {}  # bytes of a consumer: where such stores wait; those of one size take turns
        for s in lowering.stores:
            size = staging_tile(s.staging, 0).layout.bytes
            if size not in areas:
                areas[size] = at = _up(at, 1024)
                at += size
            self.placements[s.staging.tile] = staging_tile(s.staging, areas[size])
        for o in self.loads:
            if o.tile.rank == 1:
                at = _up(at, 128)
                pitch = _up(o.shape[1], 32)  # versions on multiples of 128 bytes
                self.placements[o.tile] = SharedTile(SharedLayout((pitch,), 4, pitch, None), at, stages)
                at += stages * pitch * 4
        return _up(at, 8)

    def _schedule(self, stages: int, barriers: int, shared: int) -> ChainSchedule:
        """The numbers, and the order of tiles."""
        found, launch = self.found, self.r.launch
        axis = row_axis(launch, (*found.held, *found.streams)[0], found.resolved)
        start, stop = (substitute(e, found.resolved) for e in (found.loop.start, found.loop.stop))
        shorter, longer = (depends_on(e, (launch.block_vars[axis],)) for e in (start, stop))
        uneven = 0 if longer == shorter else 1 if longer else -1
        section = section_of(launch, axis, [c for c in found.streams if c.dst.buffer.rank == 2], RULES.cache)
        if uneven:
            section = balanced_section(section, launch, axis, (start, stop), uneven)
        return ChainSchedule(self.consumers, stages, *RULES.registers[self.consumers], barriers, shared, axis, uneven, section)

    def _body(self, schedule: ChainSchedule, setup: PSeq, done: Sequence[PSeq]) -> Chained:
        found, launch = self.found, self.r.launch
        rows = iter(done[1:-1])
        out: list[ChainStep] = []
        spans = [g.span for g in found.gemms]
        for s in self.step.parts:
            match s:
                case int():
                    out.append(Multiply(s, spans[s]))
                case Settle():
                    out.append(s)
                case Copy():
                    out.append(Publish(s.src.buffer, s.dst.buffer, 64 * self.consumers, s.span))
                case _:
                    out.append(next(rows))
        lives = _lives(found, self.step.carried)
        fragments = [a.buffer for a in found.allocs if a.buffer.scope is Scope.FRAGMENT]
        held = len(found.held)
        loop = found.loop
        return Chained(
            schedule, self.loads[:held], self.loads[held:], found.exchanged, self.products, launch.block_vars, launch.grid, loop.var,
            substitute(loop.start, found.resolved), substitute(loop.stop, found.resolved), tuple(b for b in fragments if b not in lives),
            tuple(b for b in fragments if b in lives), setup, done[0], tuple(out), tuple(g.c.buffer for g in self.step.carried), done[-1],
            (loop.span, *(c.span for c in (*found.held, *found.streams))),
        )  # fmt: skip


def _by_rows(b: Buffer, consumers: int) -> FragmentLayout:
    """The layout of a fragment whose rows consumers share."""
    m, n = static_shape(b)
    return atoms.warp_group_accumulator(m, n, consumers)


def _up(n: int, unit: int) -> int:
    return -(-n // unit) * unit
