"""Classes of the user's file and their instances: fields, methods, properties, class methods, inheritance.

    @dataclass
    class Config: dtype: str = "float16"; scale: float = 2.0     Config(scale=3.0).scale -> 3.0
    class Counter:
        def __init__(self, n): self.n = n                        Counter(4).n -> 4

Lookups follow the bases from left to right, deepest first. Enumerations stand in `tilec.frontend.enums`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import libcst as cst

from tilec.diagnostics import CompileError, Span
from tilec.frontend import hostops
from tilec.frontend.enums import by_value, enum_kind, make_members
from tilec.frontend.machine import Machine
from tilec.frontend.names import is_var, snapshot
from tilec.frontend.values import Builtin, ClassValue, EnumMember, FieldSpec, Frame, Function, Instance, Module, Partial, Poison
from tilec.language.values import Marker, Value

_MISSING = object()
_NOTHING = Builtin("__init__", lambda m, args, kwargs: None)
"""What super().__init__() is where no base has one."""


def make_class(m: Machine, node: cst.ClassDef, names: dict[str, Value], frame: Frame) -> ClassValue:
    """The class whose body has given `names`."""
    body = node.body.body if isinstance(node.body, cst.IndentedBlock) else ()
    inner = [s for line in body if isinstance(line, cst.SimpleStatementLine) for s in line.body]
    bases, unknown = _bases(m, node, frame)
    fields = [s.target.value for s in inner if isinstance(s, cst.AnnAssign) and isinstance(s.target, cst.Name) and not _is_class_var(s)]
    functions = [s for s in body if isinstance(s, cst.FunctionDef)]
    words = _words(node.decorators)
    kind = "tuple" if "NamedTuple" in {_last(b.value) for b in node.bases} else "data" if "dataclass" in words else "plain"
    inherited = next((b.kind for b in bases if b.kind != "plain"), "plain")
    enum = enum_kind({_last(b.value) for b in node.bases}) or next((b.kind for b in bases if b.is_enum), "")
    made = ClassValue(
        node.name.value, names, frame.source.span(node.name),
        fields=_fields(bases, fields) if kind != "plain" else next((b.fields for b in bases), ()),
        kind=enum or (kind if kind != "plain" else inherited),
        bases=bases,
        frozen="dataclass" in words and _flag(node.decorators, "frozen"),
        unknown=unknown,
        properties=frozenset(f.name.value for f in functions if {"property", "cached_property"} & _words(f.decorators)),
        statics=frozenset(f.name.value for f in functions if "staticmethod" in _words(f.decorators)),
        of_class=frozenset(f.name.value for f in functions if "classmethod" in _words(f.decorators)),
    )  # fmt: skip
    for name, value in names.items():
        if isinstance(value, Function) and value.home is None:
            names[name] = replace(value, home=made)
    if enum:
        make_members(m, made, [t for s in inner for t in _assigned_names(s)])
    return made


def _bases(m: Machine, node: cst.ClassDef, frame: Frame) -> tuple[tuple[ClassValue, ...], str]:
    """The bases that are classes of the user's, and the first one that is not known at all."""
    found, unknown = [], ""
    for b in node.bases:
        try:
            base = m.eval(b.value, frame)
        except CompileError:
            base = None
        if isinstance(base, ClassValue):
            found.append(base)
        elif not isinstance(base, (Marker, tuple)) and _last(b.value) not in ("object", "Generic", "Protocol"):
            unknown = unknown or cst.Module([]).code_for_node(b.value)
    return tuple(found), unknown or next((cls.unknown for cls in found if cls.unknown), "")


def _assigned_names(node: cst.BaseSmallStatement) -> Iterator[str]:
    match node:
        case cst.Assign(targets=targets):
            yield from (t.target.value for t in targets if isinstance(t.target, cst.Name))
        case cst.AnnAssign(target=cst.Name(value=name), value=value) if value is not None:
            yield name


def _is_class_var(node: cst.AnnAssign) -> bool:
    kind = node.annotation.annotation
    return _last(kind.value if isinstance(kind, cst.Subscript) else kind) == "ClassVar"


def _fields(bases: tuple[ClassValue, ...], own: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*(f for b in reversed(bases) for f in b.fields), *own]))


def _words(decorators: object) -> set[str]:
    assert isinstance(decorators, (tuple, list))
    return {_last(d.decorator) for d in decorators}


def _flag(decorators: object, name: str) -> bool:
    """True when a decorator is called with `name=True`."""
    assert isinstance(decorators, (tuple, list))
    calls = [d.decorator for d in decorators if isinstance(d.decorator, cst.Call)]
    words = [(a.keyword.value, a.value) for c in calls for a in c.args if a.keyword is not None]
    return any(key == name and isinstance(value, cst.Name) and value.value == "True" for key, value in words)


def _last(node: cst.BaseExpression) -> str:
    """The last name of `a.b.c` or `a.b.c(...)`."""
    while isinstance(node, cst.Call):
        node = node.func
    return node.attr.value if isinstance(node, cst.Attribute) else node.value if isinstance(node, cst.Name) else ""


def line(cls: ClassValue) -> Iterator[ClassValue]:
    """The class and those it inherits from, in Python's order of lookups: every class before its bases, bases as they are listed."""
    yield cls
    while len(cls.bases) == 1:
        cls = cls.bases[0]
        yield cls
    rows = [list(line(b)) for b in cls.bases] + [list(cls.bases)]
    while rows := [r for r in rows if r]:
        heads = (r[0] for r in rows if not any(r[0] is c for other in rows for c in other[1:]))
        head = next(heads, rows[0][0])
        yield head
        rows = [[c for c in r if c is not head] for r in rows]


def find(cls: ClassValue, name: str) -> tuple[ClassValue, Value] | None:
    """The class of the line that has `name`, with its value."""
    return next(((c, c.names[name]) for c in line(cls) if name in c.names), None)


def _behind(cls: ClassValue, start: ClassValue, name: str) -> tuple[ClassValue, Value] | None:
    """What super() of class `start` finds in an instance of `cls`."""
    rest = list(line(cls))
    at = next((k for k, c in enumerate(rest) if c is start), -1)
    return next(((c, c.names[name]) for c in rest[at + 1 :] if name in c.names), None)


def inherits(cls: ClassValue, other: ClassValue) -> bool:
    """True for a class and those it inherits from."""
    return any(c is other for c in line(cls))


def instance(m: Machine, cls: ClassValue, args: tuple[Value, ...], kwargs: Mapping[str, Value], span: Span) -> Value:
    """Calls a class. Raises TL0102 for classes of other kinds, TL0203 for arguments that do not fit the fields."""
    if cls.is_enum:
        return by_value(m, cls, args, span)
    why = f"the class `{cls.unknown}` that it is made of is not known" if cls.unknown else ""
    if why := why or ("`__new__` is not supported" if find(cls, "__new__") else ""):
        raise m.fail("TL0102", f"the class `{cls.name}` cannot be called here", span, help=why)
    made = Instance(cls, {})
    own = find(cls, "__init__")
    if own is not None:
        m.own(made)
        m.call(bound(made, own, "__init__"), args, kwargs, span)
    elif cls.kind in ("data", "tuple", "open"):
        made.values.update(_given(m, cls, args, kwargs, span))
        m.own(made)
        if after := find(cls, "__post_init__"):
            m.call(bound(made, after, "__post_init__"), (), {}, span)
    elif args or kwargs:
        raise m.fail("TL0203", f"`{cls.name}` takes no arguments", span)
    return m.own(made)


def _given(m: Machine, cls: ClassValue, args: tuple[Value, ...], kwargs: Mapping[str, Value], span: Span) -> dict[str, Value]:
    """The fields of a new instance."""
    if cls.kind == "open" and not args:
        return dict(kwargs)
    if len(args) > len(cls.fields):
        raise m.fail("TL0203", f"`{cls.name}` has {len(cls.fields)} fields, {len(args)} were given", span)
    values: dict[str, Value] = {}
    for name in cls.fields:
        default = next((c.names[name] for c in line(cls) if name in c.names), _MISSING)
        if isinstance(default, FieldSpec):
            default = m.call(default.factory, (), {}, span) if default.factory is not None and name not in kwargs else default.default
        if default is not _MISSING and default is not Ellipsis:
            values[name] = default
    given = dict(zip(cls.fields, args, strict=False))
    for name, value in kwargs.items():
        if name not in cls.fields or name in given:
            raise m.fail("TL0203", f"`{cls.name}` got an unexpected field `{name}`", span, help=f"its fields are {', '.join(cls.fields)}")
        given[name] = value
    values |= given
    if missing := [n for n in cls.fields if n not in values]:
        raise m.fail("TL0203", f"`{cls.name}` needs a value for {', '.join(f'`{n}`' for n in missing)}", span)
    return {n: values[n] for n in cls.fields}


def bound(owner: Instance | EnumMember, found: tuple[ClassValue, Value], name: str) -> Value:
    """What an instance gives for an attribute of its class: a function gets the instance as its first argument."""
    cls, value = found
    if not isinstance(value, (Function, Partial)) or name in cls.statics:
        return value
    return Partial(value, (owner.cls if name in cls.of_class else owner,), {})


def member(m: Machine, owner: Instance, name: str, span: Span) -> Value:
    """An attribute of an instance: a field, a property's value, a method bound to it. Raises TL0201 for others."""
    if name in owner.values:
        return m.use(owner.values[name], span)
    if name == "__dict__" and owner.cls.kind != "tuple":
        return owner.values
    return of_class(m, owner, name, span)


def of_class(m: Machine, owner: Instance | EnumMember, name: str, span: Span, start: ClassValue | None = None) -> Value:
    """An attribute that an instance has from its class, or from `start` on where super() asks. Raises TL0201 for others."""
    found = find(owner.cls, name) if start is None else _behind(owner.cls, start, name)
    if name == "__class__":
        return owner.cls
    if found is None and name == "__init__" and start is not None:
        return _NOTHING
    if found is None:
        raise m.fail("TL0201", f"`{owner.cls.name}` has no attribute `{name}` that the compiler knows", span)
    value = bound(owner, found, name)
    if not isinstance(value, Partial):
        return m.use(value, span)
    return m.call(value, (), {}, span) if name in found[0].properties else value


def class_attribute(m: Machine, owner: ClassValue, name: str, span: Span) -> Value:
    """`Class.name`. Raises TL0201 for what neither the class nor its bases have."""
    found = find(owner, name)
    if found is not None:
        value = found[1]
        return Partial(value, (owner,), {}) if name in found[0].of_class and isinstance(value, Function) else m.use(value, span)
    if name == "__name__":
        return owner.name
    if name == "_fields" and owner.kind == "tuple":
        return owner.fields
    raise m.fail("TL0201", f"`{owner.name}` has no attribute `{name}` that the compiler knows", span)


def set_attribute(m: Machine, owner: Value, name: str, value: Value, span: Span) -> None:
    """`owner.name = value`. Raises TL0102 for owners whose attributes cannot be assigned, TL0108 for frozen ones."""
    match owner:
        case Module():
            if m.recording:
                raise m.fail("TL0102", "assigning to a module is not supported in a kernel", span)
            m.exports(owner)  # what its own statements bind comes first
            owner.names[name] = value
            return
        case Instance(cls=cls):
            if cls.frozen or cls.kind == "tuple":
                raise m.fail("TL0108", f"the fields of `{cls.name}` cannot be assigned: it is frozen", span)
            if any(name in c.properties for c in line(cls)):
                raise m.fail("TL0102", f"assigning to the property `{name}` is not supported", span)
            held: dict[str, Value] = owner.values
        case ClassValue(names=names):
            held = names
        case _:
            raise m.fail("TL0102", "assigning to an attribute is not supported", span)
    m.may_change(owner, span)
    if is_var(held.get(name)) and value not in m.fresh:
        text = f"`{name}` holds a T.alloc_var, which only a name of its own can store to"
        raise m.fail("TL0102", text, span, help="assign it to a name first, and then to that name")
    if is_var(value):
        m.fresh.discard(value)
        held[name] = value
    else:
        held[name] = snapshot(m, value, name, span)


def special(m: Machine, owner: Value, name: str, args: tuple[Value, ...], span: Span) -> Value:
    """The result of a method such as `__len__` that the user's class has; NotImplemented when it has none."""
    if not isinstance(owner, (Instance, EnumMember)):
        return NotImplemented
    found = find(owner.cls, name)
    return NotImplemented if found is None else m.call(bound(owner, found, name), args, {}, span)


def parts(owner: Value) -> tuple[Value, ...] | None:
    """The fields of a named tuple's instance, in order; None for anything else."""
    if isinstance(owner, Instance) and owner.cls.kind == "tuple":
        return tuple(owner.values[n] for n in owner.cls.fields)
    return None


def same(m: Machine, a: Value, b: Value, span: Span) -> Value:
    """`a == b` where one of them is an instance; NotImplemented where neither is."""
    if not isinstance(a, Instance) and not isinstance(b, Instance):
        return NotImplemented
    for one, other in ((a, b), (b, a)):
        told = special(m, one, "__eq__", (other,), span)
        if told is not NotImplemented:
            return told
    left, right = parts(a), parts(b)
    if left is not None or right is not None:
        return hostops.equal(left if left is not None else a, right if right is not None else b)
    if isinstance(a, Instance) and isinstance(b, Instance) and a.cls is b.cls and a.cls.kind in ("data", "open"):
        return a.values.keys() == b.values.keys() and all(
            v is w if isinstance(v, Poison) else same(m, v, w, span) is True or hostops.equal(v, w) for v, w in _pairs(a, b)
        )
    return a is b


def _pairs(a: Instance, b: Instance) -> Iterator[tuple[Value, Value]]:
    return ((a.values[n], b.values[n]) for n in a.values)
