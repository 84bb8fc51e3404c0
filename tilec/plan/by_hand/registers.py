"""Registers of the warp groups of a block that an author parts: what the fullest of them holds of its own, and other numbers for all of
them where ptxas shows that some do with too few.

    32 / 128 / 160 / 128 of 512  ->  32 / 144 / 176 / 144: 64 were left over
    24 / 160 / 160 / 168 of 512  ->  48 / 152 / 152 / 160: who takes gives a little to who gave
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilec.analysis.teams import Team, Teams, walk_teams
from tilec.ir.expr import Buffer
from tilec.ir.kernel import Launch
from tilec.ir.tile import Alloc, Control, Stmt
from tilec.ir.visit import buffers_of, map_stmt, storage
from tilec.targets import Target

STEP = 8
"""Registers are dealt in multiples of so many."""
MOST = 240
"""The most that are dealt to a thread here; authors may ask for more."""
GROUP = 128


def fullest(launch: Launch, tiles: Mapping[Buffer, int], there: int) -> tuple[int, int]:
    """What the tiles of the warp group take that has the least left of those with tiles, and what a thread of it has: `tiles` are registers
    a thread, `there` those of a group that neither takes nor gives any."""
    teams = Teams.of(launch)
    holds: dict[Team, set[Buffer]] = {}
    has: dict[Team, int] = {}
    for s, team in walk_teams(launch.body, teams, teams.block):
        if isinstance(s, Control) and s.kind.startswith("registers_"):
            has[team] = s.value
        if not isinstance(s, Alloc):
            holds.setdefault(team, set()).update(b for b in map(storage, buffers_of(s)) if b in tiles)
    shared = holds.pop(teams.block, set())
    found = [(sum(tiles[b] for b in own | shared), has.get(team, there)) for team, own in holds.items() if own]
    return max(found, key=lambda x: x[0] - x[1], default=(sum(tiles[b] for b in shared), there))


def dealt(launch: Launch, threads: int, target: Target) -> Stmt:
    """The body with other numbers of registers for its warp groups; itself where not every group says how many it wants."""
    teams = Teams.of(launch)
    controls = ((s, team) for s, team in walk_teams(launch.body, teams, teams.block) if isinstance(s, Control))
    found = [(s, team) for s, team in controls if s.kind.startswith("registers_")]
    parts = {team: s for s, team in found}
    if len(parts) != len(found) or any(t.first % GROUP or t.count % GROUP for t in parts) or sum(t.count for t in parts) != threads:
        return launch.body
    take = {t: s for t, s in parts.items() if s.kind == "registers_take"}
    give = {t: s for t, s in parts.items() if s.kind == "registers_give"}
    if not take or not give:
        return launch.body
    start = target.registers_for(threads)
    left = start * threads - sum(t.count * s.value for t, s in parts.items())
    takers, givers = sum(t.count for t in take), sum(t.count for t in give)
    more = left // takers // STEP * STEP
    less = 0 if more else takers * STEP // givers // STEP * STEP
    new = {id(s): min(s.value + (more or -STEP), max(MOST, s.value)) for s in take.values()}
    new |= {id(s): min(s.value + less, start // STEP * STEP) for s in give.values()}
    if left < 0 or any(new[id(s)] < start for s in take.values()):
        return launch.body
    return _with(launch.body, new)


def _with(s: Stmt, new: dict[int, int]) -> Stmt:
    if isinstance(s, Control):
        return replace(s, value=new.get(id(s), s.value))
    return map_stmt(s, lambda e: e, lambda child: _with(child, new))
