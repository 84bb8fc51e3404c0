"""The CUDA text of a product whose left operand holds two of every four elements.

One step along k reads 16 kept elements of a row and 32 rows of b, which are two of the steps that dense operands are loaded in; the
marks of two rows and 16 columns make a register.

    mma_sp_m16n8k32_f16_f32(acc + ..., a_frag[mi], b_frags[0] + ni * 2, b_frags[1] + ni * 2, marks[mi]);
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilec.emit.gemm import clear_text, fragment_text
from tilec.emit.gemm_operands import Operand, RegisterOperand, Render, SharedOperand, joined, lines, scaled
from tilec.plan.gemm_plan import GemmPlan

RESERVED = frozenset("b_frags marks marks_tile step part b_frag kk".split())
"""C names that the text declares for itself, besides those of dense products."""


def halves(plan: GemmPlan) -> tuple[GemmPlan, GemmPlan]:
    """The plans by which the left and the right operand are loaded: a as it lies, b in steps of the dense instruction."""
    step = (*plan.step[:2], plan.step[2] // 2)
    return replace(plan, step=step, op=replace(plan.op, k=plan.op.k // 2)), replace(plan, step=step)


def marks_text(plan: GemmPlan, marks: SharedOperand) -> tuple[str, str]:
    """A pointer to the marks, and the word that lane `lane` gives for the 16 rows of tile `mi` at the step `step` along k."""
    kind = {1: "unsigned char", 2: "unsigned short", 4: "unsigned"}[marks.layout.itemsize]
    pointer = f"const {kind}* const marks_tile = reinterpret_cast<const {kind}*>({marks.pointer});"
    first = "warp_row" if plan.warps[0] > 1 else ""
    row = joined(marks.row0, first, scaled("mi", 16) if plan.warp_tile[0] > 16 else "", "lane / 4")
    if plan.op.a_dtype.bits == 16:  # 16 columns of rows g and g + 8; lanes 2 and 3 of each four are not asked
        half = joined(scaled("step", 2), "lane % 2")
        return pointer, f"{_bits(marks, row, half)}\n| {_bits(marks, joined(row, '8'), half)} << 16"
    row, half = joined(row, "lane % 2 * 8"), joined(scaled("step", 4), "lane % 4 / 2 * 2")  # 32 columns of one row
    if marks.layout.itemsize == 4:
        return pointer, f"marks_tile[{marks.at}({row}, {joined(marks.col0, scaled('step', 2), 'lane % 4 / 2')})]"
    return pointer, f"{_bits(marks, row, half)}\n| {_bits(marks, row, joined(half, '1'))} << 16"


def _bits(marks: SharedOperand, row: str, part: str) -> str:
    """The marks of 16 columns of a row, `part` counting these; `part` is twice the step and what a lane adds."""

    def at(col: str) -> str:
        return f"static_cast<unsigned>(marks_tile[{marks.at}({row}, {joined(marks.col0, col) or '0'})])"

    if marks.layout.itemsize == 2:
        return at(part)
    if marks.layout.itemsize == 1:
        return f"({at(scaled(part, 2))} | {at(joined(scaled(part, 2), '1'))} << 8)"
    return f"({at('step')} >> lane % 2 * 16 & 0xffffu)"


def sparse_text(
    render: Render, need: Callable[[str], None], plan: GemmPlan, operands: tuple[Operand, Operand, Operand], c: str, clear: str
) -> str:
    """Statements that compute c += op(a) @ op(b) of a sparse a, in braces; arguments as those of `gemm_text`."""
    a, b, marks = operands
    assert isinstance(marks, SharedOperand)
    other = RegisterOperand("")
    left, right = halves(plan)
    for_a, for_b = fragment_text(render, need, left, a, other, c), fragment_text(render, need, right, other, b, c)
    pointer, word = marks_text(plan, marks)
    rows, cols = plan.warp_tile[0] // 16, plan.warp_tile[1] // 8
    at = f"{c} + {scaled(joined(scaled('mi', cols), 'ni'), 4)}"
    call = f"{plan.instruction}({at}, a_frag[mi], b_frags[0] + ni * 2, b_frags[1] + ni * 2, marks[mi]);"
    multiply = render("gemm/multiply.cu.jinja", rows=rows, cols=cols, serpentine=rows > 1 and cols > 1, last=cols - 1, call=call)
    product = render(
        "gemm/mma_sparse.cu.jinja", declarations=for_a.declarations + for_b.declarations, pointers=for_a.pointers + for_b.pointers,
        pointer=pointer, word=word, rows=rows, b_words=2 * cols, steps=plan.k_steps, k_step=plan.step[2], half=plan.step[2] // 2,
        load_a=for_a.load, load_b=for_b.load, multiply=multiply,
    )  # fmt: skip
    return lines(clear_text(render, plan, c, clear), product)
