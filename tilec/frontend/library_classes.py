"""The modules of Python's standard library that make classes and copies of what they hold: dataclasses, enum, collections, types, copy.

    Point = namedtuple("Point", "x y");  Point(1, y=2).y -> 2;  dataclasses.replace(config, block=64) -> another Config
"""

from __future__ import annotations

from collections.abc import Mapping

from tilec.diagnostics import Span
from tilec.frontend import hostops
from tilec.frontend.builtins import BUILTINS, one
from tilec.frontend.classes import instance
from tilec.frontend.hostops import HostError
from tilec.frontend.machine import Machine
from tilec.frontend.values import AUTO, Builtin, ClassValue, FieldSpec, Instance
from tilec.language.values import Marker, Namespace, Value

Args = tuple[Value, ...]
Kwargs = Mapping[str, Value]


def _field(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("field", args, {}, 0, 0)
    return FieldSpec(kwargs.get("default", Ellipsis), kwargs.get("default_factory"))


def _data(name: str, value: Value) -> Instance:
    if not isinstance(value, Instance) or value.cls.kind != "data":
        raise HostError(f"{name}() needs an instance of a data class, not {hostops.kind(value)}")
    return value


def _replace(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("replace", args, {})
    owner = _data("replace", args[0])
    held = {n: owner.values[n] for n in owner.cls.fields}
    return instance(m, owner.cls, (), {**held, **kwargs}, m.b.span)


def _as_dict(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("asdict", args, kwargs)
    _data("asdict", args[0])
    return _copied(m, args[0], True, "dict")


def _as_tuple(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("astuple", args, kwargs)
    return tuple(_copied(m, _data("astuple", args[0]), True, "dict").values())


def _copied(m: Machine, value: Value, deep: bool, instances: str = "") -> Value:
    """A copy of a container or instance; `instances` = "dict" turns data classes into dicts, as asdict() does."""
    m.spend(1, m.b.span)

    def inner(v: Value) -> Value:
        return _copied(m, v, deep, instances) if deep else v

    match value:
        case list():
            return m.own([inner(v) for v in value])
        case tuple():
            return tuple(inner(v) for v in value)
        case dict():
            return m.own({k: inner(v) for k, v in value.items()})
        case set():
            return m.own(set(value))
        case Instance(cls=cls, values=values):
            if instances and cls.kind == "data":
                return {k: inner(values[k]) for k in cls.fields}
            return m.own(Instance(cls, {k: inner(v) for k, v in values.items()}))
        case _:
            return value


def _copy(deep: bool) -> Builtin:
    def call(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        one("copy", args, kwargs)
        return _copied(m, args[0], deep)

    return Builtin("copy", call)


def _named_tuple(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("namedtuple", args, {k: v for k, v in kwargs.items() if k != "defaults"}, 2, 2)
    listed = args[1].replace(",", " ").split() if isinstance(args[1], str) else m.iterate(args[1], m.b.span)
    if not isinstance(args[0], str) or not all(isinstance(n, str) and n.isidentifier() for n in listed):
        raise HostError("namedtuple() needs names")
    defaults = m.iterate(kwargs.get("defaults") or (), m.b.span)
    names = dict(zip(listed[len(listed) - len(defaults) :], defaults, strict=False))
    return ClassValue(args[0], names, m.b.span, tuple(listed), "tuple")


def _same(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    """A decorator that leaves its class as it is."""
    return args[0] if args else Builtin("decorator", lambda m, inner, _: inner[0] if inner else None)


_NOTE = Marker("annotation")
_NOWHERE = Span("", 1, 1, 1, 1)
_COLLECTIONS = ("Iterable", "Iterator", "Sequence", "Mapping", "MutableMapping", "Callable", "Hashable", "Sized", "Generator", "Collection")

CLASSES: dict[str, Namespace] = {
    "dataclasses": Namespace("dataclasses", {
        "dataclass": Builtin("dataclass", _same), "field": Builtin("field", _field), "replace": Builtin("replace", _replace),
        "asdict": Builtin("asdict", _as_dict), "astuple": Builtin("astuple", _as_tuple),
    }),
    "enum": Namespace("enum", {
        **dict.fromkeys(("Enum", "IntEnum", "StrEnum", "Flag", "IntFlag"), _NOTE),
        "auto": Builtin("auto", lambda m, args, kwargs: AUTO), "unique": Builtin("unique", _same),
    }),
    "collections": Namespace("collections", {"namedtuple": Builtin("namedtuple", _named_tuple), "OrderedDict": BUILTINS["dict"]}),
    "collections.abc": Namespace("collections.abc", dict.fromkeys(_COLLECTIONS, _NOTE)),
    "types": Namespace("types", {"SimpleNamespace": ClassValue("SimpleNamespace", {}, _NOWHERE, kind="open")}),
    "copy": Namespace("copy", {"copy": _copy(False), "deepcopy": _copy(True)}),
    "abc": Namespace("abc", {"ABC": _NOTE, "ABCMeta": _NOTE, "abstractmethod": Builtin("abstractmethod", _same)}),
}  # fmt: skip
"""Modules by name, as `tilec.frontend.library` has the others."""
