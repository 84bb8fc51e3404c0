"""The plan of a kernel as text for people: `tilec explain` and `--emit plan`.

    matmul  gemm.py:6  sm_80  M = 4096, N = 4096, K = 4096
    launch     grid (32, 32, 1) = 1024 blocks, 128 threads; 2 blocks fit on an SM, limited by registers
    shelf      A_shared  128x32 f16, 3 versions, 24 KB at 0  swizzled; ldmatrix 0 conflicts
    line 21    gemm C_local  64 mma_m16n8k16 a warp and step, warps 2x2, 64x64 each
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from tilec.diagnostics import CompileError
from tilec.emit.banner import extents, kilobytes, roles, short
from tilec.emit.hosteval import HostExprError, evaluate
from tilec.emit.hostexpr import manifest_text
from tilec.emit.names import printable
from tilec.ir.expr import Buffer, Cast, Const, Expr, Load, Scope
from tilec.ir.show import show
from tilec.ir.tile import Alloc, Atomic, Evaluate, Let, Print, Store, Trap
from tilec.ir.visit import storage
from tilec.layout.fragment import FragmentLayout
from tilec.layout.shared import CHUNK, SharedLayout
from tilec.plan.by_hand.plan import PBarriers, PBulkCopy, PBulkFetch, PControl, PMbarrier, PSend, TeamPlan
from tilec.plan.plan import (
    AsyncCopy, BulkAdd, BulkStore, Chained, Fetch, FillRegisters, JoinLanes, LaunchPlan, PackRegisters, PBarrier, PFor, PGemm, PGemms, PIf,
    Pipeline, Plan, Private, PReduce, PScalar, PScan, PSeq, PStmt, PWhile, Registers, SharedTile, Stepped, Streamed, TileLoop,
    Variant, WarpSpecialized, WhenScaled,
)  # fmt: skip
from tilec.plan.walk import walk_plan
from tilec.targets import Target

KEY = 11
BANKS = 32


def explain_text(plan: Plan) -> str:
    """The plan as lines of text, a newline at the end."""
    lines = [_title(plan), ""]
    for number, launch in enumerate(plan.launches):
        if number:
            lines += ["", f"then launch {number + 1}"]
        lines += _launch(plan, launch)
    if plan.asked:
        lines += ["", *_keyed("ptxas", plan.asked)]
    lines += ["", *_work(plan)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _title(plan: Plan) -> str:
    span = plan.kernel.span
    bound = ", ".join(f"{name} = {value}" for name, value in plan.kernel.bindings)
    return f"{plan.symbol}  {printable(span.file)}:{span.line}  {plan.target.name}" + (f"  {bound}" if bound else "")


def _keyed(key: str, rows: Sequence[str]) -> list[str]:
    """Rows below one another, the first after its key."""
    return [f"{key if i == 0 else '':<{KEY}}{row}" for i, row in enumerate(rows)]


def _launch(plan: Plan, launch: LaunchPlan) -> list[str]:
    best = launch.variants[0]
    lines = _keyed("launch", [_grid(plan, launch)])
    if launch.launch.cluster != (1, 1, 1) and best.grid is None:
        lines += _keyed("", [f"{' x '.join(map(str, launch.launch.cluster))} blocks make a cluster: they run at once and reach each other"])
    if launch.panel and best.grid is None:
        lines += _keyed("", [f"blocks are numbered in panels of {launch.panel} rows, so that neighbours share what the L2 cache holds"])
    lines += _keyed("warehouse", _warehouse(plan))
    lines += _keyed("shelf", _shelf(best, plan.target))
    lines += _keyed("tray", _tray(best))
    lines.append("")
    lines += _body(best.body, "", 0)
    if len(launch.variants) > 1:
        lines.append("")
        lines += _keyed("variants", [_choice(v, plan) for v in launch.variants])
    return lines


def _choice(v: Variant, plan: Plan) -> str:
    """When the launcher takes a body."""
    pairs = "  (clusters of 2 blocks, multicast)" if v.cluster == 2 else ""
    return f"{v.symbol}  when {_text(v.when, plan) or 'nothing before it fits'}{pairs}"


def _grid(plan: Plan, launch: LaunchPlan) -> str:
    best = launch.variants[0]
    threads = prod(best.threads or launch.threads)
    texts = [_text(e, plan) for e in best.grid or launch.grid]
    blocks = _number(" * ".join(f"({t})" for t in texts))
    count = f" = {blocks} blocks" if blocks is not None else ""
    registers = min(best.registers, plan.target.registers_for(threads * best.least)) if best.least else best.registers
    fit = plan.target.blocks_that_fit(threads, registers, best.shared_bytes)
    return (
        f"grid ({', '.join(texts)}){count}, {threads} threads; "
        f"{fit} block{' fits' if fit == 1 else 's fit'} on an SM, limited by {_limit(plan.target, threads, registers, fit)}"
    )


def _limit(target: Target, threads: int, registers: int, fit: int) -> str:
    """What keeps more blocks from an SM."""
    if target.blocks_that_fit(threads, registers, 0) == fit:
        return "registers" if target.blocks_that_fit(threads, 1, 0) > fit else "threads"
    return "shared memory"


def _warehouse(plan: Plan) -> list[str]:
    rows = []
    for p in plan.kernel.params:
        if isinstance(p, Buffer):
            read, written = (any(storage(b) is p for b in group) for group in (plan.read, plan.written))
            how = {(True, True): "read and written", (True, False): "read", (False, True): "written"}.get((read, written), "not used")
            size = _number(" * ".join([*(f"({_text(e, plan)})" for e in p.shape), str(p.dtype.bytes)]))
            rows.append(f"{p.name}  {extents(p.shape)} {short(p.dtype)}  {how}" + (f", {_decimal(size, 'B')}" if size is not None else ""))
        else:
            rows.append(f"{p.name}  {short(p.dtype)}, by value")
    return rows or ["nothing"]


def _shelf(best: Variant, target: Target) -> list[str]:
    rows = []
    for b, place in best.placements.items():
        if isinstance(place, SharedTile) and storage(b) is b:
            versions = f", {place.stages} versions" if place.stages > 1 else ""
            where = f"{kilobytes(place.bytes)} at {place.offset}  {_layout(place.layout)}"
            rows.append(f"{b.name}  {extents(b.shape)} {short(b.dtype)}{versions}, {where}")
    if not rows:
        return ["nothing"]
    return [*rows, f"{kilobytes(best.shared_bytes)} of {kilobytes(target.shared_per_block_max)}"]


def _layout(layout: SharedLayout) -> str:
    """How the rows of a tile lie, and how many banks ldmatrix meets twice."""
    row = layout.shape[-1] if layout.shape else 1
    how = "swizzled" if layout.swizzle else f"rows {layout.pitch * layout.itemsize} bytes apart" if layout.pitch != row else "row-major"
    if layout.panel:
        return f"swizzled, in panels of {layout.panel} columns"
    conflicts = ldmatrix_conflicts(layout)
    return how if conflicts is None else f"{how}; ldmatrix {conflicts} conflicts"


def ldmatrix_conflicts(layout: SharedLayout) -> int | None:
    """The most times that a bank is met again while ldmatrix reads 8 rows of 16 bytes; None for a tile it cannot read."""
    per = CHUNK // layout.itemsize
    if len(layout.shape) < 2 or layout.shape[-2] < 8 or layout.shape[-1] % per or layout.pitch % per:
        return None
    lead = (0,) * (len(layout.shape) - 2)
    worst = 0
    for top in range(0, min(layout.shape[-2], 32) - 7, 8):
        for column in range(0, layout.shape[-1], per):
            chunks = [layout.offset((*lead, top + i, column)) // per % (BANKS * 4 // CHUNK) for i in range(8)]
            worst = max(worst, max(map(chunks.count, chunks)) - 1)
    return worst


def _tray(best: Variant) -> list[str]:
    rows = []
    for b, place in best.placements.items():
        if storage(b) is not b:
            continue
        if isinstance(place, Registers):
            parts = f", {place.shelved} of them on the shelf at {place.offset}" if place.shelved else ""
            rows.append(f"{b.name}  {extents(b.shape)} {short(b.dtype)}, {_count(place.layout.registers, 'element')} a thread{parts}")
        elif isinstance(place, Private) and b.scope is not Scope.VAR:
            rows.append(f"{b.name}  {extents(b.shape)} {short(b.dtype)}, in each thread")
    return [*(rows or ["nothing"]), f"about {best.registers} registers a thread expected"]


# ---- the statements


def _body(s: PStmt, key: str, depth: int) -> list[str]:
    """Lines of a planned statement; `key` is that of the first line."""
    pad = "  " * depth
    match s:
        case PSeq(body):
            lines: list[str] = []
            for child in body:
                lines += _body(child, key, depth)
                key = "" if lines else key
            return lines
        case Stepped(span, body):
            return _body(body, f"line {span.line}", depth)
        case Streamed():
            parts = (s.prologue, s.mask, s.rows, s.late, s.epilogue)
            return [*(_row(word, text) for word, text in roles(s)), *(line for part in parts for line in _body(part, "", depth))]
        case WhenScaled(factor, body):
            return [_row(key, f"{pad}where a warp has a {factor.name} other than 1"), *_body(body, "", depth + 1)]
        case Chained():
            rows = [x for x in s.steps if isinstance(x, PSeq)]
            inside = (line for part in (s.prologue, *rows, s.epilogue) for line in _body(part, "", depth))
            return [*(_row(word, text) for word, text in roles(s)), *inside]
        case WarpSpecialized():
            return [*(_row(word, text) for word, text in roles(s)), *_body(s.epilogue, "", depth)]
        case Pipeline():
            return [_row(key, f"{pad}{_pipeline(s)}"), *_body(s.producers, "", depth + 1), *_body(s.consumers, "", depth + 1)]
        case PFor():
            head = f"loop {s.var.name} from {_short(s.start)} to {_short(s.stop)}{', unrolled' if s.unroll else ''}"
            return [_row(key, pad + head), *_body(s.body, "", depth + 1)]
        case PWhile():
            return [_row(key, f"{pad}while {_short(s.cond)}"), *_body(s.body, "", depth + 1)]
        case PIf() if any(s.teams):
            sides = [(t, b) for t, b in zip(s.teams, (s.then, s.orelse), strict=True) if b.body]
            return [line for n, (t, b) in enumerate(sides) for line in (_row("" if n else key, pad + _team(t)), *_body(b, "", depth + 1))]
        case PIf():
            otherwise = [_row("", f"{pad}else"), *_body(s.orelse, "", depth + 1)] if s.orelse.body else []
            return [_row(key, f"{pad}if {_short(s.cond)}"), *_body(s.then, "", depth + 1), *otherwise]
        case _:
            return [_row(key, pad + text) for text in _simple(s)]


def _row(key: str, text: str) -> str:
    return f"{key:<{KEY}}{text}"


def _pipeline(s: Pipeline) -> str:
    how = f"copies run {_count(s.stages - 1, 'step')} ahead" if s.stages > 1 else "copies are waited for at once"
    kind = "cp.async" if s.asynchronous else "synchronous copies"
    if s.full is not None:
        kind = "the copy engine" + (f" and {kind}" if len(s.producers.body) > 1 else "")
    prefetch = "; operands are loaded into registers one k-step early" if s.prefetch_registers else ""
    head = f"loop {s.var.name} from {_short(s.start)} to {_short(s.stop)}"
    return f"{head}, {_count(s.stages, 'stage')} of {kind}: {how}; 1 barrier a step{prefetch}"


def _simple(s: PStmt) -> Iterator[str]:
    """The line of a statement without statements inside, as people count them."""
    match s:
        case PScalar(Alloc()):
            return
        case PScalar(leaf, once):
            yield _leaf(leaf) + (" (one thread)" if once else "")
        case FillRegisters(buffer, value):
            yield f"fill {buffer.name} with {_short(value)}"
        case AsyncCopy():
            size = s.chunk * s.dst.dtype.bytes
            guard = "no guard" if s.valid is None else f"zeros unless {_short(s.valid)}"
            yield f"copy {s.src.name} -> {s.dst.name}  cp.async of {size} bytes, {_short(s.how.rounds)} a thread; {guard}"
        case BulkStore():
            chunks = f"{_count(s.staging.buffers, 'chunk')} of 64x{s.staging.columns} a warp group"
            yield f"copy {s.src.name} -> {s.map.tensor.name}  through {s.staging.tile.name} and the copy engine, {chunks}"
        case BulkAdd():
            yield f"add {s.src.name} to {s.map.tensor.name}  through {s.staging.tile.name} and the copy engine"
        case TileLoop():
            yield _tile_loop(s)
        case PGemm():
            yield _gemm(s)
        case PGemms(products, meanwhile):
            yield from map(_gemm, products)
            yield from (line for x in meanwhile for line in _meanwhile(x))
        case PReduce():
            steps = f"shuffles over {', '.join(map(str, s.lane_steps))}" if s.lane_steps else "no shuffles"
            across = " and shared memory" if s.scratch is not None else ""
            yield f"reduce {s.src.name} -> {s.dst.name} ({s.op}) in registers, {steps}{across}"
        case Fetch(numbers, puts):
            yield f"{'what is held of ' if puts else ''}copies for a later step: number {', '.join(str(n + 1) for n in numbers)}"
        case PScan():
            across = " and shared memory" if s.scratch is not None else ""
            yield f"scan {s.buffer.name} ({s.op}) in registers, shuffles{across}"
        case PackRegisters(src, dst, words):
            yield f"copy {src.name} -> {dst.name}  in registers, {words} words of two"
        case JoinLanes(buffer):
            yield f"sum of {buffer.name} over the lanes of a row"
        case PBarriers(barriers):
            yield f"{_count(len(barriers), 'barrier')} made by one thread"
        case PMbarrier() | PBulkCopy() | PSend() | PControl():
            yield _by_hand(s)
        case PBulkFetch(copies):
            yield from map(_by_hand, copies)
        case PBarrier():
            of = "wait for copies" if s.kind == "copies" else "cluster barrier" if s.kind.startswith("cluster") else "barrier"
            yield f"{of}{f' ({s.why})' if s.why else ''}"
        case _:
            yield type(s).__name__


def _meanwhile(s: PStmt) -> Iterator[str]:
    """What is done while products run."""
    for x in walk_plan(s):
        if isinstance(x, TileLoop | Fetch | FillRegisters | PReduce):
            yield from (f"{line}, meanwhile" for line in _simple(x))


def _team(t: TeamPlan | None) -> str:
    if t is None:
        return "other threads"
    return f"thread {t.team.first}" if t.team.count == 1 else f"threads {t.team.first} to {t.team.stop - 1}"


def _by_hand(s: PMbarrier | PBulkCopy | PSend | PControl) -> str:
    """What the author of a kernel orders by hand."""
    match s:
        case PMbarrier(kind, buffer, index, value):
            told = "" if value is None else f" {'parity ' if kind == 'wait' else 'bytes '}{_short(value)}"
            there = "" if buffer.peer is None else f" of block {_short(buffer.peer)} of the cluster"
            what = "arrive with the copies" if kind == "arrive_copies" else kind.replace("_", " and ")
            return f"{what} at {(buffer.view_of or buffer).name}[{_short(index)}]{there}{told}"
        case PBulkCopy():
            tensor, boxes = s.map.tensor.name, _count(len(s.boxes), "box").replace("boxs", "boxes")
            size = "x".join(str(n) for n in reversed(s.map.box))
            swizzle = f", swizzled over {s.map.swizzle} bytes" if s.map.swizzle else ""
            way = f"{tensor} -> {s.tile.name}" if s.barrier is not None else f"{s.tile.name} -> {tensor}"
            into = f", one block's into all of mask {s.mask:#x}" if s.mask else ""
            return f"copy {way}  by the copy engine, {boxes} of {size}{swizzle}{into}"
        case PSend():
            there = f"{(s.dst.view_of or s.dst).name} of block {_short(s.peer)} of the cluster"
            arrives = f"an arrival at {s.barrier.name}[{_short(s.index)}] there"
            return f"copy {s.src.name} -> {there}  by the copy engine, {s.bytes} bytes, {arrives}"
        case PControl(kind, value):
            return f"{kind.replace('_', ' ')}{f' {value}' if kind.endswith(('wait', 'take', 'give')) else ''}"


def _leaf(leaf: object) -> str:
    match leaf:
        case Let(var, value):
            return f"{var.name} = {_short(value)}"
        case Store(buffer):
            return f"store {buffer.name}"
        case Atomic(op, buffer):
            return f"atomic {op} on {buffer.name}"
        case Print():
            return "print"
        case Trap(cond):
            return f"stop unless {_short(cond)}"
        case Evaluate(value):
            return _short(value)
        case _:
            return type(leaf).__name__.lower()


def _tile_loop(s: TileLoop) -> str:
    leaves = list(_leaves(s.body))
    stores = dict.fromkeys(leaf.buffer.name for leaf in leaves if isinstance(leaf, Store | Atomic))
    spread = "as the registers lie" if isinstance(s.how, FragmentLayout) else f"by running number, {_short(s.how.rounds)} rounds"
    vector = f", {s.vector} elements at once" if s.vector > 1 else ""
    guard = f"; only where {_short(s.guard)}" if s.guard is not None else ""
    what = f"loop ({', '.join(v.name for v in s.vars)}) writes {', '.join(stores) or 'nothing'}"
    if len(leaves) == 1 and isinstance(leaves[0], Store):
        source = leaves[0].value.a if isinstance(leaves[0].value, Cast) else leaves[0].value
        what = f"copy {source.buffer.name} -> {leaves[0].buffer.name}" if isinstance(source, Load) else what
    return f"{what}  {spread}{vector}{guard}"


def _leaves(s: PStmt) -> Iterator[object]:
    return (x.stmt for x in walk_plan(s) if isinstance(x, PScalar))


def _gemm(s: PGemm) -> str:
    p = s.plan
    if p.kind == "wgmma":
        count = p.op.k // p.step[2] * max(1, p.op.m // (16 * p.warps[0])) * max(1, p.op.n // (p.warps[1] * p.step[1]))
        return f"gemm {s.c.buffer.name}  {count} {p.instruction} a warp group{'' if s.waits else ', queued'}"
    if p.kind != "mma":
        return f"gemm {s.c.buffer.name}  one multiply-add at a time: {p.reason}"
    m, n, _ = p.step
    count = p.warp_tile[0] // m * (p.warp_tile[1] // n) * p.k_steps
    warps = f"warps {p.warps[0]}x{p.warps[1]}, {p.warp_tile[0]}x{p.warp_tile[1]} each"
    why = f"; no wgmma: {p.reason}" if p.reason else ""
    return f"gemm {s.c.buffer.name}  {count} {p.instruction} a warp and step, {warps}; a by {p.load_a}, b by {p.load_b}{why}"


# ---- the work


def _work(plan: Plan) -> list[str]:
    flop, size = (_number(_text(e, plan)) for e in (plan.flop, plan.bytes))
    rows = []
    if flop and size:
        rows.append(f"{_decimal(flop, 'FLOP')}, {_decimal(size, 'B')} at least: {flop / size:.3g} FLOP a byte")
    elif plan.flop is not None or plan.bytes is not None:
        counts = [_decimal(flop, "FLOP") if flop else "" if flop == 0 or plan.flop is None else f"{_text(plan.flop, plan)} FLOP"]
        counts += [_decimal(size, "B") if size else f"{_text(plan.bytes, plan) or '0'} bytes"]
        rows.append(f"{', '.join(filter(None, counts))} at least")
    lines = _keyed("work", rows or ["not counted"])
    for check in plan.checks:
        lines += _keyed("refused", [f"unless {_text(check.holds, plan)}: {check.message}"])
    remarks = [r for g in plan.launches for r in g.variants[0].remarks]
    for d in (*plan.notes, *remarks):
        lines += _keyed(d.severity.value, [f"line {d.span.line}: {d.message}"])
    return lines


def _text(e: Expr | None, plan: Plan) -> str:
    """An expression of the host in the manifest's spelling; empty for none."""
    if e is None:
        return ""
    try:
        return manifest_text(e, plan.kernel.span)
    except CompileError:
        return show(e)


def _number(text: str) -> int | None:
    try:
        return evaluate(text, {})
    except HostExprError:
        return None


def _short(e: Expr) -> str:
    """An expression of the device, cut when it is long."""
    if isinstance(e, Const):
        return f"{e.value:g}" if isinstance(e.value, float) else str(e.value)
    text = show(e)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _decimal(n: int, unit: str) -> str:
    """A count with a decimal prefix: 137 GFLOP, 33.6 MB."""
    for size, prefix in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if n >= size:
            return f"{n / size:.1f} {prefix}{unit}"
    return f"{n} {unit}"
