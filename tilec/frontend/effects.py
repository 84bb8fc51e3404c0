"""What a statement that is not understood may have changed, itself or through the functions that it would have called.

    if torch.cuda.is_available():          the condition is unknown, so whether L has grown is unknown, too
        helpers.put(L, 3)             ->   L, and what put() changes in its own file

Only the text of what would have run is looked at: too many names cost an error, a missing one would be a stale value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

import libcst as cst

from tilec.frontend.names import assigned
from tilec.frontend.syntax import parameters, walk
from tilec.frontend.values import ClassValue, Frame, Function, Instance, Module, Partial
from tilec.language.values import Value

CHANGES = frozenset("append extend insert pop remove reverse sort clear update setdefault add discard popitem appendleft popleft".split())
"""Methods of lists, dicts and sets that change them."""

FOREIGN = frozenset(
    "shuffle heapify heappush heappop heappushpop heapreplace insort insort_left insort_right setitem delitem iadd iconcat imul ior iand "
    "ixor isub".split()
)
"""Functions of Python's library that change their arguments."""

_TYPES = frozenset(("list", "dict", "set"))
PURE = frozenset(
    "len range print sum min max sorted isinstance str int float bool zip enumerate tuple list dict set frozenset any all repr type abs "
    "round getattr hasattr id hash format".split()
)
"""Built-in functions that change nothing."""

WHOLE = frozenset(("exec", "eval", "globals", "locals"))
"""Built-in functions after which any name of the module may be another."""


def root(node: cst.CSTNode) -> str:
    """The name in front of attributes and subscripts: `a` of `a.b[0]`; empty for anything else."""
    while isinstance(node, (cst.Subscript, cst.Attribute)):
        node = node.value
    return node.value if isinstance(node, cst.Name) else ""


@lru_cache(maxsize=1024)
def mutated(node: cst.CSTNode, into_functions: bool = False) -> frozenset[str]:
    """Names whose objects a statement changes in place: `x[0] = 1`, `y = x.pop()`, `x += [1]`, `x.field = 1`."""
    found: set[str] = set()
    for n in walk(node, into_functions=into_functions):
        match n:
            case cst.Assign(targets=targets):
                found.update(n for t in targets for p in _parts(t.target) if not isinstance(p, cst.Name) for n in _held(p))
            case cst.For(target=target):
                found.update(n for p in _parts(target) if not isinstance(p, cst.Name) for n in _held(p))
            case cst.AugAssign(target=target) | cst.AnnAssign(target=cst.Subscript() | cst.Attribute() as target):
                found.update(_held(target))
            case cst.Expr(value=cst.Call(func=cst.Attribute(value=owner))):
                found.update(_held(owner))
            case cst.Call(func=cst.Attribute(value=owner, attr=cst.Name(value=name)), args=args):
                found.update(_held(owner) if name in CHANGES else ())
                found.update(n for a in args for n in _held(a.value) if name in FOREIGN or (name in CHANGES and root(owner) in _TYPES))
            case cst.Call(func=cst.Name(value=name), args=[cst.Arg(value=owner), *_]) if name in FOREIGN or name in ("setattr", "next"):
                found.add(root(owner))
            case cst.Del(target=target):
                found.update(n for p in _parts(target) if not isinstance(p, cst.Name) for n in _held(p))
    return frozenset(found - {""})


def _held(node: cst.BaseExpression) -> Iterator[str]:
    """Names whose objects an expression may be or hold."""
    while isinstance(node, (cst.Subscript, cst.Attribute)):
        node = node.value
    match node:
        case cst.Name(value=name):
            yield name
        case cst.Call(func=func, args=args):
            if isinstance(func, cst.Attribute):
                yield from _held(func)
            for a in args:
                yield from _held(a.value)
        case cst.List(elements=elements) | cst.Tuple(elements=elements):
            for e in elements:
                yield from _held(e.value)
        case _:
            return


def _parts(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The expression, and the elements where it is a list or tuple."""
    if isinstance(node, (cst.List, cst.Tuple)):
        for e in node.elements:
            yield from _parts(e.value)
    else:
        yield node


@lru_cache(maxsize=256)
def _own(node: cst.FunctionDef | cst.Lambda) -> frozenset[str]:
    """Names that are a function's own."""
    stars = (p for p in (node.params.star_arg, node.params.star_kwarg) if isinstance(p, cst.Param))
    inner = [n for n in walk(node.body) if isinstance(n, (cst.FunctionDef, cst.Lambda))]
    names = {p.name.value for f in (node, *inner) for p in parameters(f)} | {p.name.value for p in stars} | assigned(node.body)
    return frozenset(names.union(*(assigned(f.body) for f in inner))) - _outer(node.body)


def _outer(node: cst.CSTNode) -> frozenset[str]:
    """Names that statements below a node declare global."""
    return frozenset(i.name.value for n in walk(node) if isinstance(n, cst.Global) for i in n.names)


@lru_cache(maxsize=256)
def _changes_something(node: cst.FunctionDef | cst.Lambda) -> bool:
    """True for a function that changes an object, or hands one on to another function."""
    if mutated(node.body, True) or _outer(node.body):
        return True
    calls = (n for n in walk(node.body) if isinstance(n, cst.Call) and n.args)
    return any(not isinstance(c.func, cst.Name) or c.func.value not in PURE for c in calls)


Lookup = Callable[[Frame, str], Value]


def suspects(node: cst.CSTNode, frame: Frame, look: Lookup) -> Iterator[tuple[Frame, str, bool]]:
    """What a statement that failed in `frame` may have changed, as (scope, name, whether it may have bound the name)."""
    seen: set[int] = set()
    todo: list[tuple[cst.CSTNode, Frame, frozenset[str]]] = [(node, frame, frozenset())]
    while todo:
        part, scope, own = todo.pop()
        changed = mutated(part, part is not node) - own
        yield from ((scope, name, False) for name in changed)
        yield from _of_modules(part, part is not node, changed, scope, look)
        yield from ((_module_frame(scope), name, True) for name in _outer(part))
        for n in walk(part, into_functions=part is not node):
            if isinstance(n, cst.Name) and n.value in WHOLE:
                yield from ((_module_frame(scope), name, True) for name in tuple(_module_frame(scope).names))
            if not isinstance(n, (cst.Name, cst.Attribute)) or root(n) in own:
                continue
            for function in _functions(n, scope, look):
                if id(function) not in seen:
                    seen.add(id(function))
                    todo.append((function.node.body, function.frame, _own(function.node)))
        calls = (n for n in walk(part, into_functions=part is not node) if isinstance(n, cst.Call))
        yield from ((scope, name, False) for c in calls for name in _given(c, scope, look, own))


def _of_modules(
    part: cst.CSTNode, into_functions: bool, changed: frozenset[str], scope: Frame, look: Lookup
) -> Iterator[tuple[Frame, str, bool]]:
    """Names of other modules that a statement may bind or change: `conf.N = 2`, `conf.L.append(1)`."""
    modules = {name: value for name in sorted(changed) if isinstance(value := look(scope, name), Module)}
    for n in walk(part, into_functions=into_functions) if modules else ():
        if isinstance(n, cst.Attribute) and isinstance(n.value, cst.Name) and n.value.value in modules:
            yield modules[n.value.value].frame, n.attr.value, True


def _given(call: cst.Call, scope: Frame, look: Lookup, own: frozenset[str]) -> Iterator[str]:
    """Names that a call hands to a function of the user's which may change them."""
    if root(call.func) not in own and any(_changes_something(f.node) for f in _functions(call.func, scope, look)):
        yield from (name for a in call.args for name in _held(a.value) if name and name not in own)


def _functions(node: cst.BaseExpression, scope: Frame, look: Lookup) -> Iterator[Function]:
    """The functions of the user's that an expression may name: `f`, `module.f`, `instance.method`, `Class`."""
    value = _value(node, scope, look)
    if isinstance(value, Partial):
        value = value.function
    match value:
        case Function():
            yield value
        case ClassValue(names=names):
            yield from (v for v in names.values() if isinstance(v, Function))
        case Instance(cls=cls):
            yield from (v for v in cls.names.values() if isinstance(v, Function))


def _value(node: cst.BaseExpression, scope: Frame, look: Lookup) -> Value:
    match node:
        case cst.Name(value=name):
            return look(scope, name)
        case cst.Attribute(value=owner, attr=attr):
            held = _value(owner, scope, look)
            match held:
                case Module():
                    return look(held.frame, attr.value)
                case ClassValue(names=names):
                    return names.get(attr.value)
                case Instance(values=values):
                    return values.get(attr.value, held)
        case cst.Call(func=func):
            return _value(func, scope, look)
    return None


def _module_frame(frame: Frame) -> Frame:
    while frame.module is None and frame.parent is not None:
        frame = frame.parent
    return frame
