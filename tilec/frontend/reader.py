"""From a request to the kernels of a file: find them, give their parameters values, record them.

    read(Request("gemm.py", text, defines={"M": 1024})).kernels[0].symbol  ->  "gemm"
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from tilec.diagnostics import CompileError, Diagnostic, Label, Severity, Span, error, note
from tilec.frontend import hostops
from tilec.frontend.discover import Candidate, choose, define_help, discover, skipped
from tilec.frontend.evaluate import Evaluator
from tilec.frontend.finish import raw_configurations
from tilec.frontend.forms import annotated, is_runtime, record_eager, record_prim
from tilec.frontend.implicit import record_implicit, tensor_parameters
from tilec.frontend.machine import Machine
from tilec.frontend.modules import scan
from tilec.frontend.request import Request
from tilec.frontend.source import load
from tilec.frontend.syntax import inner_kernels, parameters, walk
from tilec.frontend.values import Function, KernelValue, Poison
from tilec.ir.kernel import Kernel
from tilec.ir.kernel import Module as Result
from tilec.language.autotuner import TunerSpec
from tilec.language.builder import Builder
from tilec.language.values import Marker, Value

STACK_DEPTH = 12_000
"""Python frames that one reading may nest. Sources within the limits of `source.check_nesting` stay below it."""


class Missing(Exception):
    """Compile-time parameters of a kernel have no value."""

    def __init__(self, names: list[str], span: Span) -> None:
        super().__init__()
        self.names, self.span = names, span


def read(request: Request) -> Result:
    """All wanted kernels of a source file. Raises CompileError with every error that could be found in one run.

    The interpreter's recursion limit is raised for the time of the call: the evaluator follows the nesting of the source.
    """
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, STACK_DEPTH))
    try:
        return _read(request)
    except RecursionError:
        raise error("TL0110", "this program is nested too deeply", Span(request.path, 1, 1, 1, 1), help="split long expressions") from None
    finally:
        sys.setrecursionlimit(limit)


def _read(request: Request) -> Result:
    m = Evaluator(request, Builder(target=request.target))
    m.files.append(request.path)
    source = load(request.path, request.text)
    path = Path(request.path)
    module = scan(path.stem if request.path != "-" else "stdin", request.path, source)
    m.modules[str(path.resolve())] = module
    m.exports(module)  # runs it
    chosen = choose(m, module, discover(m, module))
    kernels, left_out = _build(m, chosen)
    if not kernels:
        raise CompileError(*(replace(d, severity=Severity.ERROR, code="TL0209", message=_needs(d)) for d in left_out))
    _check_symbols(kernels)
    notes = (*left_out, *m.notes, *_unused(m, request, kernels))
    return Result(tuple(kernels), notes, tuple(m.files))


def _needs(d: Diagnostic) -> str:
    """The note that a kernel is left out, as the error it is when no kernel remains."""
    return d.message.replace("is not compiled", "cannot be compiled")


def _build(m: Machine, chosen: list[Candidate]) -> tuple[list[Kernel], list[Diagnostic]]:
    """The kernels, and notes about those that lack a parameter. Errors of all of them are raised together."""
    kernels: list[Kernel] = []
    left_out: list[Diagnostic] = []
    errors: list[Diagnostic] = []
    for c in chosen:
        m.steps = 0
        try:
            kernels.extend(_kernels(m, c))
        except Missing as lack:
            if m.request.kernels:
                text = f"`{c.symbol}` needs a value for {', '.join(f'`{n}`' for n in lack.names)}"
                errors.extend(error("TL0209", text, lack.span, help=define_help(lack.names)).diagnostics)
            else:
                left_out.append(skipped(c, lack.names))
        except CompileError as fault:
            errors.extend(d for d in fault.diagnostics if d not in errors)
    if errors:
        raise CompileError(*errors)
    return kernels, left_out


def _kernels(m: Machine, c: Candidate) -> list[Kernel]:
    match c.kind:
        case "kernel":
            assert isinstance(c.value, KernelValue)
            value = c.value
            return [record_prim(m, value.function, c.symbol, (*value.markers, *value.function.markers), value.bindings)]
        case "lazy":
            return _from_factory(m, c)
        case kind:
            assert isinstance(c.value, Function)
            runtime = _runtime_parameters(m, c.value) if kind == "eager" else tensor_parameters(c.value)
            if kind == "eager":
                _check_declared(m, c.value, runtime)
            values = _values(m, c.value, runtime, sizes_open=kind == "implicit")
            bindings = tuple((n, hostops.spelled(v)) for n, v in values.items())
            record = record_eager if kind == "eager" else record_implicit
            return [record(m, c.value, c.symbol, values, bindings)]


def _from_factory(m: Machine, c: Candidate) -> list[Kernel]:
    function = c.value
    assert isinstance(function, Function)
    values = _values(m, function, frozenset())
    m.created = []
    result = m.call(function, (), values, function.span)
    while (inner := _inner_factory(result)) is not None and not any(k.function.name == c.inner for k in m.created):
        more = _values(m, inner, frozenset())
        result, values, function = m.call(inner, (), more, inner.span), {**values, **more}, inner
    if c.inner:
        made = [k for k in m.created if k.function.name == c.inner]
        if not made:
            raise m.fail("TL0212", f"`{function.name}` does not define `{c.inner}` with these parameters", function.span)
        bindings = tuple((n, hostops.spelled(v)) for n, v in values.items())
        given = [replace(made[-1], factory=function, markers=(*made[-1].markers, *function.markers), bindings=bindings)]
    else:
        given = [v for v in (result if isinstance(result, (tuple, list)) else (result,)) if isinstance(v, KernelValue)]
    if not given:
        raise m.fail("TL0212", f"`{function.name}` returns no kernel", function.span, help="return the @T.prim_func that it defines")
    several = len(inner_kernels(function.node)) > 1
    return [
        record_prim(m, k.function, f"{c.symbol}_{k.function.name}" if several else c.symbol, (*k.function.markers, *k.markers), k.bindings)
        for k in given
    ]


def _inner_factory(result: Value) -> Function | None:
    """The factory that a factory has returned, alone or in a tuner."""
    match result:
        case TunerSpec(kernel=Function() as inner):
            return replace(inner, markers=(*inner.markers, Marker("autotune", {**result.options, "configs": result.configs})))
        case Function(kind="plain" | "jit") if inner_kernels(result.node):
            return result
        case _:
            return None


def _check_declared(m: Machine, function: Function, runtime: frozenset[str]) -> None:
    """Refuses an eager kernel that indexes a parameter without saying what tensor it is."""
    for p in parameters(function.node):
        name = p.name.value
        known = name in runtime or name in m.request.defines or name in function.defaults
        if not known and name in tensor_parameters(function):
            raise m.fail("TL0207", f"the tensor `{name}` is not declared", function.frame.source.span(p.name),
                         help=f'declare it at the top of the body: `{name}: T.Tensor((M, N), "float16")`')  # fmt: skip


def _runtime_parameters(m: Machine, function: Function) -> frozenset[str]:
    """Parameters of an eager kernel that are tensors or scalars at run time: declared in the body or annotated so."""
    import libcst as cst

    names = {p.name.value for p in parameters(function.node)}
    found = set()
    for n in walk(function.node.body, into_functions=False):
        if isinstance(n, cst.AnnAssign) and n.value is None and isinstance(n.target, cst.Name):
            found.add(n.target.value)
    for p in parameters(function.node):
        if p.annotation is None:
            continue
        try:
            with m.outside():
                if is_runtime(annotated(m, p.annotation.annotation, function.frame)):
                    found.add(p.name.value)
        except CompileError:
            continue
    return frozenset(found & names)


def _values(m: Machine, function: Function, runtime: frozenset[str], sizes_open: bool = False) -> dict[str, Value]:
    """Values of the compile-time parameters: -D, then an autotune configuration, then the default. Raises Missing."""
    values: dict[str, Value] = {}
    missing: list[tuple[str, Span]] = []
    notes: list[Diagnostic] = []
    configs = raw_configurations(m, function.markers)
    tuned = configs[0] if configs else {}
    for p in parameters(function.node):
        name = p.name.value
        if name in runtime:
            continue
        default = function.defaults.get(name)
        if name in m.request.defines:
            m.used.add(name)
            values[name] = m.request.defines[name]
        elif default is None and name in tuned:
            values[name] = tuned[name]
            text = f"`{name}` is {hostops.short(tuned[name])}, from the first configuration of the autotune decorator"
            notes.append(note("TL0210", text, function.frame.source.span(p.name), help=f"-D {name}=VALUE gives another"))
        elif name in function.defaults:
            values[name] = m.use(default, function.span) if isinstance(default, Poison) else default
        elif not sizes_open:
            missing.append((name, function.frame.source.span(p.name)))
    if missing:
        raise Missing([n for n, _ in missing], missing[0][1])
    m.notes.extend(notes)
    return values


def _check_symbols(kernels: list[Kernel]) -> None:
    seen: dict[str, Kernel] = {}
    for k in kernels:
        if k.symbol in seen:
            raise error("TL0211", f"two kernels would both be called `{k.symbol}`", k.span, Label(seen[k.symbol].span, "the other one"),
                        help="choose one with -k, or rename one of them")  # fmt: skip
        seen[k.symbol] = k


def _unused(m: Machine, request: Request, kernels: list[Kernel]) -> list[Diagnostic]:
    """Warnings about -D and --arg names that nothing asked for."""
    place = Span(request.path, 1, 1, 1, 1)
    lost = [n for n in request.defines if n not in m.used]
    params = {p.name for k in kernels for p in k.params}
    strange = [n for n in request.args if n not in params]
    return [
        *(Diagnostic(Severity.WARNING, "TL0204", f"-D {n} is not a parameter of any compiled kernel", place) for n in lost),
        *(Diagnostic(Severity.WARNING, "TL0208", f"--arg {n} is not a tensor of any compiled kernel", place) for n in strange),
    ]


