"""How many blocks of a portable body are to fit a multiprocessor: a figure that keeps the assembler from giving up registers for more.

Left to itself the assembler trades registers for blocks, and now and then spills a few for one block more.

    least_blocks(decode of 140 KB of shared memory, 128 threads, ...) -> 1: there is room for no second block, whatever its registers
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tilec.ir.kernel import Launch
from tilec.plan.by_hand.registers import dealt, fullest
from tilec.plan.gemm_plan import GemmPlan
from tilec.plan.ladder import BLOCKS, VOUCHED, Choice, Load, Rung, many_products, next_rung, rung_of, tight
from tilec.plan.loads import loads_together
from tilec.plan.plan import STANDS_IN, Registers, Variant
from tilec.plan.shelves import words
from tilec.targets import Target

HAND = "by hand"

BESIDE_LOADS = 8
"""Registers that addresses take beside loads which are under way together."""


def wanted_blocks(rung: Rung, launch: Launch) -> int:
    """How many blocks the rung or the author wants; 0 for any number."""
    return 1 if rung.alone else launch.min_blocks if rung.bound else 0


def known_blocks(v: Variant, threads: int, target: Target, load: Load) -> int:
    """How many blocks of a body the assembler is told to make room for although the author names no number; 0 for as many as it likes.

    Those that run at once because shared memory, of which it knows nothing, lets no more, where each thread may have all its registers
    even so. Else, with products: 1 where it is known to spill for more, elements or operands one by one, many products. Without:
    those that leave room for the loads of a copy that are under way together, or for elements of 8 bits each in registers of its own,
    where these are most of what it holds."""
    blocks = target.shared_per_sm // (v.shared_bytes + target.shared_reserved)
    if blocks > 0 and target.registers_for(threads * blocks) == target.registers_for(threads):
        return blocks
    if load.products:
        return int(load.loose or many_products(load) or (load.late and load.tensors > 0))
    room = load.need + load.flight + BESIDE_LOADS
    fit = (n for n in range(target.threads_per_sm // threads, 1, -1) if target.registers_for(threads * n) >= room)
    return next(fit, 0) if load.flight >= max(VOUCHED.flight, load.need) else 0


def with_blocks(v: Variant, load: Load, choice: Choice, wanted: int) -> Variant:
    """The body with how many blocks are to fit: so many as ptxas made room for, or as are wanted."""
    least = choice.get((BLOCKS, v.symbol), 0) or wanted
    return replace(v, least=least, fuller=not least and not load.products)


def one_more(v: Variant, threads: int, registers: int, target: Target) -> int:
    """How many blocks of a body that waits for memory are worth a question: one more than fit with its registers, where that is a good
    part more, asks for few of them and nothing else stands in the way; 0 where not."""
    if not v.fuller:
        return 0
    more = target.blocks_that_fit(threads, registers, v.shared_bytes) + 1
    if more > VOUCHED.few or target.blocks_that_fit(threads, 1, v.shared_bytes) < more:
        return 0
    return more if registers * 100 <= target.registers_for(threads * more) * VOUCHED.fuller else 0


def left_open(v: Variant, load: Load) -> bool:
    """True when a body that the rules vouch for may spill all the same, and nothing but a question finds out."""
    return not v.hopper and tight(load)


def hand_ladder(v: Variant, launch: Launch, products: Sequence[GemmPlan], choice: Choice, target: Target) -> Variant:
    """A body whose author orders the work, with its place on the ladder: ptxas is asked about all that hold many registers. One that
    stands behind Hopper's own may have its products too."""
    threads = prod(v.threads or launch.threads or ())
    number, rung = rung_of(choice, HAND, v.symbol)
    groups = v.hopper and any(g.kind == "wgmma" for g in products)
    deals = v.hopper and dealt(launch, threads, target) is not launch.body

    def effect(x: Rung) -> object:
        kept = x.keeps and v.symbol.endswith(STANDS_IN)
        return 1 if v.hopper else wanted_blocks(x, launch), x.short, kept, x.deals and deals, x.anew and groups

    tiles = {b: words(b, p.layout) for b, p in v.placements.items() if isinstance(p, Registers)}
    held, has = fullest(launch, tiles, target.registers_for(threads))
    need = v.registers - sum(tiles.values()) + held
    load = Load(need, has, threads, tuple((g.op.m, g.op.n) for g in products), flight=loads_together(v.body))
    many = need * 100 > has * VOUCHED.teams if products else tight(load)
    least = wanted_blocks(rung, launch) or (0 if v.hopper else known_blocks(v, threads, target, load))
    return replace(v, ladder=HAND, rung=number, below=next_rung(HAND, number, effect), least=least, open=many)
