"""Recognises kernels that stream tiles past a held one: two products in a loop, the second of what row statements make of the first.

    match(launch, written) -> Match, "" when it is no such kernel, or the reason why the portable path does this one

Nothing here knows about softmax. What counts is which statement reads what: the first product needs only tiles that copies
fill, so that of the next step may run before the statements of this one; statements that touch the second accumulator or the
operand that its products read must wait for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from tilec.record import record
from tilec.analysis.affine import affine, depends_on
from tilec.ir.dtypes import FLOAT32, INT32
from tilec.ir.expr import Binary, Buffer, Compare, Const, Expr, Load, Logical, Scope, Select, Unary, Var
from tilec.ir.kernel import Launch
from tilec.ir.tile import Alloc, Atomic, Barrier, Copy, Fill, For, Gemm, Let, Parallel, Scan, Stmt, Store, While
from tilec.ir.visit import flat, storage, substitute, walk_expr, walk_stmt
from tilec.plan.domains import add, paired, static, whole
from tilec.plan.hopper.matching import KINDS, loop_with_products, resolved_lets, static_zero, unfit
from tilec.plan.hopper.parts import direct_stores
from tilec.plan.hopper.plan import WARP_GROUP
from tilec.plan.pipelines import split, touched, used_outside


@record
class Match:
    """The parts of such a kernel.

    `held` fills the a of `first` in front of the loop; `streams` fill the b of both products, step by step. `mask` are the
    statements that drop elements of the first product; with the loop variable below `clean` they drop none of the rows of a warp
    group, from `dead` on all of them (None: not known).
    `rows` may run while the second product of the step before does, `late` must wait for it. `allocs` are all fragments.
    """

    loop: For
    first: Gemm
    second: Gemm
    held: Copy
    streams: tuple[Copy, Copy]
    lets: tuple[Let, ...]
    resolved: dict[Var, Expr]
    allocs: tuple[Alloc, ...]
    prologue: tuple[Stmt, ...]
    mask: tuple[Stmt, ...]
    clean: Expr | None
    dead: Expr | None
    rows: tuple[Stmt, ...]
    late: tuple[Stmt, ...]
    epilogue: tuple[Stmt, ...]
    kind: str

    @property
    def scores(self) -> Buffer:
        """The accumulator of the first product."""
        return self.first.c.buffer

    @property
    def probs(self) -> Buffer:
        """The operand in registers of the second product."""
        return self.second.a.buffer

    @property
    def out(self) -> Buffer:
        """The accumulator of the second product."""
        return self.second.c.buffer


def match(launch: Launch, written: frozenset[Buffer]) -> Match | str:
    """The parts of a launch; the reason why it is not taken, empty when it has another form altogether."""
    body = flat(launch.body)
    placed = loop_with_products(body, 2, 2)
    if placed is None:
        return ""
    at, loop = placed
    if reason := unfit(launch, loop):
        return reason
    parts = split(loop, used_outside(launch.body, loop))
    where = [n for n, s in enumerate(parts.consumers) if isinstance(s, Gemm)]
    if loop.kind not in ("pipelined", "serial") or len(parts.producers) != 2 or len(where) != 2:
        return parts.why or "its loop is not two copies to shared memory and two gemms"
    first, second = (parts.consumers[n] for n in where)
    assert isinstance(first, Gemm) and isinstance(second, Gemm)
    if where[1] != len(parts.consumers) - 1:
        return f"line {parts.consumers[-1].span.line} follows the second gemm in the loop"
    front = _front(body[:at], first.a.buffer)
    if isinstance(front, str):
        return front
    held, lets, prologue = front
    copies = {storage(c.dst.buffer): c for c in parts.producers}
    reason = _products(first, second, held, copies, written)
    if reason:
        return reason
    resolved = resolved_lets(lets)
    between = parts.consumers[where[0] + 1 : where[1]]
    masked = _mask(parts.consumers[: where[0]], between, first)
    if isinstance(masked, str):
        return masked
    mask, between = masked
    rows, late = _under_and_behind([s for s in between if not isinstance(s, Alloc)], second)
    loop_allocs = tuple(s for s in parts.consumers if isinstance(s, Alloc))
    epilogue = direct_stores(tuple(body[at + 1 :]))
    everything = (*prologue, *mask, *rows, *late, *epilogue)
    tiles = {storage(c.dst.buffer) for c in (held, *parts.producers)}
    reason = _consumers_alone(everything)
    if reason:
        return reason
    stated = (s for s in (*body[:at], *loop_allocs, *epilogue) if isinstance(s, Alloc))
    allocs = tuple(s for s in stated if s.buffer not in tiles and _used(s.buffer, everything, second))
    return Match(
        loop, first, second, held, (copies[storage(first.b.buffer)], copies[storage(second.b.buffer)]), lets, resolved, allocs,
        tuple(s for s in prologue if not isinstance(s, Alloc)), mask, _edge(mask, loop, resolved, True),
        _edge(mask, loop, resolved, False), rows, late,
        tuple(s for s in epilogue if not isinstance(s, Alloc)), KINDS[first.a.buffer.dtype, first.b.buffer.dtype, FLOAT32][0],
    )  # fmt: skip


def _used(b: Buffer, stmts: Sequence[Stmt], second: Gemm) -> bool:
    reads, writes = touched([*stmts, second])
    return b in reads | writes


def _front(stmts: Sequence[Stmt], tile: Buffer) -> tuple[Copy, tuple[Let, ...], tuple[Stmt, ...]] | str:
    """What stands in front of the loop: the copy that fills the held tile, scalars, and the rest."""
    held: Copy | None = None
    lets: list[Let] = []
    rest: list[Stmt] = []
    for s in stmts:
        match s:
            case Copy(dst=dst) if dst.buffer is tile:
                if held is not None:
                    return f"{tile.name} is filled twice"
                held = s
            case Let(_, value):
                if any(isinstance(e, Load) for e in walk_expr(value)):
                    return f"line {s.span.line} reads memory in front of the loop"
                lets.append(s)
            case _:
                rest.append(s)
    return (held, tuple(lets), tuple(rest)) if held is not None else f"{tile.name} is not filled by a copy in front of the loop"


def _products(first: Gemm, second: Gemm, held: Copy, copies: dict[Buffer, Copy], written: frozenset[Buffer]) -> str:
    """Why warp groups cannot do the two products; empty when they can."""
    entry, other = (KINDS.get((g.a.buffer.dtype, g.b.buffer.dtype, g.c.buffer.dtype)) for g in (first, second))
    if entry is None or entry[1] != 16 or first.c.buffer.dtype != FLOAT32 or other != entry:
        return "its products are not of 16-bit elements into float32"
    if second.a.buffer.scope is not Scope.FRAGMENT:
        return f"{second.a.buffer.name} is not a fragment"
    if second.trans_a or not isinstance(second.clear, Const) or second.clear.value:
        return "its second product does not add rows times columns"
    for region in (first.a, first.b, first.c, second.a, second.b, second.c):
        if not whole(region) or region.buffer.rank != 2:
            return f"only a part of {region.buffer.name} is multiplied"
    if len({first.c.buffer, second.a.buffer, second.c.buffer}) != 3 or any(x.c.buffer.scope is not Scope.FRAGMENT for x in (first, second)):
        return "its accumulators are not fragments of their own"
    used = (storage(first.b.buffer), storage(second.b.buffer))
    if set(used) != set(copies) or used[0] is used[1]:
        return "its products do not each take a tile of the loop"
    for copy, region in ((held, first.a), (copies[used[0]], first.b), (copies[used[1]], second.b)):
        source, tile = copy.src.buffer, region.buffer
        if copy.dst.buffer is not tile or not whole(copy.dst) or len(paired(copy.src)) != 2 or paired(copy.src)[-1] != source.rank - 1:
            return f"{tile.name} is not a whole tile of {source.name}"
        if source.scope is not Scope.GLOBAL or source.dtype != tile.dtype or source.safe_value is not None or storage(source) in written:
            return f"{source.name} cannot be read through a tensor map"
        if source.view_of is not None or source.workspace or source.rank > 5:
            return f"{source.name} cannot be read through a tensor map"
    return ""


# ---- masks -----------------------------------------------------------------------------------------------------------


def _mask(before: Sequence[Stmt], between: Sequence[Stmt], first: Gemm) -> tuple[tuple[Stmt, ...], tuple[Stmt, ...]] | str:
    """The statements that mask the first product, and the others between the products.

    An accumulator that starts at 0 here and at minus infinity there is one that is masked afterwards.
    """
    scores = first.c.buffer
    mask: list[Stmt] = []
    moved: list[Stmt] = []
    cleared = isinstance(first.clear, Const) and bool(first.clear.value)
    for s in before:
        match s:
            case Alloc():
                pass
            case Fill(dst, value) if dst.buffer is scores and whole(dst) and static_zero(value):
                cleared = True
            case Parallel() if (store := _only_store(s)) is not None and store.buffer is scores:
                found = _as_mask(s, store)
                if found is None:
                    return f"line {s.span.line} starts the scores with other values than 0 and minus infinity"
                mask, cleared = [found] if found is not s else [], True
            case _ if scores in set().union(*touched([s])):
                return f"line {s.span.line} uses the scores in front of their product"
            case _:
                moved.append(s)
    if not cleared:
        return "its first product adds to the step before"
    rest = [*moved, *between]
    if not mask and not moved and rest and _masks_scores(rest[0], scores):
        mask, rest = [rest[0]], rest[1:]
    return tuple(mask), tuple(rest)


def _only_store(s: Parallel) -> Store | None:
    """The store that is all of a loop's body, if one is."""
    match flat(s.body):
        case [Store() as store]:
            return store
        case _:
            return None


def _as_mask(s: Parallel, store: Store) -> Parallel | None:
    """`scores = 0 or -inf` as `scores = scores or -inf`; `s` itself when all of it is 0, None when it is something else."""
    if tuple(store.indices) != tuple(s.vars) or any(static(e) != static(n) for e, n in zip(s.extents, store.buffer.shape, strict=True)):
        return None
    own = Load(store.buffer, store.indices)

    def leaf(e: Expr) -> Expr | None:
        if static_zero(e):
            return own
        if _minus_infinity(e):
            return e
        if isinstance(e, Select):
            a, b = leaf(e.a), leaf(e.b)
            return None if a is None or b is None else replace(e, a=a, b=b)
        return None

    value = leaf(store.value)
    if value is None:
        return None
    return s if value is own else replace(s, body=replace(store, value=value))


def _minus_infinity(e: Expr) -> bool:
    match e:
        case Const(value):
            return value == -inf
        case Unary("neg", Const(value)):
            return value == inf
        case _:
            return False


def _masks_scores(s: Stmt, scores: Buffer) -> bool:
    """True for `scores[i, j] = scores[i, j] if condition else -inf`."""
    store = _only_store(s) if isinstance(s, Parallel) else None
    if store is None or not isinstance(s, Parallel) or store.buffer is not scores or not isinstance(store.value, Select):
        return False
    arms = (store.value.a, store.value.b)
    return tuple(store.indices) == tuple(s.vars) and Load(scores, store.indices) in arms and any(map(_minus_infinity, arms))


def _edge(mask: Sequence[Stmt], loop: For, lets: dict[Var, Expr], whole_rows: bool) -> Expr | None:
    """Below which value of the loop variable the mask keeps every element of a warp group's rows (`whole_rows`), or at least one;
    None when no such bound is known."""
    if len(mask) != 1 or not isinstance(mask[0], Parallel):
        return None
    store = _only_store(mask[0])
    if store is None or not isinstance(store.value, Select):
        return None
    value = store.value
    keeps = value.cond if isinstance(value.a, Load) else Unary("not", value.cond, value.cond.dtype)
    out: Expr | None = None
    for c in _conjuncts(keeps):
        one = _bound(c, mask[0], loop.var, lets, whole_rows)
        if one is None and whole_rows:
            return None
        if one is not None:
            out = one if out is None else Binary("min", out, one, INT32)
    return out


def _conjuncts(e: Expr) -> list[Expr]:
    match e:
        case Logical("and", a, b):
            return [*_conjuncts(a), *_conjuncts(b)]
        case Unary("not", Compare(op, a, b)):
            return [Compare({"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}.get(op, "ne"), a, b)]
        case _:
            return [e]


def _bound(cond: Expr, domain: Parallel, step: Var, lets: dict[Var, Expr], worst: bool) -> Expr | None:
    """For a condition that is linear in the step, with a factor that makes it false at some step: the first such step, for the
    element of a warp group's 64 rows where it comes first (`worst`), or last."""
    if not isinstance(cond, Compare) or cond.op not in ("lt", "le", "gt", "ge") or cond.a.dtype != INT32:
        return None
    a, b = substitute(cond.a, lets), substitute(cond.b, lets)
    form = affine(a).plus(affine(b), -1)  # true where form >= 0
    form = form.times(-1) if cond.op in ("lt", "le") else form
    const = form.const - (cond.op in ("lt", "gt"))
    rest: Expr = Const(0, INT32)
    factor = 0
    for term, c in form.terms.items():
        if term is step:
            factor = -c
        elif isinstance(term, Var) and term in domain.vars:
            extent = static(domain.extents[domain.vars.index(term)]) or 1
            if term is domain.vars[0]:
                extent = 64
                rest = add(rest, Binary("mul", WARP_GROUP, Const(64 * c, INT32), INT32))
            ends = (0, c * (extent - 1))
            const += min(ends) if worst else max(ends)
        elif depends_on(term, (step, *domain.vars)) or any(isinstance(e, Load) for e in walk_expr(term)):
            return None
        else:
            rest = add(rest, term if c == 1 else Binary("mul", term, Const(c, INT32), INT32))
    if factor <= 0:
        return None
    top = add(rest, Const(const + factor, INT32))
    return Binary("floordiv", top, Const(factor, INT32), INT32)


# ---- order -----------------------------------------------------------------------------------------------------------


def _under_and_behind(stmts: Sequence[Stmt], second: Gemm) -> tuple[tuple[Stmt, ...], tuple[Stmt, ...]]:
    """Statements that may run while the second product of the step before still does, and those that must wait for it."""
    reads: set[Buffer] = set()
    writes: set[Buffer] = {second.c.buffer, second.a.buffer}
    rows: list[Stmt] = []
    late: list[Stmt] = []
    for s in stmts:
        mine_read, mine_written = touched([s])
        if not isinstance(s, Let) and (mine_written & (reads | writes) or mine_read & writes):
            late.append(s)
            reads |= mine_read
            writes |= mine_written
        else:
            rows.append(s)
    return tuple(rows), tuple(late)


def _consumers_alone(stmts: Sequence[Stmt]) -> str:
    """Why the warp groups cannot do the statements each for its own rows; empty when they can."""
    for top in stmts:
        for s in walk_stmt(top):
            if isinstance(s, Gemm | Scan | Barrier | Atomic | While) or (isinstance(s, For) and s.kind == "pipelined"):
                return f"line {s.span.line} needs the whole block"
    for s in stmts:
        if isinstance(s, Alloc) and s.buffer.scope in (Scope.LOCAL, Scope.VAR):
            return f"{s.buffer.name} is private to each thread"
    reads, writes = touched(stmts)
    shared = next((b for b in reads | writes if b.scope is Scope.SHARED), None)
    if shared is not None:
        return f"{shared.name} lies in shared memory"
    both = next((b for b in reads & writes if b.scope is Scope.GLOBAL), None)
    return "" if both is None else f"{both.name} is read and written"
