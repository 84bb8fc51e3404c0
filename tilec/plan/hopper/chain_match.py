"""Recognises kernels that chain products: tiles held, tiles streamed past them, and two or more products of either in each step.

    match(launch, written) -> Chain, "" when it is no such kernel, or the reason why the portable path does this one

The gradients of attention are of this kind: S = K Q^T and dP = V dO^T come from tiles alone, dV += P dO and dK += dS Q take what
row statements make of those in registers, and dQ = dS^T K takes it from all warp groups, through a shared tile. Nothing here knows
of attention: what counts is who fills an operand. Products are queued as early as what they read allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilec.record import record
from tilec.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32
from tilec.ir.expr import Buffer, Cast, Const, Expr, Load, Scope, Var
from tilec.ir.kernel import Launch
from tilec.ir.tile import Alloc, Barrier, Copy, Fill, For, Gemm, Let, Parallel, Scan, Seq, Stmt, Store, While
from tilec.ir.visit import flat, storage, walk_expr, walk_stmt
from tilec.plan.domains import paired, static, static_shape, whole
from tilec.plan.hopper.matching import KINDS, loop_with_products, resolved_lets, static_zero, uses_threads
from tilec.plan.hopper.parts import direct_stores
from tilec.plan.legal import full
from tilec.plan.pipelines import split, touched, used_outside


@record
class Chain:
    """The parts of such a kernel.

    `held` fill tiles in front of the loop; `streams` fill tiles and rows of float32 step by step. `work` are the statements of a
    step in the order in which they will be done: products (each clears its accumulator or adds to it for good), copies of a
    fragment into one of the tiles `exchanged`, and row statements. `allocs` are all fragments.
    """

    loop: For
    held: tuple[Copy, ...]
    streams: tuple[Copy, ...]
    exchanged: tuple[Buffer, ...]
    lets: tuple[Let, ...]
    resolved: dict[Var, Expr]
    allocs: tuple[Alloc, ...]
    prologue: tuple[Stmt, ...]
    work: tuple[Stmt, ...]
    epilogue: tuple[Stmt, ...]
    kind: str

    @property
    def gemms(self) -> tuple[Gemm, ...]:
        """The products of a step, in order."""
        return tuple(s for s in self.work if isinstance(s, Gemm))


def match(launch: Launch, written: frozenset[Buffer]) -> Chain | str:
    """The parts of a launch; the reason why it is not taken, empty when it has another form altogether."""
    body = flat(launch.body)
    placed = loop_with_products(body, 3)
    if placed is None:
        return ""
    at, loop = placed
    if uses_threads(launch):
        return "thread indices are used"
    parts = split(loop, used_outside(launch.body, loop))
    if loop.kind not in ("pipelined", "serial") or not parts.producers:
        return parts.why or "its loop fills no tile that may run ahead"
    front = _front(body[:at], parts.consumers)
    if isinstance(front, str):
        return front
    held, lets, prologue = front
    cleared = _cleared([s for s in parts.consumers if not isinstance(s, Alloc)])
    if isinstance(cleared, str):
        return cleared
    work, wide = _widened(cleared)
    exchanged = tuple(s.dst.buffer for s in work if isinstance(s, Copy) and s.dst.buffer.scope is Scope.SHARED)
    epilogue = direct_stores(tuple(body[at + 1 :]))
    reason = _tiles(held, parts.producers, exchanged, work, written) or _products(work, held, parts.producers, exchanged)
    reason = reason or _rows_alone((*prologue, *work, *epilogue), parts.producers, exchanged)
    if reason:
        return reason
    resolved = resolved_lets(lets)
    tiles = {storage(c.dst.buffer) for c in (*held, *parts.producers)} | set(exchanged)
    reads, writes = touched([*prologue, *work, *epilogue])
    stated = (s for s in (*body[:at], *parts.consumers, *wide, *epilogue) if isinstance(s, Alloc))
    allocs = tuple(s for s in stated if s.buffer not in tiles and s.buffer in reads | writes)
    first = next(s for s in work if isinstance(s, Gemm))
    kind = KINDS[first.a.buffer.dtype, first.b.buffer.dtype, FLOAT32][0]
    done = tuple(s for s in epilogue if not isinstance(s, Alloc))
    return Chain(loop, held, parts.producers, exchanged, lets, resolved, allocs, prologue, ordered(work), done, kind)


def _front(stmts: Sequence[Stmt], step: Sequence[Stmt]) -> tuple[tuple[Copy, ...], tuple[Let, ...], tuple[Stmt, ...]] | str:
    """What stands in front of the loop: copies that fill operands of its products, scalars, and the rest."""
    operands = {r.buffer for s in step if isinstance(s, Gemm) for r in (s.a, s.b)}
    held: list[Copy] = []
    lets: list[Let] = []
    rest: list[Stmt] = []
    for s in stmts:
        match s:
            case Copy(dst=dst) if dst.buffer.scope is Scope.SHARED and dst.buffer in operands:
                if any(c.dst.buffer is dst.buffer for c in held):
                    return f"{dst.buffer.name} is filled twice"
                held.append(s)
            case Let(_, value):
                if any(isinstance(e, Load) for e in walk_expr(value)):
                    return f"line {s.span.line} reads memory in front of the loop"
                lets.append(s)
            case Alloc():
                pass
            case _:
                rest.append(s)
    return tuple(held), tuple(lets), tuple(rest)


def _cleared(step: Sequence[Stmt]) -> list[Stmt] | str:
    """The statements of a step, an accumulator that is zeroed in front of its product cleared by the product instead."""
    out: list[Stmt] = []
    for s in step:
        if isinstance(s, Gemm):
            if not isinstance(s.clear, Const):
                return f"line {s.span.line} clears its accumulator now and then"
            at = next((n for n in reversed(range(len(out))) if s.c.buffer in set().union(*touched([out[n]]))), None)
            last = None if at is None else out[at]
            if at is not None and isinstance(last, Fill) and whole(last.dst) and static_zero(last.value):
                del out[at]
                s = replace(s, clear=Const(True, s.clear.dtype))
        out.append(s)
    return out


def _widened(step: Sequence[Stmt]) -> tuple[list[Stmt], list[Alloc]]:
    """The statements of a step, loops that round what they store into a 16-bit fragment cut in two: a float32 fragment, and a cast
    of all of it, which goes two elements at a time."""
    out: list[Stmt] = []
    allocs: list[Alloc] = []
    for s in step:
        body = flat(s.body) if isinstance(s, Parallel) else []
        narrow = [x for x in body if isinstance(x, Store) and isinstance(s, Parallel) and _rounds(x, s, body)]
        table = {x.buffer: Buffer(f"{x.buffer.name}_wide", FLOAT32, x.buffer.shape, Scope.FRAGMENT) for x in narrow}
        if isinstance(s, Parallel) and narrow:
            body = [replace(x, buffer=table[x.buffer], value=x.value.a) if x in narrow else x for x in body]  # type: ignore[union-attr]
            s = replace(s, body=Seq(tuple(body)))
        out.append(s)
        for old, wide in table.items():
            allocs.append(Alloc(wide, s.span))
            out.append(Copy(full(wide, s.span), full(old, s.span), s.span))
    return out, allocs


def _rounds(x: Store, s: Parallel, body: Sequence[Stmt]) -> bool:
    """True for a store that rounds float32 numbers into all of a 16-bit fragment, which its loop does not use otherwise."""
    b = x.buffer
    fits = b.scope is Scope.FRAGMENT and tuple(x.indices) == tuple(s.vars) and tuple(map(static, s.extents)) == static_shape(b)
    if not fits or b.dtype not in (FLOAT16, BFLOAT16) or not isinstance(x.value, Cast) or x.value.a.dtype != FLOAT32:
        return False
    return not any(b in set().union(*touched([other])) for other in body if other is not x) and b not in touched([x])[0]


def _tiles(
    held: Sequence[Copy], streams: Sequence[Copy], exchanged: Sequence[Buffer], work: Sequence[Stmt], written: frozenset[Buffer]
) -> str:
    """Why tiles cannot be filled by the copy engine, or exchanged; empty when they can."""
    operands = {r.buffer for s in work if isinstance(s, Gemm) for r in (s.a, s.b)}
    for c in (*held, *streams):
        source, tile = c.src.buffer, c.dst.buffer
        rank = 2 if tile in operands else 1
        if tile.rank != rank or not whole(c.dst) or len(paired(c.src)) != rank or paired(c.src)[-1] != source.rank - 1:
            return f"{tile.name} is not a whole tile of {source.name}"
        if rank == 1 and (tile.dtype != FLOAT32 or not 4 <= static_shape(tile)[0] <= 256 or static_shape(tile)[0] % 4):
            return f"{tile.name} is no row of 4 to 256 float32"
        if source.scope is not Scope.GLOBAL or source.dtype != tile.dtype or source.safe_value is not None or storage(source) in written:
            return f"{source.name} cannot be read through a tensor map"
        if source.view_of is not None or source.workspace or not 2 <= source.rank <= 5 or tile.view_of is not None:
            return f"{source.name} cannot be read through a tensor map"
    if len(set(exchanged)) != len(exchanged):
        return "a tile is exchanged twice in a step"
    for s in work:
        if isinstance(s, Copy) and s.dst.buffer in exchanged:
            tile = s.dst.buffer
            if not whole(s.src) or not whole(s.dst) or s.src.buffer.scope is not Scope.FRAGMENT or s.src.buffer.dtype != tile.dtype:
                return f"{tile.name} is not filled with a whole fragment of its type"
            if tile not in operands or tile.rank != 2 or tile.view_of is not None:
                return f"{tile.name} is no operand of a product"
    return ""


def _products(work: Sequence[Stmt], held: Sequence[Copy], streams: Sequence[Copy], exchanged: Sequence[Buffer]) -> str:
    """Why warp groups cannot do a product; empty when they can do all."""
    tiles = {c.dst.buffer for c in (*held, *streams)}
    ready: set[Buffer] = set()
    entry = None
    for s in work:
        if isinstance(s, Copy) and s.dst.buffer in exchanged:
            ready.add(s.dst.buffer)
        if not isinstance(s, Gemm):
            continue
        mine = KINDS.get((s.a.buffer.dtype, s.b.buffer.dtype, s.c.buffer.dtype))
        entry = entry or mine
        if mine is None or mine[1] != 16 or s.c.buffer.dtype != FLOAT32 or mine != entry:
            return "its products are not of 16-bit elements into float32"
        if s.c.buffer.scope is not Scope.FRAGMENT:
            return f"{s.c.buffer.name} is not a fragment"
        for r in (s.a, s.b, s.c):
            if not whole(r) or r.buffer.rank != 2:
                return f"only a part of {r.buffer.name} is multiplied"
        for r in (s.a, s.b):
            in_registers = r is s.a and r.buffer.scope is Scope.FRAGMENT and not s.trans_a
            if not in_registers and r.buffer not in tiles | ready:
                return f"{r.buffer.name} is no tile that is filled in front of its product"
    accumulators = [s.c.buffer for s in work if isinstance(s, Gemm)]
    operands = {s.a.buffer for s in work if isinstance(s, Gemm)}
    return "" if len(set(accumulators)) == len(accumulators) and not operands & set(accumulators) else "two products share an accumulator"


def _rows_alone(stmts: Sequence[Stmt], streams: Sequence[Copy], exchanged: Sequence[Buffer]) -> str:
    """Why the warp groups cannot do the statements each for its own rows; empty when they can."""
    rest = [s for s in stmts if not isinstance(s, Gemm) and not (isinstance(s, Copy) and s.dst.buffer in exchanged)]
    for top in rest:
        for s in walk_stmt(top):
            if isinstance(s, Gemm | Scan | Barrier | While) or (isinstance(s, For) and s.kind == "pipelined"):
                return f"line {s.span.line} needs the whole block"
            if isinstance(s, Alloc) and s.buffer.scope in (Scope.LOCAL, Scope.VAR):
                return f"{s.buffer.name} is private to each thread"
    reads, writes = touched(rest)
    rows = {c.dst.buffer for c in streams if c.dst.buffer.rank == 1}
    shared = next((b for b in reads | writes if b.scope is Scope.SHARED and b not in rows), None)
    if shared is not None:
        return f"{shared.name} lies in shared memory"
    both = next((b for b in reads & writes if b.scope is Scope.GLOBAL), None)
    return "" if both is None else f"{both.name} is read and written"


# ---- order -----------------------------------------------------------------------------------------------------------


def ordered(work: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """The statements of a step, each product as early as what it reads and its accumulator allow, products in their order.

    A product that is added up for good waits for those whose result the step itself uses, if these need the same operand: what the
    step does with their result then runs beside it.
    """
    out: list[Stmt] = []
    for s in work:
        at = len(out)
        if isinstance(s, Gemm):
            reads, writes = {s.a.buffer, s.b.buffer, s.c.buffer}, {s.c.buffer}
            while at and not isinstance(out[at - 1], Gemm) and not _meet(out[at - 1], reads, writes):
                at -= 1
        out.insert(at, s)
    return tuple(_behind(out))


def _behind(stmts: list[Stmt]) -> list[Stmt]:
    """Products that are added up for good and stand right before the exchange of their own operand: moved behind its product."""
    for n, s in enumerate(stmts):
        if not isinstance(s, Gemm) or s.a.buffer.scope is not Scope.FRAGMENT:
            continue
        match rest := stmts[n + 1 :]:
            case [Copy(src, dst), Gemm() as other, *_] if src.buffer is s.a.buffer and dst.buffer in (other.a.buffer, other.b.buffer):
                return [*stmts[:n], *rest[:2], s, *rest[2:]]
            case _:
                pass
    return stmts


def _meet(s: Stmt, reads: set[Buffer], writes: set[Buffer]) -> bool:
    """True when `s` must keep its place before something that reads and writes these buffers."""
    if isinstance(s, Let):
        return False
    mine_read, mine_written = touched([s])
    return bool(mine_written & (reads | writes) or mine_read & writes)

