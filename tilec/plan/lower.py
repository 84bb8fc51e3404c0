"""From tile statements to what each thread does: loops over registers or running numbers, asynchronous copies, pipelines.

The result still has no barriers (see `barriers`) and no addresses in shared memory (see `shared`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import assert_never

from tilec.record import record
from tilec.analysis.facts import Facts
from tilec.analysis.proofs import prove
from tilec.analysis.simplify import simplify
from tilec.diagnostics import NOWHERE, Span
from tilec.ir.dtypes import INT32
from tilec.ir.expr import WARP_CALLS, Buffer, Call, Const, Expr, Load, Scope, Var, VarKind
from tilec.ir.tile import (
    Alloc, Atomic, Barrier, Break, BulkCopy, Continue, Control, Copy, Evaluate, Fill, For, Gemm, If, Let, Mbarrier, Parallel, Print,
    Reduce, Scan, Seq, Stmt, Store, Trap, While,
)  # fmt: skip
from tilec.ir.visit import flat, stmt_children, stmt_exprs, storage, substitute, walk_expr, walk_stmt
from tilec.layout.fragment import FragmentLayout
from tilec.layout.shared import SharedLayout
from tilec.plan.access import (
    bounds_checks, compare, conjunction, constant_register, copies_guard, global_width, layout_values, shared_width,
)  # fmt: skip
from tilec.plan.sequential import leaves_registers, rereads
from tilec.plan.by_hand.plan import PBulkCopy, PBulkFetch, PControl
from tilec.plan.chunks import Chunk, Nest, apart, bound_inside, can_go_together, nest, own_accesses, own_elements, same
from tilec.plan.domains import Access, accesses, copy_as_parallel, static
from tilec.plan.engine_copies import fetched
from tilec.plan.fetches import fetch_beside, prefetches, spread_fetches
from tilec.plan.fragments import across_rows, domain, domain_layout, held_register, row_width
from tilec.plan.gathers import source
from tilec.plan.gemm_plan import GemmPlan
from tilec.plan.held_copies import held_copy
from tilec.plan.hopper.plan import TensorMap
from tilec.plan.loop_parts import alone, indexed, register_digits, spread
from tilec.plan.masks import settled, unmasked
from tilec.plan.pipelines import Split, reads_tensors, rename, split, split_branch, touched, used_outside
from tilec.plan.plan import (
    THREAD, AsyncCopy, Element, ElementKey, FillRegisters, InMemory, InRegisters, PBarrier, PFor, PGemm, PIf, Pipeline, PReduce, PScalar,
    PScan, PSeq, PStmt, PWhile, Stepped, TileLoop,
)  # fmt: skip
from tilec.plan.reductions import planned_reduce
from tilec.plan.rows import stores_rows
from tilec.plan.scans import scan_scratch
from tilec.plan.stores import engine_store
from tilec.plan.warp_groups import in_groups

UNROLL_LIMIT = 64
"""Rounds of a loop over running numbers that are unrolled at most."""

CHUNK_ADDS = ("float32", "float16", "bfloat16")
"""Types of which one instruction adds several neighbours to global memory, each atomically, from sm_90 on."""


@record
class Setting:
    """What lowering looks up: the launch's threads, layouts and instructions, and what pointers and tiles may rely on."""

    threads: int
    thread_vars: tuple[Var, ...]
    layouts: Mapping[Buffer, FragmentLayout]
    gemms: Mapping[int, GemmPlan]
    tiles: Callable[[Buffer], SharedLayout]
    alignment: Callable[[Buffer], int]
    launch_body: Stmt
    most_stages: int
    short: bool = False  # of registers: loads element by element go round by round, those of a product's operands not ahead
    rolled: bool = False  # still shorter: the steps of a product one by one
    compact: bool = False  # of shared memory: reductions that need the same room beside their tiles share it
    adds: bool = False  # whether the target adds several neighbours in memory by one instruction
    least_stages: int = 0  # versions of tiles in a pipelined loop, even where the author asked for one
    engine: bool = False  # the copy engine may bring what runs ahead
    parts: int = 0  # iterations of a loop over registers whose loads may go together; 0: all


@dataclass(slots=True)
class Lowering:
    """One pass over a launch body; `elements` collects how each access is carried out."""

    at: Setting
    elements: dict[ElementKey, Element] = field(default_factory=dict)
    scratch: list[Buffer] = field(default_factory=list)
    varying: frozenset[Buffer] = frozenset()
    varying_vars: set[Var] = field(default_factory=set)
    counters: set[Var] = field(default_factory=set)  # of loops that must be unrolled, since they number registers
    loops: int = 0  # how many loops of the launch are around the statement at hand
    along: Var | None = None  # what counts the steps of the pipeline around it
    engine: frozenset[Buffer] | None = None  # see `seen_by_engine`
    maps: dict[TensorMap, None] = field(default_factory=dict)  # the tensors behind bulk copies
    fetches: list[PBulkFetch] = field(default_factory=list)

    # ---- statements ------------------------------------------------------------------------------------------------

    def sequence(self, stmts: Iterable[Stmt], facts: Facts, uniform: bool) -> PSeq:
        """Lowers statements in order; what a Let says is known to those that follow."""
        out: list[PStmt] = []
        for s in stmts:
            for x in flat(s):
                lowered = self.visible(x, self.statement(x, facts, uniform))
                if lowered:
                    out.append(Stepped(x.span, PSeq(tuple(lowered))))
                if isinstance(x, Let):
                    facts = facts.with_let(x.var, x.value)
        return PSeq(tuple(out))

    def visible(self, s: Stmt, out: list[PStmt]) -> list[PStmt]:
        """A lowered statement; behind one that writes what the copy engine or warp groups will read, a fence lets them see it."""
        whole = not stmt_children(s) or isinstance(s, Parallel) or (len(out) == 1 and isinstance(out[0], TileLoop))
        if not whole or not out or isinstance(s, BulkCopy) or not (seen := self.seen_by_engine()) or not touched([s])[1] & seen:
            return out
        return [*out, PControl("fence", 0, span=s.span)]

    def seen_by_engine(self) -> frozenset[Buffer]:
        """The tiles that products of warp groups read."""
        if self.engine is None:
            gemms = [s for s in walk_stmt(self.at.launch_body) if isinstance(s, Gemm) and self.at.gemms[id(s)].kind == "wgmma"]
            self.engine = frozenset(storage(r.buffer) for s in gemms for r in (s.a, s.b) if r.buffer.scope is Scope.SHARED)
        return self.engine

    def statement(self, s: Stmt, facts: Facts, uniform: bool) -> list[PStmt]:
        """Lowers one statement outside of any Parallel. `uniform`: all threads of the block get here together."""
        match s:
            case Seq():
                return list(self.sequence(s.body, facts, uniform).body)
            case For():
                return self.loop(s, facts, uniform)
            case Parallel():
                return [self.masked_loop(s, facts)]
            case Copy():
                return [self.copy(s, facts)]
            case While(cond, body, span):
                self.note_loads((cond,), facts)
                return [PWhile(cond, self.sequence((body,), facts, uniform and not self.varies(cond)), span)]
            case If(cond, then, orelse) if (known := prove(cond, facts)) is not None:
                return list(self.sequence((then if known else orelse,), facts, uniform).body)
            case If(cond, then, orelse, span):
                self.note_loads((cond,), facts)
                if (found := self.part(s, facts, uniform)) is not None:
                    return [found]
                together = uniform and not self.varies(cond)
                yes = self.sequence((then,), facts.assume(cond), together)
                return [PIf(cond, yes, self.sequence((orelse,), facts, together), span)]
            case Fill(dst, value, span):
                self.note_loads((value,), facts)
                return [FillRegisters(dst.buffer, value, span)]
            case Gemm():
                self.note_loads((*s.a.starts, *s.b.starts, *(() if s.marks is None else s.marks.starts), s.clear), facts)
                return [self.gemm(s, facts)]
            case Reduce():
                return [self.reduce(s)]
            case Barrier(kind, number, count, span):
                why = "written by the author" if span != NOWHERE else "around accesses to other blocks"
                return [PBarrier(kind, number, count, why, span)]
            case Mbarrier() | BulkCopy() | Control():
                return self.hand_written(s, facts)
            case Alloc(buffer):
                return [PScalar(s)] if buffer.scope is not Scope.SHARED else []
            case Let() | Store() | Atomic() | Print() | Trap() | Evaluate() | Break() | Continue():
                return [self.scalar(s, facts, uniform)]
            case Scan():
                return [self.scan(s)]
            case _:
                assert_never(s)

    def part(self, s: If, facts: Facts, uniform: bool) -> PIf | None:
        """A branch that parts the threads into teams; None for any other, and where there are no teams."""
        return None

    def gemm(self, s: Gemm, facts: Facts) -> PGemm:
        """A product."""
        plan = self.at.gemms[id(s)]
        return PGemm(plan, s.a, s.b, s.c, s.clear, s.span, marks=s.marks, rolled=self.at.rolled, in_place=plan.kind == "wgmma")

    def hand_written(self, s: Mbarrier | BulkCopy | Control, facts: Facts) -> list[PStmt]:
        """What only kernels with barriers of their own have (see `plan.by_hand.lower`)."""
        raise AssertionError(f"{type(s).__name__} in a kernel without barriers")

    def scalar(self, s: Let | Store | Atomic | Print | Trap | Evaluate | Break | Continue, facts: Facts, uniform: bool) -> PStmt:
        """A scalar statement of every thread, or of one when its effect must happen once."""
        self.note_loads(stmt_exprs(s), facts)
        once = False
        if isinstance(s, Let) and self.varies(s.value):
            self.varying_vars.add(s.var)
        if isinstance(s, Atomic) and s.result is not None:
            self.varying_vars.add(s.result)  # threads come one after another
        if isinstance(s, Store | Atomic):
            self.note_element(s.buffer, s.indices, facts)
            shared = s.buffer.scope in (Scope.GLOBAL, Scope.SHARED)
            once = isinstance(s, Store) and shared and uniform and not any(self.varies(e) for e in stmt_exprs(s))
        if isinstance(s, Print):
            once = s.once
        return PScalar(s, once)

    def varies(self, e: Expr) -> bool:
        """True when the value may differ from thread to thread."""
        for x in walk_expr(e):
            if isinstance(x, Var) and (x.kind is VarKind.THREAD or x in self.varying_vars):
                return True
            if isinstance(x, Load) and x.buffer in self.varying:
                return True
            if isinstance(x, Call) and (x.foreign or x.name in WARP_CALLS):
                return True
        return False

    # ---- loops -----------------------------------------------------------------------------------------------------

    def loop(self, s: For, facts: Facts, uniform: bool) -> list[PStmt]:
        """A counted loop, as a pipeline where its hint can be followed."""
        self.note_loads((s.start, s.stop, s.step), facts)
        inner = facts.with_loop(s.var, s.start, s.stop, s.step)
        stages = max(min(s.num_stages, self.at.most_stages), self.at.least_stages) if s.num_stages else 0
        if s.kind == "pipelined" and stages > 1 and uniform:
            outside = used_outside(self.at.launch_body, s)

            def accept(loop: Parallel) -> bool:
                return replace(self, elements={}).async_copy(loop, inner) is not None

            parts = split(s, outside, accept, private=True)
            parts = parts if parts.producers or parts.gathers else split_branch(s, outside, accept, private=True) or parts
            if (parts.producers or parts.gathers) and (parts.cond is None or not self.varies(parts.cond)):
                return [self.pipeline(s, stages, parts, facts)]
        if not self.stores_once(s.body) and (found := self.vectorized(s, facts)) is not None:
            return [found]
        together = uniform and not any(self.varies(e) for e in (s.start, s.stop, s.step))
        self.loops += 1
        body = self.sequence((s.body,), inner, together)
        self.loops -= 1
        return [PFor(s.var, s.start, s.stop, s.step, body, s.kind in ("unroll", "vectorized"), s.span, s.factor)]

    def stores_once(self, body: Stmt) -> bool:
        """True when some store of `body` is the same for all threads, so that one of them does it."""
        return any(
            isinstance(s, Store) and s.buffer.scope in (Scope.GLOBAL, Scope.SHARED) and not any(self.varies(e) for e in stmt_exprs(s))
            for s in walk_stmt(body)
        )

    def vectorized(self, s: For, facts: Facts) -> TileLoop | None:
        """T.vectorized as chunks of each thread, where some access can move whole ones; None where none can."""
        n = static(s.stop)
        if s.kind != "vectorized" or n is None or n < 2 or static(s.start) != 0 or static(s.step) != 1:
            return None
        loop = Parallel((s.var,), (s.stop,), s.body, s.span)
        inner = indexed(loop, facts)
        width = self.vector(loop, min(16, n & -n), inner)
        if width == 1:
            return None
        how, digits, values = alone(n, width)
        body = self.inside(loop, width, inner)
        return TileLoop(loop.vars, how, digits, values, width, None, None, True, body, s.span, extents=loop.extents)

    def pipeline(self, s: For, stages: int, parts: Split, facts: Facts) -> Pipeline:
        """Copies that run `stages - 1` steps ahead, and what stays. The copies count their steps with a variable of their own."""
        ahead = Var(s.var.name, s.var.dtype, VarKind.LOOP, span=s.var.span)
        early = facts.with_loop(ahead, s.start, s.stop, s.step)
        cond = None if parts.cond is None else substitute(parts.cond, {s.var: ahead})
        if cond is not None:
            self.note_loads((cond,), early)
            early = early.assume(cond)
        fetch, taken = self.by_engine(s, stages, parts, ahead, early) or (None, frozenset())
        loading: list[tuple[Span, PStmt]] = []
        for c in (c for n, c in enumerate(parts.producers) if n not in taken):
            moved = rename(c, s.var, ahead)
            assert isinstance(moved, Copy)
            loading.append((c.span, self.copy(moved, early, ahead=True)))
        for g in parts.gathers:
            moved = rename(g, s.var, ahead)
            assert isinstance(moved, Parallel)
            held = self.held_copy(moved, early) if in_groups(self.at.gemms) else None
            loading.append((g.span, held or self.async_copy(moved, early) or self.tile_loop(moved, early)))
        inner = facts.with_loop(s.var, s.start, s.stop, s.step)
        self.along = None if self.loops else s.var
        self.loops += 1
        consumers = self.sequence(parts.consumers, inner, True)
        self.loops, self.along = self.loops - 1, None
        if in_groups(self.at.gemms):
            puts = tuple(n + (fetch is not None) for n, (_, p) in enumerate(loading) if isinstance(p, AsyncCopy) and p.held)
            consumers = fetch_beside(fetch is not None, len(loading), consumers, puts)
        else:
            consumers = spread_fetches(parts.producers, consumers)
        sooner = not self.at.short and prefetches(consumers, parts.versioned)
        own = [Stepped(span, PSeq((p if cond is None else PIf(cond, PSeq((p,)), PSeq(()), span),))) for span, p in loading]
        queued = [] if fetch is None else [Stepped(fetch.copies[0].span, PSeq((fetch,)))]
        engine = frozenset() if fetch is None else frozenset(storage(c.tile) for c in fetch.copies)
        seen = bool(self.seen_by_engine() & (frozenset(parts.versioned) - engine))
        return Pipeline(
            s.var, s.start, s.stop, stages, parts.versioned, PSeq((*queued, *own)), consumers, sooner,
            any(isinstance(p, AsyncCopy) and not p.held for _, p in loading), s.span, ahead, seen, None if fetch is None else fetch.full,
        )  # fmt: skip

    def by_engine(self, s: For, stages: int, parts: Split, ahead: Var, facts: Facts) -> tuple[PBulkFetch, frozenset[int]] | None:
        """The copies of a pipeline, by number, that the copy engine brings: every step has them, and there is one run of the loop."""
        if not self.at.engine or self.loops or parts.cond is not None:
            return None
        found = fetched(parts.producers, s.var, ahead, stages, self.at.tiles, facts)
        if found is not None:
            for c in found[0].copies:
                self.maps.setdefault(c.map)
                self.note_loads((e for box in c.boxes for e in (box.offset, *box.at)), facts)
            self.scratch.append(found[0].full)
            self.fetches.append(found[0])
        return found

    # ---- tile loops ------------------------------------------------------------------------------------------------

    def copy(self, s: Copy, facts: Facts, ahead: bool = False) -> PStmt:
        """A copy: asynchronous when it runs ahead and the chunks allow it, else an element loop."""
        loop = copy_as_parallel(s)
        if not loop.vars:
            assert isinstance(loop.body, Store)
            return self.scalar(loop.body, facts, True)
        if ahead and s.src.buffer.dtype == s.dst.buffer.dtype and (found := self.async_copy(loop, facts)) is not None:
            return found
        if not ahead and (stored := self.stored_by_engine(s, facts)) is not None:
            return stored
        return self.tile_loop(loop, facts)

    def stored_by_engine(self, s: Copy, facts: Facts) -> PBulkCopy | None:
        """A tile that warp groups read, stored by the copy engine in each step of a pipeline; None for any other copy."""
        shared = s.src.buffer.scope is Scope.SHARED and s.dst.buffer.scope is Scope.GLOBAL
        if not shared or not self.at.engine or storage(s.src.buffer) not in self.seen_by_engine():
            return None
        found = engine_store(s, self.along if self.loops == 1 else None, self.at.launch_body, self.at.tiles(s.src.buffer), facts)
        if found is not None:
            self.maps.setdefault(found.map)
            self.note_loads((e for box in found.boxes for e in (box.offset, *box.at)), facts)
        return found

    def async_copy(self, loop: Parallel, facts: Facts, each: bool = False) -> AsyncCopy | None:
        """Chunks of 16, 8 or 4 bytes by cp.async; None when the elements are not aligned for it. `each` thread does all, or its share."""
        store = loop.body
        assert isinstance(store, Store)
        load, cond = source(loop)
        src = load.buffer
        inner = indexed(loop, facts)
        last = loop.vars[-1]
        most = 16 // src.dtype.bytes
        extent = static(loop.extents[-1])
        while most > 1 and (extent is None or extent % most):
            most //= 2
        width = global_width(src, load.indices, last, most, inner, self.at.alignment)
        width = min(width, shared_width(self.at.tiles(store.buffer), store.indices, last, width, inner))
        while cond is not None and width > 1 and not same(cond, self.chunk(loop, width, inner)):
            width //= 2
        if width * src.dtype.bytes < 4 or (src.safe_value is not None and bounds_checks(src, load.indices, inner)):
            return None
        how, digits, values, guard = (*alone(extent or width, width), None) if each else spread(loop, width, self.at.threads, facts)
        here = inner.with_range(last, divisor=width)
        tests = () if cond is None else (cond,)
        valid = conjunction([*tests, *bounds_checks(src, load.indices, here if cond is None else here.assume(cond))])
        self.note_loads((*load.indices, *tests), here)
        self.elements[src, load.indices] = InMemory((), True)
        self.elements[store.buffer, store.indices] = InMemory((), True)
        return AsyncCopy(
            loop.vars, how, digits, values, width, src, load.indices, store.buffer, store.indices, valid, guard, loop.span
        )  # fmt: skip

    def held_copy(self, loop: Parallel, facts: Facts) -> AsyncCopy | None:
        """A copy by way of registers (see `held_copies`); None for other loops."""
        assert isinstance(loop.body, Store)
        found = held_copy(loop, loop.body, self.at.tiles(loop.body.buffer), self.at.threads, facts)
        if found is not None:
            self.note_loads((source(loop)[0], *found.src_index), indexed(loop, facts))
            self.elements[found.dst, found.dst_index] = InMemory((), True)
        return found

    def masked_loop(self, s: Parallel, facts: Facts) -> PStmt:
        """A Parallel loop of the author; inside a loop a mask that mostly holds for the whole tile is tested once a tile."""
        s = settled(s, facts)
        found = unmasked(s, facts) if self.loops else None
        if found is None or self.varies(found.test):
            return self.tile_loop(s, facts)
        whole, rest = self.tile_loop(found.loop, facts), self.tile_loop(s, facts)
        return PIf(found.test, PSeq((whole,)), PSeq((rest,)), s.span)

    def tile_loop(self, s: Parallel, facts: Facts) -> PStmt:
        """A Parallel loop, by the layout of the fragments it walks or by running number."""
        if (turned := self.turned(s)) is not None:
            return self.by_register(*turned, facts)
        found = domain(s)
        assert found is not None
        layout = domain_layout(found[2], s.extents, self.at.layouts, row_width(s))
        if layout is None:
            return self.by_number(s, facts)
        return self.by_register(s, layout, facts)

    def turned(self, s: Parallel) -> tuple[Parallel, FragmentLayout] | None:
        """A loop across the rows of a shared tile with the variable along them last, where a thread holds several neighbours of a row;
        its layout counts these first."""
        along = across_rows(s)
        if along is None:
            return None
        order = [*(n for n in range(len(s.vars)) if n != along), along]
        loop = replace(s, vars=tuple(s.vars[n] for n in order), extents=tuple(s.extents[n] for n in order))
        found = domain(loop)
        layout = None if found is None else domain_layout(found[2], loop.extents, self.at.layouts)
        rows = [] if layout is None else [g for g in layout.regs if g.dim == len(order) - 1 and g.stride == 1]
        if layout is None or not rows:
            return None
        return loop, replace(layout, regs=(*rows, *(g for g in layout.regs if g not in rows)))

    def by_register(self, s: Parallel, layout: FragmentLayout, facts: Facts) -> TileLoop:
        """One iteration a register of `layout`."""
        inner = indexed(s, facts)
        digits = register_digits(s, layout)
        first = layout.regs[0] if layout.regs else None
        most = first.size if first is not None and first.dim == len(s.vars) - 1 and first.stride == 1 else 1
        while most > 1 and (static(s.extents[-1]) or 1) % most:
            most -= 1
        width = self.vector(s, most & -most, inner)
        for a in accesses(s.body, s.vars):
            if a.buffer.scope is Scope.FRAGMENT:
                self.note_register(a, s.extents, layout, digits)
        guard = conjunction(
            [compare("lt", v, e) for d, (v, e) in enumerate(zip(s.vars, s.extents, strict=True)) if layout.padded(d) > (static(e) or 0)]
        )
        body = self.inside(s, width, inner)
        once = copies_guard(layout, THREAD) if leaves_registers(s.body) else None
        if once is not None and rereads(s.body):
            guard, once = conjunction([once] if guard is None else [guard, once]), None
        known = facts.with_range(THREAD, 0, self.at.threads - 1)
        for v, g in zip(digits, layout.regs, strict=True):
            known = known.with_range(v, 0, g.size - 1)
        values = tuple(simplify(e, known) for e in layout_values(layout, THREAD, digits))
        rows = width == 2 and guard is None and stores_rows(
            layout, flat(s.body), lambda x, most: self.width_of(x.buffer, x.indices, s.vars[-1], most, inner)
        )  # fmt: skip
        parted = self.at.parts if not rows and reads_tensors(s) else 0
        return TileLoop(s.vars, layout, digits, values, width, guard, once, True, body, s.span, rows, s.extents, parted=parted)

    def by_number(self, s: Parallel, facts: Facts) -> TileLoop:
        """Iterations counted through, `threads` chunks a round."""
        inner = indexed(s, facts)
        extent = static(s.extents[-1])
        most = 16
        while most > 1 and (extent is None or extent % most or prod(static(e) or most for e in s.extents) // most < self.at.threads):
            most //= 2
        width = self.vector(s, most, inner)
        how, digits, values, guard = spread(s, width, self.at.threads, facts)
        rounds = static(how.rounds)
        body = self.inside(s, width, inner)
        unroll = rounds is not None and rounds * width <= UNROLL_LIMIT and not any(isinstance(x, For | While) for x in walk_stmt(s.body))
        alone = self.at.short and any(a.buffer.scope is Scope.GLOBAL for a in accesses(s.body, s.vars))
        return TileLoop(s.vars, how, digits, values, width, guard, None, unroll and not alone, body, s.span, False, s.extents, alone)

    def vector(self, s: Parallel, most: int, facts: Facts) -> int:
        """How many iterations go together: what every access that can move a whole chunk allows; 1 when there is none."""
        body = flat(s.body)
        if not s.vars or not can_go_together(body, self.adds) or not apart(body):
            return 1
        updates = sum(isinstance(x, Atomic) for top in body for x in walk_stmt(top))
        width = most
        while width > 1:
            at = self.chunk(s, width, facts)
            own = own_accesses(nest(body, at, facts))
            found = [
                (stmt, one)
                for stmt, known in own
                for buffer, indices in own_elements(stmt)
                if (one := self.width_of(buffer, indices, at.var, width, known, at.opaque)) > 1
            ]
            narrowest = min((one for _, one in found), default=width // 2)
            whole = sum(isinstance(stmt, Atomic) for stmt, _ in found) == updates  # those may not go element by element
            if found and narrowest == width and whole:
                return width
            width = min(narrowest, width if whole else width // 2)  # a narrower chunk may take conditions together that this one does not
        return 1

    def adds(self, s: Stmt) -> bool:
        """True for an atomic that the target does for a chunk of neighbours at once."""
        return (
            self.at.adds and isinstance(s, Atomic) and s.op == "add" and s.result is None and s.order == "relaxed"
            and s.buffer.scope is Scope.GLOBAL and s.buffer.dtype.name in CHUNK_ADDS
        )  # fmt: skip

    def chunk(self, s: Parallel, width: int, facts: Facts) -> Chunk:
        """The chunks of `width` iterations of a loop."""
        return Chunk(s.vars[-1], width, facts.with_range(s.vars[-1], divisor=width), bound_inside((s.body,)))

    def width_of(
        self, buffer: Buffer, indices: tuple[Expr, ...], last: Var, most: int, facts: Facts, opaque: frozenset[Var] = frozenset()
    ) -> int:
        """The widest access to an element of memory along `last`; 1 for registers."""
        match buffer.scope:
            case Scope.GLOBAL:
                return global_width(buffer, indices, last, most, facts, self.at.alignment, opaque)
            case Scope.SHARED:
                return shared_width(self.at.tiles(buffer), indices, last, most, facts, opaque)
            case _:
                return 1

    def inside(self, s: Parallel, width: int, facts: Facts) -> PSeq:
        """The body of a tile loop whose iterations go together by `width`."""
        body = flat(s.body)
        if width == 1:
            return self.scalars(body, facts)
        at = self.chunk(s, width, facts)
        return self.nested(nest(body, at, facts), at, facts)

    def nested(self, n: Nest, at: Chunk, facts: Facts) -> PSeq:
        """A body by chunks: what all elements share, and what is done for each."""
        out: list[PStmt] = []
        for let in n.lead:
            self.note_loads((let.value,), facts)
            out.append(PScalar(let, together=True))
            facts = facts.with_let(let.var, let.value)
        if n.cond is None or n.under is None:
            return PSeq((*out, *self.scalars(n.each, facts, at).body))
        self.note_loads((n.cond.cond,), facts)
        out.append(PIf(n.cond.cond, self.nested(n.under, at, facts.assume(n.cond.cond)), PSeq(()), n.cond.span, together=True))
        return PSeq(tuple(out))

    def scalars(self, stmts: Iterable[Stmt], facts: Facts, at: Chunk | None = None) -> PSeq:
        """The statements inside a Parallel: each thread's own business. Those of a chunk `at` may move it whole."""
        out: list[PStmt] = []
        for s in (x for top in stmts for x in flat(top)):
            match s:
                case Store() | Atomic() | Let() | Print() | Trap() | Evaluate() | Break() | Continue():
                    self.note_loads(stmt_exprs(s), facts, at)
                    if isinstance(s, Store | Atomic):
                        self.note_element(s.buffer, s.indices, facts, at if isinstance(s, Store) or self.adds(s) else None)
                    out.append(PScalar(s))
                    if isinstance(s, Let):
                        facts = facts.with_let(s.var, s.value)
                case Alloc():
                    out.append(PScalar(s))
                case If(cond, then, orelse) if (known := prove(cond, facts)) is not None:
                    out += self.scalars((then if known else orelse,), facts).body
                case If(cond, then, orelse, span):
                    self.note_loads((cond,), facts)
                    out.append(PIf(cond, self.scalars((then,), facts.assume(cond)), self.scalars((orelse,), facts), span))
                case For() if (found := self.vectorized(s, facts)) is not None:
                    out.append(found)
                case For():
                    self.note_loads((s.start, s.stop, s.step), facts)
                    body = self.scalars((s.body,), facts.with_loop(s.var, s.start, s.stop, s.step))
                    unrolled = s.kind in ("unroll", "vectorized") or s.var in self.counters
                    out.append(PFor(s.var, s.start, s.stop, s.step, body, unrolled, s.span, s.factor))
                case While(cond, inside, span):
                    self.note_loads((cond,), facts)
                    out.append(PWhile(cond, self.scalars((inside,), facts), span))
                case _:
                    raise AssertionError(f"{type(s).__name__} inside a parallel loop")
        return PSeq(tuple(out))

    # ---- elements --------------------------------------------------------------------------------------------------

    def note_loads(self, roots: Iterable[Expr], facts: Facts, at: Chunk | None = None) -> None:
        """Decides every read in `roots`."""
        for root in roots:
            for e in walk_expr(root):
                if isinstance(e, Load):
                    self.note_element(e.buffer, e.indices, facts, at)

    def note_element(self, buffer: Buffer, indices: tuple[Expr, ...], facts: Facts, at: Chunk | None = None) -> None:
        """Decides one access; those of registers inside a tile loop have been decided by the loop."""
        if buffer.scope is Scope.FRAGMENT:
            if (buffer, indices) not in self.elements:
                register = constant_register(self.at.layouts[buffer], [static(e) or 0 for e in indices])
                self.elements[buffer, indices] = InRegisters(Const(register or 0, INT32))
            return
        wide = at is not None and self.width_of(buffer, indices, at.var, at.width, facts, at.opaque) == at.width
        if wide and at is not None:  # the last variable then names the first of a chunk, and all of them are in range or none is
            facts = facts.with_range(at.var, divisor=at.width)
        checks = bounds_checks(buffer, indices, facts) if buffer.scope is Scope.GLOBAL else ()
        old = self.elements.get((buffer, indices))
        if isinstance(old, InMemory) and old.checks and not checks:
            checks = old.checks  # the same access stands elsewhere under fewer facts
        self.elements[buffer, indices] = InMemory(checks, wide)

    def note_register(self, a: Access, extents: tuple[Expr, ...], layout: FragmentLayout, digits: tuple[Var, ...]) -> None:
        """Decides an access to a fragment inside a loop of `layout`."""
        held = self.at.layouts[a.buffer]
        register = held_register(a, held, extents, layout, digits)
        if register is None:
            fixed = constant_register(held, [static(e) or 0 for e in a.indices])
            assert fixed is not None, f"{a.buffer.name} has an access that was not made legal"
            register = Const(fixed, INT32)
        elif a.way is not None:
            self.counters |= {x for x in walk_expr(register) if isinstance(x, Var)}
        self.elements[a.buffer, a.indices] = InRegisters(register)

    def reduce(self, s: Reduce) -> PReduce:
        """A reduction of registers into registers."""
        found = planned_reduce(s, self.at.layouts[s.src.buffer], self.scratch if self.at.compact else ())
        self.scratch += [] if found.scratch is None or found.scratch in self.scratch else [found.scratch]
        return found

    def scan(self, s: Scan) -> PScan:
        """Running sums or maxima of registers in place."""
        buffer = s.dst.buffer
        scratch = scan_scratch(buffer, self.at.layouts[buffer], s.dim)
        self.scratch += [] if scratch is None else [scratch]
        return PScan(s.op, buffer, s.dim, s.reverse, self.at.layouts[buffer], scratch, s.span)
