"""Planned statements as CUDA text: what each thread does, statement after statement.

`BodyWriter.sequence(plan_body, facts)` gives the inside of a kernel; templates own the idioms, this file the names, numbers and
index expressions that go into them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from tilec.analysis.facts import Facts
from tilec.analysis.ranges import passes_end
from tilec.diagnostics import Span
from tilec.emit.advance import advancing
from tilec.emit.by_hand import (
    barriers_text, bulk_copy_text, control_text, fetch_text, mbarrier_text, send_text, team_condition, team_text,
)  # fmt: skip
from tilec.emit.cliteral import ctype
from tilec.emit.gemm import gemm_text
from tilec.emit.group_products import product_text, products_text
from tilec.emit.gemm_sparse import sparse_text
from tilec.emit.hopper.statements import bulk_add_text, bulk_store_text, join_text, pack_text, scaled_text
from tilec.emit.gemm_operands import Operand, RegisterOperand, SharedOperand, lines
from tilec.emit.loops import LoopWriter
from tilec.emit.memory import Spelling, conjuncts
from tilec.emit.pipeline import GemmInPipeline, PipelineText, late_text, pipeline_text, puts_text
from tilec.emit.reductions import reduce_text
from tilec.emit.render import render
from tilec.emit.rows import rows_text
from tilec.emit.scans import scan_text
from tilec.emit.scalars import atomic_text, print_text, trap_text
from tilec.emit.unused import mentions, without_unused
from tilec.ir.dtypes import INT32
from tilec.ir.expr import BLOCK_CALLS, Binary, Buffer, Call, Const, Expr, Scope
from tilec.ir.tile import Alloc, Atomic, Break, Continue, Evaluate, Let, Print, Region, Store, Trap
from tilec.ir.visit import storage, walk_expr
from tilec.layout.shared import SharedLayout
from tilec.plan.domains import static
from tilec.plan.by_hand.plan import PBarriers, PBulkCopy, PBulkFetch, PControl, PMbarrier, PSend, TeamPlan
from tilec.plan.hopper.plan import TensorMap
from tilec.plan.shelves import shelf_elements
from tilec.plan.plan import (
    AsyncCopy,
    BulkAdd,
    BulkStore,
    Chained,
    Fetch,
    FillRegisters,
    JoinLanes,
    Leaf,
    PackRegisters,
    PBarrier,
    PFor,
    PGemm,
    PGemms,
    PIf,
    Pipeline,
    PReduce,
    PScalar,
    PScan,
    PSeq,
    PStmt,
    PWhile,
    Registers,
    Stepped,
    Streamed,
    TileLoop,
    WarpSpecialized,
    WhenScaled,
)  # fmt: skip


@dataclass(slots=True)
class BodyWriter:
    """Writes one kernel body. `comment` gives the lines that name the source of a statement."""

    spell: Spelling
    comment: Callable[[Span], str]
    threads: int
    operands: set[object] = field(default_factory=set)
    maps: Mapping[TensorMap, str] = field(default_factory=dict)
    number: str = "threadIdx.x"  # of a thread in its block
    team: TeamPlan | None = None  # the threads that carry out the statement at hand, where not all do
    _last: tuple[str, int] = ("", 0)
    _late: str = ""  # the copies that the pipeline around issues in the middle of its step
    _puts: str = ""  # and the stores of what others of them hold in registers

    def sequence(self, seq: PSeq, facts: Facts, behind: str = "") -> str:
        """Statements in order, without declarations that neither they nor the text `behind` them use."""
        parts = self.parts(seq, facts)
        return "\n".join(without_unused([*parts, (behind, None)])[:-1] if behind else without_unused(parts))

    def parts(self, seq: PSeq, facts: Facts) -> list[tuple[str, str | None]]:
        """Statements in order with the names they declare; what a Let says is known to those that follow."""
        out: list[tuple[str, str | None]] = []
        for s in seq.body:
            text = self.statement(s, facts)
            leaf = _only_leaf(s)
            if text:
                out.append((text, self.declared(leaf)))
            if isinstance(leaf, Let):
                facts = facts.with_let(leaf.var, leaf.value)
        return out

    def declared(self, s: Leaf | None) -> str | None:
        """The C name that a statement brings into being and nothing else; None for statements with an effect."""
        match s:
            case Let(var, value):
                return None if _acts(value) else self.spell.var(var)
            case Alloc(buffer) if buffer.scope is not Scope.SHARED:
                return self.spell.buffer(buffer)
            case _:
                return None

    def statement(self, s: PStmt, facts: Facts) -> str:
        """One statement; what it declares in braces of its own is forgotten behind it."""
        if isinstance(s, TileLoop | AsyncCopy | FillRegisters | PReduce | PScan | PFor | PWhile | Pipeline):
            with self.spell.scope():
                return self._statement(s, facts)
        return self._statement(s, facts)

    def _statement(self, s: PStmt, facts: Facts) -> str:
        match s:
            case PSeq():
                return "\n".join(t for t, _ in self.parts(s, facts))
            case Stepped(span, body):
                return self.stepped(span, body, facts)
            case PScalar(leaf, once):
                text = self.leaf(leaf, facts)
                if text and (mark := self.spell.mark(leaf.span)):
                    text = f"{mark}\n{text}"
                return render("parallel/if.cu.jinja", cond="thread == 0", then=text, orelse="") if once and text else text
            case PFor():
                return self.counted(s, facts)
            case PWhile(cond, body):
                return render("parallel/while.cu.jinja", cond=self.spell.expr(cond, facts), body=self.sequence(body, facts))
            case PIf(cond, then, orelse) if any(s.teams):
                yes, no = self.side(then, s.teams[0], facts.assume(cond)), self.side(orelse, s.teams[1], facts)
                test = self.spell.expr(cond, facts)
                if self.spell.variant.hopper:
                    test = team_condition(test, s.teams, self.number == "threadIdx.x")
                return render("parallel/if.cu.jinja", cond=test, then=yes, orelse=no)
            case PIf(cond, then, orelse):
                with self.spell.having(conjuncts(cond)):
                    yes = self.sequence(then, facts.assume(cond))
                no = self.sequence(orelse, facts)
                return render("parallel/if.cu.jinja", cond=self.spell.expr(cond, facts), then=yes, orelse=no)
            case TileLoop():
                writer = LoopWriter(self.spell, self, self.threads)
                return rows_text(writer, s, facts) if s.rows else writer.tile_loop(s, facts)
            case AsyncCopy():
                return LoopWriter(self.spell, self, self.threads).async_copy(s, facts)
            case FillRegisters(buffer, value):
                count = self.spell.variant.placements[buffer].layout.registers  # type: ignore[union-attr]
                var = self.spell.names.fresh("reg")
                name, text = self.spell.buffer(buffer), self.spell.expr(value, facts)
                return render("parallel/fill.cu.jinja", var=var, count=count, name=name, value=text)
            case PGemm():
                return self.gemm(s, facts)
            case PGemms(products, meanwhile):
                clears = [self.clear(g, facts) for g in products]
                late = "\n".join(self.statement(x, facts) for x in meanwhile)
                return products_text(self.spell, products, facts, clears, self.group(products[0]), self.comment, late)
            case PReduce():
                return reduce_text(self.spell, s, facts, self.threads, self.meet_for(s.scratch))
            case PScan():
                return scan_text(self.spell, s, facts, self.threads, self.meet_for(s.scratch))
            case PBarrier():
                return self.barrier(s, facts)
            case PBarriers():
                return barriers_text(self.spell, s)
            case PMbarrier():
                return mbarrier_text(self.spell, s, facts)
            case PBulkCopy():
                return bulk_copy_text(self.spell, s, self.maps, facts)
            case PBulkFetch():
                return fetch_text(self.spell, s, self.maps, facts, self.comment)
            case PSend():
                return send_text(self.spell, s, facts)
            case PControl():
                return control_text(self.spell, s)
            case Fetch():
                return self._puts if s.puts else self._late
            case Pipeline():
                return self.pipeline(s, facts)
            case BulkStore():
                return bulk_store_text(self.spell, s, self.maps[s.map], self.spell.variant, facts)
            case BulkAdd():
                return bulk_add_text(self.spell, s, self.maps, facts)
            case PackRegisters():
                return pack_text(self.spell, s)
            case JoinLanes():
                return join_text(self.spell, s)
            case WhenScaled(body=body):
                return scaled_text(self.spell, s, self.sequence(body, facts))
            case WarpSpecialized() | Streamed() | Chained():
                raise AssertionError("a warp-specialised body is a kernel of its own")
            case _:
                assert_never(s)

    def side(self, body: PSeq, team: TeamPlan | None, facts: Facts) -> str:
        """One side of a branch that parts the threads into teams."""
        if team is None:
            return self.sequence(body, facts)
        facts = facts if team.index is None else facts.with_range(team.index, team.team.first, team.team.stop - 1)
        outer, threads = self.team, self.threads
        self.team, self.threads = team, team.team.count
        text = self.sequence(body, facts)
        self.team, self.threads = outer, threads
        return team_text(text, team, self.number, 0 if outer is None else outer.team.first)

    def meet_for(self, scratch: Buffer | None) -> str:
        """The barrier of a statement that needs one only where it has scratch memory."""
        return "" if scratch is None else self.meet()

    def meet(self) -> str:
        """A barrier of all threads that are here."""
        if self.team is None:
            return "__syncthreads();"
        if self.team.barrier == 0:
            self.spell.need("warp_sync")
            return "warp_sync();"
        self.spell.need("barrier_sync")
        return f"barrier_sync<{self.team.barrier}>({self.team.team.count});"

    def stepped(self, span: Span, body: PSeq, facts: Facts) -> str:
        """The code of one statement of the author under its source line."""
        here = (span.file, span.line)
        lead = self.comment(span) if span.line > 0 and here != self._last else ""
        self._last = here
        text = "\n".join(t for t, _ in self.parts(body, facts))
        text = text if isinstance(_only_leaf(body), Alloc) else self.settled(text)
        return f"\n{lead}\n{text}" if lead and text else text

    def settled(self, text: str) -> str:
        """A statement, behind a fence where it has a tile on the shelf: what lies there takes no registers from statement to statement."""
        if not self.spell.variant.configuration.settles:
            return text
        placed = self.spell.variant.placements.items()
        shelf = (self.spell.buffer(b) for b, place in placed if isinstance(place, Registers) and place.shelved)
        if not any(mentions(text, name) for name in shelf):
            return text
        self.spell.need("settle_shelf")
        return f"settle_shelf();\n{text}"

    # ---- scalars ---------------------------------------------------------------------------------------------------

    def leaf(self, s: Leaf, facts: Facts) -> str:
        """A scalar statement."""
        spell = self.spell
        match s:
            case Alloc():
                return self.declaration(s)
            case Let(var, value):
                text = spell.expr(value, facts)
                return f"const {ctype(var.dtype)} {spell.var(var)} = {text};"
            case Store():
                return self.store(s, facts)
            case Atomic():
                return atomic_text(spell, s, facts)
            case Print():
                return print_text(spell, s, facts)
            case Trap():
                return trap_text(spell, s, facts)
            case Evaluate(value):
                return f"{spell.expr(value, facts)};"
            case Break():
                return "break;"
            case Continue():
                return "continue;"
            case _:
                assert_never(s)

    def declaration(self, s: Alloc) -> str:
        """A private scalar, a private array, or the registers of a fragment."""
        b, spell = s.buffer, self.spell
        name, kind = spell.buffer(b), ctype(b.dtype)
        spell.need_type(b.dtype)
        match b.scope:
            case Scope.VAR:
                return f"{kind} {name} = {{}};"
            case Scope.LOCAL:
                return f"{_align(b.dtype.bytes)}{kind} {name}[{_product(b.shape)}];"
            case Scope.FRAGMENT:
                place = spell.variant.placements[b]
                assert isinstance(place, Registers)
                if place.shelved:
                    spell.need("shared_tile")
                    spell.need("shelved")
                    shelf = f"shared_tile<{kind}, {shelf_elements(b, place, self.threads)}>({place.offset})"
                    return f"shelved<{kind}, {place.kept}, {self.threads}> {name}({shelf}, thread);"
                return f"{_align(b.dtype.bytes)}{kind} {name}[{place.layout.registers}];"
            case _:
                return ""

    def store(self, s: Store, facts: Facts) -> str:
        """An assignment, dropped out of range."""
        checks = self.spell.checks(s.buffer, s.indices)
        with self.spell.having(checks):
            text = f"{self.spell.place(s.buffer, s.indices, facts)} = {self.spell.expr(s.value, facts)};"
        if not checks:
            return text
        return render("parallel/if.cu.jinja", cond=self.spell.tests(checks, facts), then=text, orelse="")

    # ---- control ---------------------------------------------------------------------------------------------------

    def counted(self, s: PFor, facts: Facts) -> str:
        """A counted loop, bounds taken once."""
        spell = self.spell
        inner = facts.with_loop(s.var, s.start, s.stop, s.step)
        step = static(s.step)
        name, kind = spell.var(s.var), ctype(s.var.dtype)
        lead: list[str] = []

        def once(e: Expr, hint: str) -> str:
            text = spell.expr(e, facts)
            if isinstance(e, Const) or text.isidentifier():
                return text
            held = spell.names.fresh(f"{name}_{hint}")
            lead.append(f"const {ctype(e.dtype)} {held} = {text};")
            return held

        start, stop = spell.expr(s.start, facts), once(s.stop, "stop")
        if step is None:
            by = once(s.step, "step")
            relation = f"!= {stop} && ({by} > 0) == ({name} < {stop}) && {name} !="
        else:
            by, relation = str(step), "<" if step > 0 else ">"
        if passes_end(s.stop, step, facts):
            spell.need("step_to")
            advance = f"{name} = step_to<{kind}>({name}, {by}, {stop})"
        elif step is None or abs(step) > 1:
            advance = f"{name} -= {-step}" if step is not None and step < 0 else f"{name} += {by}"
        else:
            advance = f"++{name}" if step > 0 else f"--{name}"
        body = self.sequence(s.body, inner)
        text = render(
            "parallel/for.cu.jinja", unroll=s.unroll, factor=s.factor, type=kind, var=name, start=start, relation=relation, stop=stop,
            advance=advance, body=body,
        )
        return "\n".join(("{", *lead, text, "}")) if lead else text

    def barrier(self, s: PBarrier, facts: Facts) -> str:
        """A barrier of the block, of a warp, or a named one."""
        match s.kind:
            case "warp":
                if s.id is not None:
                    return f"__syncwarp({self.spell.expr(s.id, facts)});"
                self.spell.need("warp_sync")
                return "warp_sync();"
            case "named" | "arrive":
                assert s.id is not None and s.count is not None
                call = "barrier_sync" if s.kind == "named" else "barrier_arrive"
                number, count = self.spell.expr(s.id, facts), self.spell.expr(s.count, facts)
                self.spell.need(call if isinstance(s.id, Const) else f"{call}_at")
                return f"{call}<{number}>({count});" if isinstance(s.id, Const) else f"{call}_at({number}, {count});"
            case "cluster" | "cluster_arrive" | "cluster_arrive_relaxed" | "cluster_wait":
                call = "cluster_sync" if s.kind == "cluster" else s.kind
                self.spell.need(call)
                return f"{call}();"
            case "team":
                return self.meet()
            case "copies":
                self.spell.need("cp_async_commit")
                self.spell.need("cp_async_wait")
                return "cp_async_commit();\ncp_async_wait<0>();"
            case "grid":
                self.spell.need("grid_sync")
                return "grid_sync(reinterpret_cast<unsigned*>(workspace));"
            case _:
                return "__syncthreads();"

    # ---- products and pipelines ------------------------------------------------------------------------------------

    def operand(self, region: Region, facts: Facts) -> Operand:
        """Where a GEMM finds an operand."""
        b = region.buffer
        if b.scope is Scope.FRAGMENT:
            return RegisterOperand(self.spell.buffer(b), ctype(b.dtype))
        layout = self.spell.tile(b).layout
        rows = 1
        for n in layout.shape[:-1]:
            rows *= n
        flat = SharedLayout((rows, layout.shape[-1]), layout.itemsize, layout.pitch, layout.swizzle)
        row: Expr = Const(0, INT32)
        for start, extent in zip(region.starts[:-1], layout.shape[:-1], strict=True):
            row = start if static(row) == 0 else Binary("add", Binary("mul", row, Const(extent, INT32), INT32), start, INT32)
        return SharedOperand(
            self.spell.tile_pointer(b), ctype(b.dtype), flat, self.spell.expr(row, facts), self.spell.expr(region.starts[-1], facts),
            self.spell.layout_function(b), self.spell.variant.configuration.plain,
        )  # fmt: skip

    def gemm(self, s: PGemm, facts: Facts) -> str:
        """A matrix product in place."""
        clear = self.clear(s, facts)
        if s.plan.kind == "wgmma":
            return product_text(self.spell, s, facts, clear, self.group(s))
        a, b = self.operand(s.a, facts), self.operand(s.b, facts)
        if s.marks is not None:
            marks = self.operand(s.marks, facts)
            return sparse_text(render, self.spell.need, s.plan, (a, b, marks), self.spell.buffer(s.c.buffer), clear)
        return gemm_text(render, self.spell.need, s.plan, a, b, self.spell.buffer(s.c.buffer), clear, s.rolled)

    def group(self, s: PGemm) -> str:
        """The number of the warp group of a thread, as products spell it."""
        return "warp_group" if s.in_place and self.number == "threadIdx.x" else "thread / 128"

    def clear(self, s: PGemm, facts: Facts) -> str:
        """When the accumulator starts from zero, as the product's writer wants to hear it."""
        if isinstance(s.clear, Const):
            return "1" if s.clear.value else ""
        return self.spell.expr(s.clear, facts)

    def pipeline(self, s: Pipeline, facts: Facts) -> str:
        """A loop whose copies run ahead."""
        spell = self.spell
        start, stop = spell.expr(s.start, facts), spell.expr(s.stop, facts)
        var = spell.var(s.var)
        inner = facts.with_loop(s.var, s.start, s.stop, Const(1, INT32))
        first, last = static(s.start), static(s.stop)
        trips = None if first is None or last is None else max(0, last - first)
        with spell.versions(s.versioned, "stage"), spell.meaning({s.ahead: var}):
            setup: list[str] = []
            running = facts.with_loop(s.ahead, s.start, s.stop, Const(1, INT32))
            puts: list[tuple[str, str]] = []
            producers = tuple(self.producer(x, s, running, setup, puts) for x in s.producers.body)
            late = tuple(n for x in _fetches(s.consumers) for n in x.producers if not x.puts)
            within = any(x.puts for x in _fetches(s.consumers))
            kind, lead, full = ctype(s.var.dtype), "\n".join(setup), "" if s.full is None else spell.buffer(s.full)
            text = PipelineText(
                var, start, stop, trips, s.stages, s.asynchronous, producers, "", lead, late, kind, s.fenced, full, tuple(puts), within
            )  # fmt: skip
            around = self._late, self._puts
            self._late, self._puts = late_text(render, text) if late else "", puts_text(render, text)
            product = _only_gemm(s.consumers) if s.prefetch_registers else None
            if product is None:
                text = replace(text, consumers=self.sequence(s.consumers, inner))
            else:
                text = replace(text, consumers=self.in_pipeline(product, s.consumers, inner))
            self._late, self._puts = around
        return pipeline_text(render, spell.need, text)

    def producer(self, s: PStmt, loop: Pipeline, facts: Facts, setup: list[str], puts: list[tuple[str, str]]) -> tuple[str, str]:
        """The function that copies one tile, and its body under its source line; `setup` collects the pointers it advances, and `puts`
        the functions that store what is held in registers."""
        copy = _only_copy(s)
        if copy is not None and copy.held:
            return self.holding(s, copy, facts, setup, puts)
        name = self.spell.names.fresh(f"copy_{_filled(s)}")
        found = None if copy is None else advancing(copy, loop.ahead, loop.start, self.spell, facts)
        if found is None:
            return name, self.statement(s, facts)
        setup.append(found.setup)
        lead = self.comment(s.span) if isinstance(s, Stepped) else ""
        return name, f"{lead}\n{found.body}" if lead else found.body

    def holding(self, s: PStmt, copy: AsyncCopy, facts: Facts, setup: list[str], puts: list[tuple[str, str]]) -> tuple[str, str]:
        """The function that loads a tile into registers, which `setup` declares; the one that stores them goes to `puts`."""
        take, put, held = (self.spell.names.fresh(f"{verb}_{copy.dst.name}") for verb in ("take", "put", "held"))
        writer = LoopWriter(self.spell, self, self.threads)
        setup.append(f"{ctype(copy.src.dtype)} {held}[{copy.held}];")
        puts.append((put, writer.held_copy(copy, held, True, facts)))
        return take, lines(self.comment(s.span) if isinstance(s, Stepped) else "", writer.held_copy(copy, held, False, facts))

    def in_pipeline(self, s: PGemm, body: PSeq, facts: Facts) -> GemmInPipeline:
        """The product that ends each step of a pipeline with register prefetch."""

        def side(region: Region) -> Callable[[str], SharedOperand]:
            def at(stage: str) -> SharedOperand:
                with self.spell.versions((storage(region.buffer),), stage):
                    found = self.operand(region, facts)
                assert isinstance(found, SharedOperand)
                return found

            return at

        span = next((x.span for x in body.body if isinstance(x, Stepped)), s.span)
        return GemmInPipeline(s.plan, side(s.a), side(s.b), self.spell.buffer(s.c.buffer), self.clear(s, facts), self.comment(span))


def _only_leaf(s: PStmt) -> Leaf | None:
    """The scalar statement that a planned statement is."""
    match s:
        case Stepped(_, PSeq((PScalar(leaf, _),))) | PScalar(leaf, _):
            return leaf
        case _:
            return None


def _acts(e: Expr) -> bool:
    """True when computing a value does something besides: calls of the author's functions, barriers that count."""
    return any(isinstance(x, Call) and (x.foreign or x.name in BLOCK_CALLS) for x in walk_expr(e))


def _only_gemm(body: PSeq) -> PGemm:
    for s in body.body:
        for x in s.body.body if isinstance(s, Stepped) else (s,):
            if isinstance(x, PGemm):
                return x
    raise AssertionError("a prefetching pipeline has one product")


def _fetches(consumers: PSeq) -> Iterator[Fetch]:
    """Where the consumers of a pipeline copy for a later step."""
    for s in consumers.body:
        if isinstance(s, Fetch):
            yield s
        for x in s.body.body if isinstance(s, Stepped) else ():
            yield from (m for m in x.meanwhile if isinstance(m, Fetch)) if isinstance(x, PGemms) else ()


def _only_copy(s: PStmt) -> AsyncCopy | None:
    """The asynchronous copy that is all of a producer, if one is."""
    match s:
        case AsyncCopy():
            return s
        case Stepped(_, PSeq((only,))) | PSeq((only,)):
            return _only_copy(only)
        case _:
            return None


def _filled(s: PStmt) -> str:
    """The name of the tile that a producer fills."""
    match s:
        case Stepped(_, body) | TileLoop(body=body) | PIf(then=body):
            return _filled(body)
        case PSeq(parts):
            return _filled(parts[0])
        case AsyncCopy():
            return s.dst.name
        case PBulkFetch(copies) if len(copies) == 1:
            return copies[0].tile.name
        case PBulkFetch():
            return "tiles"
        case PScalar(Store(buffer)):
            return buffer.name
        case _:
            return "tile"


def _align(itemsize: int) -> str:
    return "alignas(16) " if itemsize < 4 else ""


def _product(shape: Sequence[Expr]) -> int:
    out = 1
    for e in shape:
        out *= static(e) or 1
    return out
