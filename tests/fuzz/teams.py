"""Random branches of some of a block's threads, who carry out tile statements by themselves.

    if tx2 // 32 == 1:                      ->  32 threads fill s3; all others go on, and wait where they read it
        T.copy(in0[0:7, 0:33], s3)
"""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.program import Program
from tests.fuzz.values import Tile


def team(p: Program, simple: list[tuple[int, Callable[[Program], None]]]) -> None:
    """A branch of whole warps or of one thread, perhaps with the other threads in its `else`; it writes shared tiles of the block."""
    c = p.choices
    if p.threads % 32 or not [t for t in p.writable() if t.scope == "shared" and t.ready]:
        p.fill()
        return
    tx, warps = p.name("tx"), p.threads // 32
    p.line(f"{tx} = T.get_thread_binding(0)")
    one, cut = c.below(p.threads), 32 * c.between(1, max(1, warps - 1))
    forms = [(2, f"{tx} < {cut}"), (2, f"{tx} >= {cut}"), (1, f"{tx} // 32 == {c.below(warps)}"), (1, f"{tx} == {one}")]
    cond = c.weighted(forms if warps > 1 else forms[3:])
    shared = c.shuffled([t for t in p.writable() if t.scope == "shared" and t.ready])
    mine, others = shared[:2], shared[2:4] if "//" not in cond and "==" not in cond and c.chance(50) else []
    _side(p, f"if {cond}:", mine, others, simple)
    if others:
        _side(p, "else:", others, mine, simple)


def _side(p: Program, header: str, keep: list[Tile], hidden: list[Tile], simple: list[tuple[int, Callable[[Program], None]]]) -> None:
    """One side: registers of the block are out of its reach, and what the other side may write."""
    c = p.choices
    with p.nest(header, keep):
        p.tiles = [t for t in p.tiles if t.scope == "shared" and t not in hidden]
        c.repeat(1, 3, 60, lambda: c.weighted(simple)(p))
