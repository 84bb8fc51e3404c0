"""Chooses how a matrix product runs: which mma, how the warps share the tile, how operands reach registers.

    choose(GemmShape(128, 256, 32, FLOAT16, FLOAT16, FLOAT32), 256, SM80) -> mma_m16n8k16_f16_f32, 2x4 warps of 64x64
"""

from __future__ import annotations

from collections.abc import Iterator

from tilec.ir.dtypes import BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2, FLOAT16, FLOAT32, INT8, INT32, TFLOAT32, UINT8, DType
from tilec.layout import atoms
from tilec.plan.gemm_plan import GemmPlan, GemmShape
from tilec.plan.sparse import INSTRUCTIONS
from tilec.targets import Target

Grid = tuple[int, int]

_MMA = {
    (FLOAT16, FLOAT16, FLOAT32): ("mma_m16n8k16_f16_f32", (16, 8, 16)),
    (FLOAT16, FLOAT16, FLOAT16): ("mma_m16n8k16_f16_f16", (16, 8, 16)),
    (BFLOAT16, BFLOAT16, FLOAT32): ("mma_m16n8k16_bf16_f32", (16, 8, 16)),
    (FLOAT32, FLOAT32, FLOAT32): ("mma_m16n8k8_tf32_f32", (16, 8, 8)),
    (TFLOAT32, TFLOAT32, FLOAT32): ("mma_m16n8k8_tf32_f32", (16, 8, 8)),
    (INT8, INT8, INT32): ("mma_m16n8k32_s8_s32", (16, 8, 32)),
    (UINT8, UINT8, INT32): ("mma_m16n8k32_u8_s32", (16, 8, 32)),
    (FLOAT8_E4M3, FLOAT8_E4M3, FLOAT32): ("mma_m16n8k32_e4m3_f32", (16, 8, 32)),
    (FLOAT8_E5M2, FLOAT8_E5M2, FLOAT32): ("mma_m16n8k32_e5m2_f32", (16, 8, 32)),
}  # fmt: skip

_ADDRESSES = 36
"""Registers besides accumulators and fragments: addresses, counters, what the assembler needs to overlap loads."""


def choose(op: GemmShape, threads: int, target: Target) -> GemmPlan:
    """The plan for one product by a block of `threads`. Never fails: what tensor cores cannot do is done by multiply-adds."""
    if op.sparse:  # `sparse.fits` has seen to it that it can be done
        return _mma(op, threads)
    reason = _why_not_mma(op, threads, target)
    return _fma(op, threads, reason) if reason else _mma(op, threads)


def _why_not_mma(op: GemmShape, threads: int, target: Target) -> str:
    """Why tensor cores cannot do it; empty when they can."""
    entry = _MMA.get((op.a_dtype, op.b_dtype, op.c_dtype))
    if entry is None:
        return f"no mma multiplies {op.a_dtype} by {op.b_dtype} into {op.c_dtype}"
    if op.ieee and op.a_dtype is FLOAT32:
        return "float32 products are asked for in full precision"
    if _is_fp8(op.a_dtype) and not target.has_fp8_mma:
        return f"{target.name} has no mma for 8-bit floats"
    if threads % 32:
        return f"{threads} threads are no whole number of warps"
    for extent, step, axis in zip((op.m, op.n, op.k), entry[1], "MNK", strict=True):
        if extent % step:
            return f"{axis} = {extent} is no multiple of {step}"
    return ""


def _is_fp8(dtype: DType) -> bool:
    return dtype in (FLOAT8_E4M3, FLOAT8_E5M2)


def _mma(op: GemmShape, threads: int) -> GemmPlan:
    instruction, step = (INSTRUCTIONS if op.sparse else _MMA)[op.a_dtype, op.b_dtype, op.c_dtype]
    warps = _warp_grid(op, threads // 32)
    tile = op.m // warps[0], op.n // warps[1]
    a_bits, b_bits = op.a_dtype.bits, op.b_dtype.bits
    c_layout = atoms.accumulator(op.m, op.n, warps, threads)
    fragments = 4 * (tile[0] // 16) + 2 * (tile[1] // 8)
    return GemmPlan(
        op, "mma", instruction, step, threads, warps, tile, c_layout,
        a_layout=atoms.operand_a(op.m, op.k // 2 if op.sparse else op.k, a_bits, warps, threads, op.trans_a),
        b_layout=atoms.operand_b(op.n, op.k, b_bits, warps, threads, op.trans_b),
        load_a=_load(op.a_source, not op.trans_a, op.a_dtype, op.a_aligned),
        load_b=_load(op.b_source, op.trans_b, op.b_dtype, op.b_aligned),
        registers=c_layout.registers * op.c_dtype.bits // 32 + 2 * fragments + _ADDRESSES,
    )  # fmt: skip


def _load(source: str, k_major: bool, dtype: DType, aligned: bool) -> str:
    """How an operand gets into fragments; ldmatrix.trans exchanges 16-bit elements only."""
    if source == "register":
        return "register"
    if not aligned or not (k_major or dtype.bits == 16):
        return "elementwise"
    return "ldmatrix" if k_major else "ldmatrix_trans"


def _warp_grid(op: GemmShape, warps: int) -> Grid:
    """Warps along (m, n): as many as can take equal parts, spread as the policy says.

    An operand in registers is copied along the other axis, so it pulls the warps towards its own when the policy is square.
    """
    policy = op.policy
    if policy == "square" and op.a_source != op.b_source:
        policy = "full_row" if op.a_source == "register" else "full_col"

    def merit(grid: Grid) -> tuple[int, ...]:
        rows, cols = op.m // grid[0], op.n // grid[1]
        match policy:
            case "full_row":
                return (grid[0], grid[1])
            case "full_col":
                return (grid[1], grid[0])
            case _:  # every operand word is read once per warp that needs it: the squarer the warp tile, the fewer reads
                return (grid[0] * grid[1], -(rows + cols), -(cols // 8 % 2), grid[1])

    return max(_grids(op.m // 16, op.n // 8, warps), key=merit)


def _grids(rows: int, cols: int, limit: int) -> Iterator[Grid]:
    """Every grid of at most `limit` that divides rows x cols evenly."""
    for y in range(1, min(rows, limit) + 1):
        if rows % y == 0:
            for x in range(1, min(cols, limit // y) + 1):
                if cols % x == 0:
                    yield y, x


def _fma(op: GemmShape, threads: int, reason: str) -> GemmPlan:
    grid = _thread_grid(op.m, op.n, threads)
    tile = -(-op.m // grid[0]), -(-op.n // grid[1])
    wide = 2 if max(op.a_dtype.bits, op.c_dtype.bits) == 64 else 1
    held = sum(op.k * extent for extent, source in zip(tile, (op.a_source, op.b_source), strict=True) if source == "register")
    return GemmPlan(
        op, "fma", "", (1, 1, 1), threads, grid, tile,
        c_layout=atoms.scattered(op.m, op.n, grid, threads),
        a_layout=atoms.scattered_a(op.m, op.k, grid, threads, op.trans_a),
        b_layout=atoms.scattered_b(op.n, op.k, grid, threads, op.trans_b),
        load_a="register" if op.a_source == "register" else "elementwise",
        load_b="register" if op.b_source == "register" else "elementwise",
        registers=wide * (tile[0] * tile[1] + sum(tile) + held) + _ADDRESSES,
        reason=reason,
    )  # fmt: skip


def _thread_grid(m: int, n: int, threads: int) -> Grid:
    """Threads along (m, n) that leave each the fewest elements, then the fewest operand reads, then the widest rows."""
    best = ((m * n, 0, 0), (1, 1))
    for x in range(1, min(n, threads) + 1):
        y = min(m, threads // x)
        rows, cols = -(-m // y), -(-n // x)
        best = min(best, ((rows * cols, rows + cols, -x), (-(-m // rows), -(-n // cols))))
    return best[1]
