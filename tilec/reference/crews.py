"""Blocks whose threads go separate ways and meet at barriers in shared memory.

The threads are cut into groups that take every branch of a team together (see `analysis.teams`). Each group runs the body by
itself, one at a time, until it must wait; a tile statement happens once, when all groups of its team have come to it. When no
group can go on, the run ends with an error that says where each of them waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tilec.analysis.teams import Team, Teams, walk_teams
from tilec.diagnostics import Span
from tilec.ir.expr import Buffer
from tilec.ir.kernel import Launch
from tilec.ir.tile import If, Mbarrier
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
    """One block in execution: its groups, its barriers, and whose turn it is."""

    teams: Teams
    groups: tuple[Team, ...]
    barriers: dict[tuple[Buffer, int], Phases] = field(default_factory=dict)
    met: dict[tuple[Team, int], int] = field(default_factory=dict)  # groups that came to the n-th meeting of a team
    waits: list[_Wait | None] = field(default_factory=list)
    done: list[bool] = field(default_factory=list)
    turn: int = 0
    failure: BaseException | None = None
    baton: threading.Condition = field(default_factory=threading.Condition)

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
        stuck = [(g, w) for g, w in zip(self.groups, self.waits, strict=True) if w is not None]
        parts = [f"threads {g.first} to {g.stop - 1} wait {w.what} in line {w.span.line}" for g, w in stuck]
        return MeaningError(f"no thread can go on: {'; '.join(parts)}", stuck[0][1].span)


@dataclass(slots=True)
class Crew:
    """One group of threads as its statements see it: `team` carries out the statement at hand, `met` counts its meetings."""

    block: Block
    me: int
    team: Team
    met: dict[Team, int] = field(default_factory=dict)

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
        self.block.wait(self.me, lambda: met[turn] > mates, what, span)


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


def run_crews(launch: Launch, state: Callable[[Crew], State], body: Callable[[State, Mask], None]) -> None:
    """Runs a block: `state` makes the state of a group, `body` executes the launch's statements for its threads."""
    teams = Teams.of(launch)
    groups = groups_of(launch, teams)
    block = Block(teams, groups, waits=[None] * len(groups), done=[False] * len(groups))
    numbers = np.arange(teams.block.count)

    def work(me: int) -> Callable[[], None]:
        group = groups[me]
        mask: Mask = True if len(groups) == 1 else (numbers >= group.first) & (numbers < group.stop)
        return lambda: body(state(Crew(block, me, teams.block)), mask)

    workers = [threading.Thread(target=block.run, args=(n, work(n)), daemon=True) for n in range(len(groups))]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    if block.failure is not None:
        raise block.failure


def signal(s: Mbarrier, crew: Crew, index: int, value: int, lanes: Array) -> None:
    """What the threads of a group (`lanes` of them) do with a barrier."""
    key, name = (s.buffer, index), f"`{s.buffer.name}[{index}]`"
    barriers = crew.block.barriers
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
            crew.block.wait(crew.me, lambda: m.over % 2 != value, what, s.span)
        return
    if s.kind in ("expect", "arrive_expect"):
        m.bytes += value * count
    if s.kind in ("arrive", "arrive_expect"):
        if count > m.missing:
            raise MeaningError(f"{count} threads arrive at {name}, which expects {m.missing} more in this phase", s.span)
        m.missing -= count
        m.settle()
