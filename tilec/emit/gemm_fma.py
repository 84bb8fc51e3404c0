"""The CUDA text of a matrix product without tensor cores: each thread multiplies its own rows and columns.

    float32 in full precision, 16x16 threads: `C_local[mi * 4 + ni] += a_frag[mi] * b_frag[ni];` for every k
"""

from __future__ import annotations

from collections.abc import Callable

from tilec.emit.gemm_operands import Operand, RegisterOperand, Render, joined, scaled
from tilec.ir.dtypes import BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2, FLOAT16, FLOAT64, DType
from tilec.plan.gemm_plan import GemmPlan

RESERVED = frozenset("first_row first_col k_first sum".split())
"""C names that the text declares for itself, besides those of `gemm`."""

ROUND_EVERY = 16
"""k-steps between two roundings of accumulators narrower than the sum: that of the 16-bit mma."""

_WIDEN = {
    FLOAT16: "to_float_half", BFLOAT16: "to_float_bfloat16", FLOAT8_E4M3: "to_float_fp8_e4m3", FLOAT8_E5M2: "to_float_fp8_e5m2",
}  # fmt: skip
_NARROW = {FLOAT16: "to_half", BFLOAT16: "to_bfloat16", FLOAT8_E4M3: "to_fp8_e4m3", FLOAT8_E5M2: "to_fp8_e5m2"}


def fma_text(render: Render, need: Callable[[str], None], plan: GemmPlan, a: Operand, b: Operand, c: str) -> str:
    """Statements that add op(a) @ op(b) to the array `c`, in braces."""
    op, (down, across), (rows, cols) = plan.op, plan.warps, plan.warp_tile
    wide = _sum_type(op.a_dtype, op.b_dtype, op.c_dtype)
    rounds = op.c_dtype in _NARROW
    registers = isinstance(a, RegisterOperand) or isinstance(b, RegisterOperand)
    return render(
        "gemm/fma.cu.jinja",
        first_row="" if down == 1 or isinstance(a, RegisterOperand) else "thread" + (f" / {across}" if across > 1 else "") + f" % {down}",
        first_col="" if across == 1 or isinstance(b, RegisterOperand) else f"thread % {across}",
        wide=wide,
        rows=rows,
        cols=cols,
        elements=rows * cols,
        k=op.k,
        whole=registers,  # register arrays want constant indices
        unroll="" if registers else " 4",
        rounds=rounds,
        every=ROUND_EVERY,
        ragged=op.k % ROUND_EVERY != 0,
        a=_element(need, plan, "a", a, wide),
        b=_element(need, plan, "b", b, wide),
        add=_add(op.c_dtype, "sum" if rounds else c, wide, scaled("mi", cols)),
        round=_round(need, op.c_dtype, c) if rounds else "",
    )


def _sum_type(*dtypes: DType) -> str:
    """The C type products are added in: integers wrap, so theirs is unsigned."""
    if any(d is FLOAT64 for d in dtypes):
        return "double"
    if any(d.is_float for d in dtypes):
        return "float"
    return "unsigned long long" if dtypes[-1].bits == 64 else "unsigned"


def _element(need: Callable[[str], None], plan: GemmPlan, name: str, operand: Operand, wide: str) -> str:
    """Element kk of the thread's row mi of a, or column ni of b, in the type of the sum."""
    op = plan.op
    var, axis, extent = ("mi", 0, op.m) if name == "a" else ("ni", 1, op.n)
    dtype = op.a_dtype if name == "a" else op.b_dtype
    k_major = not op.trans_a if name == "a" else op.trans_b
    if isinstance(operand, RegisterOperand):
        value = f"{operand.array}[{joined(scaled(var, op.k), 'kk')}]"
    else:
        threads = plan.warps[axis]
        along = joined(("first_row", "first_col")[axis] if threads > 1 else "", scaled(var, threads))
        if threads * plan.warp_tile[axis] > extent:
            along = f"min({along}, {extent - 1})"  # in the padding: any element will do
        row, col = (along, "kk") if k_major else ("kk", along)
        value = f"({operand.pointer})[{operand.at}({joined(operand.row0, row)}, {joined(operand.col0, col)})]"
    if dtype in _WIDEN:
        need(_WIDEN[dtype])
        value = f"to_float({value})"
        return value if wide == "float" else f"static_cast<{wide}>({value})"
    return f"static_cast<{wide}>({value})"


def _add(c_dtype: DType, target: str, wide: str, row: str) -> str:
    """The statement that adds one product to its accumulator."""
    place, product = f"{target}[{joined(row, 'ni')}]", "a_frag[mi] * b_frag[ni]"
    if target == "sum" or (c_dtype.is_float and wide == ("double" if c_dtype is FLOAT64 else "float")):
        return f"{place} += {product};"
    return f"{place} = static_cast<{_C_NAMES[c_dtype.name]}>(static_cast<{wide}>({place}) + {product});"


_C_NAMES = {
    "int8": "signed char", "uint8": "unsigned char", "int16": "short", "uint16": "unsigned short", "int32": "int",
    "uint32": "unsigned", "int64": "long long", "uint64": "unsigned long long", "float32": "float", "tfloat32": "float",
    "float64": "double",
}  # fmt: skip


def _round(need: Callable[[str], None], c_dtype: DType, c: str) -> str:
    """The statement that folds sum[i] into an accumulator of fewer bits."""
    need(_WIDEN[c_dtype])
    need(_NARROW[c_dtype])
    return f"{c}[mi] = {_NARROW[c_dtype]}(to_float({c}[mi]) + static_cast<float>(sum[mi]));"
