"""Which kernels a file holds and which of them are wanted.

    @T.prim_func def add(...)          ->  add
    def make(n): ... ; k128 = make(128)  ->  k128; make itself only with -k make or when nothing binds it
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from tilec.record import record
from tilec.diagnostics import CompileError, Diagnostic, Span, error, note
from tilec.frontend.machine import Machine
from tilec.frontend.names import assigned
from tilec.frontend.syntax import inner_kernels, style, walk
from tilec.frontend.values import Fatal, Function, Instance, KernelValue, Module, Partial, Poison
from tilec.language.values import Marker


@record(eq=False)
class Candidate:
    """A kernel that could be compiled: its symbol and the value that makes it (a KernelValue or a Function).

    `inner` picks one of the prim_funcs that a factory defines.
    """

    symbol: str
    value: KernelValue | Function
    span: Span
    inner: str = ""

    @property
    def kind(self) -> str:
        """kernel, lazy, eager or implicit."""
        if isinstance(self.value, KernelValue):
            return "kernel"
        return style(self.value.node) if self.value.kind == "jit" else "lazy"


def discover(m: Machine, module: Module) -> list[Candidate]:
    """All candidates of a file in source order. A function that is bound again later is not one."""
    found: list[Candidate] = []
    makers: set[str] = set()
    for k, node in enumerate(module.statements):
        match node:
            case cst.FunctionDef(name=name) if module.bindings[name.value][-1] == k:
                candidate = _function(m, module, node)
                if candidate is not None:
                    found.append(candidate)
                    makers.add(name.value)
                elif any(isinstance(n, cst.Name) and n.value in makers for n in walk(node.body)):
                    makers.add(name.value)
            case cst.ClassDef(name=name):
                if _mentions(node.body, makers):
                    makers.add(name.value)
            case cst.Assign() | cst.AnnAssign():
                bound = list(_bound(m, module, k, node, _calls(node), makers))
                found.extend(bound or _held(m, module, k, found, makers))
            case cst.If() | cst.Try():
                found.extend(_held(m, module, k, found, makers))
    return found


def _calls(node: cst.Assign | cst.AnnAssign) -> tuple[cst.Call, ...]:
    """The call, or the calls of a tuple, that an assignment binds."""
    elements = node.value.elements if isinstance(node.value, cst.Tuple) else ()
    return tuple(v for v in (node.value, *(e.value for e in elements)) if isinstance(v, cst.Call))


def _mentions(node: cst.CSTNode, makers: set[str]) -> bool:
    """True for code that defines a kernel, or has a name that makes some."""
    return any(n.value in makers or n.value == "prim_func" for n in walk(node) if isinstance(n, cst.Name))


def _held(m: Machine, module: Module, k: int, found: list[Candidate], makers: set[str]) -> list[Candidate]:
    """Kernels that a statement binds in other ways: `k = KERNELS[64]`, `k = Gemm(64).kernel()`, or inside an `if`.

    What cannot be evaluated is none; values that may hold kernels become `makers`.
    """
    node = module.statements[k]
    made: list[Candidate] = []
    mentions = _mentions(node, makers)
    for name in sorted(assigned(node)):
        if module.bindings[name][-1] != k:
            continue
        try:
            value = m.module_name(module, name)
        except (CompileError, KeyError):
            continue
        if not mentions and not isinstance(value, KernelValue):
            continue
        known = any(c.value is value for c in (*found, *made))
        if not known and (isinstance(value, KernelValue) or (isinstance(value, Function) and _is_maker(value))):
            place = next((n for n in walk(node) if isinstance(n, cst.Name) and n.value == name), node)
            made.append(Candidate(name, value, module.source.span(place)))
        if isinstance(value, (list, tuple, dict, Instance, Partial, Function, KernelValue)):
            makers.add(name)
    return made


def _is_maker(function: Function) -> bool:
    return function.kind == "jit" or (function.kind == "plain" and bool(inner_kernels(function.node)))


def _function(m: Machine, module: Module, node: cst.FunctionDef) -> Candidate | None:
    if not node.decorators and not inner_kernels(node):
        return None
    name = node.name.value
    try:
        value = m.module_name(module, name)
    except KeyError:
        return None
    span = module.source.span(node.name)
    if isinstance(value, Poison):
        if _says_kernel(node):
            raise value.cause
        return None
    if isinstance(value, KernelValue):
        return Candidate(name, value, span)
    if isinstance(value, Function) and _is_maker(value):
        return Candidate(name, value, span)
    return None


def _says_kernel(node: cst.FunctionDef) -> bool:
    """True when the text of a decorator says that this is a kernel, although it could not be evaluated."""
    words = {n.value for d in node.decorators for n in walk(d) if isinstance(n, cst.Name)}
    launches = any(isinstance(n, cst.Attribute) and n.attr.value == "Kernel" for n in walk(node.body))
    return bool((words & {"prim_func", "jit"} or launches) and words & {"T", "tilelang", "prim_func"})


def _bound(
    m: Machine, module: Module, k: int, node: cst.Assign | cst.AnnAssign, calls: tuple[cst.Call, ...], makers: set[str]
) -> Iterator[Candidate]:
    """Kernels that a module-level assignment binds: `k128 = make(128)`, `k = tilelang.compile(make(128))`."""
    targets = [node.target] if isinstance(node, cst.AnnAssign) else [t.target for t in node.targets]
    names = [n for t in targets for n in walk(t) if isinstance(n, cst.Name)]
    if not calls or not any(_makes_kernel(m, module, k, call, makers) for call in calls):
        return
    for name in names:
        if module.bindings.get(name.value, (k,))[-1] != k:
            continue
        try:
            value = m.module_name(module, name.value)
        except KeyError:
            continue
        span = module.source.span(name)
        if isinstance(value, Poison):
            if all(_runs(m, module, call) for call in calls):
                continue
            raise value.cause
        if isinstance(value, KernelValue) or (isinstance(value, Function) and value.kind == "jit"):
            yield Candidate(name.value, value, span)


def _runs(m: Machine, module: Module, call: cst.Call) -> bool:
    """True for a call of an eager kernel: it has arrays for arguments and a result."""
    try:
        function = m.module_name(module, call.func.value) if isinstance(call.func, cst.Name) else None
    except KeyError:
        return False
    return isinstance(function, Function) and function.kind == "jit" and style(function.node) == "eager"


def _makes_kernel(m: Machine, module: Module, k: int, call: cst.Call, makers: set[str]) -> bool:
    root: cst.CSTNode = call.func
    while isinstance(root, (cst.Attribute, cst.Call)):
        root = root.value if isinstance(root, cst.Attribute) else root.func
    if isinstance(root, cst.Name) and root.value in makers:
        return isinstance(call.func, (cst.Name, cst.Call))
    try:
        with m.outside():
            function = m.eval(call.func, module.frame)
    except Fatal:
        raise
    except CompileError:
        return False
    match function:
        case Marker(name=name):
            return name in ("compile", "lower", "jit", "lazy_jit", "prim_func", "autotune")
        case Function():
            return function.kind == "jit" or bool(inner_kernels(function.node))
        case Partial(function=Function() as inner):
            return inner.kind == "jit" or bool(inner_kernels(inner.node))
        case _:
            return False


def choose(m: Machine, module: Module, found: list[Candidate]) -> list[Candidate]:
    """The candidates that the request wants: those named, or all that nothing else in the file makes use of."""
    wanted = m.request.kernels
    if wanted:
        return [c for name in wanted for c in _named(m, module, found, name)]
    if not found:
        raise error("TL0212", f"no @T.prim_func found in {module.path}", Span(module.path, 1, 1, 1, 1),
                    help="a kernel is a function decorated with @T.prim_func or @tilelang.jit, or a factory that returns one")  # fmt: skip
    made_of = [c.value for c in found if isinstance(c.value, KernelValue)]
    used = {v.factory.node for v in made_of if v.factory is not None}
    used |= {c.value.node for c in found if isinstance(c.value, Function) and c.value.kind == "jit" and c.symbol != c.value.name}
    own = {c.value.function.node for c in found if isinstance(c.value, KernelValue) and c.symbol == c.value.function.name}
    return [c for c in found if not _superseded(c, used, own)]


def _superseded(c: Candidate, used: set[cst.FunctionDef | cst.Lambda], own: set[cst.FunctionDef | cst.Lambda]) -> bool:
    """A factory whose kernels are bound in the file, or a second name for a module-level prim_func."""
    if isinstance(c.value, Function):
        return c.value.node in used and c.symbol == c.value.name
    return c.value.factory is None and c.symbol != c.value.function.name and c.value.function.node in own


def _named(m: Machine, module: Module, found: list[Candidate], name: str) -> list[Candidate]:
    factory, _, inner = name.partition(":")
    hits = [c for c in found if c.symbol == factory]
    if inner:
        hits = [c for c in hits if isinstance(c.value, Function) and inner in inner_kernels(c.value.node)]
        if hits:
            return [Candidate(hits[0].symbol, hits[0].value, hits[0].span, inner)]
    elif not hits:
        factories = [c for c in found if isinstance(c.value, Function) and name in inner_kernels(c.value.node)]
        hits = [Candidate(c.symbol, c.value, c.span, name) for c in factories] or _maker(m, module, name)
    if len(hits) != 1:
        names = ", ".join(_choices(found)) or "none"
        what = f"no kernel `{name}` in {module.path}" if not hits else f"`{name}` names {len(hits)} kernels in {module.path}"
        raise error("TL0212", what, Span(module.path, 1, 1, 1, 1), help=f"kernels here: {names}")
    return hits


def _maker(m: Machine, module: Module, name: str) -> list[Candidate]:
    """A plain function of the file, which may return what a factory makes."""
    if name not in module.bindings:
        return []
    value = m.module_name(module, name)
    plain = isinstance(value, Function) and value.kind == "plain" and isinstance(value.node, cst.FunctionDef)
    return [Candidate(name, value, value.span)] if isinstance(value, Function) and plain else []


def _choices(found: list[Candidate]) -> Iterator[str]:
    for c in found:
        inner = inner_kernels(c.value.node) if isinstance(c.value, Function) else ()
        if len(inner) > 1:
            yield from (f"{c.symbol}:{n}" for n in inner)
        else:
            yield c.symbol


def skipped(candidate: Candidate, missing: list[str]) -> Diagnostic:
    """The note about a kernel that is left out because a parameter has no value."""
    listed = ", ".join(f"`{n}`" for n in missing)
    verb = "has" if len(missing) == 1 else "have"
    return note("TL0209", f"`{candidate.symbol}` is not compiled: {listed} {verb} no value", candidate.span, help=define_help(missing))


def define_help(missing: list[str]) -> str:
    """The -D options that would give values to parameters."""
    return "give " + " ".join(f"-D {n}=VALUE" for n in missing)


