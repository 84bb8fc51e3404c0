"""The CUDA text of planned statements that only bodies of warp groups have: stores and additions of the copy engine, casts by pairs.

    bulk_store_text(...) -> the fragment through the staging area with stmatrix, then one tma_store for each 64 rows
"""

from __future__ import annotations

from collections.abc import Mapping

from tilec.analysis.facts import Facts
from tilec.emit.cliteral import ctype
from tilec.emit.hopper.writer import BoxLoad, exchange_of
from tilec.emit.memory import Spelling
from tilec.emit.render import render
from tilec.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT32, DType
from tilec.ir.expr import Binary, Const, Expr
from tilec.plan.domains import static_shape
from tilec.plan.hopper.plan import WARP_GROUP, TensorMap
from tilec.plan.plan import BulkAdd, BulkStore, Chained, JoinLanes, PackRegisters, Registers, Streamed, Variant, WarpSpecialized, WhenScaled
from tilec.record import record


@record
class _Store:
    """The context of a bulk store."""

    parts: int
    n: int
    columns: int
    buffers: int
    drains: bool
    type: str
    tile: str
    src: str
    exchange: str
    words: str
    rank: int
    map: str
    at: str


def bulk_store_text(spell: Spelling, s: BulkStore, map_name: str, variant: Variant, facts: Facts) -> str:
    """A fragment through the staging area to the tensor."""
    whole = variant.body.body[0]
    assert isinstance(whole, WarpSpecialized | Streamed | Chained)
    consumers = whole.schedule.consumers
    m, n = static_shape(s.src)
    wide = s.src.dtype.bits == s.map.tensor.dtype.bits == 32
    written = "store_vec" if wide else "stmatrix_x4"
    for entry in (written, "fence_proxy_async", "warp_group_sync", "bulk_commit", "bulk_wait_read", f"tma_store_{len(s.at)}d"):
        spell.need(entry)
    columns, src = s.staging.columns, spell.buffer(s.src)
    exchange = exchange_of(s.staging.span)
    row = next(d for d in range(1, len(s.at)) if s.map.box[d] == 64)
    at: list[str] = []
    for d, e in enumerate(s.at):
        text = spell.expr(e, facts)
        text = "" if text == "0" and d in (0, row) else text
        if d == 0:
            text = f"{text} + column" if text else "column"
        elif d == row:
            group = f"warp_group * {m // consumers}" if consumers > 1 else ""
            part = "part * 64" if m // consumers > 64 else ""
            text = " + ".join(t for t in (text, group, part) if t) or "0"
        at.append(text)
    return render(
        "copy/bulk_store.cu.jinja",
        s=_Store(
            m // consumers // 64, n, columns, s.staging.buffers, s.drains and s.staging.buffers > 1, ctype(s.map.tensor.dtype),
            spell.buffer(s.staging.tile), src, exchange, "" if wide else _words(spell, src, s.src.dtype, s.map.tensor.dtype), len(s.at),
            map_name, ", ".join(at),
        ),
    )  # fmt: skip


def _words(spell: Spelling, src: str, held: DType, stored: DType) -> str:
    """The four words of an stmatrix: pairs of neighbouring columns, rows 0 and 8, then eight columns further."""
    if held != FLOAT32:
        return ", ".join(f"reinterpret_cast<const unsigned*>({src})[r / 2{f' + {i}' if i else ''}]" for i in range(4))
    pack = {FLOAT16: "pack_half2", BFLOAT16: "pack_bfloat162"}[stored]
    spell.need(pack)
    return ", ".join(f"{pack}({src}[r{f' + {2 * i}' if i else ''}], {src}[r + {2 * i + 1}])" for i in range(4))


@record
class _Addition:
    """The context of an addition by the copy engine."""

    type: str
    tile: str
    group: int
    n: int
    src: str
    rank: int
    map: str


def bulk_add_text(spell: Spelling, s: BulkAdd, maps: Mapping[TensorMap, str], facts: Facts) -> str:
    """A fragment through the staging area, added to the tensor."""
    whole = spell.variant.body.body[0]
    assert isinstance(whole, Chained)
    consumers, rank = whole.schedule.consumers, len(s.at)
    for entry in ("store_vec", "fence_proxy_async", "warp_group_sync", "bulk_commit", "bulk_wait_read", f"tma_add_{rank}d"):
        spell.need(entry)
    n = s.staging.buffers * 32
    row = next(d for d in range(1, rank) if s.map.box[d] == 64)
    boxes: list[BoxLoad] = []
    for part in range(s.staging.buffers):
        at = list(s.at)
        at[0] = _plus(at[0], Const(32 * part, INT32))
        if consumers > 1:
            d, step = (0, n) if s.by_columns else (row, 64)
            at[d] = _plus(at[d], Binary("mul", WARP_GROUP, Const(step, INT32), INT32))
        boxes.append(BoxLoad(f"staged + {2048 * part}" if part else "staged", ", ".join(spell.expr(e, facts) for e in at)))
    context = _Addition(
        ctype(s.src.dtype), spell.buffer(s.staging.tile), 64 * n if consumers > 1 else 0, n, spell.buffer(s.src), rank, maps[s.map]
    )  # fmt: skip
    return render("copy/bulk_add.cu.jinja", s=context, boxes=boxes)


def _plus(a: Expr, b: Expr) -> Expr:
    if isinstance(b, Const) and b.value == 0:
        return a
    return b if isinstance(a, Const) and a.value == 0 else Binary("add", a, b, INT32)


def pack_text(spell: Spelling, s: PackRegisters) -> str:
    """A cast of a whole fragment, two registers at a time."""
    pack = "pack_bfloat162" if s.dst.dtype == BFLOAT16 else "pack_half2"
    spell.need(pack)
    return render(
        "parallel/pack.cu.jinja", var=spell.names.fresh("r"), words=s.words, pack=pack, dst=spell.buffer(s.dst), src=spell.buffer(s.src)
    )  # fmt: skip


def join_text(spell: Spelling, s: JoinLanes) -> str:
    """The lanes of a row add up their parts."""
    spell.need("shfl_xor")
    return render(
        "reduce/join.cu.jinja", var=spell.names.fresh("r"), count=s.registers, name=spell.buffer(s.buffer), lane_steps=s.lane_steps
    )  # fmt: skip


def scaled_text(spell: Spelling, s: WhenScaled, body: str) -> str:
    """A scaling that a warp whose factors are all 1 leaves out."""
    place = spell.variant.placements[s.factor]
    assert isinstance(place, Registers)
    spell.need("any_sync")
    tests = " || ".join(f"{spell.buffer(s.factor)}[{n}] != 1.0f" for n in range(place.layout.registers))
    return render("parallel/if.cu.jinja", cond=f"any_sync({tests})", then=body, orelse="")
