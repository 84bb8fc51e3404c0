"""The products of warp groups as prelude entries, written when a file asks for them: one function a shape and type.

    entry("wgmma_m64n256k16_f16_f32") -> the function that multiplies 64x16 by 16x256 halves into 128 floats a thread
    entry("wgmma_m64n128k16_f16_f32_held") -> the same with the 64x16 halves in registers, four words a thread
"""

from __future__ import annotations

import re

from tilec.record import record
from tilec.emit.render import render

_NAME = re.compile(r"wgmma_m64n(\d+)k(\d+)_([a-z0-9]+)_(f32|f16|s32)(_held)?")


@record
class _Kind:
    """The instruction's types in PTX, its depth, and whether operands may run along m or n (16-bit elements only)."""

    ptx: str
    k: int
    transposes: bool = False


_OPERANDS = {
    "f16": _Kind("f16.f16", 16, True), "bf16": _Kind("bf16.bf16", 16, True), "tf32": _Kind("tf32.tf32", 8), "e4m3": _Kind("e4m3.e4m3", 32),
    "e5m2": _Kind("e5m2.e5m2", 32), "s8": _Kind("s8.s8", 32), "u8": _Kind("u8.u8", 32),
}  # fmt: skip
_ACCUMULATORS = {"f32": ("float", "f", 2), "f16": ("unsigned", "r", 4), "s32": ("int", "r", 2)}
"""C type, asm constraint, and columns a register holds of each eight-column block, by accumulator type."""


def text(name: str) -> str | None:
    """The text of the entry called `name`; None when no product is called so."""
    found = _NAME.fullmatch(name)
    if found is None or found[3] not in _OPERANDS:
        return None
    n, operands = int(found[1]), _OPERANDS[found[3]]
    if n % 8 or not 8 <= n <= 256 or int(found[2]) != operands.k:
        return None
    c_type, constraint, share = _ACCUMULATORS[found[4]]
    count = n // share
    integer = found[4] == "s32"
    if found[5]:
        return _held(name, n, found[3], found[4], count, c_type, constraint)
    return render(
        "prelude/wgmma.cuh.jinja", name=name, n=n, k=operands.k, type=c_type, count=count, transposes=operands.transposes,
        kinds=f"{found[4]}.{operands.ptx}", registers=_register_lines(count), operands=_operand_lines(count, constraint),
        immediates="" if integer else f", 1, 1, %{count + 3}, %{count + 4}" if operands.transposes else ", 1, 1",
    ) + "\n"  # fmt: skip


def _held(name: str, n: int, kind: str, sum_kind: str, count: int, c_type: str, constraint: str) -> str:
    """A product whose a lies in registers; a b of 16-bit elements may run along n."""
    operands = _OPERANDS[kind]
    immediates = "" if sum_kind == "s32" else f", 1, 1, %{count + 6}" if operands.transposes else ", 1, 1"
    return render(
        "prelude/wgmma_held.cuh.jinja", name=name, n=n, k=operands.k, type=c_type, count=count, kinds=f"{sum_kind}.{operands.ptx}",
        registers=_register_lines(count), operands=_operand_lines(count, constraint), transposes=operands.transposes, immediates=immediates,
    ) + "\n"  # fmt: skip


def _register_lines(count: int) -> list[str]:
    """`{%0, %1, ...},` in lines of sixteen."""
    rows = [", ".join(f"%{i}" for i in range(start, min(start + 16, count))) for start in range(0, count, 16)]
    return [("{" if n == 0 else "") + row + ("," if n + 1 < len(rows) else "},") for n, row in enumerate(rows)]


def _operand_lines(count: int, constraint: str) -> list[str]:
    """The accumulators as operands, in lines of eight."""
    rows = [", ".join(f'"+{constraint}"(d[{i}])' for i in range(start, min(start + 8, count))) for start in range(0, count, 8)]
    return [(": " if n == 0 else "  ") + row + ("," if n + 1 < len(rows) else "") for n, row in enumerate(rows)]
