"""Classes of the user's file: attributes of the class, and of instances of data classes and named tuples.

    @dataclass
    class Config: dtype: str = "float16"; scale: float = 2.0     Config(scale=3.0).scale -> 3.0
"""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from tilec.diagnostics import Span
from tilec.frontend.machine import Machine
from tilec.frontend.values import ClassValue, Frame, Function, Instance, Partial
from tilec.language.values import Value


def make_class(node: cst.ClassDef, names: Mapping[str, Value], frame: Frame) -> ClassValue:
    """The class whose body has given `names`."""
    body = node.body.body if isinstance(node.body, cst.IndentedBlock) else ()
    inner = [s for line in body if isinstance(line, cst.SimpleStatementLine) for s in line.body]
    fields = tuple(s.target.value for s in inner if isinstance(s, cst.AnnAssign) and isinstance(s.target, cst.Name))
    functions = [s for s in body if isinstance(s, cst.FunctionDef)]
    properties = frozenset(f.name.value for f in functions if {"property", "cached_property"} & _words(f.decorators))
    statics = frozenset(f.name.value for f in functions if "staticmethod" in _words(f.decorators))
    made = "dataclass" in _words(node.decorators) or bool({"NamedTuple"} & {_last(b.value) for b in node.bases})
    return ClassValue(node.name.value, names, frame.source.span(node.name), fields, made, properties, statics)


def _words(decorators: object) -> set[str]:
    assert isinstance(decorators, (tuple, list))
    return {_last(d.decorator) for d in decorators}


def _last(node: cst.BaseExpression) -> str:
    """The last name of `a.b.c` or `a.b.c(...)`."""
    while isinstance(node, cst.Call):
        node = node.func
    return node.attr.value if isinstance(node, cst.Attribute) else node.value if isinstance(node, cst.Name) else ""


def instance(m: Machine, cls: ClassValue, args: tuple[Value, ...], kwargs: Mapping[str, Value], span: Span) -> Instance:
    """An instance with its fields. Raises TL0102 for classes of other kinds, TL0203 for arguments that do not fit the fields."""
    if not cls.made:
        raise m.fail("TL0102", f"the class `{cls.name}` cannot be called here", span, help="data classes and named tuples can")
    if len(args) > len(cls.fields):
        raise m.fail("TL0203", f"`{cls.name}` has {len(cls.fields)} fields, {len(args)} were given", span)
    values: dict[str, Value] = {n: cls.names[n] for n in cls.fields if n in cls.names}
    values |= dict(zip(cls.fields, args, strict=False))
    for name, value in kwargs.items():
        if name not in cls.fields or name in cls.fields[: len(args)]:
            raise m.fail("TL0203", f"`{cls.name}` got an unexpected field `{name}`", span, help=f"its fields are {', '.join(cls.fields)}")
        values[name] = value
    if missing := [n for n in cls.fields if n not in values]:
        raise m.fail("TL0203", f"`{cls.name}` needs a value for {', '.join(f'`{n}`' for n in missing)}", span)
    return Instance(cls, values)


def member(m: Machine, owner: Instance, name: str, span: Span) -> Value:
    """An attribute of an instance: a field, a property's value, a method bound to it. Raises TL0201 for others."""
    if name in owner.values:
        return m.use(owner.values[name], span)
    found = owner.cls.names.get(name)
    if found is None:
        raise m.fail("TL0201", f"`{owner.cls.name}` has no attribute `{name}` that the compiler knows", span)
    if not isinstance(found, Function) or name in owner.cls.statics:
        return m.use(found, span)
    bound = Partial(found, (owner,), {})
    return m.call(bound, (), {}, span) if name in owner.cls.properties else bound
