"""Names: where one is found, what binding one means, and the snapshot that a run-time value becomes.

    x = A[i] + 1     ->  Let(Var("x"), Load(A, (i,)) + 1)   and the name x stands for the variable
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

import libcst as cst

from tilec.diagnostics import CompileError, Label, Span
from tilec.frontend import hints
from tilec.frontend.machine import Machine
from tilec.frontend.values import Deferred, Frame, Poison, Stale
from tilec.ir.expr import Buffer, Call, Const, Expr, Load, Scope, Var, VarKind
from tilec.ir.tile import Let
from tilec.ir.visit import walk_expr
from tilec.language import lanes, regions
from tilec.language.values import Ref, Slice, Value, Vec

_MISSING = object()


def lookup(m: Machine, frame: Frame, name: str, span: Span, builtins: Mapping[str, Value]) -> Value:
    """The value of a name as a read at `span` sees it. Raises TL0201 for unknown names, TL0106 for run-time rebinding."""
    value = find(m, frame, name, span)
    if value is _MISSING:
        value = builtins.get(name, _MISSING)
    if value is _MISSING:
        raise _unknown(m, frame, name, span, builtins)
    if isinstance(value, Stale):
        text = f"`{value.name}` has no single value here: {value.reason}"
        help_line = hints.variable(value.name, value.sample)
        raise m.fail("TL0107", text, span, Label(value.span, "it is assigned in this statement"), help=help_line)
    return m.use(value, span)


def find(m: Machine, frame: Frame, name: str, span: Span) -> Value:
    """The binding of a name in the frames from `frame` outwards, `_MISSING` when there is none."""
    scope: Frame | None = frame
    while scope is not None:
        scope = scope.outer.get(name, scope)
        if name in scope.names and not isinstance(scope.names[name], Deferred):
            return scope.names[name]
        if scope.module is not None:
            try:
                return m.module_name(scope.module, name)
            except KeyError:
                pass
        elif scope.live is not None and name in scope.live.names:
            return scope.live.names[name]
        elif scope.locals is not None and name in scope.locals:
            raise m.fail("TL0201", f"`{name}` is used before it has a value", span)
        scope = scope.parent
    return _MISSING


def known(m: Machine, frame: Frame, name: str) -> Value | None:
    """The value of a name if reading it is possible at all, else None."""
    value = frame.names.get(name)
    return None if isinstance(value, (Stale, Poison)) else value


def _unknown(m: Machine, frame: Frame, name: str, span: Span, builtins: Mapping[str, Value]) -> CompileError:
    scope: Frame | None = frame
    while scope is not None:
        if scope.module is not None and name in scope.module.bindings:
            later = scope.module.source.span(scope.module.statements[scope.module.bindings[name][0]])
            return m.fail("TL0201", f"`{name}` is used before it has a value", span, Label(later, "it is bound here"))
        scope = scope.parent
    return m.fail("TL0201", f"unknown name `{name}`", span, help=_near(frame, name, builtins))


def _near(frame: Frame, name: str, builtins: Mapping[str, Value]) -> str:
    names: set[str] = set(builtins)
    scope: Frame | None = frame
    while scope is not None:
        names |= set(scope.names) | set(scope.module.bindings if scope.module else ())
        scope = scope.parent
    return hints.unknown_name(name, names)


def is_var(value: Any) -> bool:
    """True for the buffer of T.alloc_var, and for the element that a T.Ref parameter stands for."""
    if isinstance(value, Ref):
        return value.variable
    return isinstance(value, Buffer) and (value.scope is Scope.VAR or lanes.is_variable(value))


def is_region(ref: Ref) -> bool:
    """True for a reference with a slice in it, which names a region and never one element."""
    return any(isinstance(item, Slice) or item is Ellipsis for item in ref.items)


def snapshot(m: Machine, value: Value, name: str, span: Span) -> Value:
    """The value that a name keeps: inside a launch a run-time scalar is computed now and held in a variable."""
    if m.b.launch is None:
        return value
    if isinstance(value, (tuple, list)) and any(isinstance(v, (Ref, Buffer, Expr, Vec)) for v in value):
        parts = [snapshot(m, v, f"{name}_{k}", span) for k, v in enumerate(value)]
        if isinstance(value, list):
            value[:] = parts
            return value
        return tuple(parts)
    if isinstance(value, dict):
        for key, item in value.items():
            value[key] = snapshot(m, item, name, span)
        return value
    m.b.span = span
    if isinstance(value, Vec) or (lanes.is_vector(value) and value not in _fresh(m, value) and not _sliced(value)):
        return lanes.held(m.b, lanes.vector(m.b, value), name)
    if isinstance(value, Ref):
        if is_region(value):
            return value
        value = regions.read(m.b, value)
    elif is_var(value) and value not in m.fresh:
        value = Load(value, ())
    if not isinstance(value, Expr) or isinstance(value, (Var, Const)):
        return value
    var = Var(name, value.dtype, VarKind.LET, span=span)
    m.b.emit(Let(var, value, span))
    if not any(isinstance(e, (Load, Call)) for e in walk_expr(value)):
        m.b.snapshots[var] = value
    return var


def bind(m: Machine, frame: Frame, name: str, value: Value, span: Span) -> None:
    """`name = value`: a store when the name holds a T.alloc_var, a new binding (of a snapshot) otherwise."""
    scope = frame.outer.get(name, frame)
    held = scope.names.get(name)
    if held is value and is_var(held):  # `v = v` stores what is there
        return
    if held is not None and is_var(held) and value not in _fresh(m, value):
        m.b.span = span
        regions.write(m.b, held, value)
        return
    if isinstance(value, Buffer) and value in m.fresh:
        m.fresh.discard(value)
        scope.names[name] = value
        return
    if scope is not frame and m.depth > scope.depth:
        text = f"`{name}` belongs to an outer function and is assigned under run-time control flow"
        raise m.fail("TL0106", text, span, help=hints.variable(name, None))
    scope.names[name] = snapshot(m, value, name, span)


def _sliced(value: Value) -> bool:
    return isinstance(value, Ref) and is_region(value)


def _fresh(m: Machine, value: Value) -> set[Buffer]:
    return m.fresh if isinstance(value, Buffer) else set()


@lru_cache(maxsize=1024)
def assigned(body: cst.CSTNode) -> frozenset[str]:
    """The names that the statements below `body` bind, not those of functions and classes inside it."""
    return frozenset(_assigned(body))


def _assigned(node: cst.CSTNode) -> Iterator[str]:
    match node:
        case cst.FunctionDef(name=name) | cst.ClassDef(name=name):
            yield name.value
        case cst.Assign(targets=targets):
            for t in targets:
                yield from target_names(t.target)
            yield from _walrus(node.value)
        case cst.AnnAssign(target=target, value=value):
            if value is not None:
                yield from target_names(target)
                yield from _walrus(value)
        case cst.AugAssign(target=target):
            yield from target_names(target)
        case cst.For(target=target, body=body, orelse=orelse):
            yield from target_names(target)
            yield from _assigned(body)
            if orelse is not None:
                yield from _assigned(orelse.body)
        case cst.While(test=test, body=body, orelse=orelse):
            yield from _walrus(test)
            yield from _assigned(body)
            if orelse is not None:
                yield from _assigned(orelse.body)
        case cst.If(test=test, body=body, orelse=orelse):
            yield from _walrus(test)
            yield from _assigned(body)
            if orelse is not None:
                yield from _assigned(orelse)
        case cst.Else(body=body) | cst.Finally(body=body) | cst.ExceptHandler(body=body) | cst.ExceptStarHandler(body=body):
            yield from _assigned(body)
        case cst.With(items=items, body=body):
            for item in items:
                if item.asname is not None:
                    yield from target_names(item.asname.name)
            yield from _assigned(body)
        case cst.Try() | cst.TryStar():
            for part in (node.body, *node.handlers, node.orelse, node.finalbody):
                if part is not None:
                    yield from _assigned(part)
        case cst.Match(subject=subject, cases=cases):
            yield from _walrus(subject)
            for c in cases:
                yield from _assigned(c)
        case cst.MatchCase(pattern=pattern, guard=guard, body=body):
            yield from captures(pattern)
            yield from _walrus(guard) if guard is not None else ()
            yield from _assigned(body)
        case cst.Import(names=names):
            for alias in names:
                yield import_name(alias)
        case cst.ImportFrom(names=names) if not isinstance(names, cst.ImportStar):
            for alias in names:
                yield import_name(alias)
        case cst.IndentedBlock(body=statements) | cst.SimpleStatementLine(body=statements) | cst.SimpleStatementSuite(body=statements):
            for s in statements:
                yield from _assigned(s)
        case cst.Expr(value=value):
            yield from _walrus(value)
        case cst.Module(body=statements):
            for s in statements:
                yield from _assigned(s)
        case _:
            return


def captures(pattern: cst.CSTNode) -> Iterator[str]:
    """The names that a pattern of `match` binds."""
    match pattern:
        case cst.MatchAs(name=name) | cst.MatchStar(name=name) if name is not None:
            yield name.value
        case cst.MatchMapping(rest=rest) if rest is not None:
            yield rest.value
        case cst.MatchValue():
            return
    for child in children(pattern):
        yield from captures(child)


def _walrus(node: cst.CSTNode) -> Iterator[str]:
    """Names bound by `:=` inside an expression."""
    if isinstance(node, cst.NamedExpr):
        yield from target_names(node.target)
    if isinstance(node, (cst.Name, cst.Integer, cst.Float, cst.SimpleString, cst.Lambda)):
        return
    for child in children(node):
        yield from _walrus(child)


@cache
def _parts(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    """The fields of a kind of node that can hold code: not those for blanks, comments and separators."""
    blank = ("whitespace", "leading_", "trailing_", "lines_after", "header", "footer", "lpar", "rpar", "lbra", "rbra", "comma", "semicolon")
    return tuple(name for name in kind.__dataclass_fields__ if not name.startswith(blank))


@cache
def _is_code(kind: type) -> bool:
    """True for kinds of nodes: asked of each kind once, as the base class of all of them is slow to tell."""
    return issubclass(kind, cst.CSTNode)


def children(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The nodes directly below a node, in order; much quicker than libcst's own, which goes through its visitors."""
    for name in _parts(type(node)):
        part = getattr(node, name)
        if isinstance(part, (tuple, list)):
            for p in part:
                if _is_code(p.__class__):
                    yield p
        elif _is_code(part.__class__):
            yield part


def target_names(target: cst.CSTNode) -> Iterator[str]:
    """The names in an assignment target; subscripts and attributes bind none."""
    match target:
        case cst.Name(value=name):
            yield name
        case cst.Tuple(elements=elements) | cst.List(elements=elements):
            for e in elements:
                yield from target_names(e.value)
        case _:
            return


def import_name(alias: cst.ImportAlias) -> str:
    """The name that one part of an import statement binds."""
    if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
        return alias.asname.name.value
    node: cst.CSTNode = alias.name
    while isinstance(node, cst.Attribute):
        node = node.value
    return node.value if isinstance(node, cst.Name) else ""


def dotted(node: cst.CSTNode | None) -> str:
    """`a.b.c` as text; empty for anything that is not a dotted name."""
    match node:
        case cst.Name(value=name):
            return name
        case cst.Attribute(value=owner, attr=attr):
            left = dotted(owner)
            return f"{left}.{attr.value}" if left else ""
        case _:
            return ""
