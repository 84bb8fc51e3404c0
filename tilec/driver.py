"""One compilation from the text of a kernel to the text of a .cu. Nothing is printed and no file is written here.

    compile_source(Options("gemm.py", source, SM80)).cu -> the CUDA file
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from tilec.record import record
from tilec.diagnostics import CompileError, Diagnostic, Severity, Span, error

if TYPE_CHECKING:
    from tilec.emit.kernel import Written
    from tilec.ir.kernel import Kernel, Module
    from tilec.plan.ladder import Choice
    from tilec.plan.plan import Plan
    from tilec.targets import Target


@record
class Options:
    """Everything a compilation depends on. `path` is as the user spelled it; it and the texts decide every byte of the output.

    `args` are arrays by parameter name as (dtype name, extents). `name` replaces the symbol of the one
    kernel that is compiled. `also` are newer targets that may have bodies of their own in the file. `ptxas`: whether nvcc is asked
    about spilled registers (auto: about bodies that the planner's rules do not vouch for).
    """

    path: str
    text: bytes
    target: Target
    also: tuple[Target, ...] = ()
    include: tuple[str, ...] = ()
    defines: Mapping[str, Any] = field(default_factory=dict)
    args: Mapping[str, tuple[str, tuple[int | str, ...]]] = field(default_factory=dict)
    kernels: tuple[str, ...] = ()
    opt_level: int = 2
    fp32_gemm: str = "tf32"
    pairs: str = "auto"
    ptxas: str = "auto"
    name: str = ""
    line_directives: bool = False


@record
class Compiled:
    """A finished compilation: the Tile IR, the plans, the CUDA text, what there is to tell, and seconds by pass."""

    module: Module
    plans: tuple[Plan, ...]
    cu: str
    diagnostics: tuple[Diagnostic, ...]
    seconds: Mapping[str, float]


class InternalFault(Exception):
    """A pass failed in a way that is tilec's fault; `cause` is what it raised, `place` what it was working on."""

    def __init__(self, stage: str, place: str, cause: BaseException) -> None:
        super().__init__(f"{stage} failed at {place}: {type(cause).__name__}: {cause}")
        self.stage, self.place, self.cause = stage, place, cause


@dataclass(slots=True)
class _Clock:
    """Runs passes: times them, and turns what they should never raise into an InternalFault."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def during(self, stage: str, place: str) -> Iterator[None]:
        """The time and the faults inside belong to `stage`."""
        start = time.perf_counter()
        try:
            yield
        except CompileError:
            raise
        except Exception as fault:
            raise InternalFault(stage, place, fault) from fault
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start


Reading = Callable[[Options], "Module | None"]
"""Another way to read the file than in this process; None where it fails for no fault of the file."""


def compile_source(options: Options, reading: Reading | None = None) -> Compiled:
    """Reads, plans and emits. Raises CompileError for faults of the input, InternalFault for faults of tilec."""
    with _deep(options.path):
        return _compile(options, reading)


def read_source(options: Options) -> Module:
    """The Tile IR of the kernels that `options` ask for, as `compile_source` reads it. Raises the same."""
    with _deep(options.path):
        return read(options, _Clock().during)


@contextmanager
def _deep(path: str) -> Iterator[None]:
    """Passes follow the nesting of expressions: the interpreter's recursion limit is raised while they run."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, STACK_DEPTH))
    try:
        yield
    except InternalFault as fault:
        if not isinstance(fault.cause, RecursionError):
            raise
        place = Span(path, 1, 1, 1, 1)
        raise error("TL0110", "this program is nested too deeply", place, help="split long expressions") from None
    finally:
        sys.setrecursionlimit(limit)


def _compile(options: Options, reading: Reading | None) -> Compiled:
    clock = _Clock()
    with clock.during("frontend", f"{options.path}:1:1"):
        found = reading(options) if reading else None
    module = found or read(options, clock.during)
    plans = plan_module(module, options, clock.during)
    if options.ptxas != "always" and not any(v.doubtful for p in plans for launch in p.launches for v in launch.variants):
        return Compiled(module, plans, emit_module(plans, options, clock.during), _told(module, plans), clock.seconds)
    from tilec.settle import Attempt, settle

    def attempt(choice: Choice, plans: tuple[Plan, ...]) -> Attempt:
        return Attempt(choice, plans, cache(partial(write_module, plans, options, clock.during)))

    known = {(p.symbol, frozenset[Any]()): p for p in plans}

    def again(choice: Choice) -> Attempt:
        return attempt(choice, plan_module(module, options, clock.during, choice, known))

    with clock.during("ptxas", options.path):
        settled = settle(attempt({}, plans), options.ptxas, again)
    with clock.during("emit", options.path):
        cu = settled.written().text()
    return Compiled(module, settled.plans, cu, _told(module, settled.plans), clock.seconds)


def emit_module(plans: Sequence[Plan], options: Options, during: During) -> str:
    """The text of the .cu."""
    written = write_module(plans, options, during)
    with during("emit", options.path):
        return written.text()


def write_module(plans: Sequence[Plan], options: Options, during: During) -> Written:
    """The kernels of the .cu."""
    with during("emit", options.path):
        from tilec.emit.kernel import EmitOptions, write

        lines = options.text.decode("utf-8-sig", errors="replace").splitlines()
        return write(plans, EmitOptions(file=options.path, source=tuple(lines), line_directives=options.line_directives))


STACK_DEPTH = 12_000
"""The interpreter's recursion limit during a compilation: a chain of some thousand operators is no fault."""

During = Callable[[str, str], Any]


def read(options: Options, during: During) -> Module:
    """The Tile IR of the kernels that `options` ask for."""
    with during("frontend", f"{options.path}:1:1"):
        from tilec.frontend import ArgSpec, Request
        from tilec.frontend import read as read_file

        args = {name: ArgSpec(dtype, shape) for name, (dtype, shape) in options.args.items()}
        request = Request(
            options.path, options.text, options.include, options.defines, args, options.kernels, target=options.target
        )
        module = _checked(read_file(request), options)
    if options.name and len(module.kernels) != 1:
        count, first = len(module.kernels), module.kernels[0].span
        raise error("TL0211", f"--name fits one kernel, this compiles {count}", first, help="choose one with -k")
    return module


def _checked(module: Module, options: Options) -> Module:
    """The module as its kernels are compiled: how float32 products are made, that the IR keeps its rules, and warnings of tiles that
    are read unwritten and barriers that not all reach. Raises TL0305 where a kernel is sure to leave a tile."""
    from tilec.analysis.reach import outside
    from tilec.analysis.unwritten import unwritten
    from tilec.analysis.waits import waits_alone
    from tilec.ir.verify import verify

    if options.fp32_gemm == "ieee":
        kernels = tuple(replace(k, flags=tuple(sorted({*k.flags, "fp32_gemm_ieee"}))) for k in module.kernels)
        module = replace(module, kernels=kernels)
    for kernel in module.kernels:
        verify(kernel)
    if errors := [d for kernel in module.kernels for d in outside(kernel)]:
        raise CompileError(*errors)
    return replace(module, notes=(*module.notes, *(w for kernel in module.kernels for w in (*unwritten(kernel), *waits_alone(kernel)))))


def plan_module(
    module: Module, options: Options, during: During, choice: Choice | None = None,
    known: dict[tuple[str, frozenset[Any]], Plan] | None = None,
) -> tuple[Plan, ...]:  # fmt: skip
    """A plan for every kernel of the module, their symbols spelled as CUDA allows. Raises TL0211 for equal symbols.

    `choice` are configurations of bodies other than the first ones; `known` are plans by symbol and what of `choice` they are for, to
    which new ones are added.
    """
    from tilec.plan.planner import PlanOptions, plan

    planning = PlanOptions(options.target, options.opt_level, options.fp32_gemm, options.also, options.pairs, choice or {})
    plans, known = [], {} if known is None else known
    for kernel, symbol in zip(module.kernels, symbols(module.kernels, options.name), strict=True):
        key = (symbol, frozenset(item for item in planning.choice.items() if item[0][1].startswith(symbol)))
        if key not in known:
            with during("plan", f"{kernel.symbol} at {kernel.span}"):
                known[key] = plan(kernel, planning, symbol)
        plans.append(known[key])
    return tuple(plans)


def symbols(kernels: Sequence[Kernel], name: str = "") -> list[str]:
    """The exported names of the kernels, in order; `name` replaces the only one. Raises TL0211 when two are the same."""
    from tilec.emit.names import cuda_symbol

    out: dict[str, Kernel] = {}
    for kernel in kernels:
        symbol = cuda_symbol(name or kernel.symbol)
        if symbol in out:
            raise error(
                "TL0211", f"two kernels would both be called `{symbol}` in the CUDA file", kernel.span,
                help=f"rename `{kernel.symbol}` or that of line {out[symbol].span.line}, or compile one of them with -k",
            )  # fmt: skip
        out[symbol] = kernel
    return list(out)


def _told(module: Module, plans: Sequence[Plan]) -> tuple[Diagnostic, ...]:
    """Notes, warnings and remarks in the order of the source, each once."""
    remarks = [r for p in plans for g in p.launches for v in g.variants for r in v.remarks]
    found = dict.fromkeys([*module.notes, *(n for p in plans for n in p.notes), *remarks])
    return tuple(sorted(found, key=lambda d: (d.span.file, d.span.line)))


def as_errors(diagnostics: Sequence[Diagnostic]) -> CompileError | None:
    """What -Werror makes of warnings; None if there are none."""
    warnings = [replace(d, severity=Severity.ERROR) for d in diagnostics if d.severity is Severity.WARNING]
    return CompileError(*warnings) if warnings else None
