"""What authors write for Hopper by hand, as CUDA text: barriers, bulk copies, queued products, and the numbers of a team's threads.

    T.barrier_wait(full[k % 2], k // 2 % 2)   ->  mbarrier_wait(full + k % 2, k / 2 % 2);
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tilec.analysis.facts import Facts
from tilec.emit.gemm_operands import joined, lines
from tilec.emit.memory import Spelling
from tilec.emit.render import render
from tilec.emit.unused import mentions
from tilec.ir.dtypes import FLOAT16, FLOAT32, INT32
from tilec.ir.expr import Binary, Buffer, Const, Expr
from tilec.ir.tile import Region
from tilec.layout.shared import CHUNK, SharedLayout
from tilec.plan.by_hand.tiles import span_of
from tilec.plan.by_hand.products import row_of
from tilec.plan.by_hand.plan import PBarriers, PBulkCopy, PControl, PMbarrier, PSend, TeamPlan
from tilec.plan.hopper.plan import TensorMap
from tilec.plan.plan import PGemm
from tilec.record import record

_CONTROLS = {
    "products_fence": "wgmma_fence();", "products_commit": "wgmma_commit();", "products_wait": "wgmma_wait<{}>();",
    "stores_commit": "bulk_commit();", "stores_wait": "bulk_wait_read<{}>();", "fence": "fence_proxy_async();",
    "registers_take": "registers_take<{}>();", "registers_give": "registers_give<{}>();",
}  # fmt: skip

_MBARRIERS = {"arrive": "mbarrier_arrive", "expect": "mbarrier_expect_bytes", "arrive_expect": "mbarrier_expect", "wait": "mbarrier_wait"}


def team_text(body: str, team: TeamPlan, number: str, enclosing: int) -> str:
    """The statements of a team, with its threads numbered from 0; `number` is that of a thread in the block."""
    if team.team.first == enclosing or not any(mentions(body, w) for w in ("thread", "warp", "lane")):
        return body
    own = f"thread = {number} - {team.team.first}"
    parts = [own, *(f"{w} = thread {by} 32" for w, by in (("warp", "/"), ("lane", "%")) if mentions(body, w))]
    return f"const int {', '.join(parts)};\n{body}"


def team_condition(cond: str, teams: tuple[TeamPlan | None, TeamPlan | None], plain: bool) -> str:
    """The condition of a branch of teams. Whole warp groups are told apart by `warp_group`, the same register for a warp, without
    which the compiler would not let products overlap; `plain`: threads lie along x only."""
    team = teams[0]
    if team is None or not plain or team.team.first % 128 or team.team.count % 128:
        return cond
    first, stop = team.team.first // 128, team.team.stop // 128
    if stop == first + 1:
        return f"warp_group == {first}"
    return f"warp_group < {stop}" if first == 0 else f"warp_group >= {first} && warp_group < {stop}"


def barriers_text(spell: Spelling, s: PBarriers) -> str:
    """The author's barriers, made by the first thread."""
    for entry in ("mbarrier_init", *(["mbarrier_init_fence"] if s.engine else [])):
        spell.need(entry)
    calls = [f"mbarrier_init({joined(spell.buffer(b), str(n))}, {count});" for b, n, count in s.barriers]
    if s.engine:
        calls.append("mbarrier_init_fence();")
    return render("parallel/if.cu.jinja", cond="thread == 0", then="\n".join(calls), orelse="")


def mbarrier_text(spell: Spelling, s: PMbarrier, facts: Facts) -> str:
    """An arrival, an announcement or a wait."""
    if s.buffer.peer is not None and s.buffer.view_of is not None:
        spell.need("mbarrier_arrive_at")
        return f"mbarrier_arrive_at({_slot(spell, s.buffer.view_of, s.index, facts)}, {spell.expr(s.buffer.peer, facts)});"
    name = f"{_MBARRIERS[s.kind]}_portable" if s.portable and s.kind in ("arrive", "wait") else _MBARRIERS[s.kind]
    spell.need(name)
    at = _slot(spell, s.buffer, s.index, facts)
    return f"{name}({at});" if s.value is None else f"{name}({at}, {spell.expr(s.value, facts)});"


def _slot(spell: Spelling, barrier: Buffer, index: Expr, facts: Facts) -> str:
    return joined(spell.buffer(barrier), spell.expr(index, facts))


def bulk_copy_text(spell: Spelling, s: PBulkCopy, maps: Mapping[TensorMap, str], facts: Facts) -> str:
    """Boxes queued by one thread."""
    rank, name, tile = len(s.map.box), maps[s.map], spell.buffer(s.tile)
    calls: list[str] = []
    barrier = ""
    if s.barrier is not None and s.index is not None:
        barrier = _slot(spell, s.barrier, s.index, facts)
        spell.need("mbarrier_expect_bytes")
        calls.append(f"mbarrier_expect_bytes({barrier}, {s.bytes});")
    function = f"tma_load_{rank}d{'_multicast' if s.mask else ''}" if s.barrier is not None else f"tma_store_{rank}d"
    spell.need(function)
    loads: list[str] = []
    for box in s.boxes:
        at, place = ", ".join(spell.expr(e, facts) for e in box.at), joined(tile, spell.expr(box.offset, facts))
        load = f"{function}({place}, &{name}, {barrier}, {at}{f', {s.mask}' if s.mask else ''});"
        loads.append(load if s.barrier is not None else f"{function}(&{name}, {place}, {at});")
    if s.mask:
        spell.need("cluster_rank")
        first = (s.mask & -s.mask).bit_length() - 1
        loads = [render("parallel/if.cu.jinja", cond=f"cluster_rank() == {first}", then="\n".join(loads), orelse="").rstrip()]
    return render("parallel/if.cu.jinja", cond="thread == 0", then="\n".join([*calls, *loads]), orelse="")


def send_text(spell: Spelling, s: PSend, facts: Facts) -> str:
    """A tile queued for another block by one thread."""
    for entry in ("mbarrier_expect_at", "bulk_copy_at"):
        spell.need(entry)
    own = s.dst.view_of or s.dst
    slot, peer = _slot(spell, s.barrier, s.index, facts), spell.expr(s.peer, facts)
    src = joined(spell.tile_pointer(s.src), spell.expr(s.offset, facts))
    dst = joined(spell.tile_pointer(own), spell.expr(s.there, facts))
    calls = [f"mbarrier_expect_at({slot}, {s.bytes}, {peer});", f"bulk_copy_at({dst}, {src}, {s.bytes}, {slot}, {peer});"]
    return render("parallel/if.cu.jinja", cond="thread == 0", then="\n".join(calls), orelse="")


def control_text(spell: Spelling, s: PControl) -> str:
    """What orders queued work; behind a wait, uses of its accumulators stay behind it."""
    call = _CONTROLS[s.kind].format(s.value)
    spell.need(call.split("(")[0].split("<")[0])
    return "\n".join([call, *(_settle(spell, b, count) for b, count in s.settled)])


def _settle(spell: Spelling, acc: Buffer, registers: int) -> str:
    """Keeps uses of an accumulator where they stand."""
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


def product_text(spell: Spelling, s: PGemm, facts: Facts, clear: str) -> str:
    """A product by warp groups: queued, and waited for where the author does not."""
    p = s.plan
    for entry in ("wgmma_fence", "wgmma_commit", p.instruction):
        spell.need(entry)
    groups = p.threads // 128
    held = p.load_a == "register"
    words = _Side("", f"reinterpret_cast<const unsigned*>({spell.buffer(s.a.buffer)})")
    a = words if held else _descriptor(spell, s.a, not p.op.trans_a, groups, "a_tile", facts)
    b = _descriptor(spell, s.b, p.op.trans_b, 1, "b_tile", facts)
    depth, parts = p.step[2], p.op.m // groups // 64
    flags = ([] if held else [int(p.op.trans_a)]) + [int(not p.op.trans_b)]
    call = f"{p.instruction}<{', '.join(map(str, flags))}>" if depth == 16 else p.instruction
    first = {"": "true", "1": "false"}.get(clear, f"!({clear})")
    calls = []
    for step in range(p.op.k // depth):
        for part in range(parts):
            left = 4 * (step + part * (p.op.k // 16)) if held else _along(spell, s.a, not p.op.trans_a, step * depth, part * 64) >> 4
            right = _along(spell, s.b, p.op.trans_b, step * depth, 0) >> 4
            acc = joined(spell.buffer(s.c.buffer), str(part * (p.op.n // 2)))
            acc = f"reinterpret_cast<unsigned*>({acc})" if p.op.c_dtype == FLOAT16 else acc
            calls.append(f"{call}({acc}, {joined(a.name, str(left))}, {joined(b.name, str(right))}, {'true' if step else first});")
    settle = _settle(spell, s.c.buffer, p.c_layout.registers)
    tail = ["wgmma_commit();"]
    if s.waits:
        spell.need("wgmma_wait")
        tail.append("wgmma_wait<0>();")
        tail.append(settle)
    return "\n".join(["{", lines(a.once, b.once), settle, "wgmma_fence();", *calls, *tail, "}"])


def _descriptor(spell: Spelling, r: Region, k_major: bool, groups: int, name: str, facts: Facts) -> _Side:
    """Where warp groups find an operand; with several `groups`, each has its share of the rows of a."""
    spell.need("wgmma_descriptor")
    layout = spell.tile(r.buffer).layout
    span, rows = span_of(layout), prod(layout.shape[:-1])
    start = _start(r, layout)
    place = joined(spell.buffer(r.buffer), spell.expr(start, facts))
    if groups > 1:
        extent = int(r.extents[-2 if k_major else -1].value) // groups  # type: ignore[union-attr]
        step = extent * layout.pitch if k_major else extent // layout.pitch * rows * layout.pitch
        place += f" + thread / 128 * {step}"
    leading = CHUNK if k_major else rows * span
    mode = {128: 1, 64: 2, 32: 3}[span]
    return _Side(f"const unsigned long long {name} = wgmma_descriptor({place}, {leading}, {8 * span}, {mode});", name)


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
