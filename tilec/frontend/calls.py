"""Calls: binding arguments as Python does, running functions and macros, giving primitives their arguments.

    def up(n, m=8): return (n + m - 1) // m * m
    up(13)   ->  16
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import libcst as cst

from tilec.diagnostics import CompileError, Label, Span
from tilec.frontend import hostops
from tilec.frontend.builtins import dtype_of, host_call
from tilec.frontend.classes import bound, find, instance, parts
from tilec.frontend.machine import Machine, Return, is_device
from tilec.frontend.methods import call_method
from tilec.frontend.names import assigned, dotted, is_region, is_var, snapshot
from tilec.frontend.syntax import Def, parameters, style, uses, walk, yields
from tilec.frontend.values import BoundMethod, Builtin, ClassValue, Fatal, Frame, Function, Instance, KernelValue, Partial, frozen
from tilec.ir.dtypes import DType
from tilec.ir.expr import Buffer, Const, Expr, Var, VarKind
from tilec.language import lets, vectors
from tilec.language.values import ConstSpec, DynamicSpec, EmptySpec, Marker, Primitive, Ref, Value, Vec

MAX_CALLS = 150
_REGION_VERBS = (
    "copy", "gemm", "fill", "clear", "reduce", "cum", "atomic", "async", "tma", "access_ptr", "address_of", "reshape", "view", "finalize",
)  # fmt: skip

Kwargs = Mapping[str, Value]


def call(m: Machine, function: Value, args: tuple[Value, ...], kwargs: Kwargs, span: Span) -> Value:
    """Calls any callable value. Raises CompileError when it is none, or the arguments do not fit."""
    function = m.use(function, span)
    match function:
        case Primitive():
            return _primitive(m, function, args, kwargs, span)
        case Function():
            return call_function(m, function, args, kwargs, span)
        case Builtin():
            return host_call(m, function, args, kwargs, span)
        case BoundMethod():
            return call_method(m, function, args, kwargs, span)
        case DType():
            return _dtype(m, function, args, kwargs, span)
        case Partial():
            return call(m, function.function, function.args + args, {**function.kwargs, **kwargs}, span)
        case Marker():
            return apply_marker(m, function, args, kwargs, span)
        case ClassValue():
            return instance(m, function, args, kwargs, span)
        case Instance() if (found := find(function.cls, "__call__")) is not None:
            return call(m, bound(function, found, "__call__"), args, kwargs, span)
        case KernelValue():
            raise m.fail("TL0102", f"the kernel `{function.function.name}` is called, which only the host program can do", span)
        case _:
            raise m.fail("TL0102", f"{hostops.kind(function)} cannot be called here", span)


def _primitive(m: Machine, function: Primitive, args: tuple[Value, ...], kwargs: Kwargs, span: Span) -> Value:
    b = m.b
    b.span = span
    if b.launch is None and not function.host:
        text = f"`T.{function.name}` is only meaningful inside a kernel"
        raise m.fail("TL0205", text, span, help="use it under `with T.Kernel(...)`")
    if any(isinstance(a, (Instance, Builtin)) for a in (*args, *kwargs.values())):
        args = tuple(_for_language(a) for a in args)
        kwargs = {k: _for_language(v) for k, v in kwargs.items()}
    b.apply = lambda helper, values: m.call(helper, values, {}, span)
    return _resolve(m, function.call(b, args, kwargs))


def _for_language(value: Value) -> Value:
    """A named tuple as the tuple that it is; int, float and bool as the element types that they name."""
    found = parts(value) if isinstance(value, Instance) else dtype_of(value) if isinstance(value, Builtin) else None
    return value if found is None else found


def _resolve(m: Machine, value: Value) -> Value:
    """Gives meaning to the specifications that a primitive returns and only the evaluator can judge."""
    match value:
        case DynamicSpec(names=names, single=single, dtype=dtype):
            sizes = tuple(_dynamic(m, name, dtype, value.span) for name in names)
        case ConstSpec(names=names, single=single):
            if m.form is None:
                text = "T.const belongs into the body of a kernel"
                raise m.fail("TL0205", text, value.span, help="use T.dynamic for run-time sizes outside")
            sizes = tuple(m.form.size(m, name, value.span) for name in names)
        case EmptySpec():
            if m.form is None:
                raise m.fail("TL0205", "T.empty belongs into the body of an eager kernel", value.span)
            return m.form.output(m, value)
        case Buffer() if is_var(value):
            m.fresh.add(value)
            return value
        case _:
            return value
    return sizes[0] if single else sizes


def _dynamic(m: Machine, name: str, dtype: DType, span: Span) -> Value:
    if name in m.request.defines:
        m.used.add(name)
        given = m.request.defines[name]
        if isinstance(given, int):
            m.sizes[name] = Const(given, dtype)
        return given
    key = (name, dtype.name)
    if key not in m.dynamics:
        m.sizes[name] = m.dynamics[key] = Var(name, dtype, VarKind.EXTENT, span=span)
    return m.dynamics[key]


def _dtype(m: Machine, dtype: DType, args: tuple[Value, ...], kwargs: Kwargs, span: Span) -> Value:
    m.b.span = span
    if dtype.lanes > 1 and len(args) > 1 and not kwargs:
        return vectors.pack(m.b, dtype, args)
    if not args and not kwargs and m.recording:
        return lets.unbound(m.b, dtype)
    if len(args) != 1 or kwargs:
        raise m.fail("TL0203", f"`{dtype}(...)` takes one value", span)
    value = hostops.plain(args[0])
    if isinstance(value, str):
        with m.host(span):
            try:
                value = float(value)
            except ValueError:
                raise hostops.HostError(f"`{value}` is not a number") from None
    return vectors.cast(m.b, value, dtype)


def apply_marker(m: Machine, marker: Marker, args: tuple[Value, ...], kwargs: Kwargs, span: Span) -> Value:
    """Calls a decorator of the language: with a function it decorates, otherwise it keeps the options."""
    first = args[0] if args else kwargs.get("func")
    if isinstance(first, Function):
        options = {k: v for k, v in kwargs.items() if k != "func"}
        return decorate(m, first, replace(marker, options={**marker.options, **options}))
    if isinstance(first, KernelValue):
        return replace(first, markers=(*first.markers, replace(marker, options={**marker.options, **kwargs})))
    if marker.name in ("compile", "lower"):
        raise m.fail("TL0102", f"`{marker.name}` needs a kernel, not {hostops.kind(first)}", span)
    positional = {"configs": args[0]} if args and marker.name == "autotune" else {}
    return replace(marker, options={**marker.options, **positional, **kwargs})


def _mentioned(function: Function) -> frozenset[str]:
    """The names in a function and in those that it may call."""
    names: set[str] = set()
    left, seen = [function], {id(function.node)}
    while left:
        f = left.pop()
        own = {n.value for n in walk(f.node) if isinstance(n, cst.Name)}
        names |= own
        scope: Frame | None = f.frame
        while scope is not None:
            called = [v for n in own if isinstance(v := scope.names.get(n), Function) and id(v.node) not in seen]
            seen.update(id(v.node) for v in called)
            left.extend(called)
            scope = scope.parent
    return frozenset(names)


def decorate(m: Machine, function: Function, marker: Marker) -> Value:
    """A function under one more decorator of the language."""
    kinds = {"prim_func": "prim", "macro": "macro", "jit": "jit", "lazy_jit": "jit"}
    kind = kinds.get(marker.name, function.kind)
    result = replace(function, kind=kind, markers=(*function.markers, marker))
    if marker.name == "prim_func" and function.kind != "prim":
        kernel = KernelValue(replace(result, frame=frozen(result.frame, _mentioned(result), m.spoiled, {})), scope=result.frame)
        m.created.append(kernel)
        return kernel
    return result


def call_function(m: Machine, function: Function, args: tuple[Value, ...], kwargs: Kwargs, span: Span) -> Value:
    """Runs a function or macro of the user's file. A factory's kernel remembers the factory and its arguments."""
    if function.kind == "jit" and style(function.node) != "lazy":
        raise m.fail("TL0102", f"the kernel `{function.name}` is called, which only the host program can do", span)
    names = bind_arguments(m, function, args, kwargs, span)
    if function.cache is not None and not m.recording:
        return _cached(m, function, names, span)
    if m.calls >= MAX_CALLS:
        raise Fatal(*m.fail("TL0104", f"calls are nested more than {MAX_CALLS} deep", span, help="is this recursion endless?").diagnostics)
    outer = m.created
    if not m.recording:
        m.created = []
    given = dict(names)
    names = _snapshots(m, function, names, span)
    value = _run_body(m, function, names, span)
    if isinstance(value, KernelValue) and not m.recording:
        value = _made_by(m, function, value, given)
    elif isinstance(value, tuple) and any(isinstance(v, KernelValue) for v in value) and not m.recording:
        value = tuple(_made_by(m, function, v, given) if isinstance(v, KernelValue) else v for v in value)
    if not m.recording:
        m.created = outer + m.created
    return value


def _cached(m: Machine, function: Function, names: dict[str, Value], span: Span) -> Value:
    """The result of a function under functools.lru_cache: computed once for the same arguments."""
    assert function.cache is not None
    with m.host(span):
        key = tuple(hostops.key(v) for v in names.values())
    if key not in function.cache:
        function.cache[key] = call_function(m, replace(function, cache=None), (), names, span)
    return function.cache[key]


def _run_body(m: Machine, function: Function, names: dict[str, Value], span: Span) -> Value:
    node = function.node
    frame = Frame(function.frame.source, names, function.frame, depth=m.depth, dsl=function.kind == "macro")
    if function.home is not None and (own := parameters(node)):
        frame.method = (function.home, own[0].name.value)
    kept = (m.loops, m.b.chain, m.b.hint)
    m.loops, m.calls = [], m.calls + 1
    if m.recording:
        m.b.chain = (span, *m.b.chain)
    try:
        if isinstance(node, cst.Lambda):
            return m.eval(node.body, frame)
        frame.locals = frozenset(names) | assigned(node.body)
        if yields(node):
            return m.generator(node.body, frame)
        flow = m.run(node.body, frame)
    finally:
        m.calls -= 1
        m.loops, m.b.chain, m.b.hint = kept
    return flow.value if isinstance(flow, Return) else None


def _made_by(m: Machine, function: Function, kernel: KernelValue, names: Mapping[str, Value]) -> KernelValue:
    """The kernel that a factory returned, with the factory's name, decorators and arguments."""
    bindings = tuple((n, hostops.spelled(v)) for n, v in names.items() if not is_device(v))
    count = sum(k.scope is kernel.scope for k in m.created)
    markers = (*kernel.markers, *function.markers)
    return replace(kernel, factory=function, markers=markers, bindings=bindings, siblings=max(kernel.siblings, count))


def _snapshots(m: Machine, function: Function, names: dict[str, Value], span: Span) -> dict[str, Value]:
    """Arguments as the function keeps them: run-time scalars are evaluated once, tiles and regions pass through."""
    if m.b.launch is None:
        return names
    result = dict(names)
    for name, value in names.items():
        if by_reference(function, name):
            result[name] = _referred(m, function, name, value, span)
            continue
        if isinstance(value, Ref) and (is_region(value) or uses(function.node, name, _REGION_VERBS)):
            continue
        if isinstance(value, (Ref, Expr, Buffer, Vec)):
            result[name] = snapshot(m, value, name, span)
    return result


def _referred(m: Machine, function: Function, name: str, value: Value, span: Span) -> Value:
    """What a T.Ref parameter stands for: a variable or a tile itself, or an element at indices that are computed now."""
    if isinstance(value, Ref) and not is_region(value):
        return value if value.variable else replace(value, items=tuple(snapshot(m, i, name, span) for i in value.items), variable=True)
    if not isinstance(value, (Buffer, Ref)) and name in assigned(function.node.body):
        text = f"`{name}` is written through, but what is given here cannot be assigned to"
        where = Label(function.span, f"`{function.name}` is defined here")
        raise m.fail("TL0206", text, span, where, help="give a T.alloc_var or an element")
    return value


def by_reference(function: Function, name: str) -> bool:
    """True for a parameter annotated `T.Ref`, through which a macro writes its caller's variable."""
    return any(p.name.value == name and p.annotation is not None and uses_ref(p.annotation.annotation) for p in parameters(function.node))


def uses_ref(node: cst.BaseExpression) -> bool:
    """True for the annotation `Ref` or `T.Ref`."""
    match node:
        case cst.Attribute(attr=cst.Name(value="Ref")) | cst.Name(value="Ref"):
            return True
        case _:
            return False


def bind_arguments(m: Machine, function: Function, args: tuple[Value, ...], kwargs: Kwargs, span: Span) -> dict[str, Value]:
    """Parameter names with their values, by Python's rules. Raises TL0202 or TL0203 when the call does not fit."""
    p = function.node.params
    where = Label(function.span, f"`{function.name}` is defined here")
    positional = [q.name.value for q in (*p.posonly_params, *p.params)]
    only = [q.name.value for q in p.kwonly_params]
    names: dict[str, Value] = dict(zip(positional, args, strict=False))
    rest = args[len(positional) :]
    if isinstance(p.star_arg, cst.Param):
        names[p.star_arg.name.value] = tuple(rest)
    elif rest:
        raise m.fail("TL0203", f"`{function.name}` takes {len(positional)} arguments, {len(args)} were given", span, where)
    extra: dict[str, Value] = {}
    blocked = {q.name.value for q in p.posonly_params}
    for key, value in kwargs.items():
        if key in names and key not in blocked:
            raise m.fail("TL0203", f"`{function.name}` got `{key}` twice", span, where)
        if (key in positional and key not in blocked) or key in only:
            names[key] = value
        elif p.star_kwarg is not None:
            extra[key] = value
        else:
            raise m.fail("TL0202", f"`{function.name}` has no parameter `{key}`", span, where)
    if p.star_kwarg is not None:
        names[p.star_kwarg.name.value] = extra
    for name in (*positional, *only):
        if name not in names:
            if name not in function.defaults:
                raise m.fail("TL0203", f"`{function.name}` needs the argument `{name}`", span, where)
            names[name] = function.defaults[name]
    return names


def define(m: Machine, node: cst.FunctionDef, frame: Frame, scope: Frame) -> Value:
    """The value of a `def`: its defaults now, its decorators from the inside out."""
    check_names(m, node, frame)
    if node.asynchronous is not None:
        raise m.fail("TL0102", f"`{node.name.value}` is an async function, which is not supported", frame.source.span(node.name))
    defaults = dict(_defaults(m, node, frame))
    value: Value = Function(node.name.value, node, scope, defaults)
    for decorator in reversed(node.decorators):
        value = _decorated(m, decorator, value, frame)
    return value


def check_names(m: Machine, node: Def, frame: Frame) -> None:
    """Two parameters of one name are an error: the parser lets them pass."""
    stars = (p for p in (node.params.star_arg, node.params.star_kwarg) if isinstance(p, cst.Param))
    seen: set[str] = set()
    for p in (*parameters(node), *stars):
        if p.name.value in seen:
            raise m.fail("TL0101", f"syntax error: two parameters are called `{p.name.value}`", frame.source.span(p.name))
        seen.add(p.name.value)


def _defaults(m: Machine, node: cst.FunctionDef, frame: Frame) -> Iterator[tuple[str, Value]]:
    from tilec.frontend.values import Poison

    p = node.params
    for q in (*p.posonly_params, *p.params, *p.kwonly_params):
        if q.default is None:
            continue
        try:
            yield q.name.value, m.eval(q.default, frame)
        except Fatal:
            raise
        except CompileError as fault:
            yield q.name.value, Poison(q.name.value, fault)


def _decorated(m: Machine, decorator: cst.Decorator, value: Value, frame: Frame) -> Value:
    span = frame.source.span(decorator.decorator)
    node = decorator.decorator
    if isinstance(node, (cst.Name, cst.Attribute)) and dotted(node).rpartition(".")[2] in _OF_CLASSES:
        return value  # what they mean is up to the class
    if isinstance(node, cst.Call):
        marker = m.eval(node.func, frame)
        if isinstance(marker, Marker):
            wrapped = replace(marker, options={**marker.options, **dict(_options(m, marker, node, frame))})
            return apply_marker(m, wrapped, (value,), {}, span)
    found = m.eval(node, frame)
    match found:
        case Marker() | Function() | Builtin() | Partial():
            return m.call(found, (value,), {}, span)
        case _:
            raise m.fail("TL0102", "this decorator is not known", span)


_OF_CLASSES = ("property", "cached_property", "staticmethod", "classmethod", "abstractmethod", "override")


def _options(m: Machine, marker: Marker, node: cst.Call, frame: Frame) -> Iterator[tuple[str, Any]]:
    """The options of a decorator; those that cannot be evaluated are left out, they only matter to who runs the kernel."""
    for a in node.args:
        name = a.keyword.value if a.keyword is not None else "configs" if marker.name == "autotune" else ""
        try:
            value = m.eval(a.value, frame)
        except Fatal:
            raise
        except CompileError:
            continue
        if a.star == "**" and isinstance(value, dict):
            yield from value.items()
        elif name:
            yield name, value
