"""Registers that an author has dealt out to the warp groups of a block, dealt anew where ptxas shows that some of them do with too few.

    32 / 128 / 160 / 128 of 512  ->  32 / 144 / 176 / 144: 64 were left over
    24 / 160 / 160 / 168 of 512  ->  48 / 152 / 152 / 160: who takes gives a little to who gave
"""

from __future__ import annotations

from dataclasses import replace

from tilec.analysis.teams import Teams, walk_teams
from tilec.ir.kernel import Launch
from tilec.ir.tile import Control, Stmt
from tilec.ir.visit import map_stmt
from tilec.targets import Target

STEP = 8
"""Registers are dealt in multiples of so many."""
MOST = 240
"""The most that are dealt to a thread here; authors may ask for more."""
GROUP = 128


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
