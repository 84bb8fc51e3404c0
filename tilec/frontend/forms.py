"""Kernel functions recorded: @T.prim_func with annotated parameters, and eager @tilelang.jit bodies.

    @T.prim_func
    def scale(X: T.Tensor((N,), "float32"), f: T.float32): ...     ->  Kernel(params=(X, f), extents=(N,), ...)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import libcst as cst

from tilec.diagnostics import CompileError, Label, Span
from tilec.frontend import hostops
from tilec.frontend.builtins import dtype_of
from tilec.frontend.axes import Axes, record_axes
from tilec.frontend.finish import finish
from tilec.frontend.machine import Flow, Form, Machine, Return
from tilec.frontend.names import assigned
from tilec.frontend.request import ArgSpec
from tilec.frontend.source import expression
from tilec.frontend.syntax import declares_axes, parameters, walk
from tilec.frontend.values import Fatal, Frame, Function, Poison
from tilec.ir.dtypes import FLOAT32, INT32, INT64, STORED, TFLOAT32, UINT8, DType, lookup
from tilec.ir.expr import Binary, Buffer, Const, Expr, Scope, Var, VarKind
from tilec.ir.kernel import Kernel, Param
from tilec.language.builder import Builder
from tilec.language.packed import STORAGE
from tilec.language.values import EmptySpec, Marker, TensorSpec, Value


Bindings = tuple[tuple[str, str], ...]
"""Names and values, as text, that a kernel was specialised with."""

_HOW = 'write `A: T.Tensor((M, N), "float16")` or `n: T.int32`'


class Rebind(Exception):
    """The recording must start again: `--arg` has given values to names of T.const, or the axes of the launch are known now."""

    def __init__(self, names: Mapping[str, int], axes: Axes | None = None) -> None:
        super().__init__()
        self.names = names
        self.axes = axes


@dataclass(slots=True)
class Signature(Form):
    """What a kernel function has declared so far, as its statements are recorded.

    `consts` are values for names of T.const; `extents` the run-time variables made for the others.
    """

    function: Function
    params: dict[str, Param] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    outputs: list[Buffer] = field(default_factory=list)
    consts: dict[str, int] = field(default_factory=dict)
    extents: dict[str, Var] = field(default_factory=dict)
    eager: bool = False
    axes: Axes | None = None

    def parameters(self) -> tuple[Param, ...]:
        """The parameters declared so far, in their order."""
        names = [n for n in self.order if n in self.params] if self.eager else list(self.params)
        return (*(self.params[n] for n in names), *self.outputs)

    def size(self, m: Machine, name: str, span: Span) -> Value:
        """One name of T.const: the -D or --arg value, else a run-time extent."""
        if name in m.request.defines:
            m.used.add(name)
            return m.request.defines[name]
        if name in self.consts:
            return self.consts[name]
        if name not in self.extents:
            self.extents[name] = Var(name, INT32, VarKind.EXTENT, span=span)
        return self.extents[name]

    def output(self, m: Machine, spec: EmptySpec) -> Value:
        """A tensor that the callable allocates: one more parameter, after the declared ones."""
        if not self.eager:
            text = "T.empty belongs into the body of an eager kernel"
            raise m.fail("TL0205", text, spec.span, help="declare the output as a parameter")
        name = m.b.hint or f"out{len(self.outputs)}"
        buffer = tensor(name, TensorSpec(spec.shape, spec.dtype, None, spec.span), spec.span)
        self.outputs.append(buffer)
        return buffer

    def declare(self, m: Machine, name: str, annotation: cst.BaseExpression, frame: Frame) -> None:
        """`A: T.Tensor(...)` in the body: the parameter A is this tensor."""
        if name not in self.order:
            return
        span = frame.source.span(annotation)
        param = parameter(m, name, annotated(m, annotation, frame), span)
        if isinstance(param, Buffer):
            self.check_arg(m, param)
        self.params[name] = param
        frame.names[name] = param

    def check_arg(self, m: Machine, buffer: Buffer) -> None:
        """Compares a tensor with its `--arg`, and starts again when that gives values to names of T.const."""
        spec = m.request.args.get(buffer.name)
        if spec is None:
            return
        spec = _as_elements(buffer, spec)
        found: dict[str, int] = {}
        names = {v: n for n, v in self.extents.items()}
        sides = [(buffer.shape, spec.shape)]
        if spec.strides is not None and buffer.strides is not None:
            sides.append((buffer.strides, spec.strides))
        _check_spec(m, buffer, spec)
        for declared, given in sides:
            for e, g in zip(declared, given, strict=True):
                if isinstance(g, int) and isinstance(e, Var) and e in names:
                    found.setdefault(names[e], g)
        if found:
            raise Rebind(found)


def _as_elements(buffer: Buffer, spec: ArgSpec) -> ArgSpec:
    """An array of bytes as the elements of a stored type that it holds."""
    if buffer.dtype not in STORED or spec.dtype != str(STORAGE.get(buffer.dtype, UINT8)):
        return spec
    *outer, last = spec.shape or (1,)
    per = 8 // buffer.dtype.bits
    return replace(spec, dtype=str(buffer.dtype), shape=(*outer, last * per if isinstance(last, int) else last))


def _check_spec(m: Machine, buffer: Buffer, spec: ArgSpec) -> None:
    wanted = lookup(spec.dtype)
    if wanted != (FLOAT32 if buffer.dtype == TFLOAT32 else buffer.dtype) and wanted != buffer.dtype:
        raise m.fail("TL0208", f"--arg {buffer.name} is {spec.dtype}, its annotation says {buffer.dtype}", buffer.span)
    if len(spec.shape) != buffer.rank:
        raise m.fail("TL0208", f"--arg {buffer.name} has {len(spec.shape)} dimensions, its annotation has {buffer.rank}", buffer.span)
    for e, g in zip(buffer.shape, spec.shape, strict=True):
        if isinstance(e, Const) and isinstance(g, int) and e.value != g:
            raise m.fail("TL0208", f"--arg {buffer.name} has an extent {g} where its annotation says {e.value}", buffer.span)


@contextmanager
def recording(m: Machine, form: Form | None) -> Iterator[None]:
    """A fresh builder for one kernel function; notes and errors of it are collected in the machine."""
    kept = (m.b, m.form, m.errors, m.launches)
    m.b = Builder(target=m.request.target, in_function=True)
    m.form, m.errors, m.launches, m.recording = form, [], [], True
    try:
        yield
        if m.errors:
            raise CompileError(*m.errors)
        m.notes.extend(m.b.notes)
    except CompileError as fault:
        more = [d for d in m.errors if d not in fault.diagnostics]
        raise CompileError(*more, *fault.diagnostics) from None
    finally:
        m.b, m.form, m.errors, m.launches = kept
        m.recording = False


def record_prim(m: Machine, function: Function, symbol: str, markers: tuple[Marker, ...], bindings: Bindings) -> Kernel:
    """The kernel of a @T.prim_func."""
    axes: Axes | None = None
    while True:
        try:
            return _prim_once(m, function, symbol, markers, bindings, axes)
        except Rebind as more:
            axes = more.axes


def _prim_once(
    m: Machine, function: Function, symbol: str, markers: tuple[Marker, ...], bindings: Bindings, axes: Axes | None
) -> Kernel:
    form = Signature(function, axes=axes)
    names: dict[str, Value] = {}
    scope = function.frame
    _check_stars(m, function)
    for p in parameters(function.node):
        span = scope.source.span(p.name)
        if p.annotation is None:
            raise m.fail("TL0207", f"the parameter `{p.name.value}` has no annotation", span, help=_HOW)
        with m.outside():
            value = annotated(m, p.annotation.annotation, Frame(scope.source, names, scope))
        form.params[p.name.value] = names[p.name.value] = parameter(m, p.name.value, value, span)
    for param in form.params.values():
        if isinstance(param, Buffer):
            form.check_arg(m, param)
    with recording(m, form):
        _body(m, form, names)
        return finish(m, function, symbol, tuple(form.params.values()), markers, bindings)


def _check_stars(m: Machine, function: Function) -> None:
    """A kernel has as many parameters as its signature names."""
    for p in (function.node.params.star_arg, function.node.params.star_kwarg):
        if isinstance(p, cst.Param):
            place = function.frame.source.span(p.name)
            raise m.fail("TL0207", f"a kernel cannot take `*{p.name.value}`", place, help="name each parameter")


def record_eager(m: Machine, function: Function, symbol: str, values: Mapping[str, Value], bindings: Bindings) -> Kernel:
    """The kernel of an eager @tilelang.jit function; `values` are its compile-time parameters."""
    consts: dict[str, int] = {}
    axes: Axes | None = None
    while True:
        try:
            return _eager_once(m, symbol, values, Signature(function, consts=dict(consts), eager=True, axes=axes), bindings)
        except Rebind as more:
            consts.update(more.names)
            axes = more.axes or axes


def _eager_once(m: Machine, symbol: str, values: Mapping[str, Value], form: Signature, bindings: Bindings) -> Kernel:
    function = form.function
    form.order = tuple(p.name.value for p in parameters(function.node) if p.name.value not in values)
    names: dict[str, Value] = dict(values)
    scope = function.frame
    _check_stars(m, function)
    for p in parameters(function.node):
        name = p.name.value
        if name in values:
            continue
        if p.annotation is not None and not _declared_in_body(function, name):
            with m.outside():
                param = parameter(m, name, annotated(m, p.annotation.annotation, scope), scope.source.span(p.name))
            form.params[name] = names[name] = param
            if isinstance(param, Buffer):
                form.check_arg(m, param)
        else:
            cause = m.fail("TL0207", f"the parameter `{name}` is used before it is declared", scope.source.span(p.name),
                           help=f'declare it at the top of the body: `{name}: T.Tensor((M, N), "float16")`')  # fmt: skip
            names[name] = Poison(name, cause)
    with recording(m, form):
        flow = _body(m, form, names)
        if m.errors:
            raise CompileError(*m.errors)
        missing = [n for n in form.order if n not in form.params]
        if missing:
            name = missing[0]
            raise m.fail("TL0207", f"the parameter `{name}` is never declared", function.span,
                         help=f'declare it in the body, `{name}: T.Tensor((M, N), "float16")`, or give -D {name}=VALUE')  # fmt: skip
        outputs = _returned(m, form, flow)
        params = (*(form.params[n] for n in form.order), *form.outputs)
        fixed = tuple((n, str(v)) for n, v in form.consts.items())
        return finish(m, function, symbol, params, function.markers, (*bindings, *fixed), outputs)


def _declared_in_body(function: Function, name: str) -> bool:
    found = (n for n in walk(function.node.body, into_functions=False) if isinstance(n, cst.AnnAssign) and n.value is None)
    return any(isinstance(n.target, cst.Name) and n.target.value == name for n in found)


def _returned(m: Machine, form: Signature, flow: Flow) -> tuple[str, ...]:
    """Names of the tensors that an eager kernel returns. Every T.empty must be among them."""
    value = flow.value if isinstance(flow, Return) else None
    given = value if isinstance(value, tuple) else () if value is None else (value,)
    span = flow.span if isinstance(flow, Return) else form.function.span
    for v in given:
        if not (isinstance(v, Buffer) and v.scope is Scope.GLOBAL):
            raise m.fail("TL0207", f"an eager kernel returns tensors made by T.empty, not {hostops.kind(v)}", span)
    lost = [o for o in form.outputs if o not in given]
    if lost:
        name = lost[0].name
        text = f"`{name}` is made by T.empty and not returned"
        raise m.fail("TL0207", text, span, Label(lost[0].span, "made here"), help=f"return {name}")
    return tuple(v.name for v in given)


def _body(m: Machine, form: Signature, names: dict[str, Value]) -> Flow:
    """Runs the body of a kernel function. Raises Rebind where only the end of the body tells how it is launched."""
    function = form.function
    node = function.node
    assert isinstance(node, cst.FunctionDef)
    held = frozenset(names) | assigned(node.body)
    frame = Frame(function.frame.source, names, function.frame, locals=held, dsl=True, kernel=True)
    try:
        if declares_axes(node):
            flow, found = record_axes(m, form.axes, lambda: m.run(node.body, frame), function.span)
            if found is not None:
                raise Rebind({}, found)
            return flow
        return m.run(node.body, frame)
    except Fatal:
        raise
    except CompileError as fault:
        m.keep(fault)
        return None


def annotated(m: Machine, node: cst.BaseExpression, frame: Frame) -> Value:
    """The value of an annotation, quoted or not."""
    span = frame.source.span(node)
    if isinstance(node, (cst.SimpleString, cst.ConcatenatedString)):
        text = m.eval(node, frame)
        known = lookup(text)
        if known is not None:
            return known
        source, node = expression(text, span)
        frame = Frame(source, frame.names, frame.parent, frame.module, frame.live, frame.locals, frame.outer)
    m.b.span = span
    return m.eval(node, frame)


def parameter(m: Machine, name: str, value: Value, span: Span) -> Param:
    """The parameter that an annotation describes: a tensor or a scalar. Raises TL0207 for anything else."""
    if isinstance(value, TensorSpec):
        return tensor(name, value, span)
    found = dtype_of(value)
    if found is not None and found.lanes == 1:
        return Var(name, found, VarKind.PARAM, span=span)
    raise m.fail("TL0207", f"the annotation of `{name}` is neither a tensor nor a dtype", span, help=_HOW)


def tensor(name: str, spec: TensorSpec, span: Span) -> Buffer:
    """The global buffer that a tensor annotation describes."""
    shape = tuple(_extent(e) for e in spec.shape)
    strides = None if spec.strides is None else tuple(_extent(e) for e in spec.strides)
    assert spec.dtype is not None
    lanes = spec.dtype.lanes
    if lanes > 1:
        shape += (Const(lanes, INT32),)
        if strides is not None:
            strides = (*(_times(e, lanes) for e in strides), Const(1, INT32))
    return Buffer(name, spec.dtype.lane, shape, Scope.GLOBAL, strides, span=span, lanes=lanes if lanes > 1 else 0)


def _times(e: Expr, n: int) -> Expr:
    return Const(int(e.value) * n, e.dtype) if isinstance(e, Const) else Binary("mul", e, Const(n, e.dtype), e.dtype)


def _extent(value: Any) -> Expr:
    if isinstance(value, int):
        return Const(value, INT32 if value < 1 << 31 else INT64)
    expr: Expr = value
    return expr


def is_runtime(value: Value) -> bool:
    """True for what a signature annotation must give to make its parameter a run-time one: a tensor or a dtype."""
    return isinstance(value, (TensorSpec, DType))
