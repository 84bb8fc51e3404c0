"""What the recognisers of Hopper's kernels ask of every launch, and the products that warp groups can do.

    KINDS[FLOAT16, FLOAT16, FLOAT32] -> ("f16_f32", 16): the end of wgmma_m64n256k16_f16_f32, and its depth along k
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilec.ir.dtypes import BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2, FLOAT16, FLOAT32, INT8, INT32, TFLOAT32, UINT8, DType
from tilec.ir.expr import Const, Expr, Var, VarKind
from tilec.ir.kernel import Launch
from tilec.ir.tile import For, Gemm, Let, Stmt
from tilec.ir.visit import stmt_exprs, substitute, walk_expr, walk_stmt

KINDS: dict[tuple[DType, DType, DType], tuple[str, int]] = {
    (FLOAT16, FLOAT16, FLOAT32): ("f16_f32", 16),
    (BFLOAT16, BFLOAT16, FLOAT32): ("bf16_f32", 16),
    (FLOAT16, FLOAT16, FLOAT16): ("f16_f16", 16),
    (FLOAT32, FLOAT32, FLOAT32): ("tf32_f32", 8),
    (TFLOAT32, TFLOAT32, FLOAT32): ("tf32_f32", 8),
    (INT8, INT8, INT32): ("s8_s32", 32),
    (UINT8, UINT8, INT32): ("u8_s32", 32),
    (FLOAT8_E4M3, FLOAT8_E4M3, FLOAT32): ("e4m3_f32", 32),
    (FLOAT8_E5M2, FLOAT8_E5M2, FLOAT32): ("e5m2_f32", 32),
}
"""The types that warp groups multiply: the end of the instruction's name, and its depth along k."""


def loop_with_products(body: Sequence[Stmt], least: int, most: int | None = None) -> tuple[int, For] | None:
    """The first loop of a launch around `least` to `most` products, and where it stands."""
    for n, s in enumerate(body):
        if isinstance(s, For):
            count = sum(isinstance(x, Gemm) for x in walk_stmt(s))
            if least <= count and (most is None or count <= most):
                return n, s
    return None


def uses_threads(launch: Launch) -> bool:
    """True when the author says what single threads do, who are others in a body of warp groups."""
    return any(
        isinstance(e, Var) and e.kind is VarKind.THREAD for s in walk_stmt(launch.body) for root in stmt_exprs(s) for e in walk_expr(root)
    )


def unfit(launch: Launch, loop: For) -> str:
    """Why warp groups cannot take a loop, whatever it does; empty where they may."""
    if uses_threads(launch):
        return "thread indices are used"
    return "" if loop.var.dtype == INT32 else f"its loop counts in {loop.var.dtype}"


def resolved_lets(lets: Iterable[Let]) -> dict[Var, Expr]:
    """What each scalar stands for, in terms of none of them."""
    out: dict[Var, Expr] = {}
    for s in lets:
        out[s.var] = substitute(s.value, out)
    return out


def static_zero(e: Expr) -> bool:
    """True for the literal 0."""
    return isinstance(e, Const) and not e.value
