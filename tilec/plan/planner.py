"""Plans a kernel: from what the author means to how the machine will do it, one decision after another.

    plan(kernel, PlanOptions(target)) -> Plan
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import cache
from itertools import product
from math import prod

from tilec.record import record
from tilec.analysis.facts import Facts
from tilec.analysis.teams import Teams, by_hand, parted
from tilec.diagnostics import CompileError, Diagnostic, Severity
from tilec.ir.dtypes import INT32, INT64
from tilec.ir.expr import Binary, Buffer, Compare, Const, Expr, Scope, Var, VarKind
from tilec.ir.kernel import Kernel, Launch
from tilec.ir.tile import Alloc, Barrier, For, Gemm, Parallel, Seq
from tilec.ir.visit import buffers_of, flat, storage, walk_expr, walk_stmt
from tilec.layout.shared import CHUNK, SharedLayout
from tilec.plan.access import conjunction
from tilec.plan.banks import choose_layouts
from tilec.plan.background import in_background
from tilec.plan.barriers import place_barriers
from tilec.plan.by_hand.tiles import hand_layouts
from tilec.plan.by_hand.arrivals import arrive_each
from tilec.plan.by_hand.checks import check_by_hand
from tilec.plan.clusters import ALONE, check_clusters
from tilec.plan.contracts import host_checks
from tilec.plan.cut import first_cut
from tilec.plan.domains import static
from tilec.plan.engine_copies import engine_tiles, with_full
from tilec.plan.free_threads import free_threads, thread_count
from tilec.plan.by_hand.lower import Hand, HandLowering, with_barriers
from tilec.plan.in_flight import with_flights
from tilec.plan.hopper.gemm import plan_gemm, plan_lines
from tilec.plan.hopper.attention import plan_attention
from tilec.plan.hopper.chain import plan_chain
from tilec.plan.hopper.parts import Request, condition_of, direct_stores
from tilec.plan.hopper.gemm_padding import only_where_they_pay, padded
from tilec.plan.by_hand.registers import dealt
from tilec.plan.blocks import HAND, hand_ladder, known_blocks, left_open, wanted_blocks, with_blocks
from tilec.plan.ladder import FIRST, LADDERS, Choice, Load, Rung, alike, next_rung, portable_strain, rung_of, shelf_room
from tilec.plan.legal import Legal, legalise
from tilec.plan.loads import apart, beside_results, loads_of_a_step, loads_together
from tilec.plan.lower import Lowering, Setting
from tilec.plan.notes import number_notes
from tilec.plan.pipelines import touched
from tilec.plan.plan import STANDS_IN, THREAD, InMemory, LaunchPlan, Pipeline, Placement, Plan, Private, Registers, SharedTile, Variant
from tilec.plan.raster import panel_rows
from tilec.plan.operands import operands_in_place
from tilec.plan.overlap import overlap, with_meetings
from tilec.plan.shared import ALIGNMENT, BULK_ALIGNMENT, bulk_tiles, check_limit, place_tiles, shared_buffers, tile_layouts
from tilec.plan.shelves import held, on_shelf, words
from tilec.plan.sparse import settle_sparse, spread_notes
from tilec.plan.steady import steady
from tilec.plan.uniform import varying
from tilec.plan.walk import walk_plan
from tilec.plan.warp_groups import group_tiles, in_groups
from tilec.plan.cost import count_bytes, count_flop
from tilec.plan.workspace import place_workspace
from tilec.plan.writers import writers
from tilec.targets import Target

DEFAULT_THREADS = 128

SLIGHT = 24
"""Registers by which a body may exceed what is known to fit and still spill for another reason: so that more blocks fit."""

PARTS = (2, 3, 4)
"""Into how many a block may be cut."""

WHOLE_GROUPS = ((2, 64), (3, 64))
"""Into how many, and what the size of a part is a multiple of, so that warp groups multiply it."""

GENERAL_THREADS = (256, 512)
"""Threads to try for the body behind Hopper's own, where the author's are too few to hold its tiles in registers."""


@record
class PlanOptions:
    """What the user chose: the target, how freely the plan may change the author's numbers, how float32 GEMMs multiply."""

    target: Target
    opt_level: int = 2
    fp32_gemm: str = "tf32"
    also: tuple[Target, ...] = ()  # newer ones that may have bodies of their own
    pairs: str = "auto"  # or on, off: whether two blocks of a GEMM on Hopper fetch a tile together
    choice: Choice = field(default_factory=dict)  # configurations that are not the first ones


@record
class _Room:
    """Everything about one launch that both of its variants share."""

    kernel: Kernel
    launch: Launch
    threads: tuple[int, int, int]
    legal: Legal
    target: Target
    written: frozenset[Buffer]
    options: PlanOptions
    hand: Hand | None = None  # where the author orders the work by barriers
    rung: Rung = FIRST  # of the body at hand
    groups: bool = False  # whether warp groups may do products of a portable body
    planned: int = 0  # threads before any rung changed them
    whole: Launch | None = None  # the author's launch, where this one has smaller blocks


def plan(kernel: Kernel, options: PlanOptions, symbol: str) -> Plan:
    """The plan of `kernel`, spelled `symbol` in CUDA. Raises CompileError where the target cannot do what is asked."""
    given, assumed = kernel, _row_divisors(kernel)
    kernel = steady(settle_sparse(kernel, DEFAULT_THREADS))
    spread = spread_notes(given, kernel)
    extra = padded(kernel, assumed, _ieee(kernel, options)) if options.opt_level >= 3 and options.target.has_wgmma else None
    kernel = kernel if extra is None else extra.kernel
    launches: list[LaunchPlan] = []
    read, written = _tensors(kernel)
    for n, launch in enumerate(kernel.launches):
        name = symbol if len(kernel.launches) == 1 else f"{symbol}__{n + 1}"
        launches.append(_plan_launch(kernel, launch, name, options, written, {} if extra is not None and n else assumed))
    scratch = place_workspace(kernel)
    if extra is not None:
        launches, scratch = only_where_they_pay(launches, scratch, extra.pays)
    return Plan(
        kernel, symbol, options.target, tuple(launches), workspace=scratch.bytes, scratch=scratch, flop=count_flop(given),
        bytes=count_bytes(given, *_tensors(given)), read=read,
        written=written, notes=(*number_notes(given, options.fp32_gemm == "tf32"), *spread), checks=host_checks(given),
    )  # fmt: skip


def _tensors(kernel: Kernel) -> tuple[frozenset[Buffer], frozenset[Buffer]]:
    """The global tensors that the launches read and write."""
    reads, writes = touched([launch.body for launch in kernel.launches])
    return frozenset(b for b in reads if b.scope is Scope.GLOBAL), frozenset(b for b in writes if b.scope is Scope.GLOBAL)


def _plan_launch(
    kernel: Kernel, launch: Launch, symbol: str, options: PlanOptions, written: frozenset[Buffer], assumed: Mapping[Var, int]
) -> LaunchPlan:
    """The plan of a launch; where it fails because only some threads come to tile statements, those become teams."""
    try:
        return _planned(kernel, launch, symbol, options, written, assumed)
    except CompileError as fault:
        if fault.diagnostics[0].code != "TL0502" or by_hand(launch.body) or not parted(launch):
            raise
    return _planned(kernel, launch, symbol, options, written, assumed, teams=Teams.of(launch))


def _planned(
    kernel: Kernel, launch: Launch, symbol: str, options: PlanOptions, written: frozenset[Buffer], assumed: Mapping[Var, int],
    teams: Teams | None = None,
) -> LaunchPlan:  # fmt: skip
    check_clusters(launch, options.target)
    threads = launch.threads or (thread_count(launch) if kernel.implicit else DEFAULT_THREADS, 1, 1)
    room = _room(kernel, launch, threads, options, written, teams)
    own = _own_bodies(room, symbol, assumed, options) if room.hand is None else ()
    part = _in_parts(room, symbol)
    if part is not None:  # for portable bodies, and for Hopper's own where there were none
        launch, room = part, replace(_room(kernel, part, threads, options, written), whole=launch)
        own = own if isinstance(own, list) else _own_bodies(room, symbol, assumed, options)
    if room.hand is not None:
        variants = _by_hand(room, symbol, assumed, options)
    elif isinstance(own, list) and own[-1].when is None:
        variants = own  # one of them takes any alignment
    elif isinstance(own, list) and options.target.has_wgmma:
        room, general = _behind(room, symbol + STANDS_IN, options)
        variants = [*own, general]
    elif isinstance(own, list):
        room = _threaded(room, (symbol, symbol + STANDS_IN), options)
        variants = [*own, *_portable(room, symbol, assumed)]
    else:
        room = _with_groups(_threaded(room, (symbol, symbol + STANDS_IN), options))
        variants = [replace(v, remarks=(*v.remarks, *own)) for v in _portable(room, symbol, assumed)]
    if part is not None:
        text = "several blocks share the work of one: registers do not hold its tiles"
        variants[-1] = replace(variants[-1], remarks=(Diagnostic(Severity.REMARK, "TL0506", text, launch.span), *variants[-1].remarks))
    grid = _grid_of(launch)
    panel = 0 if launch.cluster != ALONE else panel_rows(launch) if options.opt_level >= 2 else launch.panel
    together = _meets(launch)
    early = launch.waits and options.target.number >= 90 and not together
    early = early and all(v.hopper or not v.tensor_maps for v in variants)  # Hopper's own bodies begin in stream order
    releases = launch.releases and options.target.number >= 90
    return LaunchPlan(launch, grid, room.threads, tuple(variants), panel, together, early, releases)


def _grid_of(launch: Launch) -> tuple[Expr, Expr, Expr]:
    """The blocks of a launch along x, y and z."""
    one, blocks = Const(1, INT32), launch.grid
    return blocks[0], blocks[1] if len(blocks) > 1 else one, blocks[2] if len(blocks) > 2 else one


def _in_parts(room: _Room, symbol: str) -> Launch | None:
    """The launch in smaller blocks, where the rung of a portable body asks for them."""
    parts = max(rung_of(room.options.choice, "portable", s)[1].cut for s in (symbol, symbol + STANDS_IN))
    return _cut(room, parts) if parts > 1 else None


def _cut(room: _Room, parts: int) -> Launch | None:
    """The launch in blocks of a part, where nothing in the source can tell; of whole warp groups where Hopper's own may take them."""
    if room.options.opt_level < 2 or room.hand is not None:
        return None
    ways = (*(WHOLE_GROUPS if parts == 2 and room.target.has_wgmma else ()), (parts, 16))
    return first_cut(room.whole or room.launch, ways)


def _room(
    kernel: Kernel, launch: Launch, threads: tuple[int, int, int], options: PlanOptions, written: frozenset[Buffer],
    teams: Teams | None = None,
) -> _Room:  # fmt: skip
    """A launch whose layouts are legal; with `teams`, these carry out the tile statements that they come to."""
    hand = Hand(teams, False, False, {}, ordered=True) if teams is not None else None
    if by_hand(launch.body):
        hand = Hand(Teams.of(launch), False, options.target.has_wgmma, check_by_hand(launch))
    teams = None if hand is None else hand.teams
    body = operands_in_place(launch.body) if teams is None else arrive_each(launch.body, teams)
    legal = legalise(body, prod(threads), options.target, _ieee(kernel, options), teams=teams)
    return _Room(kernel, launch, threads, legal, options.target, written, options, hand, planned=prod(threads))


def _again(room: _Room, launch: Launch, threads: tuple[int, int, int]) -> _Room:
    """The same for another body or other threads."""
    return replace(_room(room.kernel, launch, threads, room.options, room.written), whole=room.whole)


def _with_groups(room: _Room) -> _Room:
    """The same, where warp groups may do products: not those of blocks whose author numbers threads of his own in teams."""
    wanted = room.options.target.has_wgmma and room.options.opt_level >= 2 and bool(room.legal.gemms)
    return replace(room, groups=wanted)


def _legal(room: _Room) -> Legal:
    """The body with warp groups for the products that they can do, where they may and the rung lets them."""
    if not room.groups or not room.rung.groups:
        return room.legal
    body, threads = operands_in_place(room.launch.body), prod(room.threads)
    return legalise(body, threads, room.target, _ieee(room.kernel, room.options), groups=True)


def _threaded(room: _Room, symbols: tuple[str, ...], options: PlanOptions) -> _Room:
    """The launch with the threads that the rungs of its portable bodies ask for, where the author's source cannot tell."""
    wanted = max(rung_of(room.options.choice, "portable", s)[1].threads for s in symbols)
    if wanted in (0, prod(room.threads)) or not free_threads(room.launch.body):
        return room
    return replace(_again(room, room.launch, (wanted, 1, 1)), planned=room.planned)


def _portable(room: _Room, symbol: str, assumed: Mapping[Var, int]) -> list[Variant]:
    """The bodies that every machine runs, the best first: one for aligned rows, and one for all others where that tells."""
    best = _variant(room, symbol, assumed, aligned=True)
    if assumed and (_relies(best) or best.tensor_maps):
        return [best, _variant(room, symbol + STANDS_IN, {}, aligned=False)]
    return [_variant(room, symbol, {}, aligned=True) if assumed else best]


def _ieee(kernel: Kernel, options: PlanOptions) -> bool:
    """True when float32 products are asked for in full precision."""
    return options.fp32_gemm == "ieee" or "fp32_gemm_ieee" in kernel.flags


def _own_bodies(room: _Room, symbol: str, assumed: Mapping[Var, int], options: PlanOptions) -> list[Variant] | tuple[Diagnostic, ...]:
    """Hopper's own bodies of a launch; or a remark why there are none, nothing where none were looked for.

    In a file for older machines they are bodies more, which only one architecture has.
    """
    launch, target = room.launch, next((t for t in (options.target, *options.also) if t.has_wgmma), None)
    found = any(b.address is not None for s in walk_stmt(launch.body) for b in buffers_of(s))  # no tensor map knows where it lies
    found = found or any(isinstance(s, Gemm) and s.marks is not None for s in walk_stmt(launch.body))
    found = found or any(isinstance(s, Barrier) and s.kind.startswith("cluster") for s in walk_stmt(launch.body))
    if target is None or found or options.opt_level < 2 or not any(isinstance(x, Gemm) for x in walk_stmt(launch.body)):
        return ()
    name = symbol if options.target.has_wgmma else f"{symbol}__{target.name.replace('_', '')}"
    choice = {(ladder, s.replace(name, symbol, 1)): n for (ladder, s), n in options.choice.items()}
    request = Request(launch, symbol, assumed, room.written, target, _ieee(room.kernel, options), options.opt_level, options.pairs, choice)
    own = plan_gemm(request)
    if isinstance(own, str):
        other = plan_attention(request) or plan_chain(request)
        own = [other] if isinstance(other, Variant) else other or own
    if options.target.has_wgmma and (isinstance(own, str) or assumed):
        lines = plan_lines(replace(request, symbol=symbol + STANDS_IN if isinstance(own, list) else symbol))
        if isinstance(lines, Variant):
            own = [*own, lines] if isinstance(own, list) else [lines]
    if isinstance(own, str):
        return (Diagnostic(Severity.REMARK, "TL0505", f"the portable path instead of Hopper's own: {own}", launch.span),)
    if options.target.has_wgmma:
        return own
    return [replace(v, symbol=v.symbol.replace(symbol, name, 1), arch=target.name) for v in own]


def _behind(room: _Room, symbol: str, options: PlanOptions) -> tuple[_Room, Variant]:
    """The body that takes what Hopper's own cannot: any alignment. It may have more threads than the author's, where those cannot
    hold its tiles, and writes results straight to memory where a tile on the way does not fit beside the operands'."""
    for count in GENERAL_THREADS:
        needs = _registers(room.legal) if len(room.legal.gemms) == 1 else 0  # of several products not all tiles live at once
        if prod(room.threads) < count and 10 * needs > 11 * room.target.registers_for(prod(room.threads)):
            room = _again(room, room.launch, (count, 1, 1))
    room = _threaded(room, (symbol,), options)
    try:
        return room, _variant(room, symbol, {}, aligned=False)
    except CompileError:
        body = tuple(flat(room.launch.body))
        direct = direct_stores(body)
        if direct == body:
            raise
        room = _again(room, replace(room.launch, body=Seq(direct, room.launch.span)), room.threads)
        return room, _variant(room, symbol, {}, aligned=False)


def _by_hand(room: _Room, symbol: str, divisors: Mapping[Var, int], options: PlanOptions) -> list[Variant]:
    """The bodies of a kernel whose author orders its work: Hopper's own, through tensor maps, in front of the portable ones."""
    target = next((t for t in (options.target, *options.also) if t.has_wgmma), None)
    if target is None or room.hand is None or room.hand.ordered:
        return _portable(room, symbol, divisors)
    launch, hand = room.launch, replace(room.hand, hopper=True, counts_bytes=True)
    only = options.target.has_wgmma
    name = symbol if only else f"{symbol}__{target.name.replace('_', '')}"

    def here(symbol: str) -> _Room:
        deals = rung_of(options.choice, HAND, symbol)[1].deals
        body = dealt(launch, prod(room.threads), target) if deals else launch.body
        legal = legalise(body, prod(room.threads), target, _ieee(room.kernel, options), teams=hand.teams, by_hand=True)
        return replace(room, legal=legal, target=target, hand=hand)

    v = _variant(here(name), name, divisors, aligned=True)
    when = condition_of(v, divisors if v.tensor_maps or _relies(v) else {})
    own = replace(v, when=when, threads=room.threads, grid=_grid_of(launch), arch="" if only else target.name, hopper=True)
    if not only:
        return [own, *_portable(room, symbol, divisors)]
    if when is None:
        return [own]
    symbol = symbol + STANDS_IN
    if not rung_of(options.choice, HAND, symbol)[1].keeps:
        return [own, _variant(room, symbol, {}, aligned=False)]
    general = _variant(replace(here(symbol), hand=replace(hand, engine=False)), symbol, {}, aligned=False)
    return [own, replace(general, when=None, threads=room.threads, grid=_grid_of(launch), hopper=True)]


def _row_divisors(kernel: Kernel) -> dict[Var, int]:
    """For each run-time extent or stride that spaces rows: the elements that make 16 bytes."""
    out: dict[Var, int] = {}
    for b in kernel.params:
        if not isinstance(b, Buffer) or not b.shape:
            continue
        per = max(1, CHUNK // b.dtype.bytes)
        spacing = [b.shape[-1]] if b.strides is None else [b.shape[-1], *b.strides[:-1]]
        for e in spacing:
            for v in walk_expr(e):
                if isinstance(v, Var):
                    out[v] = max(out.get(v, 1), per)
    return out


def _relies(v: Variant) -> bool:
    """True when some access of the body moves several elements of a global tensor at once."""
    return bool(_wide_tensors(v))


def _wide_tensors(v: Variant) -> list[Buffer]:
    """The global tensors that are accessed by vectors, themselves or through views, in a fixed order."""
    wide = (b for (b, _), e in v.elements.items() if b.scope is Scope.GLOBAL and isinstance(e, InMemory) and e.wide)
    return list(dict.fromkeys(map(storage, wide)))


def _variant(room: _Room, symbol: str, divisors: Mapping[Var, int], aligned: bool) -> Variant:
    """One body of a launch, planned under the assumption that `divisors` divide and, if `aligned`, pointers are aligned.

    Pipelines keep as many versions of their tiles as the author asked for, or as fit; where he asked for one, two if they are free, and
    one more where the copy engine brings them and all blocks of the launch run at once all the same.
    """
    room = replace(room, rung=rung_of(room.options.choice, HAND if room.hand else "portable", symbol)[1])
    if room.hand is None:
        room = replace(room, legal=_legal(room))
    stages_asked = [s.num_stages or 0 for s in walk_stmt(room.legal.body) if isinstance(s, For)]
    asked = max(stages_asked, default=0)
    plain = _body(room, symbol, divisors, aligned, asked)
    if 1 in stages_asked and room.options.opt_level >= 2 and room.hand is None and not room.rung.shelved:
        two = _body(room, symbol, divisors, aligned, asked, least=2)
        if _blocks(plain, room) <= _blocks(two, room):
            return two
    elif asked > 1 and room.options.opt_level >= 2 and room.hand is None and plain.tensor_maps:
        more = _body(room, symbol, divisors, aligned, asked + 1, least=asked + 1)
        if _at_once(more, room):
            return more
    for stages, compact in product(range(asked, 0, -1) if asked else (0,), (False, True)):
        found = plain if (stages, compact) == (asked, False) else _body(room, symbol, divisors, aligned, stages, compact)
        if found.shared_bytes <= room.target.shared_per_block_max:
            if stages == asked:
                return found
            text = f"{stages} versions of each tile instead of {asked}: more do not fit the shared memory of {room.target.name}"
            remark = Diagnostic(Severity.REMARK, "TL0504", text, room.launch.span)
            return replace(found, remarks=(*found.remarks, remark))
    tiles = {b: p for b, p in plain.placements.items() if isinstance(p, SharedTile)}
    check_limit(tiles, plain.shared_bytes, room.target, room.launch.span)
    return plain


def _blocks(v: Variant, room: _Room) -> int:
    """Blocks of a body that a multiprocessor holds at once."""
    fits = v.shared_bytes <= room.target.shared_per_block_max
    return room.target.blocks_that_fit(prod(room.threads), v.registers, v.shared_bytes) if fits else 0


def _at_once(v: Variant, room: _Room) -> bool:
    """True where all blocks of the launch are sure to run at once: then nothing but copies ahead hides how long copies take."""
    counts = [static(e) for e in room.launch.grid]
    return all(counts) and prod(n or 1 for n in counts) <= room.target.multiprocessors * _blocks(v, room)


def _body(
    room: _Room, symbol: str, divisors: Mapping[Var, int], aligned: bool, stages: int, compact: bool = False, least: int = 0
) -> Variant:
    """A body whose pipelines have at most `stages` versions of their tiles, and at least `least`; `compact` ones take no bytes against
    bank conflicts."""
    launch, legal = room.launch, room.legal
    facts = Facts().with_launch(launch, room.threads)
    for v, n in divisors.items():
        facts = facts.with_divisor(v, n)
    count = prod(room.threads)
    facts = facts.with_range(THREAD, 0, count - 1)
    operands = frozenset(
        r.buffer for s in walk_stmt(legal.body) if isinstance(s, Gemm) and legal.gemms[id(s)].kind == "mma" for r in (s.a, s.b)
    )
    layouts = tile_layouts(shared_buffers(legal.body), operands, compact)
    bulk = _bulk_layouts(room)
    layouts |= bulk
    short = not aligned and 3 * _registers(legal) > 2 * room.target.registers_for(count)
    setting = Setting(
        count, launch.thread_vars, legal.layouts, legal.gemms, layouts.__getitem__, lambda b: _alignment(b, aligned), legal.body,
        stages if room.hand is None else 0,
        short or room.rung.short, room.rung.rolled, compact, room.target.number >= 90, least, aligned and _has_engine(room),
        room.rung.parts,
    )  # fmt: skip
    lowering = _lowering(room, setting)
    body = lowering.sequence((legal.body,), facts, True)
    fixed = operands | bulk.keys() | (bulk_tiles(legal.body) if room.hand is not None else frozenset())
    if better := choose_layouts(body, layouts, fixed, lowering.elements, room.threads, launch.thread_vars):
        layouts |= better
        lowering = _lowering(room, setting)
        body = lowering.sequence((legal.body,), facts, True)
    if room.hand is not None:
        body = with_barriers(body, room.hand.hopper or launch.cluster != ALONE)
    body = with_full(body, lowering.fetches)
    bulk |= {b: layouts[b] for b in engine_tiles(lowering.fetches, layouts.__getitem__)}
    versions = {b: p.stages for p in walk_plan(body) if isinstance(p, Pipeline) for b in p.versioned}
    layouts |= tile_layouts(lowering.scratch, frozenset())
    tiles, total = place_tiles(layouts, versions, bulk)
    apart = total
    wanted = total > room.target.shared_per_block_max or in_groups(legal.gemms)
    if wanted and room.hand is None and launch.cluster == ALONE:
        steps = {b: BULK_ALIGNMENT if b in bulk else ALIGNMENT for b in tiles}
        shared = overlap(body, {b: t.bytes for b, t in tiles.items() if storage(b) is b}, steps)
        if total > room.target.shared_per_block_max or _more_blocks(room, total, shared.total):
            body = with_meetings(body, shared.meetings, bool(lowering.fetches))
            tiles, total = place_tiles(layouts, versions, offsets=shared.offsets)
    reads, writes = touched([legal.body])
    both = frozenset(b for b in reads & writes if b.scope is Scope.GLOBAL)
    body = place_barriers(body, both, lowering.varies, "no_auto_sync" in room.kernel.flags, writers(body, facts, both),
                          room.hand is not None and room.hand.ordered)  # fmt: skip
    body = with_flights(body, room.hand is not None) if in_groups(legal.gemms) else body
    if room.hand is None and total == apart and not any(isinstance(s, Gemm) for s in walk_stmt(legal.body)):
        body = in_background(body, lowering.elements, frozenset(map(storage, writes)))
    placements: dict[Buffer, Placement] = {**tiles, **{b: Registers(layout) for b, layout in legal.layouts.items()}}
    for s in walk_stmt(legal.body):
        if isinstance(s, Alloc) and s.buffer.scope in (Scope.LOCAL, Scope.VAR):
            placements[s.buffer] = Private()
    out = Variant(symbol, None, facts, body, placements, dict(lowering.elements), total, _registers(legal), legal.remarks)
    out = replace(out, hopper=room.hand is None and in_groups(legal.gemms), tensor_maps=tuple(lowering.maps))
    if isinstance(lowering, HandLowering):
        out = replace(out, remarks=(*out.remarks, *lowering.remarks))
    if out.tensor_maps and room.hand is None:  # the launcher tries it before all others
        out = replace(out, threads=room.threads, grid=_grid_of(launch))
    out = on_shelf(out, legal, count, room.target, room.rung.shelved) if room.rung.shelved else out
    loose = not aligned or (not divisors and bool(_row_divisors(room.kernel)))  # element by element, as rows may start anywhere
    return _on_ladder(replace(out, when=_condition(out, divisors, aligned)), room, short, loose)


def _more_blocks(room: _Room, apart: int, together: int) -> bool:
    """True when so many more blocks share a multiprocessor where tiles share bytes."""
    now, then = (room.target.blocks_that_fit(prod(room.threads), _registers(room.legal), n) for n in (apart, together))
    return then > now


def _has_engine(room: _Room) -> bool:
    """True where the copy engine may bring tiles: beside products of warp groups in blocks that are launched on their own."""
    return in_groups(room.legal.gemms) and room.launch.cluster == ALONE and not _meets(room.launch) and room.hand is None


def _meets(launch: Launch) -> bool:
    """True where all blocks wait for each other."""
    return any(isinstance(s, Barrier) and s.kind == "grid" for s in walk_stmt(launch.body))


def _bulk_layouts(room: _Room) -> dict[Buffer, SharedLayout]:
    """The layouts of tiles that the copy engine or products of warp groups want in swizzled rows."""
    if room.hand is None:
        return group_tiles(walk_stmt(room.legal.body), room.legal.gemms)
    return hand_layouts(room.legal.body, room.legal.gemms) if room.hand.hopper else {}


def _lowering(room: _Room, setting: Setting) -> Lowering:
    """The pass that lowers a body of this launch."""
    different = varying(room.legal.body)
    if room.hand is None:
        return Lowering(setting, varying=different)
    return HandLowering(setting, varying=different, hand=room.hand)


def _condition(v: Variant, divisors: Mapping[Var, int], aligned: bool) -> Expr | None:
    """When the launcher may choose this body: pointers of wide accesses aligned, rows a whole number of chunks."""
    if not aligned:
        return None
    if v.tensor_maps:
        return condition_of(v, divisors)
    tests: list[Expr] = []
    wide = _wide_tensors(v)
    for b in (b for b in wide if not b.workspace and b.address is None):  # the launcher, or nobody, knows about those
        address = Var(b.name, INT64, VarKind.PARAM)
        tests.append(Compare("eq", Binary("mod", address, Const(CHUNK, INT64), INT64), Const(0, INT64)))
    for var, n in divisors.items():
        tests.append(Compare("eq", Binary("mod", var, Const(n, var.dtype), var.dtype), Const(0, var.dtype)))
    return conjunction(tests)


def _alignment(b: Buffer, aligned: bool) -> int:
    """Bytes that the address of a global tensor is a multiple of."""
    return CHUNK if (aligned and b.address is None) or b.workspace else b.dtype.bytes


def _registers(legal: Legal) -> int:
    """Registers a thread is expected to need: its fragments, what the largest product takes besides its accumulator, addresses."""
    tiles = sum(words(b, layout) for b, layout in legal.layouts.items())
    beside = [g.registers - -(-g.c_layout.registers * g.op.c_dtype.bytes // 4) for g in legal.gemms.values()]
    return tiles + max(beside, default=24)


def _on_ladder(v: Variant, room: _Room, short: bool, loose: bool) -> Variant:
    """A portable body with its place on the ladder, and by how many registers it may exceed what is known to fit."""
    launch, now, products = room.launch, prod(room.threads), room.legal.gemms.values()
    if room.hand is not None:
        return hand_ladder(replace(v, hopper=room.hand.hopper), launch, tuple(products), room.options.choice, room.target)
    free, in_place = free_threads(launch.body), all("register" in (g.load_a, g.load_b) for g in products)
    number, rung = rung_of(room.options.choice, "portable", v.symbol)

    def room_for(x: Rung) -> int:
        there = room.target.registers_for(now * (max(1, launch.min_blocks) if x.bound else 1))
        return shelf_room(there, now) if x.shelved else there

    loops, late = [s for s in walk_stmt(launch.body) if isinstance(s, Parallel)], short or rung.short
    read = sum(b.scope is Scope.GLOBAL for s in loops for b in touched([s])[0])
    shapes, bits = tuple((g.op.m, g.op.n) for g in products), frozenset(g.op.a_dtype.bits for g in products)
    strewn = loose and any(b.workspace for b in touched([launch.body])[0])
    halves = any(g.op.c_dtype.bits == 16 for g in products)
    groups = in_groups(room.legal.gemms)
    flight = loads_of_a_step(v.body) if products else max(loads_together(v.body), apart(room.legal.layouts))
    need = v.registers + (beside_results(products) if read else 0)
    load = Load(
        need, room_for(rung), now, shapes, bits, read, len(loops), late, loose and not late, strewn, groups, flight, halves, in_place
    )
    strain = portable_strain(load, rung)
    cuts = {1} | {n for n in PARTS if (strain > 0 or number) and _cut(room, n) is not None}
    known = known_blocks(v, now, room.target, load)
    largest = max((layout.registers * b.dtype.bytes for b, layout in room.legal.layouts.items()), default=0) // 4 * now * rung.cut

    @cache
    def all_held() -> int:
        return held(room.legal.body, room.legal.layouts, room.legal.gemms, _registers(room.legal)) * now * rung.cut

    def effect(x: Rung) -> object:
        """What a rung changes; None where the threads could not even hold the largest tile, or would hold all that the rung moves."""
        bound = (launch.min_blocks if x.bound else int(x.alone and strain <= SLIGHT)) or known
        steps = x.rolled and bool(products) and not in_place
        threads = x.threads if free and x.threads else room.planned
        cut = x.cut if x.cut in cuts else 1
        there = room.target.registers_for(threads) * threads * cut
        if largest >= there + bool(x.shelved) * room.target.shared_per_block_max // 4 * cut:
            return None
        if x.shelved and all_held() * 100 <= there * x.shelved:
            return None
        return bound, threads, x.short or short, steps, cut, x.groups and groups, x.plain, x.shelved, x.settles

    def fits(x: Rung) -> bool:
        """That a rung with the same threads is known to fit, or is not known not to."""
        later = short or x.short
        here = replace(load, there=room_for(x), late=later, loose=loose and not later, flight=0 if later else load.flight)
        return bool(x.shelved) or portable_strain(here, x) <= 0

    below = next_rung("portable", number, effect)
    sure, near = below if strain > 0 else 0, set(alike("portable", number, now if free else 0))
    while sure in near and not fits(LADDERS["portable"][sure]):
        sure = next_rung("portable", sure, effect)
    out = replace(v, ladder="portable", rung=number, below=below, sure=sure, strain=strain)
    out = with_blocks(out, load, room.options.choice, wanted_blocks(rung, launch) or known)
    return replace(out, open=left_open(out, load))
