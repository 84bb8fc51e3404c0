"""What authors write for Hopper by hand, as CUDA text: barriers, bulk copies, queued products, and the numbers of a team's threads.

    T.barrier_wait(full[k % 2], k // 2 % 2)   ->  mbarrier_wait(full + k % 2, k / 2 % 2);
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilec.analysis.facts import Facts
from tilec.diagnostics import Span
from tilec.emit.gemm_operands import joined
from tilec.emit.group_products import settle_text
from tilec.emit.memory import Spelling
from tilec.emit.render import render
from tilec.emit.unused import mentions
from tilec.ir.expr import Buffer, Expr
from tilec.ir.visit import storage
from tilec.plan.by_hand.plan import PBarriers, PBulkCopy, PBulkFetch, PControl, PMbarrier, PSend, TeamPlan
from tilec.plan.fragments import power_up
from tilec.plan.hopper.plan import TensorMap

_CONTROLS = {
    "products_fence": "wgmma_fence();", "products_commit": "wgmma_commit();", "products_wait": "wgmma_wait<{}>();",
    "stores_commit": "bulk_commit();", "stores_wait": "bulk_wait_read<{}>();", "stores_read": "bulk_wait_read<{}>();",
    "fence": "fence_proxy_async();",
    "registers_take": "registers_take<{}>();", "registers_give": "registers_give<{}>();",
}  # fmt: skip

_MBARRIERS = {
    "arrive": "mbarrier_arrive", "arrive_copies": "mbarrier_arrive_copies", "expect": "mbarrier_expect_bytes",
    "arrive_expect": "mbarrier_expect", "wait": "mbarrier_wait",
}  # fmt: skip


def team_text(body: str, team: TeamPlan, number: str, enclosing: int) -> str:
    """The statements of a team, with its threads numbered from 0; `number` is that of a thread in the block."""
    if team.team.first == enclosing or not any(mentions(body, w) for w in ("thread", "warp", "lane")):
        return body
    own = f"thread = {numbered(number, team.team.first, team.team.count)}"
    parts = [own, *(f"{w} = thread {by} 32" for w, by in (("warp", "/"), ("lane", "%")) if mentions(body, w))]
    return f"const int {', '.join(parts)};\n{body}"


def numbered(number: str, first: int, count: int) -> str:
    """The number of a thread among `count` from `first` on. Taken modulo a power of two that is no less, for the compiler's sake: it then
    sees that nothing is negative, and divisions are shifts without corrections."""
    period = power_up(count)
    place = number if first % period == 0 else f"{number} - {first}"
    return f"({place}) % {period}" if " " in place else f"{place} % {period}"


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
    if s.closes:
        spell.need("bulk_commit")
        loads.append("bulk_commit();")
    return render("parallel/if.cu.jinja", cond="thread == 0", then="\n".join([*calls, *loads]), orelse="")


def fetch_text(
    spell: Spelling, s: PBulkFetch, maps: Mapping[TensorMap, str], facts: Facts, comment: Callable[[Span], str]
) -> str:
    """Tiles of a later step of a pipeline, queued by the first thread. The barriers have one element a version of the tiles."""
    spell.need("mbarrier_expect")
    slot = joined(spell.buffer(s.full), spell.stages[storage(s.copies[0].tile)])
    calls = [f"mbarrier_expect({slot}, {s.bytes});"]
    for n, c in enumerate(s.copies):
        function = f"tma_load_{len(c.map.box)}d"
        spell.need(function)
        calls += [comment(c.span)] if n else []
        for box in c.boxes:
            place = joined(spell.tile_pointer(c.tile), spell.expr(box.offset, facts))
            calls.append(f"{function}({place}, &{maps[c.map]}, {slot}, {', '.join(spell.expr(e, facts) for e in box.at)});")
    return render("parallel/if.cu.jinja", cond="thread == 0", then="\n".join(calls), orelse="")


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
    if s.kind == "stores_read":
        return render("parallel/if.cu.jinja", cond="thread == 0", then=call, orelse="")
    return "\n".join([call, *(settle_text(spell, b, count) for b, count in s.settled)])
