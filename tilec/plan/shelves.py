"""Which register tiles lie in shared memory in part, where all threads together have too few registers for them.

The first elements of such a tile are a thread's registers, the others its places on the shelf: 16 bytes of one thread beside those of
the next. No other thread goes there, so nothing waits.

    rows of 65536 floats by 256 threads -> 228 elements of a thread in registers, 28 on the shelf
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tilec.diagnostics import NOWHERE, Diagnostic, Severity, Span
from tilec.ir.expr import Buffer
from tilec.ir.tile import Alloc, Gemm, Let, Parallel, Stmt
from tilec.ir.visit import buffers_of, flat, pointers, regions, stmt_children, stmt_exprs, storage, walk_stmt
from tilec.layout.fragment import FragmentLayout
from tilec.layout.shared import CHUNK
from tilec.plan.gemm_plan import GemmPlan
from tilec.plan.legal import Legal
from tilec.plan.pipelines import touched
from tilec.plan.plan import Registers, Variant
from tilec.plan.shared import ALIGNMENT
from tilec.targets import Target

WORDS = CHUNK // 4
"""Registers that a chunk of a tile takes."""


def shelvable(body: Stmt, layouts: Mapping[Buffer, FragmentLayout], gemms: Mapping[int, GemmPlan]) -> dict[Buffer, FragmentLayout]:
    """The tiles that may lie in parts, the largest first: those of several chunks that nobody sees as a whole, through pointers, under
    another name or as operands of products; behind them accumulators whose parts mma.sync takes one by one."""
    whole: set[Buffer] = set()
    sums: set[Buffer] = set()
    for s in walk_stmt(body):
        if isinstance(s, Gemm):
            parts = gemms[id(s)].kind == "mma" and s.marks is None and s.c.buffer.dtype.bits == 32
            sums |= {s.c.buffer} if parts else set()
            whole.update(r.buffer for r in ((s.a, s.b) if parts else (r for side in regions(s) for r in side)))
        whole.update(b for e in stmt_exprs(s) for b, _ in pointers(e))
        whole.update(x for b in buffers_of(s) if b.view_of is not None for x in (b, storage(b)))
    found = {b: x for b, x in layouts.items() if b not in whole and b.dtype.bits >= 8 and _chunks(b, x) > 1}
    return dict(sorted(found.items(), key=lambda t: (t[0] in sums, -_chunks(*t))))


def passing(body: Stmt) -> frozenset[Buffer]:
    """The tiles that one statement makes and the very next one uses up: they hold no registers of their own."""
    uses: dict[Buffer, list[tuple[int, int, bool, bool]]] = {}
    for block, n, s in _statements(body):
        reads, writes = touched([s])
        for b in reads | writes:
            uses.setdefault(b, []).append((block, n, b in reads, b in writes))

    def passes(found: list[tuple[int, int, bool, bool]]) -> bool:
        match found:
            case [(made, n, False, True), (used, m, True, False)]:
                return made == used and m == n + 1
            case _:
                return False

    return frozenset(b for b, found in uses.items() if passes(found))


def held(body: Stmt, layouts: Mapping[Buffer, FragmentLayout], gemms: Mapping[int, GemmPlan], registers: int) -> int:
    """What a thread has to hold of `registers` that are expected; 0 where none of the tiles may lie in parts."""
    free = passing(body)
    parts = any(b not in free for b in shelvable(body, layouts, gemms))
    return registers - sum(words(b, x) for b, x in layouts.items() if b in free) if parts else 0


def on_shelf(v: Variant, legal: Legal, threads: int, target: Target, share: int) -> Variant:
    """The body with so much of its tiles on the shelf that the others take `share` hundredths of the registers, as far as there is room."""
    body, layouts = legal.body, legal.layouts
    free = passing(body) & layouts.keys()
    tiles = {b: x for b, x in shelvable(body, layouts, legal.gemms).items() if b not in free}
    need = v.registers - sum(words(b, layouts[b]) for b in free)
    chunks = -(-(need - target.registers_for(threads) * share // 100) // WORDS)
    top, placements = v.shared_bytes, dict(v.placements)
    for b, layout in tiles.items():
        room = (target.shared_per_block_max - top) // (threads * CHUNK)
        taken = min(chunks, room, _chunks(b, layout) - 1)
        if taken > 0:
            kept = (_chunks(b, layout) - taken) * _per(b)
            placements[b] = Registers(layout, layout.registers - kept, top)
            top += -(-taken * threads * CHUNK // ALIGNMENT) * ALIGNMENT
            chunks, need = chunks - taken, need - taken * WORDS
    if top == v.shared_bytes:
        return v
    parts = [b.name for b, place in placements.items() if isinstance(place, Registers) and place.shelved]
    text = f"a part of {' and '.join(parts)} lies in shared memory: registers do not hold all of it"
    remark = Diagnostic(Severity.REMARK, "TL0513", text, _span(body, parts))
    return replace(v, placements=placements, shared_bytes=top, registers=need, remarks=(*v.remarks, remark))


def shelf_elements(b: Buffer, place: Registers, threads: int) -> int:
    """Elements of the shelf's part for a tile: whole chunks of all threads."""
    return -(-place.shelved // _per(b)) * _per(b) * threads


def _statements(s: Stmt) -> Iterator[tuple[int, int, Stmt]]:
    """Every statement that has none inside, with the number of its sequence and its place there."""
    blocks = [s]
    for block, here in enumerate(blocks):  # which grows meanwhile
        for n, x in enumerate(x for x in flat(here) if not isinstance(x, Alloc | Let)):
            if isinstance(x, Parallel) or not stmt_children(x):
                yield block, n, x
            else:
                blocks += stmt_children(x)


def _span(body: Stmt, names: list[str]) -> Span:
    return next((s.span for s in walk_stmt(body) if isinstance(s, Alloc) and s.buffer.name == names[0]), NOWHERE)


def _per(b: Buffer) -> int:
    """Elements of a chunk."""
    return max(1, CHUNK // b.dtype.bytes)


def _chunks(b: Buffer, layout: FragmentLayout) -> int:
    """Chunks of a thread."""
    return -(-layout.registers // _per(b))


def words(b: Buffer, layout: FragmentLayout) -> int:
    """Registers that a tile takes of a thread."""
    return -(-layout.registers * b.dtype.bytes // 4)
