"""The products of warp groups that an author asks for: T.wgmma_gemm, and T.gemm in a kernel with barriers of its own.

    choose_by_hand(GemmShape(128, 128, 64, FLOAT16, FLOAT16, FLOAT32), 256) -> wgmma_m64n128k16_f16_f32, 64 rows a warp group
"""

from __future__ import annotations

from tilec.ir.dtypes import FLOAT32, INT32
from tilec.layout import atoms
from tilec.plan.gemm_plan import GemmPlan, GemmShape
from tilec.plan.hopper_match import KINDS

GROUP, PART = 128, 64
"""Threads of a warp group, and the rows of one of its products."""


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
    held = "_held" if op.a_source != "shared" else ""
    layout = atoms.warp_group_accumulator(op.m, op.n, groups)
    return GemmPlan(
        op, "wgmma", f"wgmma_m64n{op.n}k{depth}_{kind}{held}", (PART, op.n, depth), threads, (4 * groups, 1), (op.m // (4 * groups), op.n),
        layout, atoms.warp_group_accumulator(op.m, op.k, groups), layout, "register" if held else "descriptor", "descriptor",
        layout.registers * op.c_dtype.bits // 32 + 24,
    )  # fmt: skip
