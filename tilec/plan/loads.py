"""How many registers the loads of copies take that are under way together.

    8 rounds of 4 floats a thread, written out -> 32
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilec.ir.expr import Buffer, Load, Scope
from tilec.ir.visit import stmt_exprs, walk_expr
from tilec.layout.fragment import FragmentLayout
from tilec.plan.domains import static
from tilec.plan.gemm_plan import GemmPlan
from tilec.plan.plan import PFor, Pipeline, PScalar, PSeq, PStmt, PWhile, Spread, TileLoop
from tilec.plan.walk import plan_children, walk_plan


def loads_together(body: PSeq) -> int:
    """Registers that the loads of a loop which is written out take together, those of the largest one."""
    return max((_loaded(s) for s in walk_plan(body) if isinstance(s, TileLoop) and s.unroll), default=0)


def apart(layouts: Mapping[Buffer, FragmentLayout]) -> int:
    """Registers that elements of 8 bits take where each is worked on by itself: one for what it was, one for what becomes of it."""
    return 2 * sum(layout.registers for b, layout in layouts.items() if b.dtype.bits <= 8)


def loads_of_a_step(body: PSeq) -> int:
    """The same of all copies of a step, those of the loop which has most: nothing keeps the compiler from writing them out and starting all
    of them at once."""
    loops = [s for s in walk_plan(body) if isinstance(s, PFor | PWhile | Pipeline)]
    return max((sum(map(_step, plan_children(s))) for s in loops), default=0)


def beside_results(products: Iterable[GemmPlan]) -> int:
    """Registers more than those of the accumulators that numbers take which are loaded for each result: results of 16 bits share one."""
    return sum(g.c_layout.registers * (4 - g.op.c_dtype.bytes) // 4 for g in products)


def _step(s: PStmt) -> int:
    """What statements load, but for loops inside."""
    return 0 if isinstance(s, PFor | PWhile | Pipeline) else _loaded(s) + sum(map(_step, plan_children(s)))


def _loaded(s: PStmt) -> int:
    if not isinstance(s, TileLoop) or s.alone or not isinstance(s.how, Spread):
        return 0
    roots = [e for x in walk_plan(s.body) if isinstance(x, PScalar) for e in stmt_exprs(x.stmt)]
    loads = {(e.buffer, e.indices) for root in roots for e in walk_expr(root) if isinstance(e, Load) and e.buffer.scope is Scope.GLOBAL}
    return (static(s.how.rounds) or 0) * s.vector * sum(b.dtype.bytes for b, _ in loads) // 4
