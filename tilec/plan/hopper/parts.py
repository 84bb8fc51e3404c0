"""What all kernels for Hopper are put together from: operands, stores of the copy engine, persistent grids, the finished body.

    operand_of(T.copy(A[by * 128, ko * 64], A_s), k_major=True, ...) -> Operand: boxes of 128 rows of 128 bytes, swizzled over them
    bulk_store_of(T.copy(acc, C[by * 128, bx * 256]), ...) -> BulkStore: 64 x 64 at a time through shared memory
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise

from tilec.analysis.facts import Facts
from tilec.ir.dtypes import FLOAT32, INT32, INT64
from tilec.ir.expr import Binary, Buffer, Compare, Const, Expr, Scope, Var, VarKind
from tilec.ir.kernel import Launch
from tilec.ir.tile import Alloc, Copy, Seq, Stmt
from tilec.ir.visit import stmt_children, storage, substitute, walk_stmt
from tilec.layout import atoms
from tilec.layout.fragment import FragmentLayout, same_map
from tilec.layout.shared import CHUNK, SharedLayout
from tilec.plan.access import conjunction
from tilec.plan.cut import first_cut
from tilec.plan.domains import cast, paired, static_shape, whole
from tilec.plan.hopper.plan import MULTIPROCESSORS, Box, Operand, Staging, TensorMap
from tilec.plan.ladder import Choice, rung_of
from tilec.plan.legal import legalise
from tilec.plan.lower import Lowering
from tilec.plan.pipelines import touched
from tilec.plan.plan import (
    BulkStore,
    Chained,
    InMemory,
    PSeq,
    PackRegisters,
    Placement,
    SharedTile,
    Streamed,
    Variant,
    WarpSpecialized,
)  # fmt: skip
from tilec.plan.copy_engine import span_swizzle, unreachable, widest_span
from tilec.record import record
from tilec.targets import Target

CHUNKS = (2, 3, 5)
"""How many chunks of results a consumer may stage at a time, the best first; a divisor of all of its chunks is taken."""

PARTS = ((2, 64), (3, 64), (2, 32))
"""Into how many a block may be cut, and what the size of a part is a multiple of; the best first."""


@record
class Request:
    """What the planner hands over: a launch of a kernel, the symbol for its body, the divisors that `when` may ask for, the
    tensors that the kernel writes, whether float32 products must not be shortened to TF32, how freely blocks may change, and whether
    they may work in pairs (auto: where that pays), the configurations that are not the first ones."""

    launch: Launch
    symbol: str
    divisors: Mapping[Var, int]
    written: frozenset[Buffer]
    target: Target
    ieee: bool
    opt_level: int
    pairs: str = "auto"
    choice: Choice = field(default_factory=dict)


def in_parts(r: Request, ladder: str) -> Request:
    """The request for smaller blocks, where the rung of its body asks for them and nothing in the source can tell: whole warp groups
    of rows, or columns."""
    if rung_of(r.choice, ladder, r.symbol)[1].cut == 1:
        return r
    return replace(r, launch=first_cut(r.launch, PARTS) or r.launch)


def mapped_facts(r: Request, copies: Iterable[Copy]) -> Facts:
    """What a body may rely on: no extent of a tensor that its copies read through a map is 0."""
    facts = Facts().with_launch(r.launch, (128, 1, 1))
    for v, n in r.divisors.items():
        facts = facts.with_divisor(v, n)
    for c in copies:
        for e in c.src.buffer.shape:
            if isinstance(e, Var):
                facts = facts.with_range(e, lo=1)
    return facts


def operand_of(
    copy: Copy, k_major: bool, k: int, group_rows: int, lets: Mapping[Var, Expr], facts: Facts, anywhere: bool = False
) -> Operand | str:
    """The tile that a copy fills as an operand of wgmma; or why the copy engine or wgmma cannot take it. With `anywhere` threads
    bring it, from rows that may start anywhere."""
    tile, source = copy.dst.buffer, copy.src.buffer
    item = tile.dtype.bytes
    shape = static_shape(tile)
    shape = (shape[0], k) if k_major else (k, shape[1])
    across, inner = shape
    span = widest_span(inner * item)
    if not span:
        return f"rows of {tile.name} are {inner * item} bytes, no multiple of 32"
    if across > 256 or across % 8:
        return f"{tile.name} has {across} rows"
    reason = unreachable(source, facts, anywhere)
    if reason:
        return reason
    per = span // item
    rank, row = source.rank, paired(copy.src)[0]
    box = tuple(per if d == rank - 1 else across if d == row else 1 for d in reversed(range(rank)))
    at = tuple(substitute(e, lets) for e in reversed(copy.src.starts))
    if any(e.dtype != INT32 for e in at):
        return f"{source.name} is indexed with {next(e.dtype for e in at if e.dtype != INT32)}"
    boxes = tuple(Box(n * across * per, n * per) for n in range(inner // per))
    block = across * span
    step = group_rows * span if k_major else group_rows * item // span * block
    return Operand(tile, TensorMap(source, box, span), at, boxes, shape, k_major, span, CHUNK if k_major else block, 8 * span, step)


def ring_of(o: Operand, offset: int, stages: int) -> SharedTile:
    """The versions of an operand, as blocks of rows of `span` bytes."""
    per = o.span // o.tile.dtype.bytes
    rows = o.elements // per
    return SharedTile(SharedLayout((rows, per), o.tile.dtype.bytes, per, span_swizzle(o.span)), offset, stages)


def staging_tile(s: Staging, offset: int) -> SharedTile:
    """Where results wait for the copy engine."""
    shape = static_shape(s.tile)
    return SharedTile(SharedLayout(shape, s.tile.dtype.bytes, s.columns, span_swizzle(s.span)), offset)


def direct_stores(epilogue: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """An epilogue with a trip through a tile of its own cut short: acc to C_s to C is acc to C when the types allow."""
    stmts = list(epilogue)
    copies = [s for s in stmts if isinstance(s, Copy)]
    for first, second in pairwise(copies):
        tile = first.dst.buffer
        through = tile.scope is Scope.SHARED and second.src.buffer is tile and whole(first.dst) and whole(second.src)
        others = [s for s in stmts if s is not first and s is not second and not isinstance(s, Alloc)]
        if not through or tile.view_of is not None or tile.dtype != second.dst.buffer.dtype or not whole(first.src):
            continue
        reads, writes = touched(others)
        if storage(tile) in reads | writes:
            continue
        direct = replace(second, src=first.src)
        return tuple(direct if s is second else s for s in stmts if s is not first and not (isinstance(s, Alloc) and s.buffer is tile))
    return tuple(stmts)


def touched_elsewhere(tensor: Buffer, body: Stmt) -> bool:
    """True when `body` reads a tensor or writes it twice: the copy engine's store keeps no order with other accesses."""
    reads, _ = touched([body])
    writers = [s for s in walk_stmt(body) if not stmt_children(s) and storage(tensor) in touched([s])[1]]
    return storage(tensor) in reads or len(writers) != 1


def cast_by_pairs(s: Copy, layouts: Mapping[Buffer, FragmentLayout]) -> PackRegisters | None:
    """A copy between fragments that narrows every float32 where it lies, two at a time; None for any other."""
    src, dst = s.src.buffer, s.dst.buffer
    if src.scope is dst.scope is Scope.FRAGMENT and src.dtype == FLOAT32 and dst.dtype.name in ("float16", "bfloat16"):
        held, wanted = layouts[src], layouts[dst]
        if whole(s.src) and whole(s.dst) and same_map(held, wanted) and held.registers % 2 == 0:
            return PackRegisters(src, dst, held.registers // 2, s.span)
    return None


def bulk_store_of(s: Copy, layout: FragmentLayout | None, shape: tuple[int, int], consumers: int, facts: Facts) -> BulkStore | None:
    """The copy of a whole fragment, held as `consumers` warp groups hold an accumulator of `shape`, to a box of a tensor."""
    src, dst = s.src.buffer, s.dst.buffer
    m, n = shape
    fits = layout is not None and same_map(layout, atoms.warp_group_accumulator(m, n, consumers)) and whole(s.src)
    if not fits or dst.scope is not Scope.GLOBAL or dst.dtype.bits not in (16, 32) or n % 16 or not 2 <= dst.rank <= 5:
        return None
    if not (src.dtype == dst.dtype or (src.dtype.name == "float32" and dst.dtype.is_float)) or dst.workspace or dst.view_of is not None:
        return None
    walked = paired(s.dst)
    if len(walked) != 2 or walked[1] != dst.rank - 1 or unreachable(dst, facts) or any(e.dtype != INT32 for e in s.dst.starts):
        return None
    span = widest_span(n * dst.dtype.bytes)
    columns = span // dst.dtype.bytes
    chunks = m // consumers // 64 * (n // columns)
    box = tuple(columns if d == dst.rank - 1 else 64 if d == walked[0] else 1 for d in reversed(range(dst.rank)))
    # A divisor of all chunks, so that they come round.
    buffers = next((count for count in CHUNKS if chunks % count == 0), 1)
    area = (Const(consumers * buffers * 64, INT32), Const(columns, INT32))
    staging = Staging(Buffer(f"{dst.name}_staged", dst.dtype, area, Scope.SHARED), columns, buffers, span)
    return BulkStore(src, TensorMap(dst, box, span), tuple(reversed(s.dst.starts)), staging, False, s.span)


def persistent_grid(launch: Launch) -> tuple[Expr, Expr, Expr]:
    """One block a multiprocessor, or a tile."""
    tiles: Expr = launch.grid[0]
    for e in launch.grid[1:]:
        tiles = Binary("mul", cast(tiles, INT64), cast(e, INT64), INT64)
    one = Const(1, INT32)
    return Binary("min", cast(tiles, INT64), cast(MULTIPROCESSORS, INT64), INT64), one, one


def condition_of(v: Variant, divisors: Mapping[Var, int]) -> Expr | None:
    """When the launcher may choose the body: addresses and rows of whole chunks, and no empty tensor behind a map."""
    mapped = list(dict.fromkeys(t.tensor for t in v.tensor_maps))
    wide = [b for (b, _), e in v.elements.items() if b.scope is Scope.GLOBAL and isinstance(e, InMemory) and e.wide]
    tests: list[Expr] = []
    for b in (b for b in dict.fromkeys([*mapped, *wide]) if not b.workspace):  # the launcher has made sure of those
        address = Var(b.name, INT64, VarKind.PARAM)
        tests.append(Compare("eq", Binary("mod", address, Const(CHUNK, INT64), INT64), Const(0, INT64)))
    for var, n in divisors.items():
        tests.append(Compare("eq", Binary("mod", var, Const(n, var.dtype), var.dtype), Const(0, var.dtype)))
    for e in dict.fromkeys(e for b in mapped for e in (*b.shape, *(b.strides or ()))):
        if not isinstance(e, Const):
            tests.append(Compare("gt", e, Const(0, e.dtype)))
    return conjunction(tests)


def legalised(parts: Iterable[Sequence[Stmt]], threads: int, r: Request, layouts: dict[Buffer, FragmentLayout]) -> list[Stmt]:
    """Each part with every fragment used as its layout allows; `layouts` comes to know those of fragments that this takes."""
    out: list[Stmt] = []
    for p in parts:
        one = legalise(Seq(tuple(p)), threads, r.target, r.ieee, layouts)
        layouts |= one.layouts
        out.append(one.body)
    return out


def alignment(_: Buffer) -> int:
    """The alignment that such a body may rely on, in bytes: the launcher asks for it."""
    return CHUNK


def finished(
    r: Request, facts: Facts, body: WarpSpecialized | Streamed | Chained, placements: Mapping[Buffer, Placement], lowering: Lowering,
    maps: tuple[TensorMap, ...],
) -> Variant:  # fmt: skip
    """The body of a launch, and the condition under which the launcher may choose it."""
    threads = body.schedule.threads
    registers = r.target.registers_per_sm // threads // 8 * 8  # at the launch, before warp groups exchange any
    out = Variant(
        r.symbol, None, facts, PSeq((body,)), placements, dict(lowering.elements), body.schedule.shared_bytes, registers, (),
        threads=(threads, 1, 1), grid=persistent_grid(r.launch), tensor_maps=maps,
    )  # fmt: skip
    return replace(out, when=condition_of(out, r.divisors))
