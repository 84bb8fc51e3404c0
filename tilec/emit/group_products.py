"""The products of warp groups as CUDA text: queued by all threads of a group, their operands found through descriptors.

    S (64 x 64) by V (64 x 512), two groups side by side   ->   each multiplies S by 256 columns, four steps of wgmma_m64n256k16
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod

from tilec.analysis.facts import Facts
from tilec.diagnostics import Span
from tilec.emit.gemm_operands import joined, lines
from tilec.emit.memory import Spelling
from tilec.ir.dtypes import FLOAT16, FLOAT32, INT32
from tilec.ir.expr import Binary, Buffer, Const, Expr
from tilec.ir.tile import Region
from tilec.layout.shared import CHUNK, SharedLayout
from tilec.plan.by_hand.products import row_of
from tilec.plan.by_hand.tiles import span_of
from tilec.plan.plan import PGemm
from tilec.record import record


def settle_text(spell: Spelling, acc: Buffer, registers: int) -> str:
    """Keeps uses of an accumulator, or of an operand in registers, where they stand."""
    if acc.dtype == FLOAT32:
        spell.need("wgmma_settle")
        return f"wgmma_settle<{registers}>({spell.buffer(acc)});"
    spell.need("wgmma_settle_words")
    return f"wgmma_settle_words<{registers * acc.dtype.bytes // 4}>(reinterpret_cast<unsigned*>({spell.buffer(acc)}));"


@record
class _Side:
    """An operand: the descriptor's declaration and name, or the name of its words in registers."""

    once: str
    name: str


def product_text(spell: Spelling, s: PGemm, facts: Facts, clear: str, group: str) -> str:
    """A product by warp groups: queued, and waited for where the author does not. `group` is the number of a thread's group."""
    once, calls = _queued(spell, s, facts, clear, group)
    return _between(spell, [s], lines(*once), "\n".join(calls))


def products_text(
    spell: Spelling, products: Sequence[PGemm], facts: Facts, clears: Sequence[str], group: str, comment: Callable[[Span], str],
    meanwhile: str,
) -> str:  # fmt: skip
    """Products queued one behind the other and waited for once; `meanwhile` stands in front of the wait."""
    parts = []
    for n, (s, clear) in enumerate(zip(products, clears, strict=True)):
        once, calls = _queued(spell, s, facts, clear, group)
        parts.append("\n".join([comment(s.span) if n else "", "{", *once, *calls, "}"]).strip())
    return _between(spell, products, "", "\n".join(parts), meanwhile)


def _between(spell: Spelling, products: Sequence[PGemm], once: str, calls: str, meanwhile: str = "") -> str:
    """What is queued, between the fence in front of it and the wait behind."""
    for entry in ("wgmma_fence", "wgmma_commit"):
        spell.need(entry)
    settle = [settle_text(spell, b, n) for b, n in {s.c.buffer: s.plan.c_layout.registers for s in products}.items()]
    words = {s.a.buffer: s.plan.a_layout.registers for s in products if s.plan.load_a == "register"}
    held = [settle_text(spell, b, n) for b, n in words.items()]  # made ready in front of the fence, not between instructions
    tail = ["wgmma_commit();", *([meanwhile] if meanwhile else [])]
    if products[0].waits:
        spell.need("wgmma_wait")
        tail += ["wgmma_wait<0>();", *settle]
    return "\n".join(["{", *([once] if once else []), *settle, *held, "wgmma_fence();", calls, *tail, "}"])


def _queued(spell: Spelling, s: PGemm, facts: Facts, clear: str, group: str) -> tuple[list[str], list[str]]:
    """The descriptors of a product, and its instructions."""
    spell.need(s.plan.instruction)
    a, b = _sides(spell, s, facts, group)
    return [x.once for x in (a, b) if x.once], _calls(spell, s, a, b, clear)


def _sides(spell: Spelling, s: PGemm, facts: Facts, group: str) -> tuple[_Side, _Side]:
    """Both operands: a group has its rows of a, and its columns of b."""
    p = s.plan
    down, right = p.warps[0] // 4, p.warps[1]
    row = group if right == 1 else f"{group} / {right}"
    column = group if down == 1 else f"{group} % {right}"
    b = _descriptor(spell, s.b, p.op.trans_b, (p.op.n // right, column) if right > 1 else None, "b_tile", facts)
    if p.load_a == "register":
        return _Side("", f"reinterpret_cast<const unsigned*>({spell.buffer(s.a.buffer)})"), b
    return _descriptor(spell, s.a, not p.op.trans_a, (p.op.m // down, row) if down > 1 else None, "a_tile", facts), b


def _calls(spell: Spelling, s: PGemm, a: _Side, b: _Side, clear: str) -> list[str]:
    """The instructions of a group: step by step along k, part by part of its rows, as many columns at a time as one takes."""
    p = s.plan
    depth, held = p.step[2], p.load_a == "register"
    rows, columns = p.op.m // (p.warps[0] // 4), p.op.n // p.warps[1]
    flags = ([] if held else [int(p.op.trans_a)]) + [int(not p.op.trans_b)]
    call = f"{p.instruction}<{', '.join(map(str, flags))}>" if depth == 16 else p.instruction
    first = {"": "true", "1": "false"}.get(clear, f"!({clear})")
    out = []
    for step, part, right in product(range(p.op.k // depth), range(rows // 64), range(0, columns, p.step[1])):
        k, m = step * depth, part * 64
        left = 4 * (step + part * (p.op.k // depth)) if held else _along(spell, s.a, not p.op.trans_a, k, m) >> 4
        acc = joined(spell.buffer(s.c.buffer), str((part * columns + right) // 2))
        acc = f"reinterpret_cast<unsigned*>({acc})" if p.op.c_dtype == FLOAT16 else acc
        there = joined(b.name, str(_along(spell, s.b, p.op.trans_b, k, right) >> 4))
        out.append(f"{call}({acc}, {joined(a.name, str(left))}, {there}, {'true' if step else first});")
    return out


def _descriptor(spell: Spelling, r: Region, k_major: bool, share: tuple[int, str] | None, name: str, facts: Facts) -> _Side:
    """Where warp groups find an operand; with a `share`, each has so many of its rows of a, or columns of b, by its number."""
    make = "wgmma_descriptor_anew" if spell.variant.configuration.anew else "wgmma_descriptor"
    spell.need(make)
    layout = spell.tile(r.buffer).layout
    span, rows = span_of(layout), prod(layout.shape[:-1])
    start = _start(r, layout)
    place = joined(spell.tile_pointer(r.buffer), spell.expr(start, facts))
    if share is not None:
        extent, number = share
        step = extent * layout.pitch if k_major else extent // layout.pitch * rows * layout.pitch
        place += f" + {number} * {step}"
    leading = CHUNK if k_major else rows * span
    mode = {128: 1, 64: 2, 32: 3}[span]
    return _Side(f"const unsigned long long {name} = {make}({place}, {leading}, {8 * span}, {mode});", name)


def _start(r: Region, layout: SharedLayout) -> Expr:
    """The element where a region begins, which is the first of 8 rows and of a panel."""
    row = row_of(r, layout.shape)
    out: Expr = Binary("mul", row, Const(layout.pitch, INT32), INT32)
    column = r.starts[-1]
    if not layout.panel or (isinstance(column, Const) and column.value == 0):
        return out
    size = prod(layout.shape[:-1])  # of a panel: its columns times all rows, which is the column times the rows
    return Binary("add", out, Binary("mul", column, Const(size, INT32), INT32), INT32)


def _along(spell: Spelling, r: Region, k_major: bool, k: int, m: int) -> int:
    """Bytes from the start of an operand to the element (m, k) of it; m counts rows of a, or columns of b."""
    layout = spell.tile(r.buffer).layout
    span, rows = span_of(layout), prod(layout.shape[:-1])
    row, column = (m, k) if k_major else (k, m)
    byte = column * layout.itemsize
    return byte // span * rows * span + byte % span + row * span
