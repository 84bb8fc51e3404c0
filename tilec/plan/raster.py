"""In which order the blocks of a grid run.

Blocks that run together meet in the L2 cache. When some tiles are read by all blocks of a column of the grid and others by all
blocks of a row, as in a matrix product, panels of several rows make both sorts meet; in any other grid the order of the
hardware, along x first, is at least as good.

    A[by * 128, ko * 32], B[ko * 32, bx * 128]  ->  panels;   Q[bx * 64, head], K[k * 64, head]  ->  as the hardware counts
"""

from __future__ import annotations

from tilec.ir.expr import Scope, Var
from tilec.ir.kernel import Launch
from tilec.ir.tile import Copy, Gemm, Let
from tilec.ir.visit import walk_expr, walk_stmt

PANEL = 8


def panel_rows(launch: Launch) -> int:
    """Rows of a panel: the author's, or PANEL where blocks share tiles along both axes; 0 leaves the order alone."""
    if launch.panel or len(launch.block_vars) < 2:
        return launch.panel
    stmts = list(walk_stmt(launch.body))
    if not any(isinstance(s, Gemm) for s in stmts):
        return 0
    made_of: dict[Var, set[Var]] = {}
    for s in stmts:
        if isinstance(s, Let):
            used = {x for x in walk_expr(s.value) if isinstance(x, Var)}
            made_of[s.var] = used | {y for x in used for y in made_of.get(x, ())}
    x, y = launch.block_vars[:2]
    found: set[tuple[bool, bool]] = set()
    for s in stmts:
        if isinstance(s, Copy) and s.src.buffer.scope is Scope.GLOBAL:
            used = {v for e in s.src.starts for v in walk_expr(e) if isinstance(v, Var)}
            used |= {w for v in used for w in made_of.get(v, ())}
            found.add((x in used, y in used))
    return PANEL if {(True, False), (False, True)} <= found else 0
