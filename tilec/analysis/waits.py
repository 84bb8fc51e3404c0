"""Barriers of the whole block behind a branch that only some threads take: the others never come.

    if tx < 32:
        T.sync_threads()        ->  a warning, TL0502: 32 of 128 threads come to this barrier of the whole block
"""

from __future__ import annotations

from collections.abc import Iterator

from tilec.analysis.teams import Teams
from tilec.diagnostics import Diagnostic, Severity
from tilec.ir.kernel import Kernel
from tilec.ir.tile import Barrier, If, Stmt
from tilec.ir.visit import walk_stmt


def waits_alone(kernel: Kernel) -> tuple[Diagnostic, ...]:
    """A warning for each barrier of the block in one branch only of an `if` on thread indices."""
    return tuple(d for launch in kernel.launches for d in _lonely(launch.body, Teams.of(launch)))


def _lonely(body: Stmt, teams: Teams) -> Iterator[Diagnostic]:
    for s in walk_stmt(body):
        parts = teams.split(s.cond, teams.block) if isinstance(s, If) else None
        if parts is None or not isinstance(s, If):
            continue
        then, orelse = ([b for b in walk_stmt(side) if isinstance(b, Barrier) and b.kind == "block"] for side in (s.then, s.orelse))
        if bool(then) != bool(orelse):
            count = len(parts[0] if then else parts[1])
            text = f"{count} of {teams.block.count} threads come to this barrier of the whole block"
            hint = "move it out of the branch"
            if count % 32 == 0:
                hint += f", or write T.sync_threads(1, {count}), which waits for {count} threads"
            yield Diagnostic(Severity.WARNING, "TL0502", text, (then or orelse)[0].span, help=hint)
