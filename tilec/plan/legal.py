"""Rewrites a launch until every register tile is used in a way its layout allows.

Nothing is refused for its layout. A statement that needs elements of a fragment which other threads hold gets them through a
tile in shared memory; a fragment that scalar code indexes freely lives there altogether. Each such trip is a remark.

    for i, j in T.Parallel(64, 64): B[i, j] = acc[j, i]
 -> T.copy(acc, acc_staged); for i, j in T.Parallel(64, 64): B[i, j] = acc_staged[j, i]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tilec.analysis.ranges import divisor
from tilec.analysis.teams import Teams, walk_teams
from tilec.diagnostics import Diagnostic, Severity, Span, error
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Binary, Buffer, Compare, Const, Expr, Load, Scope, Var, VarKind
from tilec.ir.tile import Alloc, Atomic, Copy, Fill, For, Gemm, If, Parallel, Reduce, Region, Scan, Seq, Stmt, Store
from tilec.ir.visit import buffers_of, map_expr, map_stmt, replace_buffers, stmt_children, stmt_exprs, walk_expr, walk_stmt
from tilec.layout.fragment import FragmentLayout, normal, same_map
from tilec.layout.shared import CHUNK
from tilec.plan.access import constant_register, copies_guard
from tilec.plan.sequential import rereads, written_registers
from tilec.plan.domains import add, static, static_shape, whole
from tilec.plan.fragments import domain, domain_layout, held_register, infer, propagate, row_width
from tilec.plan.gemm_plan import GemmPlan, GemmShape
from tilec.plan.by_hand.products import choose_by_hand, misplaced
from tilec.plan.inside import walked_inside
from tilec.plan.instructions import choose
from tilec.plan.plan import THREAD
from tilec.plan.policies import policies
from tilec.plan.private import by_thread, fill_as_parallel
from tilec.plan.scans import scan_layout
from tilec.plan.shifts import unshifted
from tilec.plan.snapshots import snapshots
from tilec.plan.warp_groups import choose_groups, explained
from tilec.targets import Target


@dataclass(slots=True)
class Legal:
    """A launch body whose fragments all have layouts that fit their uses."""

    body: Stmt
    layouts: dict[Buffer, FragmentLayout]
    gemms: dict[int, GemmPlan]  # by id() of the Gemm statement in `body`
    remarks: tuple[Diagnostic, ...]


@dataclass(slots=True)
class _Stage:
    """What one round of rewriting needs and finds."""

    threads: int
    target: Target
    ieee: bool
    teams: Teams | None = None
    groups: bool = False
    layouts: Mapping[Buffer, FragmentLayout] = field(default_factory=dict)
    gemms: dict[int, GemmPlan] = field(default_factory=dict)
    demoted: dict[Buffer, Buffer] = field(default_factory=dict)
    remarks: list[Diagnostic] = field(default_factory=list)
    changed: bool = False
    counts: Mapping[int, int] = field(default_factory=dict)
    count: int = 0

    def crews(self, body: Stmt) -> tuple[dict[int, int], dict[Buffer, int]]:
        """How many threads carry out each statement (by id()) and hold each fragment, where not all of them do."""
        if self.teams is None:
            return {}, {}
        found = list(walk_teams(body, self.teams, self.teams.block))
        held = {b: t.count for s, t in found if not isinstance(s, Alloc) for b in buffers_of(s) if b.scope is Scope.FRAGMENT}
        return {id(s): t.count for s, t in found}, held

    def remark(self, span: Span, text: str) -> None:
        self.remarks.append(Diagnostic(Severity.REMARK, "TL0501", text, span))

    def tile(self, like: Buffer, scope: Scope, suffix: str, shape: tuple[Expr, ...] | None = None) -> Buffer:
        """A new on-chip tile with the type and shape of `like`."""
        return Buffer(f"{like.name}_{suffix}", like.dtype, like.shape if shape is None else shape, scope, span=like.span)


def full(buffer: Buffer, span: Span) -> Region:
    """The region that is all of a buffer."""
    return Region(buffer, tuple(Const(0, INT32) for _ in buffer.shape), buffer.shape, span)


def gemm_shape(g: Gemm, ieee: bool, policy: str) -> GemmShape:
    """The facts that choose an instruction for a GEMM whose warps lie as `policy` says."""
    m, n = (static(e) or 1 for e in g.c.extents[-2:])
    k = static(g.b.extents[-1 if g.trans_b else -2]) or 1

    def source(r: Region) -> str:
        return "register" if r.buffer.scope is Scope.FRAGMENT else "shared"

    def aligned(r: Region) -> bool:
        per = max(1, CHUNK // r.buffer.dtype.bytes)
        return divisor(r.starts[-1]) % per == 0 and (static(r.buffer.shape[-1]) or 1) % per == 0

    return GemmShape(
        m, n, k, g.a.buffer.dtype, g.b.buffer.dtype, g.c.buffer.dtype, g.trans_a, g.trans_b, source(g.a), source(g.b), policy,
        aligned(g.a), aligned(g.b), ieee, g.marks is not None,
    )  # fmt: skip


def legalise(
    body: Stmt, threads: int, target: Target, ieee: bool, fixed: Mapping[Buffer, FragmentLayout] | None = None, teams: Teams | None = None,
    by_hand: bool = False, groups: bool = False,
) -> Legal:  # fmt: skip
    """Chooses instructions and layouts and rewrites `body` until they fit each other; layouts in `fixed` stand already.

    With `teams`, statements belong to the threads that come to them; `by_hand` lets these use the products of warp groups. `groups` lets
    all warp groups of the block do so together, where they can.
    """
    body, remarks = _viewed(body)
    body = unshifted(walked_inside(_expand(by_thread(snapshots(body)))))
    for _ in range(64):
        stage = _Stage(threads, target, ieee, teams, groups)
        stage.counts, held = stage.crews(body)
        crews = stage.counts
        required = {**(fixed or {}), **_choose_gemms(body, stage, crews, by_hand)}
        required = {**_choose_scans(body, threads, crews), **required}
        stage.layouts = infer(body, threads, required, held)
        body = _rewrite(body, stage)
        remarks += stage.remarks
        if not stage.changed:
            return Legal(body, dict(stage.layouts), stage.gemms, tuple(remarks))
        for old, new in stage.demoted.items():
            body = _move(body, old, new)
        body = _expand(body)  # what fills a tile that has left the registers
    raise AssertionError("layouts did not settle")


def _viewed(body: Stmt) -> tuple[Stmt, list[Diagnostic]]:
    """Moves fragments that are also seen under another shape or type to shared memory, where the order of their bytes is plain."""
    table: dict[Buffer, Buffer] = {}

    def moved(b: Buffer) -> Buffer:
        if b not in table:
            table[b] = replace(b, scope=Scope.SHARED, view_of=None if b.view_of is None else moved(b.view_of))
        return table[b]

    for s in walk_stmt(body):
        for b in buffers_of(s):
            if b.scope is Scope.FRAGMENT and b.view_of is not None:
                moved(b)
    remarks = [
        Diagnostic(Severity.REMARK, "TL0501", f"{b.name} has a view: it lives in shared memory instead of registers", b.span)
        for b in table if b.view_of is None
    ]  # fmt: skip
    return (replace_buffers(body, table) if table else body), remarks


def _choose_gemms(body: Stmt, stage: _Stage, crews: Mapping[int, int], by_hand: bool) -> dict[Buffer, FragmentLayout]:
    """Instructions for every GEMM and the layouts they require: accumulators first, then operands in registers.

    An operand that an accumulator's layout reaches element by element keeps that one, if other threads would have to hold it:
    it then goes to the product through shared memory in its own type, instead of being exchanged in front of it.
    """
    required: dict[Buffer, FragmentLayout] = {}
    operands: list[tuple[Region, FragmentLayout]] = []
    stmts = list(walk_stmt(body))
    policy = policies(stmts, stage.threads)
    shapes = {id(s): gemm_shape(s, stage.ieee, policy[id(s)]) for s in stmts if isinstance(s, Gemm)}
    in_place = choose_groups(body, shapes, stage.threads) if stage.groups else {}
    for s in stmts:
        if not isinstance(s, Gemm):
            continue
        found = in_place.get(id(s), "")
        plan = found if isinstance(found, GemmPlan) else _choose(s, shapes[id(s)], crews.get(id(s), stage.threads), stage.target, by_hand)
        plan = explained(plan, found) if isinstance(found, str) else plan
        stage.gemms[id(s)] = plan
        if s.c.buffer.scope is Scope.FRAGMENT and plan.c_layout.shape == static_shape(s.c.buffer):
            required.setdefault(s.c.buffer, plan.c_layout)
        operands += [(r, layout) for r, layout in ((s.a, plan.a_layout), (s.b, plan.b_layout)) if r.buffer.scope is Scope.FRAGMENT]
    reached = dict(required)
    if operands:
        propagate(stmts, reached)
    for region, layout in operands:
        held = reached.get(region.buffer)
        if layout.shape == static_shape(region.buffer) and (held is None or normal(held.thread) == normal(layout.thread)):
            required.setdefault(region.buffer, layout)
    return required


def _choose(s: Gemm, shape: GemmShape, threads: int, target: Target, by_hand: bool) -> GemmPlan:
    """The instruction of one product; an error where the author asks for one that there is not."""
    if not by_hand:
        return choose(shape, threads, target)
    found = next(filter(None, map(misplaced, (s.a, s.b))), "") or choose_by_hand(shape, threads)
    if isinstance(found, str) and not s.waits:
        raise error("TL0406", f"T.wgmma_gemm has no instruction for this product: {found}", s.span, help="T.gemm takes any shape")
    return choose(shape, threads, target) if isinstance(found, str) else found


def _rewrite(s: Stmt, stage: _Stage) -> Stmt:
    match s:
        case Seq():
            parts: list[Stmt] = []
            for child in s.body:
                parts += _opened(_rewrite(child, stage), child)
            same = len(parts) == len(s.body) and all(a is b for a, b in zip(parts, s.body, strict=True))
            return s if same else replace(s, body=tuple(parts))
        case Parallel() | Copy():
            return _fix_domain(s, stage)
        case Gemm():
            return _fix_gemm(s, stage)
        case Reduce():
            return _fix_reduce(s, stage)
        case Scan():
            return _fix_scan(s, stage)
        case _:
            _check_scalar(s, stage)
            return _rebuilt(s, stage)


def _opened(new: Stmt, old: Stmt) -> list[Stmt]:
    return list(new.body) if isinstance(new, Seq) and new is not old else [new]


def _rebuilt(s: Stmt, stage: _Stage) -> Stmt:
    """`s` with its child statements rewritten; `s` itself when none changed."""
    children = stmt_children(s)
    new = [_rewrite(c, stage) for c in children]
    if all(a is b for a, b in zip(children, new, strict=True)):
        return s
    pending = iter(new)
    return map_stmt(s, lambda e: e, lambda _: next(pending))


def _fix_domain(s: Stmt, stage: _Stage) -> Stmt:
    """Gives a loop or copy the fragments that its layout cannot serve through shared memory."""
    found = domain(s)
    assert found is not None
    _, extents, uses = found
    layout = domain_layout(uses, extents, stage.layouts, row_width(s))
    digits = () if layout is None else tuple(Var("r", kind=VarKind.LOOP) for _ in layout.regs)
    bad: dict[Buffer, None] = {}
    for a in uses:
        held = stage.layouts[a.buffer]
        fixed = _constant(a.indices, held)
        if not fixed and (layout is None or held_register(a, held, extents, layout, digits) is None):
            bad[a.buffer] = None
    if layout is not None and isinstance(s, Parallel) and _torn(s, layout):
        bad |= dict.fromkeys(a.buffer for a in uses)
    if not bad:
        return s
    before: list[Stmt] = []
    after: list[Stmt] = []
    out = s
    for f in bad:
        staged = stage.tile(f, Scope.SHARED, "staged")
        written = any(a.writes for a in uses if a.buffer is f)
        before += [Alloc(staged, s.span), Copy(full(f, s.span), full(staged, s.span), s.span)]
        if written:
            after.append(Copy(full(staged, s.span), full(f, s.span), s.span))
        out = _move(out, f, staged)
        stage.remark(s.span, f"{f.name} is used here by other threads than those that hold it: it takes a trip through shared memory")
    stage.changed = True
    return Seq((*before, out, *after), s.span)


def _torn(s: Parallel, layout: FragmentLayout) -> bool:
    """True when threads that hold the same registers would not all read what one of them changes in memory before it does."""
    return copies_guard(layout, THREAD) is not None and rereads(s.body) and bool(written_registers(s.body))


def _constant(indices: tuple[Expr, ...], layout: FragmentLayout) -> bool:
    fixed = [static(e) for e in indices]
    plain = [n for n in fixed if n is not None]
    return len(plain) == len(fixed) and constant_register(layout, plain) is not None


def _fix_gemm(g: Gemm, stage: _Stage) -> Stmt:
    """Stages operands that the instruction cannot take as they are, and accumulators that are not a fragment of their own."""
    plan = stage.gemms[id(g)]
    before: list[Stmt] = []
    after: list[Stmt] = []
    out = g
    for side, region, layout in (("a", g.a, plan.a_layout), ("b", g.b, plan.b_layout)):
        buffer = region.buffer
        if buffer.scope is Scope.FRAGMENT:
            if plan.kind in ("mma", "wgmma") and whole(region) and same_map(stage.layouts[buffer], layout):
                continue
        elif buffer.scope is not Scope.GLOBAL:
            continue
        tile = stage.tile(buffer, Scope.SHARED, "staged", region.extents[-2:])
        before += [Alloc(tile, g.span), Copy(region, full(tile, g.span), g.span)]
        out = replace(out, a=full(tile, g.span)) if side == "a" else replace(out, b=full(tile, g.span))
        stage.remark(g.span, f"operand {buffer.name} of this gemm takes a trip through shared memory")
    held = stage.layouts.get(g.c.buffer)
    if held is None or not whole(g.c) or not same_map(held, plan.c_layout):
        tile = stage.tile(g.c.buffer, Scope.FRAGMENT, "sum", g.c.extents[-2:])
        before += [Alloc(tile, g.span), Copy(g.c, full(tile, g.span), g.span)]
        after.append(Copy(full(tile, g.span), g.c, g.span))
        out = replace(out, c=full(tile, g.span))
    if not before:
        return g
    stage.changed = True
    return Seq((*before, out, *after), g.span)


def _fix_reduce(r: Reduce, stage: _Stage) -> Stmt:
    """Brings the source and the destination of a reduction into registers, in layouts that follow from one another."""
    before: list[Stmt] = []
    after: list[Stmt] = []
    out = r
    if r.src.buffer.scope is not Scope.FRAGMENT or not whole(r.src):
        tile = stage.tile(r.src.buffer, Scope.FRAGMENT, "line", r.src.extents)
        before += [Alloc(tile, r.span), Copy(r.src, full(tile, r.span), r.span)]
        out = replace(out, src=full(tile, r.span))
    elif _reduced(r, stage) is None:
        tile = stage.tile(r.dst.buffer, Scope.FRAGMENT, "reduced", _left_shape(r))
        before.append(Alloc(tile, r.span))
        if not r.clear:
            before.append(Copy(r.dst, full(tile, r.span), r.span))
        after.append(Copy(full(tile, r.span), r.dst, r.span))
        out = replace(out, dst=full(tile, r.span))
    if not before:
        return r
    stage.changed = True
    return Seq((*before, out, *after), r.span)


def _left_shape(r: Reduce) -> tuple[Expr, ...]:
    """The destination's extents where they are the source's without the reduced one, or with 1 in its place; else the latter."""
    before, after = r.src.extents[: r.dim], r.src.extents[r.dim + 1 :]
    one = (*before, Const(1, INT32), *after)
    sizes = [static(e) for e in r.dst.extents]
    return r.dst.extents if sizes in ([static(e) for e in shape] for shape in (one, (*before, *after))) else one


def _reduced(r: Reduce, stage: _Stage) -> FragmentLayout | None:
    """The layout of the destination when it is the one that the reduction leaves behind."""
    if r.dst.buffer.scope is not Scope.FRAGMENT or not whole(r.dst):
        return None
    left = stage.layouts[r.src.buffer].without(r.dim, len(r.dst.buffer.shape) == len(r.src.buffer.shape))
    held = stage.layouts[r.dst.buffer]
    return held if same_map(replace(left, shape=held.shape), held) else None


def _check_scalar(s: Stmt, stage: _Stage) -> None:
    """Moves fragments that scalar code indexes freely to shared memory for good."""
    uses: list[tuple[Buffer, tuple[Expr, ...], bool]] = []
    for root in stmt_exprs(s):
        uses += [(e.buffer, e.indices, False) for e in walk_expr(root) if isinstance(e, Load)]
    if isinstance(s, Store | Atomic):
        uses.append((s.buffer, s.indices, True))
    for buffer, indices, _ in uses:
        if buffer.scope is not Scope.FRAGMENT or buffer in stage.demoted or _constant(indices, stage.layouts[buffer]):
            continue
        stage.demoted[buffer] = replace(buffer, scope=Scope.SHARED)
        stage.changed = True
        stage.remark(s.span, f"single elements of {buffer.name} are indexed here: the tile lives in shared memory instead of registers")


def _move(s: Stmt, old: Buffer, new: Buffer) -> Stmt:
    """`s` with every use of one buffer turned to another of the same shape."""

    def expr(e: Expr) -> Expr:
        e = map_expr(e, expr)
        return replace(e, buffer=new) if isinstance(e, Load) and e.buffer is old else e

    def region(r: Region) -> Region:
        return replace(r, buffer=new) if r.buffer is old else r

    def stmt(x: Stmt) -> Stmt:
        x = map_stmt(x, expr, stmt)
        match x:
            case Store() | Atomic() | Alloc() if x.buffer is old:
                return replace(x, buffer=new)
            case Copy() | Reduce() | Scan():
                return replace(x, src=region(x.src), dst=region(x.dst))
            case Gemm():
                return replace(x, a=region(x.a), b=region(x.b), c=region(x.c))
            case Fill():
                return replace(x, dst=region(x.dst))
            case _:
                return x

    return stmt(s)


def _expand(s: Stmt) -> Stmt:
    """Spells out what has no mechanism of its own: fills of a part of a fragment."""
    match s:
        case Fill(dst) if dst.buffer.scope is not Scope.FRAGMENT or not whole(dst):
            return fill_as_parallel(s)
        case _:
            return map_stmt(s, lambda e: e, _expand)


def _scanned(s: Scan, threads: int) -> FragmentLayout | None:
    """The layout in which the lines of a scan lie side by side; None where they must be walked."""
    return scan_layout([static(e) or 1 for e in s.src.extents], s.dim, threads, s.dst.buffer.dtype.bytes)


def _choose_scans(body: Stmt, threads: int, crews: Mapping[int, int]) -> dict[Buffer, FragmentLayout]:
    """The layouts of fragments that are scanned in place."""
    found = [s for s in walk_stmt(body) if isinstance(s, Scan) and _in_place(s)]
    return {s.dst.buffer: layout for s in reversed(found) if (layout := _scanned(s, crews.get(id(s), threads))) is not None}


def _in_place(s: Scan) -> bool:
    return s.dst.buffer.scope is Scope.FRAGMENT and s.src.buffer is s.dst.buffer and whole(s.src) and whole(s.dst)


def _fix_scan(s: Scan, stage: _Stage) -> Stmt:
    """Brings what is scanned into registers that lie side by side along the lines."""
    layout = _scanned(s, stage.counts.get(id(s), stage.threads))
    if layout is not None and _in_place(s) and same_map(stage.layouts[s.dst.buffer], layout):
        return s
    stage.changed = True
    if layout is None:
        return _scan_loops(s)
    line = Buffer(f"{s.src.buffer.name}_scan", s.dst.buffer.dtype, s.src.extents, Scope.FRAGMENT, span=s.span)
    scan = replace(s, src=full(line, s.span), dst=full(line, s.span))
    return Seq((Alloc(line, s.span), Copy(s.src, full(line, s.span), s.span), scan, Copy(full(line, s.span), s.dst, s.span)), s.span)


def _scan_loops(s: Scan) -> Stmt:
    """A serial loop along the dimension for each of the other indices, over a tile in shared memory."""
    src, span, zero, one = s.src, s.span, Const(0, INT32), Const(1, INT32)
    line = Buffer(f"{src.buffer.name}_scan", s.dst.buffer.dtype, src.extents, Scope.SHARED, span=span)
    outer = [d for d in range(len(src.extents)) if d != s.dim]
    variables = tuple(Var("ijklmn"[n % 6], kind=VarKind.LOOP, span=span) for n in range(max(1, len(outer))))
    extents = tuple(src.extents[d] for d in outer) or (one,)
    step = Var("step", kind=VarKind.LOOP, span=span)
    length = src.extents[s.dim]
    index: list[Expr] = [zero] * len(src.extents)
    for d, v in zip(outer, variables, strict=False):
        index[d] = v
    index[s.dim] = Binary("sub", add(length, Const(-1, INT32)), step, INT32) if s.reverse else step
    running = Buffer("running", line.dtype, (), Scope.VAR, span=span)
    here = Load(line, tuple(index))
    follow = Binary("add" if s.op == "sum" else "max", Load(running, ()), here, line.dtype)
    add_up = If(Compare("eq", step, zero), Store(running, (), here, span), Store(running, (), follow, span), span)
    walk = For(step, zero, length, one, "serial", Seq((add_up, Store(line, tuple(index), Load(running, ()), span)), span), span=span)
    loop = Parallel(variables, extents, Seq((Alloc(running, span), walk), span), span)
    return Seq((Alloc(line, span), Copy(src, full(line, span), span), loop, Copy(full(line, span), s.dst, span)), span)
