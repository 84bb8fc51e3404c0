"""The products of warp groups that an author asks for: T.wgmma_gemm, and T.gemm in a kernel with barriers of its own.

    choose_by_hand(GemmShape(128, 128, 64, FLOAT16, FLOAT16, FLOAT32), 256) -> wgmma_m64n128k16_f16_f32, 64 rows a warp group
"""

from __future__ import annotations

from math import prod

from tilec.analysis.ranges import divisor
from tilec.ir.dtypes import FLOAT32, INT32
from tilec.ir.expr import Binary, Const, Expr, Scope
from tilec.ir.tile import Region
from tilec.layout import atoms
from tilec.plan.copy_engine import widest_span
from tilec.plan.domains import static, static_shape
from tilec.plan.gemm_plan import GemmPlan, GemmShape
from tilec.plan.hopper.matching import KINDS

GROUP, PART = 128, 64
"""Threads of a warp group, and the rows of one of its products."""


def misplaced(r: Region) -> str:
    """Why an operand does not lie in shared memory as warp groups read it; empty where it does, or lies in registers."""
    if r.buffer.scope is not Scope.SHARED:
        return ""
    shape, row = static_shape(r.buffer), static_shape(r.buffer)[-1] * r.buffer.dtype.bytes
    if row % 32 or prod(shape[:-1]) % 8:
        return f"{r.buffer.name} has {prod(shape[:-1])} rows of {row} bytes, no multiples of 8 and of 32"
    span = widest_span(row)
    if divisor(row_of(r, shape)) % 8 or divisor(r.starts[-1]) * r.buffer.dtype.bytes % span:
        return f"the operand does not start on a multiple of 8 rows and {span} bytes of {r.buffer.name}"
    return ""


def row_of(r: Region, shape: tuple[int, ...]) -> Expr:
    """The row (all leading dimensions counted through) where a region starts."""
    row: Expr = Const(0, INT32)
    for start, extent in zip(r.starts[:-1], shape[:-1], strict=True):
        scaled = row if static(row) == 0 else Binary("mul", row, Const(extent, INT32), INT32)
        row = start if static(scaled) == 0 else scaled if static(start) == 0 else Binary("add", scaled, start, INT32)
    return row


def choose_by_hand(op: GemmShape, threads: int) -> GemmPlan | str:
    """The product of `threads // 128` warp groups, each of which has its share of the rows; or why there is none."""
    found = KINDS.get((op.a_dtype, op.b_dtype, op.c_dtype))
    if found is None:
        return f"no wgmma multiplies {op.a_dtype} by {op.b_dtype} into {op.c_dtype}"
    kind, depth = found
    groups = threads // GROUP
    if threads % GROUP:
        return f"{threads} threads are no whole number of warp groups (128 threads)"
    if op.m % (PART * groups):
        return f"M = {op.m} is no multiple of {PART * groups}, which is 64 rows for each of {groups} warp group{'s' if groups > 1 else ''}"
    if op.n % 8 or op.n > 256 or (op.c_dtype == INT32 and op.n > 32 and op.n % 16):
        return f"N = {op.n} is none of 8, 16, 24, ... 256"
    if op.k % depth:
        return f"K = {op.k} is no multiple of {depth}"
    if op.ieee and op.a_dtype == FLOAT32:
        return "float32 products are asked for in full precision"
    if op.b_source != "shared" or (op.a_source != "shared" and (depth != 16 or op.trans_a)):
        return "its operands lie in registers"
    if depth != 16 and (op.trans_a or not op.trans_b):
        return f"{op.a_dtype} operands must run along K: A as M x K, B as N x K with transpose_B"
    return group_plan(op, kind, (op.n, depth), (groups, 1))


def group_plan(op: GemmShape, kind: str, step: tuple[int, int], grid: tuple[int, int]) -> GemmPlan:
    """The product of a `grid` of warp groups along (m, n), of so many columns and so deep a `step`; `kind` is its name's end."""
    held = "_held" if op.a_source != "shared" else ""
    rows, columns = op.m // grid[0], op.n // grid[1]
    layout = atoms.warp_group_grid(op.m, op.n, grid)
    return GemmPlan(
        op, "wgmma", f"wgmma_m64n{step[0]}k{step[1]}_{kind}{held}", (PART, *step), GROUP * prod(grid), (4 * grid[0], grid[1]),
        (rows // 4, columns), layout, atoms.warp_group_operand(op.m, op.k, op.a_dtype.bits, grid), layout,
        "register" if held else "descriptor", "descriptor", layout.registers * op.c_dtype.bits // 32 + 24,
    )  # fmt: skip
