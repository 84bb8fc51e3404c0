"""Where in a step of a pipeline the copies for later steps are issued.

At the start of the step, by default. A step of several products has better places: copies issued together keep the first
product waiting for their addresses, and those are held in registers side by side. So the tiles that the first product reads
are fetched in front of the last one, all others at the start. Where a block has a multiprocessor to itself, nothing else hides
how long a copy takes, and they are fetched right behind the first product.

    K -> gemm 1, V -> gemm 2:   fetch V; gemm 1; softmax; fetch K; gemm 2

Attention forward on an H200, 8192 keys of 128 (TFLOP/s): 128x64 tiles with 128 threads 349 -> 351 full, 321 -> 347 causal
(two blocks a multiprocessor); 128x128 tiles with 256 threads 317 -> 329 and 308 -> 318 behind the first product, but 282 and
266 in front of the last.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilec.ir.expr import Buffer, Const
from tilec.ir.tile import Copy
from tilec.ir.visit import storage
from tilec.plan.carried import carried_first
from tilec.plan.plan import Fetch, PGemm, PSeq, PStmt, Stepped


def spread_fetches(copies: Sequence[Copy], consumers: PSeq) -> PSeq:
    """`consumers` with a `Fetch` for those of `copies` (the producers, in their order) that need not be issued at the start."""
    products = [(n, g) for n, s in enumerate(consumers.body) for g in _products(s)]
    if len(products) < 2:
        return consumers
    first = products[0][1]
    tiles = {storage(first.a.buffer), storage(first.b.buffer)}
    late = tuple(n for n, c in enumerate(copies) if storage(c.dst.buffer) in tiles)
    if len(late) in (0, len(copies)):
        return consumers
    at = products[0][0] + 1 if _alone([g for _, g in products]) else products[-1][0]
    return PSeq((*consumers.body[:at], Fetch(late), *consumers.body[at:]))


def fetch_beside(engine: bool, threads: int, consumers: PSeq, puts: tuple[int, ...] = ()) -> PSeq:
    """`consumers` with a `Fetch` of producers behind the first products, where warp groups do them and begin with them: these run on
    meanwhile. What the copy `engine` brings, the first producer, is queued there too if they are few; `threads` is how many more there are.
    `puts` are those that hold what they load, which is stored behind the last products, where these are others. Where the
    step reads what products of the step before have left, the copies go in front of the products (see `plan.carried`).
    """
    found = [n for n, s in enumerate(consumers.body) if any(g.in_place for g in _products(s))]
    if not found or found[0] > FIRST:
        return consumers
    at = found[0]
    while at + 1 in found:
        at += 1
    if puts and found[-1] > at:
        last = found[-1] + 1
        consumers = PSeq((*consumers.body[:last], Fetch(puts, puts=True), *consumers.body[last:]))
    few = sum(_instructions(g) for s in consumers.body[: at + 1] for g in _products(s)) <= FEW
    late = tuple(range(0 if engine and few else int(engine), int(engine) + threads))
    if not late:
        return consumers
    body, at = carried_first(consumers.body, found[0], at)
    return PSeq((*body[:at], Fetch(late), *body[at:]))


FIRST = 3
"""Statements of a step in front of its first products at most, for copies to wait for these."""

FEW = 8
"""Instructions that a warp group queues without waiting for the first of them."""


def _instructions(g: PGemm) -> int:
    p = g.plan
    return p.k_steps * max(1, 4 * p.warp_tile[0] // 64) * max(1, p.warp_tile[1] // p.step[1])


REGISTERS = 65536
"""32-bit registers of a multiprocessor."""

_OTHERS = 40
"""Registers of a thread besides its accumulators, at least."""


def _alone(products: Sequence[PGemm]) -> bool:
    """True when the accumulators of a block leave no room for a second block."""
    words = {g.c.buffer: g.plan.c_layout.registers * g.plan.op.c_dtype.bits // 32 for g in products}
    return 2 * products[0].plan.threads * (sum(words.values()) + _OTHERS) > REGISTERS


def _products(s: PStmt) -> list[PGemm]:
    """The products that a statement of a step consists of, those inside branches and loops left out."""
    inside = s.body.body if isinstance(s, Stepped) else (s,)
    return [x for x in inside if isinstance(x, PGemm)]


def prefetches(consumers: PSeq, versioned: tuple[Buffer, ...]) -> bool:
    """True when the rest of a pipeline is one GEMM on tiles of the pipeline, whose operands can be loaded a k-step early."""
    inside = [x for s in consumers.body for x in (s.body.body if isinstance(s, Stepped) else (s,))]
    if len(inside) != 1 or not isinstance(inside[0], PGemm):
        return False
    g = inside[0]
    plain = isinstance(g.clear, Const) and not g.clear.value
    return plain and g.plan.can_prefetch and storage(g.a.buffer) in versioned and storage(g.b.buffer) in versioned
