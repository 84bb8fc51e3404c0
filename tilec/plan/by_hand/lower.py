"""Lowers a kernel with barriers of its own: each team of threads by itself, bulk copies as boxes, products as their author queues them.

    with T.ws(1): T.copy(acc, C[...])   ->  a branch of 128 threads, which are numbered from 0 inside and meet at named barrier 15
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from tilec.analysis.facts import Facts
from tilec.analysis.teams import Team, Teams
from tilec.diagnostics import Diagnostic, Label, Severity, error
from tilec.analysis.ranges import divisor
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Binary, Buffer, Const, Expr, Scope
from tilec.ir.tile import Barrier, BulkCopy, Control, Copy, For, Gemm, If, Mbarrier, Parallel, Region, Stmt, While
from tilec.ir.visit import flat, stmt_exprs, storage, walk_stmt
from tilec.plan.by_hand.tiles import bulk_boxes, operand_fits
from tilec.layout.shared import CHUNK, SharedLayout
from tilec.plan.domains import add, static
from tilec.plan.by_hand.plan import PBarriers, PBulkCopy, PControl, PMbarrier, PSend, TeamPlan
from tilec.plan.by_hand.queued import InFlight, left_in_flight
from tilec.plan.lower import Lowering
from tilec.plan.plan import PBarrier, PGemm, PIf, PSeq, PStmt, Stepped
from tilec.record import record


@record
class Hand:
    """The teams of a launch, and whether its body may use what only Hopper has."""

    teams: Teams
    hopper: bool
    counts_bytes: bool  # whether the barriers of the target do
    settled: Mapping[int, frozenset[Buffer]]  # see `checks.check_by_hand`
    ordered: bool = False  # the author has no barriers of his own: what teams touch is ordered as if the block had
    engine: bool = True  # whether the copy engine may do what the author gives it


@dataclass(slots=True)
class HandLowering(Lowering):
    """One pass over such a launch. `meeting` are the named barriers of teams; `fenced`: since they last waited, the threads that come
    here have made visible to warp groups what others' asynchronous copies brought."""

    hand: Hand = field(kw_only=True)
    team: Team | None = None
    meeting: dict[Team, int] = field(default_factory=dict)
    remarks: list[Diagnostic] = field(default_factory=list)
    found: InFlight | None = None
    queued: set[int] = field(default_factory=set)  # copies in flight, by id()
    fenced: bool = False

    def statement(self, s: Stmt, facts: Facts, uniform: bool) -> list[PStmt]:
        """One statement; of a branch that all threads of the team take, its side."""
        if isinstance(s, If) and (side := self.one_side(s, facts)) is not None:
            return list(self.sequence((side,), facts, uniform).body)
        if id(s) in self.in_flight.copies and isinstance(s, For) and (copy := self.left_behind(s, facts)) is not None:
            return [copy]
        apart = isinstance(s, For | While | If)
        self.fenced = self.fenced and not apart
        out = self.seeing(s, Lowering.statement(self, s, facts, uniform))
        self.fenced = self.fenced and not apart
        return out

    # ---- copies in flight ------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> InFlight:
        """What the author leaves in flight, where that is told at barriers of Hopper."""
        if self.found is None:
            self.found = left_in_flight(self.at.launch_body) if self.hand.hopper else InFlight({}, {})
        return self.found

    def left_behind(self, s: For, facts: Facts) -> PStmt | None:
        """A copy that nobody waits for; None where its elements are not aligned for it."""
        (store,) = flat(s.body)
        self.note_loads((s.start, s.stop, s.step), facts)
        copy = self.async_copy(Parallel((s.var,), (s.stop,), store, s.span), facts, each=True)
        if copy is not None:
            self.queued.add(id(s))
        return copy

    def arrive_behind(self, s: Mbarrier) -> list[PStmt]:
        """An arrival that tells of copies: of the barrier itself once they are complete, or of the thread that has waited for them."""
        copies = self.in_flight.arrivals.get(id(s), ())
        queued = [key for key in copies if key in self.queued]
        if queued and len(queued) == len(copies):
            return [PMbarrier(s.kind, s.buffer, s.index, None, False, s.span)]
        waits: list[PStmt] = [PBarrier("copies", why="some elements move otherwise"), PControl("fence", 0, span=s.span)] if queued else []
        return [*waits, PMbarrier("arrive", s.buffer, s.index, None, not self.hand.hopper, s.span)]

    def visible(self, s: Stmt, out: list[PStmt]) -> list[PStmt]:
        """A lowered statement with its fence, which serves what others have brought as well."""
        out = Lowering.visible(self, s, out)
        self.fenced = self.fenced or (bool(out) and isinstance(out[-1], PControl) and out[-1].kind == "fence")
        return out

    def seeing(self, s: Stmt, out: list[PStmt]) -> list[PStmt]:
        """A lowered statement; in front of what reads past the threads what copies in flight brought, a fence lets it see that."""
        if isinstance(s, Mbarrier) and s.kind == "wait":
            self.fenced = False
        sides = (s.a, s.b) if isinstance(s, Gemm) and self.at.gemms[id(s)].kind == "wgmma" else (s.src,) if isinstance(s, BulkCopy) else ()
        if self.fenced or not any(storage(r.buffer) in self.in_flight.tiles for r in sides):
            return out
        self.fenced = True
        return [PControl("fence", 0, span=s.span), *out]

    # ---- teams -----------------------------------------------------------------------------------------------------

    def one_side(self, s: If, facts: Facts) -> Stmt | None:
        """The side of a branch that all threads of the team take; None where they part, or it depends on more."""
        team = self.team or self.hand.teams.block
        taken = self.hand.teams.takers(s.cond, team)
        if taken is None or 0 < len(taken) < team.count:
            return None
        return s.then if taken else s.orelse

    def seen_by_engine(self) -> frozenset[Buffer]:
        """Tiles that bulk stores and products of warp groups read; in a portable body those that go to other blocks."""
        if self.engine is None:
            copies = [s for s in walk_stmt(self.at.launch_body) if isinstance(s, BulkCopy)]
            found = [s.src.buffer for s in copies if self.hand.hopper or s.dst.buffer.peer is not None]
            self.engine = Lowering.seen_by_engine(self) | {storage(b) for b in found if b.scope is Scope.SHARED}
        return self.engine

    def part(self, s: If, facts: Facts, uniform: bool) -> PIf | None:
        """A branch that parts the threads into teams; None for any other."""
        found = self.hand.teams.branches(s, self.team or self.hand.teams.block)
        if found is None:
            return None
        outer, at, plans, bodies = self.team, self.at, [], []
        index = at.thread_vars[0] if self.hand.teams.threads[1:] == (1, 1) else None
        for team, branch, known in zip(found, (s.then, s.orelse), (facts.assume(s.cond), facts), strict=True):
            if team is not None:
                self.team, self.at = team, replace(at, threads=team.count)
                known = known if index is None else known.with_range(index, team.first, team.stop - 1)
            bodies.append(self.sequence((branch,), known, uniform and team is not None))
            self.team, self.at = outer, at
            plans.append(None if team is None else TeamPlan(team, self.meeting_of(team), index))
        return PIf(s.cond, bodies[0], bodies[1], s.span, teams=(plans[0], plans[1]))

    def meeting_of(self, team: Team) -> int:
        """The named barrier of a team; 0 where it needs none. The author's own numbers stay free."""
        if team.count <= 32:
            return 0
        if team not in self.meeting:
            taken = {static(s.id) for s in walk_stmt(self.at.launch_body) if isinstance(s, Barrier) and s.id is not None}
            free = [n for n in range(15, 0, -1) if n not in taken and n not in self.meeting.values()]
            if not free:
                raise error("TL0401", "this kernel has more than 15 teams and barriers", self.at.launch_body.span)
            self.meeting[team] = free[0]
        return self.meeting[team]

    def gemm(self, s: Gemm, facts: Facts) -> PGemm:
        """A product; one by warp groups needs its operands where these look for them."""
        plan = self.at.gemms[id(s)]
        if plan.kind == "wgmma":
            for r in (s.a, s.b):
                reason = operand_fits(r, self.at.tiles(r.buffer), facts) if r.buffer.scope is Scope.SHARED else ""
                if reason:
                    raise error("TL0406", f"warp groups cannot read an operand of this product: {reason}", s.span, *_where(r.buffer))
        return PGemm(plan, s.a, s.b, s.c, s.clear, s.span, s.waits and self.hand.hopper)

    def hand_written(self, s: Mbarrier | BulkCopy | Control, facts: Facts) -> list[PStmt]:
        """Barriers, bulk copies, and what orders queued work, which only Hopper has."""
        match s:
            case Mbarrier(kind, buffer, index, value, span):
                self.note_loads(stmt_exprs(s), facts)
                if kind == "arrive_copies":
                    return self.arrive_behind(s)
                if not self.hand.counts_bytes and kind in ("expect", "arrive_expect"):
                    hint = "compile with --arch sm_90a, or leave the bytes to T.tma_copy"
                    raise error("TL0406", "only Hopper's barriers count bytes", span, help=hint)
                return [PMbarrier(kind, buffer, index, value, not self.hand.hopper, span)]
            case BulkCopy():
                return self.bulk_copy(s, facts)
            case Control(kind, value, span):
                here = self.team or self.hand.teams.block
                if kind.startswith(("registers", "products")) and (here.first % 128 or here.count % 128):
                    text = f"this is done by whole warp groups (128 threads), {here.count} thread{'s' if here.count > 1 else ''} come here"
                    raise error("TL0406", text, span, help="put it under `with T.ws(...)`, not into a branch of fewer threads")
                done = sorted(self.hand.settled.get(id(s), ()), key=lambda b: b.name)
                kept = tuple((b, self.at.layouts[b].registers) for b in done if b in self.at.layouts)
                if not self.hand.hopper:  # products are complete in their own threads, which one of them may go on to tell others
                    return [PBarrier("team", why="the product is complete", span=span)] if kind == "products_wait" else []
                return [PControl(kind, value, kept, span)]

    def bulk_copy(self, s: BulkCopy, facts: Facts) -> list[PStmt]:
        """A copy by the copy engine; by the threads where there is none, or it cannot do this one."""
        self.note_loads(stmt_exprs(s), facts)
        if s.dst.buffer.peer is not None:
            return [send(s, self.at.tiles, facts)]
        tile = s.dst if s.barrier is not None else s.src
        reason = "" if self.hand.hopper and self.hand.engine else "not for this body"
        found = reason or bulk_boxes(s, self.at.tiles(tile.buffer), facts)
        if isinstance(found, str):
            if not reason:
                text = f"the threads do this T.tma_copy, not the copy engine: {found}"
                self.remarks.append(Diagnostic(Severity.REMARK, "TL0505", text, s.span))
            seen = [PControl("fence", 0, span=s.span)] if storage(s.dst.buffer) in self.seen_by_engine() else []
            return [self.copy(Copy(s.src, s.dst, s.span), facts), *seen, PBarrier("team", why="the copy is complete", span=s.span)]
        tensor, boxes = found
        self.maps.setdefault(tensor)
        size = prod(static(e) or 1 for e in tile.extents) * tile.buffer.dtype.bytes
        mask = s.mask if len(tensor.box) == 2 else 0
        if s.mask and not mask:
            text = "each block loads for itself: a multicast has boxes of two dimensions"
            self.remarks.append(Diagnostic(Severity.REMARK, "TL0505", text, s.span))
        return [PBulkCopy(tensor, tile.buffer, boxes, size, s.barrier, s.index, s.span, mask)]


def send(s: BulkCopy, tiles: Callable[[Buffer], SharedLayout], facts: Facts) -> PSend:
    """A tile that goes to another block of the cluster. Raises where its elements, or its place there, are not in one piece."""
    assert s.barrier is not None and s.index is not None and s.dst.buffer.peer is not None
    places = [_piece(r, tiles(r.buffer)) for r in (s.src, s.dst)]
    item, count = s.src.buffer.dtype.bytes, prod(static(e) or 0 for e in s.src.extents)
    same = tiles(s.src.buffer) == tiles(s.dst.buffer) and s.src.extents == s.dst.extents == s.src.buffer.shape
    fits = all(p is not None and divisor(p, facts) * item % CHUNK == 0 for p in places) or same
    if not fits or count * item % CHUNK or count == 0:
        text = f"a part of {s.src.buffer.name} that the copy engine sends must be one piece of whole 16 bytes, at both ends"
        help = "send whole tiles or whole rows, or leave out `remote_barrier` and write T.cluster_sync() behind the copy"
        raise error("TL0406", text, s.span, *_where(s.src.buffer), help=help)
    zero = Const(0, INT32)
    first, second = (zero if same or p is None else p for p in places)
    return PSend(s.src.buffer, first, s.dst.buffer, second, count * item, s.dst.buffer.peer, s.barrier, s.index, s.span)


def _piece(r: Region, layout: SharedLayout) -> Expr | None:
    """The first element of a region whose elements lie one behind the other; None for any other."""
    shape, extents = layout.shape, [static(e) for e in r.extents]
    if layout.swizzle is not None or layout.panel or layout.pitch != shape[-1]:
        return None
    whole = len(shape)
    while whole and extents[whole - 1] == shape[whole - 1]:
        whole -= 1
    if any(e != 1 for e in extents[: max(0, whole - 1)]):
        return None
    at: Expr = Const(0, INT32)
    for start, extent in zip(r.starts, shape, strict=True):
        at = add(Binary("mul", at, Const(extent, INT32), INT32), start)
    return at


def _where(b: Buffer) -> tuple[Label, ...]:
    return (Label(b.span, f"{b.name} is allocated here"),)


def with_barriers(body: PSeq, hopper: bool) -> PSeq:
    """`body` with its barriers made by one thread before anything else."""
    inits: list[tuple[Buffer, int, int]] = []
    rest = list(body.body)
    while rest and (found := _init(rest[0])) is not None:
        inits.append(found)
        rest.pop(0)
    return PSeq((PBarriers(tuple(inits), hopper), PBarrier("block", why="the barriers exist"), *rest)) if inits else body


def _init(s: PStmt) -> tuple[Buffer, int, int] | None:
    match s:
        case Stepped(_, PSeq((PMbarrier("init", buffer, index, value),))) if value is not None:
            return buffer, static(index) or 0, static(value) or 0
        case _:
            return None
