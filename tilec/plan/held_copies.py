"""Copies of a pipeline whose chunks hold one element each, by way of registers, where warp groups do the products.

    for i, j in T.Parallel(64, 32): G_s[i, j] = G[k * 64 + i, h]  ->  float held_G_s[4];  loaded in one step, stored by fours at its end

Asynchronous copies of single elements are many instructions, and the fences that let warp groups see shared memory wait for them:
chunked gated delta rule on an H200, states of 128 x 32 a block, 1381 us with them and 807 us without.
"""

from __future__ import annotations

from tilec.analysis.affine import coefficient
from tilec.analysis.facts import Facts
from tilec.ir.expr import Expr, Load
from tilec.ir.tile import Parallel, Store
from tilec.ir.visit import walk_expr
from tilec.layout.shared import SharedLayout
from tilec.plan.access import bounds_checks, shared_width
from tilec.plan.domains import static
from tilec.plan.gathers import source
from tilec.plan.loop_parts import indexed, spread
from tilec.plan.plan import AsyncCopy

CHUNK = 16
"""Bytes of a chunk at most."""

MOST_HELD = 8
"""Elements that a thread may hold through a step."""


def held_copy(loop: Parallel, store: Store, tile: SharedLayout, threads: int, facts: Facts) -> AsyncCopy | None:
    """The copy that a gathering loop is when all elements along its last variable are the same one; None for any other, and where it
    takes many registers or tests."""
    load, cond = source(loop)
    inner, last = indexed(loop, facts), loop.vars[-1]
    same = all(coefficient(i, last) == 0 and _plain(i) for i in load.indices)
    if not same or cond is not None or bounds_checks(load.buffer, load.indices, inner):
        return None
    width = shared_width(tile, store.indices, last, CHUNK // load.dtype.bytes, inner)
    extent = static(loop.extents[-1])
    if width < 2 or extent is None or extent % width:
        return None
    how, digits, values, guard = spread(loop, width, threads, facts)
    rounds = static(how.rounds)
    if guard is not None or rounds is None or rounds > MOST_HELD:
        return None
    return AsyncCopy(
        loop.vars, how, digits, values, width, load.buffer, load.indices, store.buffer, store.indices, None, None, loop.span, rounds
    )  # fmt: skip


def _plain(e: Expr) -> bool:
    """True for an index that is not read from memory."""
    return not any(isinstance(x, Load) for x in walk_expr(e))
