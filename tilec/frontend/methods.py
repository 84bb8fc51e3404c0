"""Attributes and methods of host values, dtypes, tensors and expressions, from allow-lists.

    "a,b".split(",") -> ["a", "b"];  A.shape[0] -> M;  x.astype("float16") -> Cast(x, FLOAT16)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from tilec.diagnostics import Span
from tilec.frontend import hints, hostops
from tilec.frontend.builtins import dtype_of, one, sort
from tilec.frontend.hostops import HostError
from tilec.frontend.classes import class_attribute, find, member, of_class, parts, special
from tilec.frontend.effects import CHANGES
from tilec.frontend.enums import IntMember, TextMember, enum_of
from tilec.frontend.machine import Machine, is_device
from tilec.frontend.names import snapshot
from tilec.frontend.values import BoundMethod, Builtin, ClassValue, EnumMember, Function, Instance, Iter, Super, View
from tilec.ir.dtypes import FLOAT4_E2M1, DType, lookup, vector_of
from tilec.ir.expr import Buffer, Const
from tilec.language import emitter, host_tensors, vectors
from tilec.language.autotuner import TunerSpec
from tilec.language.emitter import Emitter
from tilec.language.host_tensors import HostTensor
from tilec.language.values import Marker, Ref, Value, Vec

_STR = frozenset(
    "upper lower strip lstrip rstrip split rsplit startswith endswith join replace format isdigit isalpha isalnum isnumeric isdecimal "
    "islower isupper isspace isidentifier find rfind index rindex count title capitalize swapcase casefold zfill ljust rjust center "
    "removeprefix removesuffix splitlines partition rpartition".split()
)
_ALGEBRA = frozenset("union intersection difference symmetric_difference issubset issuperset isdisjoint update".split())
_METHODS: dict[type, frozenset[str]] = {
    str: _STR,
    list: frozenset("append extend insert pop remove index count reverse sort copy clear".split()),
    tuple: frozenset(("index", "count")),
    dict: frozenset("get keys values items pop update setdefault copy clear".split()),
    set: _ALGEBRA | frozenset("add discard remove copy clear".split()),
    frozenset: (_ALGEBRA | {"copy"}) - {"update"},
    int: frozenset(("bit_length", "bit_count", "is_integer")),
    bool: frozenset(("bit_length", "bit_count")),
    float: frozenset(("is_integer",)),
}
_TUNER = ("set_compile_args", "set_profile_args", "set_kernel_parameters", "run")


def attribute(m: Machine, owner: Value, name: str, span: Span) -> Value:
    """`owner.name` for values that are neither modules nor namespaces. Raises TL0201 for unknown attributes."""
    match owner:
        case Buffer() | Ref():
            found = _tensor_attribute(owner, name)
        case DType():
            found = _dtype_attribute(owner, name)
        case ClassValue():
            return class_attribute(m, owner, name, span)
        case Instance():
            if name in ("_asdict", "_replace") and owner.cls.kind == "tuple":
                return BoundMethod(owner, name)
            return member(m, owner, name, span)
        case EnumMember() | IntMember() | TextMember() if (found := _of_member(m, owner, name, span)) is not None:
            return found
        case Super():
            return of_class(m, owner.owner, name, span, owner.after)
        case Function() if name == "__name__":
            return owner.name
        case Builtin(name="chain") if name == "from_iterable":
            return Builtin(name, lambda m, args, _: m.call(owner, tuple(m.iterate(args[0], m.b.span)), {}, m.b.span))
        case Builtin(name="list" | "dict" | "set" as kind) if name in _METHODS[{"list": list, "dict": dict, "set": set}[kind]]:
            return Builtin(name, lambda m, args, kwargs: m.call(m.attribute(args[0], name, m.b.span), args[1:], kwargs, m.b.span))
        case Builtin(name="dict") if name == "fromkeys":
            return Builtin(name, _from_keys)
        case Builtin(name="str") if name in _STR:
            return Builtin(name, lambda m, args, kwargs: _str_method(m, hostops.plain(args[0]), name, args[1:], kwargs))
        case Marker():
            found = owner.options.get(name)
        case Emitter():
            found = emitter.attribute(owner, name)
        case TunerSpec():
            return BoundMethod(owner, name) if name in _TUNER else _unknown(m, owner, name, span)
        case HostTensor():
            found = host_tensors.attribute(owner, name)
            found = BoundMethod(owner, name) if found is None and name in host_tensors.METHODS else found
        case range() if name in ("start", "stop", "step"):
            return getattr(owner, name)
        case str() if name in ("bits", "bytes") and lookup(owner) is not None:
            return _dtype_attribute(lookup(owner), name)
        case int() | float() if name in ("real", "imag", "numerator", "denominator"):
            return getattr(owner, name)
        case _:
            known = _METHODS.get(type(owner), frozenset())
            scalar = is_device(owner) and name in ("astype", "dtype")
            found = owner.dtype if scalar and name == "dtype" else BoundMethod(owner, name) if scalar or name in known else None
    return _unknown(m, owner, name, span) if found is None else found


def _of_member(m: Machine, owner: Value, name: str, span: Span) -> Value:
    """The name or value of an enumeration's member, or what its class defines; None for anything else."""
    member = enum_of(owner)
    assert member is not None
    if name in ("name", "value"):
        return getattr(member, name)
    return of_class(m, member, name, span) if isinstance(owner, EnumMember) or find(member.cls, name) is not None else None


def _from_keys(m: Machine, args: tuple[Value, ...], kwargs: Mapping[str, Value]) -> Value:
    one("fromkeys", args, kwargs, 1, 2)
    return m.own({hostops.key(k): args[1] if len(args) > 1 else None for k in m.iterate(args[0], m.b.span)})


def _unknown(m: Machine, owner: Value, name: str, span: Span) -> Value:
    what = f"`{owner.name}`" if isinstance(owner, (Buffer, ClassValue)) else hostops.kind(owner)
    raise m.fail("TL0201", f"{what} has no attribute `{name}` that the compiler knows", span, help=hints.attribute(name))


def _tensor_attribute(owner: Buffer | Ref, name: str) -> Value:
    buffer = owner.buffer if isinstance(owner, Ref) else owner
    match name:
        case "dtype":
            return vector_of(buffer.dtype, buffer.lanes) if buffer.lanes else buffer.dtype
        case "astype":
            return BoundMethod(owner, name)
        case "scope":
            return BoundMethod(buffer, name)
        case "buffer" | "data":
            return buffer
        case "shape" if isinstance(owner, Buffer):
            return tuple(int(e.value) if isinstance(e, Const) else e for e in (buffer.shape[:-1] if buffer.lanes else buffer.shape))
        case "strides" if isinstance(owner, Buffer) and buffer.strides is not None:
            return tuple(int(e.value) if isinstance(e, Const) else e for e in buffer.strides)
        case "ndim" if isinstance(owner, Buffer):
            return buffer.rank - (buffer.lanes > 0)
        case "name":
            return buffer.name
        case _:
            return None


def _dtype_attribute(dtype: DType | None, name: str) -> Value:
    assert dtype is not None
    match name:
        case "bits" | "bytes":
            return dtype.bits if name == "bits" else dtype.bytes
        case "itemsize":
            return dtype.bytes
        case "lanes":
            return dtype.lanes
        case "as_torch" | "is_float4" | "is_float4_e2m1fn" | "is_float4_e2m1_unpacked":
            return BoundMethod(dtype, name)
        case _:
            return BoundMethod(dtype.name, name) if name in _STR else None


def call_method(m: Machine, method: BoundMethod, args: tuple[Value, ...], kwargs: Mapping[str, Value], span: Span) -> Value:
    """Calls a method that `attribute` has given out."""
    owner, name = method.owner, method.name
    m.b.span = span
    if isinstance(owner, TunerSpec):
        return replace(owner, options={**owner.options, **kwargs}) if name == "set_compile_args" else owner
    with m.host(span):
        if isinstance(owner, HostTensor):
            return host_tensors.call(m.b, owner, name, args)
        if is_device(owner):
            return _device_method(m, owner, name, args, kwargs)
        if isinstance(owner, DType):
            one(name, args, kwargs, 0, 0)
            return owner if name == "as_torch" else name != "is_float4_e2m1_unpacked" and owner.lane == FLOAT4_E2M1
        if name in CHANGES and isinstance(owner, (list, dict, set)):
            m.may_change(owner, span)
            args = tuple(snapshot(m, a, "item", span) for a in args)
        result = hostops.checked(_host_method(m, owner, name, args, kwargs))
    if isinstance(result, (list, tuple, dict, set)):
        m.spend(len(result), span)
    return m.own(result)


def _device_method(m: Machine, owner: Value, name: str, args: tuple[Value, ...], kwargs: Mapping[str, Value]) -> Value:
    if name == "scope":
        return owner.scope.value
    one(name, args, kwargs)
    return vectors.cast(m.b, owner, args[0] if not isinstance(args[0], Builtin) else dtype_of(args[0]) or args[0])


def _host_method(m: Machine, owner: Value, name: str, args: tuple[Value, ...], kwargs: Mapping[str, Value]) -> Value:
    match owner:
        case str():
            return _str_method(m, owner, name, args, kwargs)
        case list():
            return _list_method(m, owner, name, args, kwargs)
        case tuple():
            return _search(owner, name, args)
        case dict():
            return _dict_method(m, owner, name, args, kwargs)
        case set() | frozenset():
            return _set_method(m, owner, name, args)
        case Instance():
            one(name, args, {} if name == "_replace" else kwargs, 0, 0)
            if unknown := set(kwargs) - set(owner.cls.fields):
                raise HostError(f"`{owner.cls.name}` has no field `{min(unknown)}`")
            return dict(owner.values) if name == "_asdict" else Instance(owner.cls, {**owner.values, **kwargs})
        case _:
            one(name, args, kwargs, 0, 0)
            return getattr(owner, name)()


def _str_method(m: Machine, owner: str, name: str, args: tuple[Value, ...], kwargs: Mapping[str, Value]) -> Value:
    values = [hostops.plain(a) for a in args]
    if name == "join":
        one(name, args, kwargs)
        values = [[hostops.plain(v) for v in m.iterate(args[0], m.b.span)]]
        if sum(len(v) for v in values[0] if isinstance(v, str)) + len(owner) * len(values[0]) > hostops.MAX_ITEMS:
            raise HostError("the result would be too long")
    if name == "format":
        if any(c in owner for c in ("!", "[", ".{", ":{")) or any("." in f.split(":")[0] for f in owner.split("{")[1:] if "}" in f):
            raise HostError("this str.format() text is not supported; use an f-string")
        hostops.check_widths(owner)
        values, kwargs = [hostops.printable(v) for v in args], {k: hostops.printable(v) for k, v in kwargs.items()}
    if name in ("ljust", "rjust", "center", "zfill") and values and isinstance(values[0], int) and values[0] > hostops.MAX_WIDTH:
        raise HostError(f"a width above {hostops.MAX_WIDTH}")
    texts = len(values) >= 2 and all(isinstance(v, str) for v in values[:2])
    if name == "replace" and texts and (len(owner) + 1) * max(1, len(values[1])) > hostops.MAX_ITEMS:
        raise HostError("the result might be too long")
    try:
        return getattr(owner, name)(*values, **kwargs)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as fault:
        raise HostError(f"str.{name}(): {fault}") from None


def _search(owner: tuple[Value, ...] | list[Value], name: str, args: tuple[Value, ...]) -> int:
    one(name, args, {})
    hits = [k for k, v in enumerate(owner) if hostops.equal(v, args[0])]
    if name == "count":
        return len(hits)
    if not hits:
        raise HostError(f"{hostops.short(args[0])} is not in the {type(owner).__name__}")
    return hits[0]


def _list_method(m: Machine, owner: list[Value], name: str, args: tuple[Value, ...], kwargs: Mapping[str, Value]) -> Value:
    match name:
        case "append":
            one(name, args, kwargs)
            hostops.checked(owner)
            owner.append(args[0])
        case "extend":
            one(name, args, kwargs)
            owner.extend(m.iterate(args[0], m.b.span))
            hostops.checked(owner)
        case "sort":
            owner[:] = sort(m, owner, kwargs)
        case "index" | "count":
            return _search(owner, name, args)
        case "remove":
            del owner[_search(owner, "index", args)]
        case _:
            try:
                return getattr(owner, name)(*args)
            except (TypeError, IndexError) as fault:
                raise HostError(f"list.{name}(): {fault}") from None
    return None


def _dict_method(m: Machine, owner: dict[Value, Value], name: str, args: tuple[Value, ...], kwargs: Mapping[str, Value]) -> Value:
    match name:
        case "keys" | "values" | "items":
            return View(owner, name)
        case "update":
            for a in args:
                if not isinstance(a, dict):
                    raise HostError("dict.update() needs a dict")
                owner.update(a)
            owner.update(kwargs)
            return None
        case "get" | "pop" | "setdefault":
            one(name, args, kwargs, 1, 2)
            k: Any = hostops.key(args[0])
            if name == "pop" and len(args) == 1 and k not in owner:
                raise HostError(f"no key {hostops.short(k)}")
            return getattr(owner, name)(k, *args[1:])
        case _:
            return getattr(owner, name)()


def _set_method(m: Machine, owner: set[Value] | frozenset[Value], name: str, args: tuple[Value, ...]) -> Value:
    if name in _ALGEBRA:
        values: list[Any] = [{hostops.key(v) for v in m.iterate(a, m.b.span)} for a in args]
    else:
        values = [hostops.key(a) for a in args]
    try:
        return getattr(owner, name)(*values)
    except (TypeError, KeyError) as fault:
        raise HostError(f"set.{name}(): {fault}") from None


def _set_order(v: Value) -> tuple[str, float, str]:
    """A fixed order for the members of a set, so that output does not depend on hashes."""
    return type(v).__name__, v if isinstance(v, (int, float)) else 0, hostops.text(v)


def stream(m: Machine, value: Value, span: Span) -> Iterator[Value]:
    """The elements of a host iterable, each when it is taken: a list may grow and a generator go on in between."""
    match value:
        case Iter(source=source):
            return source
        case list():
            return iter(value)
        case dict() | View():
            return _unchanged(m, value, span)
        case _:
            return iter(iterate(m, value, span))


def _unchanged(m: Machine, value: dict[Value, Value] | View, span: Span) -> Iterator[Value]:
    owner = value.owner if isinstance(value, View) else value
    size = len(owner)
    for item in iterate(m, value, span):
        yield item
        if len(owner) != size:
            raise m.fail("TL0108", "the dictionary changes its size while it is walked through", span)


def iterate(m: Machine, value: Value, span: Span) -> list[Value]:
    """The elements of a host iterable, in order."""
    value = hostops.plain(value)
    match value:
        case Iter(source=source):
            rest = list(islice(source, hostops.MAX_ITEMS + 1))
            if len(rest) > hostops.MAX_ITEMS:
                raise m.fail("TL0108", f"this iterator gives more than {hostops.MAX_ITEMS} values", span, help="take some with islice()")
            return rest
        case View():
            return value.items()
        case list() | tuple() | dict() | str():
            return list(value)
        case Vec():
            return list(value.lanes)
        case ClassValue() if value.is_enum:
            return list(value.members)
        case Instance() if (fields := parts(value)) is not None:
            return list(fields)
        case Instance() if (told := special(m, value, "__iter__", (), span)) is not NotImplemented:
            return m.iterate(told, span)
        case set() | frozenset():
            return sorted(value, key=_set_order)
        case range():
            with m.host(span):
                m.spend(min(len(value), hostops.MAX_ITEMS), span)
                return hostops.as_list(value)
        case _:
            text = f"{hostops.kind(value)} is not something to iterate over while compiling"
            raise m.fail("TL0108", text, span, help=hints.iterate(value))
