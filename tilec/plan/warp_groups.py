"""The products of a portable body that warp groups do in place: wgmma where its operands can lie as it reads them.

A body whose author orders nothing keeps its copies and barriers; only the product itself is another instruction, which reads shared
tiles through descriptors and leaves its accumulator in rows of 64 a warp group. So tiles are laid out in swizzled rows of 128, 64 or
32 bytes, and everything beside a product follows the layout of its accumulator. What one product of a tile cannot do, the others
must not: all products that read a wide tile, and all that meet in registers, go alike.

    choose_groups(products of a 64 x 512 accumulator, 256 threads) -> wgmma_m64n256k16_f16_f32, two warp groups side by side
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod

from tilec.analysis.ranges import divisor
from tilec.ir.dtypes import FLOAT32, INT32
from tilec.ir.expr import Buffer, Scope
from tilec.ir.tile import Gemm, Region, Stmt
from tilec.ir.visit import viewed, walk_stmt
from tilec.layout.shared import SharedLayout
from tilec.plan.by_hand.products import GROUP, PART, group_plan, row_of
from tilec.plan.copy_engine import SPANS, panelled
from tilec.plan.domains import static, static_shape
from tilec.plan.gemm_plan import GemmPlan, GemmShape
from tilec.plan.hopper.matching import KINDS
from tilec.plan.policies import kin_of
from tilec.record import record

MOST_COLUMNS = 256
"""Columns of one instruction."""

Choices = dict[int, GemmPlan | str]
"""By id() of a product how warp groups do it, or why they do not."""


def choose_groups(body: Stmt, shapes: Mapping[int, GemmShape], threads: int) -> Choices:
    """How warp groups do the products of a body whose shapes are given by id()."""
    stmts = tuple(walk_stmt(body))
    gemms = [s for s in stmts if isinstance(s, Gemm)]
    seen = viewed(stmts)
    out: Choices = {id(g): _alone(g, shapes[id(g)], threads, seen) for g in gemms}
    together = _together(stmts, gemms)
    while True:
        plans = {key: p for key, p in out.items() if isinstance(p, GemmPlan)}
        tiles = group_tiles(gemms, plans)
        before = len(plans)
        for g in gemms:
            if isinstance(out[id(g)], GemmPlan) and (reason := _barred(g, gemms, out, tiles, together)):
                out[id(g)] = reason
        if sum(isinstance(p, GemmPlan) for p in out.values()) == before:
            return out


def group_tiles(stmts: Iterable[Stmt], gemms: Mapping[int, GemmPlan]) -> dict[Buffer, SharedLayout]:
    """The layouts of the shared tiles that warp groups read: rows of as many bytes as all products of a tile allow, wider ones cut into
    panels one behind the other. Tiles for which there is no such number are left out."""
    spans: dict[Buffer, set[int]] = {}
    for g in stmts:
        plan = gemms.get(id(g)) if isinstance(g, Gemm) else None
        if plan is None or plan.kind != "wgmma" or not isinstance(g, Gemm):
            continue
        for use in _uses(g, plan):
            if use.region.buffer.scope is Scope.SHARED:
                spans.setdefault(use.region.buffer, set(SPANS)).intersection_update(_spans(use))
    return {b: panelled(b, max(found)) for b, found in spans.items() if found}


@record
class _Use:
    """An operand; `piece` are the columns of the tile that one instruction takes, where these run along m or n (0: along k)."""

    region: Region
    piece: int


def _uses(g: Gemm, plan: GemmPlan) -> tuple[_Use, _Use]:
    return _Use(g.a, PART if g.trans_a else 0), _Use(g.b, 0 if g.trans_b else plan.step[1])


def _spans(use: _Use) -> set[int]:
    """Bytes of the rows in which a tile may lie for one of its products."""
    b = use.region.buffer
    row, item = static_shape(b)[-1] * b.dtype.bytes, b.dtype.bytes
    start = divisor(use.region.starts[-1]) * item
    return {w for w in SPANS if row % w == 0 and start % w == 0 and use.piece * item % w == 0}


def _alone(g: Gemm, op: GemmShape, threads: int, seen: frozenset[Buffer]) -> GemmPlan | str:
    """One product by itself."""
    plan = choose_in_place(op, threads)
    if isinstance(plan, str):
        return plan
    for use in _uses(g, plan):
        r, b = use.region, use.region.buffer
        if b.scope is not Scope.SHARED:
            continue
        rows = prod(static_shape(b)[:-1])
        if b in seen:
            return f"{b.name} has views"
        if rows % 8 or divisor(row_of(r, static_shape(b))) % 8 or any(static(e) != 1 for e in r.extents[:-2]):
            return f"the operand in {b.name} does not start on whole 8 rows"
        if not _spans(use):
            return f"rows of {b.name}, or where the operand starts in them, are no multiples of 32 bytes"
    return plan


def choose_in_place(op: GemmShape, threads: int) -> GemmPlan | str:
    """The product by all warp groups of a block, each with its rows and columns of the accumulator; or why there is none."""
    found = KINDS.get((op.a_dtype, op.b_dtype, op.c_dtype))
    if found is None or op.sparse:
        return f"there is none of {op.a_dtype} by {op.b_dtype} into {op.c_dtype}"
    kind, depth = found
    if op.ieee and op.a_dtype == FLOAT32:
        return "float32 products are asked for in full precision"
    if threads % GROUP:
        return f"{threads} threads are no whole number of warp groups"
    if op.k % depth:
        return f"K = {op.k} is no multiple of {depth}"
    if op.b_source != "shared" or (op.a_source != "shared" and op.trans_a):
        return "an operand lies in registers that only shared memory may hold"
    if depth != 16 and (op.trans_a or not op.trans_b):
        return f"{op.a_dtype} operands must run along K"
    grid = _grid(op, threads // GROUP)
    if grid is None:
        return f"{threads // GROUP} warp groups do not share {op.m} x {op.n} in parts of 64 rows"
    return group_plan(op, kind, (_columns(op, op.n // grid[1]), depth), grid)


def _grid(op: GemmShape, groups: int) -> tuple[int, int] | None:
    """Warp groups along (m, n): as many along m as have 64 rows, so that reductions of rows stay inside a group and an accumulator
    becomes an operand; along n where the author wants that, or there are too few rows."""
    grids = [(y, groups // y) for y in range(1, groups + 1) if groups % y == 0]
    fits = [(y, x) for y, x in grids if op.m % (PART * y) == 0 and op.n % (8 * x) == 0 and _columns(op, op.n // x)]
    if not fits:
        return None
    return min(fits) if op.policy == "full_col" else max(fits)


def _columns(op: GemmShape, columns: int) -> int:
    """Columns of one instruction: the most that divide those of a group. 0 where there are none."""
    found = [n for n in range(8, MOST_COLUMNS + 1, 8) if columns % n == 0 and not (op.c_dtype == INT32 and n > 32 and n % 16)]
    return max(found, default=0)


def _together(stmts: Sequence[Stmt], gemms: Sequence[Gemm]) -> dict[int, frozenset[int]]:
    """For each product those, by id(), whose accumulators or operands in registers element-wise statements tie to its own."""
    kin = kin_of(stmts)
    groups: dict[Buffer, set[int]] = {}
    for g in gemms:
        meets = [r.buffer for r in (g.c, g.a) if r.buffer.scope is Scope.FRAGMENT]
        one = {id(g)}.union(*(groups.get(kin.get(b, b), set()) for b in meets))
        for key in {kin.get(b, b) for b in meets} | {k for k, v in groups.items() if v & one}:
            groups[key] = one
    return {id(g): frozenset(groups.get(kin.get(g.c.buffer, g.c.buffer), {id(g)})) for g in gemms}


def _barred(
    g: Gemm, gemms: Sequence[Gemm], found: Choices, tiles: Mapping[Buffer, SharedLayout], together: Mapping[int, frozenset[int]]
) -> str:
    """Why a product must not be done by warp groups, although it could be by itself; empty when it may."""
    for other in together[id(g)]:
        if isinstance(found[other], str):
            return f"another product of the same registers is not: {found[other]}"
    for b in (r.buffer for r in (g.a, g.b) if r.buffer.scope is Scope.SHARED):
        if b not in tiles:
            return f"the products of {b.name} want it in different rows"
        others = (x for x in gemms if isinstance(found[id(x)], str) and any(r.buffer is b for r in (x.a, x.b)))
        if tiles[b].panel and any(True for _ in others):
            return f"another product of {b.name} is not"
    return ""


def in_groups(gemms: Mapping[int, GemmPlan]) -> bool:
    """True when warp groups do any of the products."""
    return any(p.kind == "wgmma" for p in gemms.values())


def explained(plan: GemmPlan, reason: str) -> GemmPlan:
    """The plan of a product by other means, with why warp groups do not do it."""
    return replace(plan, reason=reason) if plan.kind == "mma" else plan
