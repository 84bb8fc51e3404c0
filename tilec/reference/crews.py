"""Blocks whose threads go separate ways and meet at barriers in shared memory.

The threads are cut into groups that take every branch of a team together (see `analysis.teams`). Each group runs the body by
itself, one at a time, until it must wait; a tile statement happens once, when all groups of its team have come to it. When no
group can go on, the run ends with an error that says where each of them waits. The blocks of a cluster take turns in the same way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tilec.analysis.teams import Team, Teams, walk_teams
from tilec.diagnostics import Span
from tilec.ir.expr import Buffer
from tilec.ir.kernel import Launch
from tilec.ir.tile import If, Mbarrier
from tilec.ir.visit import storage
from tilec.reference.errors import MeaningError
from tilec.reference.masks import Mask
from tilec.reference.values import Array

if TYPE_CHECKING:
    from tilec.reference.evaluate import State


@dataclass(slots=True)
class Phases:
    """An mbarrier: arrivals and bytes that this phase still misses, and how many phases are over."""

    count: int
    missing: int
    bytes: int = 0
    over: int = 0

    def arrive(self, count: int, name: str, span: Span) -> None:
        """`count` arrivals at once."""
        if count > self.missing:
            who = f"{count} threads arrive" if count > 1 else "one arrives"
            raise MeaningError(f"{who} at {name}, which expects {self.missing} more in this phase", span)
        self.missing -= count
        self.settle()

    def settle(self) -> None:
        """Ends the phase when nothing is missing."""
        if self.missing == 0 and self.bytes == 0:
            self.over += 1
            self.missing = self.count


@dataclass(slots=True)
class _Wait:
    """What a group waits for, and where."""

    ready: Callable[[], bool]
    what: str
    span: Span


class _Stopped(Exception):
    """Another group has failed."""


@dataclass(slots=True)
class Block:
    """One block in execution: its groups, of which `first` is the number on the stage of the first one, and its barriers."""

    teams: Teams
    groups: tuple[Team, ...]
    stage: Stage
    rank: int = 0
    first: int = 0
    barriers: dict[tuple[Buffer, int], Phases] = field(default_factory=dict)
    met: dict[tuple[Team, int], int] = field(default_factory=dict)  # groups that came to the n-th meeting of a team

    @property
    def ended(self) -> bool:
        """Whether all of its groups are done."""
        return all(self.stage.done[self.first : self.first + len(self.groups)])


@dataclass(slots=True)
class Stage:
    """Blocks that run at once, the groups of all of them by number, and whose turn it is."""

    blocks: list[Block] = field(default_factory=list)
    groups: list[tuple[Block, Team]] = field(default_factory=list)
    waits: list[_Wait | None] = field(default_factory=list)
    done: list[bool] = field(default_factory=list)
    arrivals: list[int] = field(default_factory=list)  # of each group at the cluster's barrier
    turn: int = 0
    failure: BaseException | None = None
    baton: threading.Condition = field(default_factory=threading.Condition)

    def enter(self, launch: Launch) -> Block:
        """One block more."""
        teams = Teams.of(launch)
        block = Block(teams, groups_of(launch, teams), self, len(self.blocks), len(self.groups))
        self.blocks.append(block)
        self.groups += [(block, g) for g in block.groups]
        count = len(block.groups)
        self.waits += [None] * count
        self.done += [False] * count
        self.arrivals += [0] * count
        return block

    def met(self, count: int) -> bool:
        """Whether all groups that are not done came to the cluster's barrier `count` times."""
        return all(n >= count or d for n, d in zip(self.arrivals, self.done, strict=True))

    def wait(self, me: int, ready: Callable[[], bool], what: str, span: Span) -> None:
        """Lets other groups run until `ready()`."""
        if ready():
            return
        self.waits[me] = _Wait(ready, what, span)
        with self.baton:
            self._pass_on(me)
            self._until_mine(me)
        self.waits[me] = None

    def run(self, me: int, work: Callable[[], None]) -> None:
        """One group from its first statement to its last, in a thread of its own."""
        try:
            with self.baton:
                self._until_mine(me)
            with np.errstate(all="ignore"):
                work()
        except _Stopped:
            return
        except BaseException as failure:
            self.failure = self.failure or failure
        with self.baton:
            self.done[me] = True
            self._pass_on(me)

    def _until_mine(self, me: int) -> None:
        while self.turn != me and self.failure is None:
            self.baton.wait()
        if self.failure is not None:
            raise _Stopped

    def _pass_on(self, me: int) -> None:
        """Gives the turn to the next group that can go on."""
        count = len(self.groups)
        for k in range(1, count + 1):
            other = (me + k) % count
            wait = self.waits[other]
            if not self.done[other] and (wait is None or wait.ready()):
                self.turn = other
                break
        else:
            if not all(self.done) and self.failure is None:
                self.failure = self._deadlock()
        self.baton.notify_all()

    def _deadlock(self) -> MeaningError:
        """Where everybody waits."""
        stuck = [(b, g, w) for (b, g), w in zip(self.groups, self.waits, strict=True) if w is not None]
        parts = []
        for b, g, w in stuck:
            where = f" of block {b.rank} of the cluster" if len(self.blocks) > 1 else ""
            parts.append(f"threads {g.first} to {g.stop - 1}{where} wait {w.what} in line {w.span.line}")
        return MeaningError(f"no thread can go on: {'; '.join(parts)}", stuck[0][2].span)


@dataclass(slots=True)
class Crew:
    """One group of threads as its statements see it: `team` carries out the statement at hand, `met` counts its meetings."""

    block: Block
    me: int
    team: Team
    met: dict[Team, int] = field(default_factory=dict)
    waits: int = 0  # at the cluster's barrier

    @property
    def mates(self) -> int:
        """How many groups make up the team."""
        return sum(self.team.first <= g.first < self.team.stop for g in self.block.groups)

    def together(self, work: Callable[[], None], what: str, span: Span) -> None:
        """Does `work` once, in the last group of the team that comes; the others wait for it."""
        team, mates = self.team, self.mates
        if mates == 1:
            work()
            return
        turn = (team, self.met.get(team, 0))
        self.met[team] = turn[1] + 1
        met = self.block.met
        met[turn] = met.get(turn, 0) + 1
        if met[turn] == mates:
            work()
            met[turn] += 1
        self.block.stage.wait(self.me, lambda: met[turn] > mates, what, span)

    def meet_cluster(self, kind: str, span: Span) -> None:
        """An arrival at the barrier of the cluster, the wait behind one, or both."""
        stage = self.block.stage
        if kind != "cluster_wait":
            if stage.arrivals[self.me] > self.waits:
                raise MeaningError("this block comes at the cluster's barrier again without having waited there", span)
            stage.arrivals[self.me] += 1
        if kind not in ("cluster", "cluster_wait"):
            return
        if stage.arrivals[self.me] == self.waits:
            raise MeaningError("this block waits at the cluster's barrier without having come there", span)
        self.waits += 1
        count = self.waits
        stage.wait(self.me, lambda: stage.met(count), "at the cluster's barrier", span)

    def peer(self, rank: int, span: Span) -> Block:
        """Another block of the cluster, which must run."""
        blocks = self.block.stage.blocks
        if not 0 <= rank < len(blocks):
            raise MeaningError(f"there is no block {rank} in a cluster of {len(blocks)}", span)
        if blocks[rank].ended:
            raise MeaningError(f"block {rank} of the cluster has ended: a cluster barrier is missing", span)
        if self.waits == 0 and blocks[rank] is not self.block:
            raise MeaningError(f"nothing tells that block {rank} of the cluster has begun: a cluster barrier is missing", span)
        return blocks[rank]


def groups_of(launch: Launch, teams: Teams) -> tuple[Team, ...]:
    """The block cut wherever a team begins or ends."""
    block = teams.block
    edges = {0, block.count}
    for s, team in walk_teams(launch.body, teams, block):
        if isinstance(s, If):
            for one in teams.branches(s, team) or ():
                edges |= set() if one is None else {one.first, one.stop}
    ordered = sorted(edges)
    return tuple(Team(a, b - a) for a, b in pairwise(ordered))


def run_crews(launch: Launch, makers: Sequence[Callable[[Crew], State]], body: Callable[[State, Mask], None]) -> None:
    """Runs the blocks of a cluster, or one block: `makers` make the state of a group, `body` executes the launch's statements for
    its threads."""
    stage = Stage()
    work: list[Callable[[], None]] = []
    for make in makers:
        block = stage.enter(launch)
        work += [_group_work(block, n, make, body) for n in range(len(block.groups))]
    workers = [threading.Thread(target=stage.run, args=(n, w), daemon=True) for n, w in enumerate(work)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if stage.failure is not None:
        raise stage.failure


def _group_work(block: Block, n: int, make: Callable[[Crew], State], body: Callable[[State, Mask], None]) -> Callable[[], None]:
    group, numbers = block.groups[n], np.arange(block.teams.block.count)
    mask: Mask = True if len(block.groups) == 1 else (numbers >= group.first) & (numbers < group.stop)
    return lambda: body(make(Crew(block, block.first + n, block.teams.block)), mask)


def signal(s: Mbarrier, crew: Crew, index: int, value: int, lanes: Array, peer: int | None = None) -> None:
    """What the threads of a group (`lanes` of them) do with a barrier, that of the block `peer` of the cluster where one is given."""
    own = storage(s.buffer)
    key, name = (own, index), f"`{own.name}[{index}]`"
    barriers = (crew.block if peer is None else crew.peer(peer, s.span)).barriers
    if s.kind == "init":
        barriers.setdefault(key, Phases(value, value))
        return
    if key not in barriers:
        raise MeaningError(f"there is no barrier {name}", s.span)
    m, count = barriers[key], int(lanes.sum())
    if s.kind == "wait":
        if value not in (0, 1):
            raise MeaningError(f"a phase of {name} has the parity 0 or 1, not {value}", s.span)
        if m.over % 2 == value:
            lacks = f"{m.missing} of {m.count} arrivals" + (f" and {m.bytes} bytes" if m.bytes else "")
            what = f"at {name} for the end of its phase {m.over}, which misses {lacks},"
            crew.block.stage.wait(crew.me, lambda: m.over % 2 != value, what, s.span)
        return
    if s.kind in ("expect", "arrive_expect"):
        m.bytes += value * count
    if s.kind.startswith("arrive"):
        m.arrive(count, name, s.span)
