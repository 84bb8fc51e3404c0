"""Puts block barriers where threads could otherwise meet in memory.

A barrier goes in front of a statement that reads a tile which another thread may have written since the last barrier, or
writes one that another thread may still read or have written. Loops are walked until what is pending at their start no longer
changes, so hazards between the end of one step and the start of the next are seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tilec.diagnostics import NOWHERE, error
from tilec.ir.expr import Buffer, Expr, Load, Scope
from tilec.ir.tile import Atomic, Break, Continue, Store
from tilec.ir.visit import pointers, stmt_exprs, storage, walk_expr
from tilec.layout.fragment import FragmentLayout
from tilec.plan.by_hand.plan import PBulkCopy, PBulkFetch, PMbarrier, PSend
from tilec.plan.plan import (
    AsyncCopy,
    FillRegisters,
    PBarrier,
    PFor,
    PGemm,
    PIf,
    Pipeline,
    PReduce,
    PScalar,
    PScan,
    PSeq,
    PStmt,
    PWhile,
    Spread,
    Stepped,
    TileLoop,
)  # fmt: skip
from tilec.plan.owners import Owned, owned, owned_by_thread
from tilec.plan.walk import walk_plan
from tilec.plan.writers import NO_WRITERS, Writer
from tilec.record import record

Tiles = frozenset[Buffer]
NONE: Tiles = frozenset()


Updates = frozenset[tuple[Buffer, str]]


@record
class Pending:
    """Tiles touched since the last barrier, or by one statement.

    `updates` are atomic updates whose old value nobody asks for: those of one operation come out alike in any order. `stores`
    are statements that write elements of a tensor which another statement writes by other threads. What teams of threads have
    touched on their own (`team_reads`, `team_writes`) matters to the whole block, but not to other teams, which their author orders.
    `lone` are those of the writes that single threads do, apart from others, where their author says so: he keeps them apart. `owned` are
    touches, not among the others, by the threads to which the elements belong (see `plan.owners`).
    """

    reads: Tiles = NONE
    writes: Tiles = NONE
    updates: Updates = frozenset()
    stores: frozenset[Writer] = frozenset()
    team_reads: Tiles = NONE
    team_writes: Tiles = NONE
    lone: Tiles = NONE
    owned: frozenset[Owned] = frozenset()

    def clashes(self, then: Pending) -> Tiles:
        """The tiles for which a statement that touches `then` must wait."""
        found = self.plain()._clashes(then.plain())
        return frozenset(b for b in found if not self._alike(then, b)) if self.owned and then.owned else found

    def tiles(self) -> Tiles:
        """All that is touched."""
        return frozenset().union(*self._others(), (o.tile for o in self.owned))

    def _alike(self, then: Pending, tile: Buffer) -> bool:
        """True when each thread has touched, and will touch, its own elements of a tile only."""
        others = (*self._others(), *then._others())
        return not any(tile in t for t in others) and len({o.key for o in (*self.owned, *then.owned) if o.tile is tile}) == 1

    def _others(self) -> tuple[Tiles, ...]:
        return self.reads, self.writes, _updated(self.updates), self.team_reads, self.team_writes

    def plain(self) -> Pending:
        """The same with the elements that threads own among all others."""
        if not self.owned:
            return self
        reads, writes = (frozenset(o.tile for o in self.owned if o.writes is w) for w in (False, True))
        lone = self.lone | frozenset(o.tile for o in self.owned if o.writes and o.alone)
        lone -= frozenset(o.tile for o in self.owned if o.writes and not o.alone) | (self.writes - self.lone)
        return replace(self, reads=self.reads | reads, writes=self.writes | writes, lone=lone, owned=frozenset())

    def _clashes(self, then: Pending) -> Tiles:
        mine, theirs = _updated(self.updates), _updated(then.updates)
        plain = (then.reads & self.writes) | (then.writes & self.reads) | ((then.writes & self.writes) - (then.lone & self.lone))
        plain |= (then.reads & self.team_writes) | (then.writes & (self.team_reads | self.team_writes))
        mixed = (mine & (then.reads | then.writes)) | (theirs & (self.reads | self.writes))
        rivals = frozenset(w.buffer for w in then.stores if not w.rivals.isdisjoint(self.stores))
        return plain | mixed | rivals | frozenset(b for b, op in then.updates for c, other in self.updates if b is c and op != other)

    def join(self, other: Pending) -> Pending:
        """What is pending behind both, or when control comes from either side."""
        return Pending(
            self.reads | other.reads, self.writes | other.writes, self.updates | other.updates, self.stores | other.stores,
            self.team_reads | other.team_reads, self.team_writes | other.team_writes,
            (self.lone | other.lone) - (self.writes - self.lone) - (other.writes - other.lone), self.owned | other.owned,
        )  # fmt: skip

    def alone(self) -> Pending:
        """The same without `stores`: where threads have parted, their order is the author's."""
        return replace(self, stores=frozenset())

    def by_block(self) -> Pending:
        """Without what teams have touched."""
        return replace(self, team_reads=NONE, team_writes=NONE)


def _by_author(clash: Tiles) -> Tiles:
    """Without global tensors: where threads have parted, no barrier can order those, and their author must have."""
    return frozenset(b for b in clash if b.scope is Scope.SHARED)


def _updated(updates: Updates) -> Tiles:
    return frozenset(b for b, _ in updates)


@dataclass(slots=True)
class _Effects:
    """Collects the memory that statements touch, and which threads touch elements that are theirs alone."""

    writers: Mapping[int, tuple[Writer, ...]]
    team: int
    reads: set[Buffer] = field(default_factory=set)
    writes: set[Buffer] = field(default_factory=set)
    updates: set[tuple[Buffer, str]] = field(default_factory=set)
    stores: set[Writer] = field(default_factory=set)
    mine: set[Owned] = field(default_factory=set)

    def read(self, *exprs: Expr | None) -> None:
        """What expressions load, and what the functions they call may write."""
        for e in exprs:
            if e is not None:
                self.reads.update(storage(x.buffer) for x in walk_expr(e) if isinstance(x, Load))
                self.writes.update(storage(b) for b, mode in pointers(e) if "w" in mode)

    def visit(self, s: PStmt) -> None:
        """One statement with all that is in it."""
        self.stores.update(self.writers.get(id(s), ()))
        match s:
            case PSeq(body):
                for c in body:
                    self.visit(c)
            case Stepped(_, body):
                self.visit(body)
            case TileLoop():
                self.tile_loop(s)
            case PFor():
                self.read(s.start, s.stop, s.step)
                self.visit(s.body)
            case PWhile(cond, body):
                self.read(cond)
                self.visit(body)
            case PIf(cond, then, orelse):
                self.read(cond)
                self.visit(then)
                self.visit(orelse)
            case Pipeline():
                self.read(s.start, s.stop)
                self.visit(s.producers)
                self.visit(s.consumers)
            case _:
                self.simple(s)

    def tile_loop(self, s: TileLoop) -> None:
        """A loop over elements; tiles of which each thread touches elements of its own only are kept apart."""
        self.read(s.guard, *s.values, *([s.how.rounds] if isinstance(s.how, Spread) else []))
        own = owned(s) if self.team == 0 else {}
        before = set(self.reads), set(self.writes)
        self.visit(s.body)
        for tile, touches in own.items():
            self.mine.update(touches)
            for found, kept in zip((self.reads, self.writes), before, strict=True):
                if tile not in kept:
                    found.discard(tile)

    def simple(self, s: PStmt) -> None:
        """A statement without others inside."""
        match s:
            case PScalar(leaf):
                self.read(*stmt_exprs(leaf))
                if isinstance(leaf, Atomic) and leaf.result is None and leaf.op not in ("load", "store"):
                    self.updates.add((storage(leaf.buffer), leaf.op))
                elif isinstance(leaf, Store | Atomic):
                    self.writes.add(storage(leaf.buffer))
            case AsyncCopy():
                self.read(*s.src_index, *s.dst_index, s.valid, s.guard, *s.values, s.how.rounds)
                self.reads.add(storage(s.src))
                self.writes.add(storage(s.dst))
            case FillRegisters(_, value):
                self.read(value)
            case PGemm():
                self.read(s.clear, *(e for r in s.operands for e in r.starts))
                self.reads.update(storage(r.buffer) for r in s.operands)
            case PReduce() | PScan():
                self.writes.update(() if s.scratch is None else (s.scratch,))
            case PBulkCopy():
                (self.reads if s.barrier is None else self.writes).add(storage(s.tile))
            case PBulkFetch(copies):
                self.writes.update(storage(c.tile) for c in copies)
            case PSend():
                self.read(s.offset, s.there)
                self.reads.add(storage(s.src))
            case PMbarrier() if s.value is not None:
                self.read(s.value)


@dataclass(slots=True)
class _Walk:
    """One placement: `tracked` tells which buffers threads share; `uniform` is false inside a divergent branch. `trusting`: where
    threads part, the author has written the barriers that are needed."""

    tracked: Callable[[Buffer], bool]
    varies: Callable[[Expr], bool]
    trusting: bool = False
    writers: Mapping[int, tuple[Writer, ...]] = field(default_factory=dict)
    ordered: bool = False  # teams wait for each other where one needs what another has touched
    team: int = 0  # how many threads the team has whose statements are walked; 0 for the block
    again: list[Pending] = field(default_factory=list)  # what the conditions of the loops being walked read, innermost last
    left: list[Pending] = field(default_factory=list)  # what is pending where a step of the loop being walked is left early

    def effects(self, s: PStmt) -> Pending:
        """The shared tiles that a statement touches, those of everything inside it included."""
        found = _Effects(self.writers, self.team)
        found.visit(s)
        kept = frozenset((b, op) for b, op in found.updates if self.tracked(b))
        return Pending(
            frozenset(filter(self.tracked, found.reads)), frozenset(filter(self.tracked, found.writes)), kept, frozenset(found.stores),
            owned=frozenset(o for o in found.mine if self.tracked(o.tile)),
        )  # fmt: skip

    def sequence(self, seq: PSeq, pending: Pending, uniform: bool) -> tuple[PSeq, Pending]:
        out: list[PStmt] = []
        for s in seq.body:
            new, pending = self.statement(s, pending, uniform)
            out += new
        return PSeq(tuple(out)), pending

    def statement(self, s: PStmt, pending: Pending, uniform: bool) -> tuple[list[PStmt], Pending]:
        if not (uniform or (self.team and not self.ordered)) and _is_shared_out(s):
            raise error(
                "TL0502", "all threads of the block do a part of this statement, but only some of them take the branch",
                getattr(s, "span", NOWHERE), help="move it out of the branch, or loop with T.serial, which each thread does by itself",
            )  # fmt: skip
        match s:
            case PSeq():
                body, pending = self.sequence(s, pending, uniform)
                return [body], pending
            case Stepped(span, inside):
                body, pending = self.sequence(inside, pending, uniform)
                # A barrier in front of the statement's own code reads better before its comment.
                lead = [x for x in body.body[:1] if isinstance(x, PBarrier)]
                return [*lead, Stepped(span, PSeq(body.body[len(lead) :]))], pending
            case PFor() | PWhile():
                return self.loop(s, pending, uniform)
            case PIf():
                return self.branch(s, pending, uniform)
            case Pipeline():
                return self.pipeline(s, pending)
            case PBarrier("team"):
                return self.meet("the copy is complete"), Pending()
            case PBarrier(kind):
                ordered = (uniform or self.trusting) if kind in ("block", "grid", "cluster") else kind == "named" and not uniform
                return [s], Pending() if ordered else pending
            case (PReduce() | PScan()) if s.scratch is not None:
                touched = self.effects(s)
                out = self.wait(pending.clashes(touched), uniform, s)
                return [*out, s], Pending(touched.writes)  # its own barrier orders all that came before
            case PScalar(Break() | Continue() as jump):
                again = self.again[-1] if isinstance(jump, Continue) and self.again else Pending()
                clash = pending.clashes(again)  # the condition of the loop is read next
                clash = clash if uniform else _by_author(clash)
                out = self.wait(clash, uniform, s)
                pending = (Pending() if clash else pending).join(again)
                self.left.append(pending)
                return [*out, s], pending
            case _:
                touched = self.effects(s)
                if not uniform and isinstance(s, PScalar) and not (s.once or self.team):
                    mine = {b: o for b, o in owned_by_thread(s).items() if b not in _updated(touched.updates)}
                    own = frozenset(o for touches in mine.values() for o in touches if self.tracked(o.tile))
                    touched = replace(touched, reads=touched.reads - mine.keys(), writes=touched.writes - mine.keys(), owned=own)
                if (self.team or not uniform) and _by_threads(s):
                    touched = replace(touched, lone=touched.writes)
                clash = pending.clashes(touched) if uniform else _by_author(pending.clashes(touched.alone()))
                out = self.wait(clash, uniform, s)
                if isinstance(s, PBulkCopy) and s.barrier is not None:
                    touched = Pending()  # the author waits for what it brings
                return [*out, s], (Pending() if clash else pending).join(touched)

    def meet(self, why: str) -> list[PStmt]:
        """A barrier of those who are here."""
        if self.team == 1:
            return []
        return [PBarrier("team" if self.team else "block", why=why)]

    def wait(self, clash: Tiles, uniform: bool, s: PStmt) -> list[PStmt]:
        """A barrier for these tiles; an error where not all threads would reach it."""
        if not clash:
            return []
        names = ", ".join(sorted(b.name for b in clash))
        if self.trusting and (self.team or not uniform):
            return []
        if not uniform:
            raise error(
                "TL0502", f"this branch is taken by some threads only, but {names} must be complete for all of them first",
                s.stmt.span if isinstance(s, PScalar) else getattr(s, "span", NOWHERE),
                help="move the statement that fills the tile out of the branch",
            )  # fmt: skip
        return self.meet(names)

    def read(self, *exprs: Expr) -> Tiles:
        """The shared tiles that expressions read."""
        return frozenset(b for e in exprs for x in walk_expr(e) if isinstance(x, Load) and self.tracked(b := storage(x.buffer)))

    def loop(self, s: PFor | PWhile, pending: Pending, uniform: bool) -> tuple[list[PStmt], Pending]:
        heads = (s.start, s.stop, s.step) if isinstance(s, PFor) else (s.cond,)
        inside = uniform and not any(self.varies(e) for e in heads)
        read = Pending(self.read(*heads))
        out: list[PStmt] = []
        # Where threads leave the loop one by one, what its body needs ordered must be ordered in front of it.
        clash = pending.clashes(read.join(self.effects(s.body)) if uniform and not inside else read)
        if clash := clash if uniform else _by_author(clash):
            out = self.wait(clash, uniform, s)
            pending = Pending()
        pending = pending.join(read)
        body, end = self.steps(s, pending, read, inside)
        if clash := pending.clashes(self.effects(s.body)):
            # One barrier in front of the loop may save one in each of its steps.
            ordered, after = self.steps(s, read, read, inside)
            if _count(ordered) < _count(body):
                return [*out, *self.wait(clash, uniform, s), replace(s, body=ordered)], read.join(after)
        return [*out, replace(s, body=body)], pending.join(end)

    def steps(self, s: PFor | PWhile, start: Pending, read: Pending, inside: bool) -> tuple[PSeq, Pending]:
        """The body of a loop that is entered with `start` pending and reads `read` to decide on each step; what is pending at its end."""
        while True:
            mark = len(self.left)
            self.again.append(read if isinstance(s, PWhile) else Pending())
            body, end = self.sequence(s.body, start, inside)
            self.again.pop()
            if isinstance(s, PWhile):  # the condition is read again behind the body
                clash = end.clashes(read)
                if clash := clash if inside else _by_author(clash):
                    body, end = PSeq((*body.body, *self.wait(clash, inside, s))), Pending()
                end = end.join(read)
            for early in self.left[mark:]:  # break and continue pass by the barriers that follow them
                end = end.join(early)
            del self.left[mark:]
            joined = start.join(end)
            if joined == start:
                return body, end
            start = joined

    def branch(self, s: PIf, pending: Pending, uniform: bool) -> tuple[list[PStmt], Pending]:
        if any(s.teams):
            return self.teams(s, pending, uniform)
        together = uniform and not self.varies(s.cond)
        out: list[PStmt] = []
        tested = Pending(self.read(s.cond))
        # Where threads part, what the branches need ordered must be ordered in front of them.
        clash = pending.clashes(self.effects(s) if uniform and not together else tested)
        if clash := clash if uniform else _by_author(clash):
            out = self.wait(clash, uniform, s)
            pending = Pending()
        pending = pending.join(tested)
        then, after_then = self.sequence(s.then, pending, together)
        orelse, after_else = self.sequence(s.orelse, pending, together)
        return [*out, replace(s, then=then, orelse=orelse)], after_then.join(after_else)

    def teams(self, s: PIf, pending: Pending, uniform: bool) -> tuple[list[PStmt], Pending]:
        """A branch of teams: each starts with nothing pending, and leaves behind what only the block must wait for."""
        touched = self.effects(s).plain()
        out: list[PStmt] = []
        if clash := (pending if self.ordered else pending.by_block()).clashes(touched):
            out = self.wait(clash, uniform, s)
            pending = Pending()
        if self.ordered:
            self.apart(s)
        outer, sides = self.team, []
        for team, side in zip(s.teams, (s.then, s.orelse), strict=True):
            self.team = outer if team is None else team.team.count
            sides.append(self.sequence(side, Pending(), uniform and team is not None)[0])
        self.team = outer
        if self.ordered:
            return [*out, replace(s, then=sides[0], orelse=sides[1])], pending.join(touched)
        left = Pending(team_reads=touched.reads, team_writes=touched.writes | _updated(touched.updates))
        return [*out, replace(s, then=sides[0], orelse=sides[1])], pending.join(left)

    def apart(self, s: PIf) -> None:
        """Refuses a branch of which one side needs what the other touches: nothing could order them."""
        sides = [self.effects(side).plain() for side in (s.then, s.orelse)]
        if clash := _by_author(sides[0].clashes(sides[1]) | sides[1].clashes(sides[0])):
            names = ", ".join(sorted(b.name for b in clash))
            raise error(
                "TL0502", f"the threads part here, and both sides use {names}, which one of them writes", s.span,
                help="write two branches one after the other; threads wait in between",
            )  # fmt: skip

    def pipeline(self, s: Pipeline, pending: Pending) -> tuple[list[PStmt], Pending]:
        filled = self.effects(s.producers).plain()
        out: list[PStmt] = []
        if clash := pending.clashes(filled.join(Pending(self.read(s.start, s.stop)))):
            out = self.wait(clash, True, s)
            pending = Pending()
        # The barrier of every step stands at its start, so each step begins with nothing pending. A register prefetch reads
        # the tiles of the next step behind that barrier, and has read the last of this step in front of it.
        consumers, end = self.sequence(s.consumers, Pending(), True)
        return [*out, replace(s, consumers=consumers)], pending.join(end).join(Pending(frozenset(s.versioned), filled.writes))


def _is_shared_out(s: PStmt) -> bool:
    """True for a statement of which each of several threads does a part."""
    match s:
        case TileLoop(how=Spread(threads=threads)) | AsyncCopy(how=Spread(threads=threads)):
            return threads > 1
        case TileLoop(how=FragmentLayout() as layout):
            return layout.used_threads > 1
        case FillRegisters(buffer):
            return buffer.scope is Scope.FRAGMENT
        case PGemm() | PReduce() | PScan():
            return True
        case _:
            return False


def _by_threads(s: PStmt) -> bool:
    """True for what each thread does for itself, at places that its author has given it."""
    return isinstance(s, PScalar) or (isinstance(s, TileLoop | AsyncCopy) and isinstance(s.how, Spread) and s.how.threads == 1)


def _count(s: PStmt) -> int:
    """The barriers written inside a statement."""
    return sum(isinstance(x, PBarrier) for x in walk_plan(s))


def shared_tiles(s: PStmt) -> Tiles:
    """The shared tiles that a statement touches, views counted as their owners."""
    return _Walk(lambda b: b.scope is Scope.SHARED, lambda e: False).effects(s).tiles()


def touched_by(s: PStmt) -> Pending:
    """The tiles and tensors that a statement reads and writes, those of everything inside it included."""
    return _Walk(lambda b: b.scope in (Scope.SHARED, Scope.GLOBAL), lambda e: False).effects(s).plain()


def place_barriers(
    body: PSeq, shared: frozenset[Buffer], varies: Callable[[Expr], bool], trusting: bool = False,
    writers: Mapping[int, tuple[Writer, ...]] = NO_WRITERS, ordered: bool = False,
) -> PSeq:  # fmt: skip
    """`body` with the barriers it needs. `shared` are global tensors that the launch both reads and writes, `writers` the
    statements that write others in turn; `trusting` leaves the order inside branches of some threads to the author, who asked
    for that; `ordered`: what teams touch is ordered among them too, for their author has no barriers."""

    def tracked(buffer: Buffer) -> bool:
        return buffer.scope is Scope.SHARED or buffer in shared

    return _Walk(tracked, varies, trusting, writers, ordered).sequence(body, Pending(), True)[0]
