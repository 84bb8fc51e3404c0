"""How many registers the loads of a copy take that are under way together.

    8 rounds of 4 floats a thread, written out -> 32
"""

from __future__ import annotations

from tilec.ir.expr import Load, Scope
from tilec.ir.visit import stmt_exprs, walk_expr
from tilec.plan.domains import static
from tilec.plan.plan import PScalar, PSeq, Spread, TileLoop
from tilec.plan.walk import walk_plan


def loads_together(body: PSeq) -> int:
    """Registers that the loads of a loop which is written out take together, those of the largest one."""
    loops = [s for s in walk_plan(body) if isinstance(s, TileLoop) and s.unroll]
    return max((_loaded(s, s.how) for s in loops if isinstance(s.how, Spread)), default=0)


def _loaded(s: TileLoop, how: Spread) -> int:
    roots = [e for x in walk_plan(s.body) if isinstance(x, PScalar) for e in stmt_exprs(x.stmt)]
    loads = {(e.buffer, e.indices) for root in roots for e in walk_expr(root) if isinstance(e, Load) and e.buffer.scope is Scope.GLOBAL}
    return (static(how.rounds) or 0) * s.vector * sum(b.dtype.bytes for b, _ in loads) // 4
