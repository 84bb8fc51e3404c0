"""Recognises the kernels that Hopper's own GEMM path takes: one accumulator, one loop of two copies and one product, an epilogue.

    match(launch, written, ieee) -> Match, or the reason why the portable path does it
"""

from __future__ import annotations

from collections.abc import Iterable

from tilec.record import record
from tilec.ir.dtypes import FLOAT32
from tilec.ir.expr import WARP_CALLS, Buffer, Call, Compare, Const, Expr, Load, Scope, Var
from tilec.ir.kernel import Launch
from tilec.ir.tile import Alloc, Barrier, Copy, Fill, For, Gemm, If, Let, Parallel, Reduce, Scan, Seq, Stmt, Store
from tilec.ir.visit import flat, stmt_exprs, storage, substitute, walk_expr, walk_stmt
from tilec.plan.domains import paired, static, whole
from tilec.plan.hopper.matching import KINDS, loop_with_products, resolved_lets, static_zero, unfit
from tilec.plan.pipelines import split, touched, used_outside

@record
class Match:
    """The parts of such a kernel. `copies` fill a and b; `lets` are scalars bound in front of the loop, `resolved` what each
    stands for; `epilogue` is all that follows the loop or may be done then, with the allocations it needs. `ahead` are those
    scalar statements of it on which the places of the copies depend, as on the group that a tile belongs to: the producer does
    them for itself. Blocks for which `guard` does not hold do nothing; where that takes `ahead` as well (`early`), consumers begin
    with them, too, and the epilogue is without them."""

    loop: For
    gemm: Gemm
    copies: tuple[Copy, Copy]
    lets: tuple[Let, ...]
    resolved: dict[Var, Expr]
    epilogue: tuple[Stmt, ...]
    kind: str
    depth: int
    guard: Expr | None
    ahead: tuple[Stmt, ...] = ()
    early: bool = False

    @property
    def acc(self) -> Buffer:
        """The accumulator."""
        return self.gemm.c.buffer


def match(launch: Launch, written: frozenset[Buffer], ieee: bool) -> Match | str:
    """The parts of a launch, or in words why it is none of these kernels."""
    body, guard = _guarded(flat(launch.body))
    placed = loop_with_products(body, 1)
    if placed is None:
        return "there is no loop around a gemm"
    at, loop = placed
    if reason := unfit(launch, loop):
        return reason
    parts = split(loop, used_outside(launch.body, loop), private=True)
    gemms = [s for s in parts.consumers if isinstance(s, Gemm)]
    if loop.kind not in ("pipelined", "serial") or len(parts.producers) != 2 or len(gemms) != 1:
        return parts.why or "its loop is not two copies to shared memory and one gemm"
    if any(not isinstance(s, Gemm | Let) for s in parts.consumers):
        return "its loop does more than two copies and one gemm"
    gemm = gemms[0]
    copies = {storage(c.dst.buffer): c for c in parts.producers}
    lets, moved, reason = _before(body[:at], gemm)
    needed = [e for c in parts.producers for e in stmt_exprs(c)] + ([] if guard is None else [guard])
    ahead = () if reason else _ahead(body[:at], moved, loop, gemm, needed, written)
    if reason or isinstance(ahead, str):
        return reason or str(ahead)
    early = guard is not None and not _made(ahead).isdisjoint(_needs((guard,)))
    if early:
        moved = tuple(s for s in moved if s not in ahead)
    if not _zeroed(body[:at], gemm, loop):
        return "its accumulator does not start at zero"
    entry = KINDS.get((gemm.a.buffer.dtype, gemm.b.buffer.dtype, gemm.c.buffer.dtype))
    if entry is None:
        return f"warp groups do not multiply {gemm.a.buffer.dtype} by {gemm.b.buffer.dtype} into {gemm.c.buffer.dtype}"
    after = (*moved, *body[at + 1 :])
    reason = _operands(gemm, copies, written, ieee) or _after(after, gemm)
    if reason:
        return reason
    allocs = tuple(s for s in body[:at] if isinstance(s, Alloc) and s.buffer not in copies and s.buffer is not gemm.c.buffer)
    allocs = tuple(s for s in allocs if not early or s not in ahead)
    resolved = resolved_lets(lets)
    both = copies[storage(gemm.a.buffer)], copies[storage(gemm.b.buffer)]
    if guard is not None:
        guard = substitute(guard, resolved)
    return Match(loop, gemm, both, lets, resolved, (*allocs, *after), *entry, guard, ahead, early)


def _guarded(body: list[Stmt]) -> tuple[list[Stmt], Expr | None]:
    """The statements of a launch, those inside a branch around all of its work but for scalars opened, and the condition of that
    branch."""
    match body:
        case [*front, If(cond, then, Seq(()))] if all(isinstance(s, Alloc | Let) or _scalars(s, frozenset()) for s in front):
            return [*front, *flat(then)], cond
        case _:
            return body, None


def _before(stmts: list[Stmt], gemm: Gemm) -> tuple[tuple[Let, ...], tuple[Stmt, ...], str]:
    """The scalars bound in front of the loop, and the statements there that may as well stand behind it, since the loop has
    nothing to do with what they read and write; or why one stands in the way."""
    lets: list[Let] = []
    moved: list[Stmt] = []
    busy = {storage(r.buffer) for r in (gemm.a, gemm.b, gemm.c)}
    late: set[Var] = set()
    for s in stmts:
        reads, writes = touched([s])
        match s:
            case Alloc():
                pass
            case Fill(dst) if dst.buffer is gemm.c.buffer:
                pass
            case Let(_, value) if not any(isinstance(e, Load) or e in late for e in walk_expr(value)):
                lets.append(s)
            case Copy() | Parallel() | Fill() | Let() | For() | If() | Store() if not (reads | writes) & busy:
                moved.append(s)
                late |= {x.var for x in walk_stmt(s) if isinstance(x, Let)}
            case _:
                return (), (), f"line {s.span.line} does something in front of its loop"
    return tuple(lets), tuple(moved), ""


def _ahead(
    stmts: list[Stmt], moved: tuple[Stmt, ...], loop: For, gemm: Gemm, needed: Iterable[Expr], written: frozenset[Buffer]
) -> tuple[Stmt, ...] | str:
    """Those of the statements `moved` behind the loop, and the allocations in front of it, without which nobody knows what is `needed`
    to load a tile; or why a producer cannot do them, or the loop itself needs them."""
    known = _made(moved)
    if known & _needs((loop.start, loop.stop, *stmt_exprs(gemm))):
        return "its loop uses a value that is read from memory"
    reads = _needs(needed)
    if any(isinstance(b, Buffer) and b.scope is Scope.GLOBAL and b in written for b in reads):
        return "where its operands lie is read from memory that it writes"
    wanted = known & reads
    out: list[Stmt] = []
    for s in reversed(moved):
        if _made((s,)) & wanted:
            if not _scalars(s, written):
                return f"line {s.span.line} finds the place of an operand by more than scalars"
            wanted |= _needs(e for x in walk_stmt(s) for e in stmt_exprs(x))
            out.insert(0, s)
    return (*(s for s in stmts if isinstance(s, Alloc) and s.buffer in wanted), *out)


def _made(stmts: Iterable[Stmt]) -> set[Var | Buffer]:
    """The names that statements bind and the buffers that they write."""
    every = list(stmts)
    return {x.var for s in every for x in walk_stmt(s) if isinstance(x, Let)} | touched(every)[1]


def _needs(exprs: Iterable[Expr]) -> set[Var | Buffer]:
    """The variables and the buffers that expressions read."""
    found = [x for e in exprs for x in walk_expr(e)]
    return {x for x in found if isinstance(x, Var)} | {storage(x.buffer) for x in found if isinstance(x, Load)}


def _scalars(s: Stmt, written: frozenset[Buffer]) -> bool:
    """True for work on private variables alone, from memory that the launch does not write."""
    parts = all(isinstance(x, Seq | Let | For | If | Store) for x in walk_stmt(s))
    reads, writes = touched([s])
    private = (Scope.VAR, Scope.LOCAL)
    calls = (x for y in walk_stmt(s) for root in stmt_exprs(y) for x in walk_expr(root) if isinstance(x, Call))
    steady = all(b.scope in private or (b.scope is Scope.GLOBAL and b not in written) for b in reads)
    return parts and steady and all(b.scope in private for b in writes) and not any(c.foreign or c.name in WARP_CALLS for c in calls)


def _zeroed(stmts: list[Stmt], gemm: Gemm, loop: For) -> bool:
    """True when the accumulator starts at zero: filled, or cleared by the first product."""
    filled = any(isinstance(s, Fill) and s.dst.buffer is gemm.c.buffer and whole(s.dst) and static_zero(s.value) for s in stmts)
    match gemm.clear:
        case Const(value) if not value:
            return filled
        case Compare("eq", a, b):
            return (a is loop.var and b == loop.start) or (b is loop.var and a == loop.start)
        case _:
            return False


def _operands(gemm: Gemm, copies: dict[Buffer, Copy], written: frozenset[Buffer], ieee: bool) -> str:
    """Why the operands of the gemm cannot come through the copy engine; empty when they can."""
    for region in (gemm.a, gemm.b):
        copy = copies.get(storage(region.buffer))
        if region.buffer.scope is not Scope.SHARED or copy is None or copy.dst.buffer is not region.buffer:
            return f"{region.buffer.name} is not filled by a copy of its loop"
        source = copy.src.buffer
        if not whole(region) or len(region.buffer.shape) != 2 or len(paired(copy.src)) != 2 or paired(copy.src)[-1] != source.rank - 1:
            return f"{region.buffer.name} is not a whole tile of {source.name}"
        if source.dtype != region.buffer.dtype:
            return f"{source.name} is converted on the way"
        if source.safe_value is not None or storage(source) in written or source.view_of is not None or source.rank > 5:
            return f"{source.name} cannot be read through a tensor map"
    if storage(gemm.a.buffer) is storage(gemm.b.buffer):
        return "both operands are one tile"
    if gemm.a.buffer.dtype.bits != 16 and (gemm.trans_a or not gemm.trans_b):
        return f"warp groups need {gemm.a.buffer.dtype} tiles whose rows run along k"
    if gemm.a.buffer.dtype == FLOAT32 and ieee:
        return "float32 products are asked for in full precision"
    if not whole(gemm.c) or len(gemm.c.buffer.shape) != 2 or gemm.c.buffer.scope is not Scope.FRAGMENT:
        return "its accumulator is not a fragment of its own"
    return ""


def _after(stmts: tuple[Stmt, ...], gemm: Gemm) -> str:
    """Why the epilogue cannot be done by the consumers alone; empty when it can."""
    for top in stmts:
        for s in walk_stmt(top):
            if isinstance(s, Gemm | Reduce | Scan | Barrier) or (isinstance(s, For) and s.kind == "pipelined"):
                return f"line {s.span.line} needs the whole block behind the loop"
    return "" if all(static(e) for e in gemm.c.buffer.shape) else "its tiles have no fixed size"
