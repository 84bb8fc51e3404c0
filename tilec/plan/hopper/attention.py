"""Plans kernels that stream tiles past a held one for Hopper: attention, and whatever else multiplies, works on rows, multiplies.

A producer warp group brings the held tile once a block and both streamed tiles step by step, each through a ring of its own.
Each consumer warp group owns 64 rows: its product of the next step runs ahead of the author's row statements of this one, which
run in registers under the second product. Blocks are persistent. Decisions are in `StreamSchedule` and `Streamed`.

    Q 128x128 held, K and V 128x128 streamed: 2 consumers, 2 versions of K and V, 24/240 registers, 193 KB
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from tilec.analysis.affine import depends_on
from tilec.analysis.facts import Facts
from tilec.analysis.proofs import prove
from tilec.ir.expr import Buffer, Compare, Scope
from tilec.ir.tile import Copy, Let, Parallel, Reduce, Seq, Stmt
from tilec.ir.visit import substitute
from tilec.layout import atoms
from tilec.layout.fragment import FragmentLayout, same_map
from tilec.layout.shared import SharedLayout
from tilec.plan.domains import static_shape
from tilec.plan.hopper.attention_match import Match, match
from tilec.plan.hopper.balance import balanced_section, row_axis, section_of
from tilec.plan.hopper.parts import (
    Request,
    alignment,
    bulk_store_of,
    cast_by_pairs,
    finished,
    in_parts,
    legalised,
    mapped_facts,
    operand_of,
    ring_of,
    staging_tile,
)
from tilec.plan.hopper.plan import Operand, RowProduct, StreamSchedule
from tilec.plan.hopper.softmax import Lagging, folded, lagging
from tilec.plan.ladder import FIRST, Rung, next_rung, rung_of, stream_strain
from tilec.plan.legal import legalise
from tilec.plan.lower import Lowering, Setting
from tilec.plan.pipelines import touched
from tilec.plan.plan import (
    THREAD,
    BulkStore,
    JoinLanes,
    Placement,
    PReduce,
    PSeq,
    PStmt,
    Registers,
    Streamed,
    Variant,
    WhenScaled,
)  # fmt: skip
from tilec.record import record


@record
class Rules:
    """What measurements on an H200 settled, as data.

    `registers`: (producer, consumer) by the number of consumers; `spare`: those a consumer needs besides its tiles. `stages`:
    versions of the streamed tiles, `most_stages` when the author asks for more. `cache`: bytes of streamed tensors that blocks
    in work at the same time should share. `chains`: independent chains of a reduction inside a thread. `held_in_registers`:
    where they suffice; for the first `held_part` words where these do. `turns`: with how many consumers these take turns at the
    tensor cores. `lag`: with how many the maximum of an online softmax lags behind (see `softmax`).
    """

    registers: Mapping[int, tuple[int, int]]
    spare: int = 32
    stages: int = 2
    most_stages: int = 4
    cache: int = 24 << 20
    chains: int = 2
    held_in_registers: bool = True
    held_part: int = 16
    turns: tuple[int, ...] = (3,)
    lag: tuple[int, ...] = (3,)


RULES = Rules(registers={1: (40, 232), 2: (24, 240), 3: (32, 160)})


def plan_attention(r: Request) -> Variant | str:
    """The body of a launch that streams tiles past a held one; the reason why not, empty for kernels of another form."""
    r = in_parts(r, "stream")
    found = match(r.launch, r.written)
    if isinstance(found, str):
        return found
    rows, keys = static_shape(found.scores)
    columns = static_shape(found.out)[1]
    if rows not in (64, 128, 192):
        return f"warp groups of 64 rows do not share blocks of {rows} rows"
    number, rung = rung_of(r.choice, "stream", r.symbol)
    if rung.portable:
        return f"{rung.why}: it spills registers whatever else is tried"
    consumers = rows // 64
    for n in (keys, columns):
        if n % 16 or n > 256:
            return f"warp groups do not multiply tiles of 64x{n}"
    need = keys // 2 + keys // 4 + columns // 2 + RULES.spare
    if need > RULES.registers[consumers][1]:
        return f"tiles of {rows}x{keys} and {rows}x{columns} take about {need} registers a thread, more than {consumers} warp groups have"
    facts = mapped_facts(r, (found.held, *found.streams))
    operands = _operands(found, facts)
    if isinstance(operands, str):
        return operands
    builder = _Builder(r, found, facts, consumers, *operands, rung=rung)
    out = builder.variant()
    if isinstance(out, str):
        return out
    spare = RULES.registers[consumers][1] - (need - RULES.spare)
    streamed = out.body.body[0]
    held = streamed.schedule.held_words if isinstance(streamed, Streamed) else 0
    below = next_rung("stream", number, lambda x: (x.held and held > 0, x.lags and builder.lag is not None, x.cut, x.portable))
    return replace(out, ladder="stream", rung=number, below=below, strain=stream_strain(spare, held, len(found.rows)))


def _operands(found: Match, facts: Facts) -> tuple[Operand, Operand, Operand] | str:
    """The held tile and both streamed ones; or why the copy engine or wgmma cannot take one."""
    first, second = found.first, found.second
    depth = static_shape(first.a.buffer)[0 if first.trans_a else 1]
    keys = static_shape(found.scores)[1]
    if depth % 16:
        return f"rows of {first.a.buffer.name} are no multiple of 16 long"
    out: list[Operand] = []
    for copy, k_major, k, rows in (
        (found.held, not first.trans_a, depth, 64),
        (found.streams[0], first.trans_b, depth, 0),
        (found.streams[1], second.trans_b, keys, 0),
    ):  # fmt: skip
        one = operand_of(copy, k_major, k, rows, found.resolved, facts)
        if isinstance(one, str):
            return one
        out.append(one)
    return out[0], out[1], out[2]


def _along(o: Operand, steps: int) -> tuple[int, ...]:
    """Bytes from the tile's start to each of its first `steps` slices of 16 elements along k."""
    if not o.k_major:
        return tuple(16 * o.span * s for s in range(steps))
    row = o.shape[0] * o.span
    return tuple(32 * s // o.span * row + 32 * s % o.span for s in range(steps))


class _Rows(Lowering):
    """Lowers what the consumers do: whole accumulators leave through the copy engine, casts of fragments go two at a time."""

    def __init__(self, at: Setting, shape: tuple[int, int], consumers: int, out: Buffer, lag: Lagging | None) -> None:
        super().__init__(at)
        self.shape = shape
        self.consumers = consumers
        self.out = out
        self.lag = lag
        self.joined: JoinLanes | None = None
        self.stores: list[BulkStore] = []

    def copy(self, s: Copy, facts: Facts, ahead: bool = False) -> PStmt:
        found = bulk_store_of(s, self.at.layouts.get(s.src.buffer), self.shape, self.consumers, facts)
        if found is not None:
            self.stores.append(found)
            return found
        return cast_by_pairs(s, self.at.layouts) or super().copy(s, facts, ahead)

    def statement(self, s: Stmt, facts: Facts, uniform: bool) -> list[PStmt]:
        lowered = super().statement(s, facts, uniform)
        if self.lag is not None and isinstance(s, Parallel) and touched([s]) == ({self.out, self.lag.factor}, {self.out}):
            return [WhenScaled(self.lag.factor, PSeq(tuple(lowered)))]
        return lowered

    def reduce(self, s: Reduce) -> PReduce:
        found = replace(super().reduce(s), chains=RULES.chains)
        if self.lag is None or s.dst.buffer is not self.lag.row_sum:
            return found
        self.joined = JoinLanes(self.lag.total, self.at.layouts[self.lag.total].registers, found.lane_steps)
        return replace(found, lane_steps=())


@dataclass(slots=True)
class _Builder:
    """Puts one body together."""

    r: Request
    found: Match
    facts: Facts
    consumers: int
    held: Operand
    a: Operand
    b: Operand
    softmax: Lagging | None = None  # what the row statements are, when they are an online softmax
    lag: Lagging | None = None  # the same when its maximum lags
    rung: Rung = FIRST

    def variant(self) -> Variant | str:
        """The finished body; or why it does not fit."""
        found = self.found
        threads = 128 * self.consumers
        self.softmax = lagging(found.prologue, found.rows, found.late, found.epilogue, found.scores, found.probs, found.out)
        if self.softmax is not None and self.consumers in RULES.lag and self.rung.lags:
            self.lag = self.softmax
        rows = tuple(map(folded, found.rows if self.lag is None else self.lag.rows))
        parts = (found.prologue, found.mask, rows, found.late, found.epilogue)
        shapes = {b: static_shape(b) for b in (found.scores, found.probs, found.out)}
        fixed = {b: atoms.warp_group_accumulator(m, n, self.consumers) for b, (m, n) in shapes.items()}
        legal = legalise(Seq((*found.allocs, *(s for p in parts for s in p))), threads, self.r.target, self.r.ieee, fixed)
        if legal.remarks:
            return legal.remarks[0].message
        for b, layout in fixed.items():
            if not same_map(legal.layouts[b], layout):
                return f"{b.name} is used by other threads than those that multiply it"
        return self._lowered(parts, dict(legal.layouts))

    def _lowered(self, parts: Sequence[tuple[Stmt, ...]], layouts: dict[Buffer, FragmentLayout]) -> Variant | str:
        """The parts as planned statements, with what they know."""
        found, threads = self.found, 128 * self.consumers
        bodies = legalised(parts, threads, self.r, layouts)
        setting = Setting(threads, (), layouts, {}, _no_tile, alignment, Seq(tuple(bodies)), 1, adds=True)
        m, n = static_shape(found.out)
        lowering = _Rows(setting, (m, n), self.consumers, found.out, self.lag)
        facts = self.facts.with_range(THREAD, 0, threads - 1)
        setup = lowering.sequence(found.lets, facts, True)
        for s in found.lets:
            facts = facts.with_let(s.var, s.value)
        inner = facts.with_loop(found.loop.var, found.loop.start, found.loop.stop, found.loop.step)
        for x in found.rows:
            if isinstance(x, Let):
                inner = inner.with_let(x.var, x.value)
        inside = (facts, inner, inner, inner, facts)
        done = [lowering.sequence((b,), f, True) for b, f in zip(bodies, inside, strict=True)]
        if lowering.joined is not None:
            done[-1] = PSeq((lowering.joined, *done[-1].body))
        if lowering.scratch:
            return f"rows of {lowering.scratch[0].name.removesuffix('_parts')} are reduced across warps"
        return self._assemble(lowering, layouts, setup, done)

    def _assemble(
        self, lowering: _Rows, layouts: Mapping[Buffer, FragmentLayout], setup: PSeq, done: Sequence[PSeq]
    ) -> Variant | str:
        """Shared memory, the schedule, and the condition under which the launcher may choose the body."""
        found, r = self.found, self.r
        stagings = list({id(s.staging.tile): s.staging for s in lowering.stores}.values())
        staged = max((prod(static_shape(s.tile)) * s.tile.dtype.bytes for s in stagings), default=0)
        room = r.target.shared_per_block_max - 1024 - self.held.bytes - staged
        asked = min(max(RULES.stages, found.loop.num_stages or 0), RULES.most_stages)
        stages = min(asked, room // (self.a.bytes + self.b.bytes))
        if stages < 2:
            return f"{self.held.tile.name} and two pairs of streamed tiles do not fit the shared memory"
        at_a = self.held.bytes
        at_b = at_a + stages * self.a.bytes
        at_out = at_b + stages * self.b.bytes
        schedule = self._schedule(stages, at_out + staged)
        placements: dict[Buffer, Placement] = {
            self.held.tile: ring_of(self.held, 0, 1),
            self.a.tile: ring_of(self.a, at_a, stages),
            self.b.tile: ring_of(self.b, at_b, stages),
        }  # fmt: skip
        for s in stagings:
            placements[s.tile] = staging_tile(s, at_out)
        placements |= {b: Registers(f) for b, f in layouts.items()}
        body = self._body(schedule, setup, done)
        maps = (self.held.map, self.a.map, self.b.map, *(s.map for s in lowering.stores))
        return finished(r, self.facts, body, placements, lowering, maps)

    def _schedule(self, stages: int, barriers: int) -> StreamSchedule:
        """The numbers, and the order of tiles."""
        found, launch = self.found, self.r.launch
        axis = row_axis(launch, found.held, found.resolved)
        longest = depends_on(substitute(found.loop.stop, found.resolved), (launch.block_vars[axis],))
        section = section_of(launch, axis, found.streams, RULES.cache)
        if longest:
            span = substitute(found.loop.start, found.resolved), substitute(found.loop.stop, found.resolved)
            section = balanced_section(section, launch, axis, span, 1)
        return StreamSchedule(
            self.consumers, stages, *RULES.registers[self.consumers], barriers, barriers + 16 + 32 * stages, axis, longest, section,
            self._held_words(), self.consumers in RULES.turns,
        )  # fmt: skip

    def _held_words(self) -> int:
        """The registers of a thread that the held tile, or its first columns, may take, as there are some to spare."""
        keys, columns = static_shape(self.found.scores)[1], static_shape(self.found.out)[1]
        if not (RULES.held_in_registers and self.rung.held and self.held.k_major and self.held.span == 128):
            return 0
        spare = RULES.registers[self.consumers][1] - (keys // 2 + keys // 4 + columns // 2 + RULES.spare - 8)
        return next((n for n in (self.held.shape[1] // 4, RULES.held_part) if n <= spare), 0)

    def _body(self, schedule: StreamSchedule, setup: PSeq, done: Sequence[PSeq]) -> Streamed:
        found, r = self.found, self.r
        keys, columns = static_shape(found.scores)[1], static_shape(found.out)[1]
        depth = self.a.shape[1] if self.a.k_major else self.a.shape[0]
        held = schedule.held_words // 4  # slices in registers
        at = (*(4 * s for s in range(held)), *_along(self.held, depth // 16)[held:])
        first = RowProduct(f"wgmma_m64n{keys}k16_{found.kind}", keys, at, _along(self.a, depth // 16), not self.a.k_major, held)
        second = RowProduct(
            f"wgmma_m64n{columns}k16_{found.kind}", columns, tuple(4 * s for s in range(keys // 16)), _along(self.b, keys // 16),
            not self.b.k_major, keys // 16,
        )  # fmt: skip
        loop = found.loop
        start, stop = substitute(loop.start, found.resolved), substitute(loop.stop, found.resolved)
        some = prove(Compare("lt", start, stop), self.facts) is True
        spans = (loop.span, found.held.span, found.streams[0].span, found.streams[1].span, found.first.span, found.second.span)
        prologue, mask, rows, late, epilogue = done
        # Steps in which an online softmax keeps nothing change nothing; they come up where the blocks of keys and rows differ.
        dead = found.dead if self.softmax is not None and keys % (64 * self.consumers) else None
        fragments = tuple(s.buffer for s in found.allocs if s.buffer.scope is Scope.FRAGMENT)
        return Streamed(
            schedule, self.held, self.a, self.b, first, second, found.scores, found.probs, found.out, r.launch.block_vars, r.launch.grid,
            loop.var, start, stop, some, found.clean, dead, fragments, setup, prologue, mask, rows, late, epilogue, spans,
        )  # fmt: skip


def _no_tile(b: Buffer) -> SharedLayout:
    raise AssertionError(f"{b.name} is touched by a consumer")
