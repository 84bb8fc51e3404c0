"""The comment at the top of a file: what was compiled, and what the plan decided, in the words of warehouse, shelf and tray."""

from __future__ import annotations

from collections.abc import Sequence

from tilec.emit.hostexpr import manifest_text
from tilec.ir.dtypes import DType, Kind
from tilec.ir.expr import Buffer, Expr, Var
from tilec.ir.visit import storage
from tilec.plan.domains import static
from tilec.plan.hopper.chain_plan import Multiply
from tilec.plan.ladder import LADDERS
from tilec.plan.plan import (
    BulkAdd, BulkStore, Chained, LaunchPlan, PGemm, Pipeline, Plan, Registers, SharedTile, Streamed, WarpSpecialized, WhenScaled,
)  # fmt: skip
from tilec.plan.walk import specialised, walk_plan

_SHORT = {Kind.INT: "i", Kind.UINT: "u", Kind.BOOL: "bool", Kind.FLOAT: "f"}


def short(dtype: DType) -> str:
    """f16, i32, bf16 and so on."""
    if dtype.kind in (Kind.INT, Kind.UINT) or dtype.name in ("float16", "float32", "float64"):
        return f"{_SHORT[dtype.kind]}{dtype.bits}"
    return {"bfloat16": "bf16", "tfloat32": "tf32", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}.get(dtype.name, dtype.name)


def extents(shape: Sequence[Expr]) -> str:
    """`4096x4096`, run-time extents by name."""
    parts = [str(n) if (n := static(e)) is not None else e.name if isinstance(e, Var) else "?" for e in shape]
    return "x".join(parts) or "1"


def kilobytes(n: int) -> str:
    """Bytes in KB, to a tenth; whole numbers without a point."""
    return f"{round(n / 1024, 1):g} KB" if n >= 1024 else f"{n} bytes"


def banner_text(plans: Sequence[Plan], file: str) -> str:
    """The comment lines for all kernels of a file."""
    lines: list[str] = []
    for plan in plans:
        lines += [*_kernel(plan, file), ""]
    archs = " or ".join(sorted({p.target.name for p in plans}))
    bodies = [(p, v) for p in plans for launch in p.launches for v in launch.variants]
    own = [(p, v) for p, v in bodies if specialised(v) or v.tensor_maps or v.hopper]
    exact = sorted({name for p, v in own for name in (p.target.name, v.arch or p.target.name)})
    build = " ".join(f"-gencode arch={a.replace('sm_', 'compute_')},code={a}" for a in exact) if exact else f"-arch={archs} (or newer)"
    lines.append(f"  build      nvcc {build} -c")
    lines.append("")
    return "\n".join(f"// {line}".rstrip() for line in lines)


def _kernel(plan: Plan, file: str) -> list[str]:
    kernel = plan.kernel
    edit = "Change the Python and run tilec again; edits here are lost."
    lines = [f"{plan.symbol}: written by tilec from {file}:{kernel.span.line} for {plan.target.name}. {edit}", ""]
    if kernel.bindings:
        lines.append("  with       " + ", ".join(f"{name} = {value}" for name, value in kernel.bindings))
    tensors = [f"{p.name} {extents(p.shape)} {short(p.dtype)}" for p in kernel.params if isinstance(p, Buffer)]
    for launch in plan.launches:
        lines.append(f"  launch     {_launch(launch, plan)}")
    lines.append("  warehouse  " + (", ".join(tensors) or "nothing"))
    for launch in plan.launches:
        lines += _decisions(launch)
    return lines


def _launch(launch: LaunchPlan, plan: Plan) -> str:
    best = launch.variants[0]
    grid = ", ".join(manifest_text(e, plan.kernel.span) for e in best.grid or launch.grid)
    shared = best.shared_bytes
    threads = "x".join(str(n) for n in best.threads or launch.threads if n > 1) or "1"
    return f"grid ({grid}), {threads} threads" + (f", {kilobytes(shared)} of dynamic shared memory" if shared else "")


def _decisions(launch: LaunchPlan) -> list[str]:
    """Shelf, tray, pipelines, guards."""
    best = launch.variants[0]
    shelf: list[str] = []
    tray: list[str] = []
    for b, place in best.placements.items():
        if isinstance(place, SharedTile) and storage(b) is b:
            times = f"{place.stages} x " if place.stages > 1 else ""
            swizzled = ", swizzled" if place.layout.swizzle else ""
            shelf.append(f"{b.name} {times}{extents(b.shape)} {short(b.dtype)}, {kilobytes(place.bytes)}{swizzled}")
        elif isinstance(place, Registers):
            parts = f", {place.shelved} of them in shared memory" if place.shelved else ""
            tray.append(f"{b.name} {extents(b.shape)} {short(b.dtype)}, {place.layout.registers} a thread{parts}")
    lines: list[str] = []
    if shelf:
        lines.append("  shelf      " + "; ".join(shelf))
    if tray:
        lines.append("  tray       " + "; ".join(tray))
    for s in walk_plan(best.body):
        if isinstance(s, PGemm):
            lines.append(f"  gemm       line {s.span.line}: {_product(s)}")
        elif isinstance(s, Pipeline):
            ahead = s.stages - 1
            steps = f"{ahead} step{'s' if ahead > 1 else ''}"
            lines.append(f"  pipeline   {s.var.name}: copies run {steps} ahead, {s.stages} versions of each tile, one barrier a step")
        elif isinstance(s, WarpSpecialized | Streamed | Chained):
            lines += [f"  {key:<10} {text}" for key, text in roles(s)]
    rungs = ((v.symbol, LADDERS[v.ladder][v.rung]) for v in launch.variants if v.rung)
    lines += [f"  registers  {symbol}: {rung.name}, as {rung.why}" for symbol, rung in rungs]
    if len(launch.variants) > 1:
        lines.append("  variants   " + ", ".join(v.symbol for v in launch.variants) + ": the launcher picks by alignment")
    return lines


def roles(s: WarpSpecialized | Streamed | Chained) -> list[tuple[str, str]]:
    """Who does what in a warp-specialised kernel, each line with its key."""
    if isinstance(s, Streamed):
        return _streaming(s)
    if isinstance(s, Chained):
        return _chaining(s)
    c, g = s.schedule, s.gemm
    others = "1 warp group multiplies" if c.consumers == 1 else f"{c.consumers} warp groups multiply {g.m // c.consumers} rows each"
    joined = f", {s.step} of the author's" if s.step > 1 else ""
    store = "stmatrix and the copy engine" if any(isinstance(x, BulkStore) for x in walk_plan(s.epilogue)) else "the threads"
    filled = f"1 keeps {c.stages} stages filled through the copy engine ({c.give})"
    if c.lines is not None:
        keep = "1 keeps" if c.lines.producers == 1 else f"{c.lines.producers} keep"
        filled = f"{keep} {c.stages} stages filled from rows that start anywhere ({c.give})"
    lines = [
        ("roles", f"{others} ({c.take} registers a thread), {filled}"),
        ("gemm", f"line {s.spans[3].line}: {len(g.products)} x {g.instruction} a step{joined}"),
        ("blocks", f"persistent, tiles in panels of {c.group} rows; results leave by {store}"),
    ]
    if c.pair is not None:
        tile = (s.a if c.pair.shared == "a" else s.b).tile.name
        lines.append(("pairs", f"clusters of 2 blocks along {'xy'[c.pair.axis]}: each fetches half of {tile} into both (multicast)"))
    return lines


def _streaming(s: Streamed) -> list[tuple[str, str]]:
    """The same for a kernel that streams tiles past a held one."""
    c = s.schedule
    groups = "1 warp group of 64 rows" if c.consumers == 1 else f"{c.consumers} warp groups of 64 rows each"
    turns = ", taking turns at the tensor cores" if c.turns else ""
    held = "in shared memory"
    if s.first.held:
        held = "in registers" if s.first.held == len(s.first.a) else f"in registers for its first {16 * s.first.held} columns"
    scaled = any(isinstance(x, WhenScaled) for x in walk_plan(s.late))
    order = f"longest first along {s.block_vars[c.row_axis].name}" if c.longest_first else f"{s.block_vars[c.row_axis].name} fastest"
    filled = f"{c.stages} versions of {s.a.tile.name} and {s.b.tile.name}"
    lines = [
        ("roles", f"{groups} ({c.take} registers a thread){turns}; 1 fills {filled} ({c.give})"),
        ("gemm", f"line {s.spans[4].line}: {len(s.first.a)} x {s.first.instruction} a step, {s.held.tile.name} waits {held}"),
        ("gemm", f"line {s.spans[5].line}: {len(s.second.a)} x {s.second.instruction} a step, {s.probs.name} stays in registers"),
        ("overlap", f"line {s.spans[4].line} runs a step ahead, the statements between both products run under line {s.spans[5].line}"),
    ]  # fmt: skip
    if s.clean is not None:
        lines.append(("mask", "left out of steps that drop nothing" + (", which end where all is dropped" if s.dead is not None else "")))
    if scaled:
        lines.append(("softmax", "the maximum lags behind by a factor of 256 or less; rounding alone can tell"))
    return [*lines, ("blocks", f"persistent, {order}; exp, log and division of row statements are the hardware's own")]


def _chaining(s: Chained) -> list[tuple[str, str]]:
    """The same for a kernel that chains products."""
    c = s.schedule
    groups = "1 warp group of 64 rows" if c.consumers == 1 else f"{c.consumers} warp groups of 64 rows each"
    filled = ", ".join(o.tile.name for o in s.streams)
    lines = [("roles", f"{groups} ({c.take} registers a thread); 1 fills {c.stages} versions of {filled} ({c.give})")]
    lines[1:] = [
        ("gemm", f"line {x.span.line}: {len(p.b.slices)} x {p.instruction} a step" + (", columns shared" if p.by_columns else ""))
        for x in s.steps if isinstance(x, Multiply) for p in (s.products[x.product],)
    ]  # fmt: skip
    lines += [("exchange", f"{t.name}, {c.stages} versions: all warp groups meet behind its copy") for t in s.exchanged]
    added = (x for part in walk_plan(s) for x in (part,) if isinstance(x, BulkAdd))
    lines += [("add", f"{x.src.name} to {x.map.tensor.name} by the copy engine") for x in added]
    name = s.block_vars[c.row_axis].name
    order = f"longest first along {name}" if c.uneven else f"{name} fastest"
    return [*lines, ("blocks", f"persistent, {order}; exp, log and division of row statements are the hardware's own")]


def _product(s: PGemm) -> str:
    plan = s.plan
    m, n = plan.warps
    if plan.kind == "fma":
        return f"one multiply-add at a time ({plan.reason})"
    return f"{plan.instruction}, warps {m}x{n}, {plan.warp_tile[0]}x{plan.warp_tile[1]} each"
