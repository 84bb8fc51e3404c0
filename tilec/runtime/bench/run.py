"""One `tilec bench` from end to end: for each point compile, load, check, race, and then print everything.

    run(request, compile, Gpu(), progress) -> Report
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tilec.emit.hosteval import HostExprError, evaluate
from tilec.emit.manifest import find_kernel, parse
from tilec.ir.expr import Buffer
from tilec.ir.kernel import Param
from tilec.runtime.bench import checking, plot, table
from tilec.runtime.bench.clocks import Watch
from tilec.runtime.bench.figures import Row, Work, figure
from tilec.runtime.bench.gpu import sets_for
from tilec.runtime.bench.machine import Contender, Machine
from tilec.runtime.bench.problems import Problem, Product
from tilec.runtime.bench.request import BenchRequest
from tilec.runtime.bind import Bound, bind
from tilec.runtime.progress import Progress
from tilec.runtime.report import Report
from tilec.runtime.request import MissingError, RunError, RunRequest

if TYPE_CHECKING:
    from tilec.driver import Compiled

Compile = Callable[[Mapping[str, Any], str], "tuple[Compiled, Mapping[str, Any]]"]
"""Compiles the kernel with some more `-D`, or another file where one is named; also gives all the `-D` there are."""
SIGNIFICANT = 1e-2
"""A peer whose result is further away than this computes something else."""


def run(request: BenchRequest, compile: Compile, machine: Machine, progress: Progress) -> Report:
    """Times every point. Raises RunError for a wrong kernel, MissingError without a peer that was asked for."""
    rows, symbol, arch = [], "", ""
    for i, point in enumerate(request.points):
        progress.tell(f"point {i + 1} of {len(request.points)}: {', '.join(f'{n} = {v}' for n, v in point.items()) or 'compiling'}")
        compiled, defines = compile(point, "")
        symbol, arch = compiled.plans[0].symbol, compiled.plans[0].target.name
        bound = bind(compiled.plans[0].kernel, RunRequest(defines=defines, args=request.args, seed=request.seed))
        rows.append(_point(request, point, compile, compiled, bound, machine, progress))
    progress.done()
    return Report(_told(request, symbol, arch, machine, rows), [], True)


def _told(request: BenchRequest, symbol: str, arch: str, machine: Machine, rows: list[Row]) -> list[str]:
    peaks = machine.device.peaks
    if request.svg:
        from tilec import files

        try:
            files.write_all({request.svg: plot.svg(rows, peaks)})
        except OSError as fault:
            raise RunError(f"--svg {request.svg}: {fault.strerror}") from None
    if request.output == "json":
        return [table.as_json(symbol, arch, asdict(machine.device), rows)]
    if request.output == "csv":
        return table.as_csv(rows)
    lines = table.table(f"{symbol} for {arch}", str(machine.device), rows)
    return [*lines, "", *plot.bars(rows)] if request.plot else lines


def _point(
    request: BenchRequest, point: Mapping[str, Any], compile: Compile, compiled: Compiled, bound: Bound, machine: Machine,
    progress: Progress,
) -> Row:  # fmt: skip
    plan = compiled.plans[0]
    ours = machine.load(compiled, bound, sets_for(bound, request.mode))
    explicit = [a for a in request.against if a not in ("auto", "none")]
    asked: dict[str, Contender] = {}
    for name in (a for a in explicit if a.startswith("torch:")):  # an expression may serve as the check, too
        asked[name] = machine.peer(name, None, ours, compiled, bound)
    progress.tell("checking the result")
    checked = checking.check(machine, plan, ours, bound, request.check_seconds, next(iter(asked.values()), None))
    notes = []
    for name in explicit:
        if name not in asked:
            asked[name] = _peer(name, point, checked.problem, ours, compile, compiled, bound, machine, request.mode)
    if "auto" in request.against:
        found, note = _automatic(checked.problem, ours, compiled, bound, machine)
        asked |= found
        notes += [note] if note else []
    for name, peer in asked.items():
        _same(name, machine.apart(peer, ours, bound, checking.written(plan)))
    progress.tell(f"measuring {', '.join([plan.symbol, *asked])} for {request.seconds:g} s")
    with Watch(machine.clocks()) as watch:
        times = machine.race({"tilec": ours, **asked}, request.seconds, request.mode)
    seen = watch.seen()
    notes += [seen.warning()] if seen.warning() else []
    work = _work(compiled, bound, checked.problem)
    figures = tuple(figure(n, t, work, machine.device.peaks) for n, t in times.items())
    title = str(checked.problem) if checked.problem is not None else plan.symbol
    return Row(point, title, work, figures, checked.text, ours.resources, seen.data(), tuple(notes))


def _same(name: str, apart: float) -> None:
    if not math.isnan(apart) and apart > SIGNIFICANT:
        raise RunError(f"--against {name} computes something else: its result is a relative {apart:.1e} away")


def _peer(
    name: str, point: Mapping[str, Any], problem: Problem | None, ours: Contender, compile: Compile, compiled: Compiled, bound: Bound,
    machine: Machine, mode: str,
) -> Contender:  # fmt: skip
    if not name.endswith(".py"):
        return machine.peer(name, problem, ours, compiled, bound)
    other, _ = compile(point, name)
    mine, theirs = (", ".join(map(_declared, c.plans[0].kernel.params)) for c in (compiled, other))
    if mine != theirs:
        raise RunError(f"--against {name}: its parameters are {theirs}, ours {mine}")
    return machine.load(other, bound, sets_for(bound, mode))


def _declared(p: Param) -> str:
    return f"{p.name}: {p.dtype}{f', {p.rank} dimensions' if isinstance(p, Buffer) else ''}"


def _automatic(
    problem: Problem | None, ours: Contender, compiled: Compiled, bound: Bound, machine: Machine
) -> tuple[dict[str, Contender], str]:
    """The peer that fits the problem, or a note why there is none."""
    if problem is None:
        return {}, "no peer by itself: this is no plain matrix product or attention; name one with --against"
    names = ("cublas", "torch") if isinstance(problem, Product) else ("torch",)
    why = ""
    for name in names:
        try:
            return {name: machine.peer(name, problem, ours, compiled, bound)}, ""
        except (RunError, MissingError) as fault:
            why = str(fault)
    return {}, f"no peer: {why}"


def _work(compiled: Compiled, bound: Bound, problem: Problem | None) -> Work:
    """Operations and bytes: of the problem where it is known, else what the manifest says."""
    plan = compiled.plans[0]
    entry = find_kernel(parse(compiled.cu), plan.symbol)
    env = bound.integers
    tensors = [p for p in plan.kernel.params if isinstance(p, Buffer)]
    dtype = problem.operand if problem is not None else tensors[0].dtype.name if tensors else "float32"
    try:
        flop, size = (evaluate(str(entry[key]), env) for key in ("flop", "bytes"))
    except (HostExprError, KeyError):
        flop = size = 0
    return Work(problem.flop if problem is not None else flop, size or sum(a.nbytes for a in bound.arrays.values()), dtype)
