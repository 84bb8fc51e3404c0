"""What the statements of a module change in place and read, through the functions that they call too.

    SEEN = []
    def note(x): SEEN.append(x)
    note(3)                       ->  the third statement changes SEEN

Only the text is looked at: too many names cost an evaluation or two, a missing one would be a stale value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import libcst as cst

from tilec.record import record
from tilec.frontend.names import assigned, target_names
from tilec.frontend.syntax import parameters, walk

CHANGES = frozenset("append extend insert pop remove reverse sort clear update setdefault add discard popitem appendleft popleft".split())
"""Methods of lists, dicts and sets that change them."""


def root(node: cst.CSTNode) -> str:
    """The name in front of attributes and subscripts: `a` of `a.b[0]`; empty for anything else."""
    while isinstance(node, (cst.Subscript, cst.Attribute)):
        node = node.value
    return node.value if isinstance(node, cst.Name) else ""


def mutated(node: cst.CSTNode, into_functions: bool = False) -> frozenset[str]:
    """Names whose objects a statement changes in place: `x[0] = 1`, `y = x.pop()`, `x += [1]`, `x.field = 1`."""
    found = set()
    for n in walk(node, into_functions=into_functions):
        match n:
            case cst.Assign(targets=targets):
                found |= {root(p) for t in targets for p in _parts(t.target) if isinstance(p, (cst.Subscript, cst.Attribute))}
            case cst.For(target=target):
                found |= {root(p) for p in _parts(target) if isinstance(p, (cst.Subscript, cst.Attribute))}
            case cst.AugAssign(target=cst.Subscript() | cst.Attribute() as target):
                found.add(root(target))
            case cst.AnnAssign(target=cst.Subscript() | cst.Attribute() as target):
                found.add(root(target))
            case cst.Expr(value=cst.Call(func=cst.Attribute(value=owner))):
                found.add(root(owner))
            case cst.Call(func=cst.Attribute(value=owner, attr=cst.Name(value=name))) if name in CHANGES:
                found.add(root(owner))
            case cst.Call(func=cst.Name(value="setattr" | "next"), args=[cst.Arg(value=owner), *_]):
                found.add(root(owner))
            case cst.Del(target=cst.Subscript() as target):
                found.add(root(target))
    return frozenset(found - {""})


@record
class _Effect:
    """What calling a function of the module does: names of the module that it changes or `binds`, which of its parameters it changes,
    and the names that it mentions. `passed` are its own parameters handed on to others, as (function, place, parameter)."""

    changes: frozenset[str]
    given: frozenset[str]
    reads: frozenset[str]
    parameters: tuple[str, ...] = ()
    passed: tuple[tuple[str, int | str, str], ...] = ()
    binds: frozenset[str] = frozenset()

    def parameter(self, place: int | str) -> str:
        """The parameter that takes the argument at a position, or of a name; empty for none."""
        return place if isinstance(place, str) else self.parameters[place] if place < len(self.parameters) else ""


class Effects:
    """The functions of a module by name, with what calling them does."""

    def __init__(self, statements: Sequence[cst.CSTNode]) -> None:
        """Looks at all functions and classes among the statements."""
        made = {s.name.value: s for s in statements if isinstance(s, (cst.FunctionDef, cst.ClassDef))}
        self._own: Mapping[str, _Effect] = {name: _own(name, node) for name, node in made.items()}
        self._known: dict[str, _Effect] = {}
        self._methods = _changing_methods(made)
        self._made = {n for s in statements if isinstance(s, (cst.Assign, cst.AnnAssign)) for n in assigned(s)} - made.keys()

    def _found(self, name: str) -> _Effect | None:
        """What calling a function does, with all that it may call in turn; None for other names."""
        if name not in self._own:
            return None
        if name not in self._known:
            reached, open_ends = {name}, [name]
            while open_ends:
                more = {n for n in self._own[open_ends.pop()].reads if n in self._own} - reached
                reached |= more
                open_ends.extend(more)
            self._known[name] = _joined(self._own, name, reached)
        return self._known[name]

    def changed(self, node: cst.CSTNode) -> frozenset[str]:
        """Names whose objects a statement of the module changes, or that functions which it calls bind."""
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            parts: list[cst.CSTNode] = [d.decorator for d in node.decorators]
            names: set[str] = set()
        else:
            parts = [node]
            names = set(mutated(node))
        for part in parts:
            names.update(*(self._by_call(n) for n in walk(part, into_functions=False) if isinstance(n, cst.Call)))
            if part is not node and isinstance(part, cst.Name) and (effect := self._found(part.value)) is not None:
                names |= effect.changes  # a bare decorator is called, too
        return frozenset(names - {""})

    def bound(self, node: cst.CSTNode) -> frozenset[str]:
        """Names that functions which a statement calls declare global, and bind."""
        called = (self._found(n.value) for n in walk(node, into_functions=False) if isinstance(n, cst.Name))
        return frozenset(n for effect in called if effect is not None for n in effect.binds)

    def _by_call(self, node: cst.Call) -> Iterator[str]:
        if isinstance(node.func, cst.Attribute) and node.func.attr.value in self._methods:
            yield root(node.func.value)
        if isinstance(node.func, cst.Name) and node.func.value in self._made:  # what a function has made may keep something
            yield node.func.value
        effect = self._found(root(node.func))
        if effect is None:
            return
        yield from effect.changes
        for place, value in _arguments(node):
            if effect.parameter(place) in effect.given:
                yield from (root(n) for n in _parts(value))

    def read(self, node: cst.CSTNode) -> frozenset[str]:
        """Names that a statement mentions, itself or in functions that it names."""
        names = {n.value for n in walk(node, into_functions=False) if isinstance(n, cst.Name)}
        return frozenset(names.union(*(e.reads for n in names if (e := self._found(n)) is not None)))


def _joined(own: Mapping[str, _Effect], name: str, reached: set[str]) -> _Effect:
    """The effect of a function with those of the functions that it reaches."""
    given = {n: own[n].given for n in reached}
    grown = any(given.values())
    while grown:  # a parameter is changed, too, where another function that it is handed to changes it
        grown = False
        for n in reached:
            more = {mine for f, place, mine in own[n].passed if f in reached and own[f].parameter(place) in given[f]} - given[n]
            if more:
                given[n] |= more
                grown = True
    parts = [own[n] for n in reached]
    return _Effect(
        frozenset().union(*(e.changes for e in parts)), given[name], frozenset().union(*(e.reads for e in parts)),
        own[name].parameters, (), frozenset().union(*(e.binds for e in parts)),
    )  # fmt: skip


def _arguments(node: cst.Call) -> Iterator[tuple[int | str, cst.BaseExpression]]:
    """The arguments of a call, each with its position or name."""
    for k, a in enumerate(node.args):
        yield (a.keyword.value if a.keyword is not None else k), a.value


def _parts(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The expression, and the elements where it is a list or tuple."""
    if isinstance(node, (cst.List, cst.Tuple)):
        for e in node.elements:
            yield from _parts(e.value)
    else:
        yield node


def _own(name: str, node: cst.FunctionDef | cst.ClassDef) -> _Effect:
    """What the text of one function or class alone says."""
    inner = [n for n in walk(node) if isinstance(n, (cst.FunctionDef, cst.Lambda))]
    given = {p.name.value for f in inner for p in parameters(f)}
    stars = (p for f in inner for p in (f.params.star_arg, f.params.star_kwarg) if isinstance(p, cst.Param))
    kept = given.union((p.name.value for p in stars), *(assigned(f.body) for f in inner if isinstance(f, cst.FunctionDef)))
    outer = {i.name.value for n in walk(node) if isinstance(n, cst.Global) for i in n.names}
    grown = {root(n.target) for n in walk(node.body) if isinstance(n, cst.AugAssign)}
    changed = mutated(node.body, into_functions=True) | (grown & given)
    changes = (changed - kept) | outer
    if changed & {p.name.value for f in inner for p in parameters(f) if p.default is not None}:
        changes |= {name}  # a default is one object for all calls
    calls = [n for n in walk(node.body) if isinstance(n, cst.Call) and isinstance(n.func, cst.Name)]
    passed = ((root(c.func), place, root(v)) for c in calls for place, v in _arguments(c) if root(v) in given)
    reads = frozenset(n.value for n in walk(node.body) if isinstance(n, cst.Name))
    own = tuple(p.name.value for p in parameters(node)) if isinstance(node, cst.FunctionDef) else ()
    return _Effect(frozenset(changes), frozenset(changed & given), reads, own, tuple(passed), frozenset(outer))


def _changing_methods(made: Mapping[str, cst.FunctionDef | cst.ClassDef]) -> frozenset[str]:
    """Names of the methods of the module's classes that change their object."""
    classes = [c for c in made.values() if isinstance(c, cst.ClassDef)]
    functions = [f for c in classes for f in walk(c.body) if isinstance(f, cst.FunctionDef) and parameters(f)]
    direct = {f.name.value for f in functions if parameters(f)[0].name.value in mutated(f.body)}
    through = {f.name.value for f in functions for n in walk(f.body) if isinstance(n, cst.Attribute) and n.attr.value in direct}
    return frozenset(direct | through) - {"__init__", "__post_init__"}


def aliases(statements: Sequence[cst.CSTNode]) -> dict[str, set[str]]:
    """Names that assignments may make one object (`a = b`, `a = [b]`, `a = b["x"]`, `a = f(b)`), each with all of its group."""
    groups: dict[str, set[str]] = {}
    classes = frozenset(s.name.value for s in statements if isinstance(s, cst.ClassDef))
    for node in statements:
        match node:
            case cst.Assign(targets=targets, value=value):
                names = {n for t in targets for n in target_names(t.target)}
            case cst.AnnAssign(target=target, value=value) if value is not None:
                names = set(target_names(target))
            case _:
                continue
        if not names:
            continue
        names |= set(_held(value, classes)) - {""}
        if len(names) > 1:
            group = names.union(*(groups.get(n, ()) for n in names))
            groups.update(dict.fromkeys(group, group))
    return groups


def _held(node: cst.BaseExpression, classes: frozenset[str]) -> Iterator[str]:
    """Names whose objects a value may be or hold; instances hold their class."""
    match node:
        case cst.Name() | cst.Subscript() | cst.Attribute():
            yield root(node)
            return
        case cst.List(elements=elements) | cst.Tuple(elements=elements) | cst.Set(elements=elements):
            parts = [e.value for e in elements]
        case cst.Dict(elements=pairs):
            parts = [p.value for p in pairs]
        case cst.Call(func=func, args=args):
            if root(func) in classes:
                yield root(func)
            parts = [a.value for a in args]
        case cst.IfExp(body=body, orelse=orelse):
            parts = [body, orelse]
        case cst.BooleanOperation(left=left, right=right):
            parts = [left, right]
        case _:
            return
    for part in parts:
        yield from _held(part, classes)
