"""Where the operands of a matrix product are, and the small text algebra that their addresses need.

    scaled("lane / 16", 8) -> "lane / 16 * 8";  joined("0", "kk", "") -> "kk"
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from tilec.record import record
from tilec.layout.shared import SharedLayout


class Render(Protocol):
    """Renders the template of a name with a context."""

    def __call__(self, template: str, /, **context: object) -> str: ...


@record
class SharedOperand:
    """A tile in shared memory.

    `pointer` is the C text of its first element (of the right stage already), `c_type` the element's C type, `layout` that of
    its last two dimensions, `row0` and `col0` C texts of where the operand starts inside, and `at` names the function that
    turns (row, column) into an element offset. `plain`: steps along a row are spelled in one piece.
    """

    pointer: str
    c_type: str
    layout: SharedLayout
    row0: str
    col0: str
    at: str
    plain: bool = False


@record
class RegisterOperand:
    """A fragment in registers: the name of the array, in the order that the plan's layout of the operand asks for."""

    array: str
    c_type: str = ""


Operand: TypeAlias = SharedOperand | RegisterOperand


@record
class Loop:
    """An unrolled loop of `count` over `var`."""

    var: str
    count: int


def joined(*terms: str) -> str:
    """The sum of C terms, zeros left out; "" when nothing is left."""
    return " + ".join(t for t in terms if t and t != "0")


def scaled(term: str, factor: int) -> str:
    """`term * factor`; sums are put in parentheses, "" stays empty."""
    if not term or factor == 1:
        return term
    return f"({term}) * {factor}" if " + " in term else f"{term} * {factor}"


def lines(*texts: str) -> str:
    """Texts under one another, empty ones left out."""
    return "\n".join(t for t in texts if t)
