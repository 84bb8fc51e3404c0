"""Python's built-in functions as the evaluator knows them, and its type names.

    len([1, 2])  ->  2;   min(n, 64) with a run-time n  ->  Binary("min", n, 64)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilec.diagnostics import Span
from tilec.frontend import hostops
from tilec.frontend.classes import inherits, parts, set_attribute, special
from tilec.frontend.enums import enum_of
from tilec.frontend.hostops import HostError
from tilec.frontend.machine import Machine, is_device
from tilec.frontend.values import Builtin, ClassValue, Function, Instance, Iter, Partial, Super, View
from tilec.ir.dtypes import BOOL, FLOAT32, INT32, DType, lookup
from tilec.ir.expr import Buffer, Expr
from tilec.language import arith, loops, vectors
from tilec.language.values import Marker, Namespace, Primitive, Value

Args = tuple[Value, ...]
Kwargs = Mapping[str, Value]
_CALLABLE = (Function, Builtin, Partial, Primitive, Marker)


def one(name: str, args: Args, kwargs: Kwargs, least: int = 1, most: int = 1) -> None:
    """Checks the number of positional arguments of a builtin that takes no keywords."""
    if kwargs:
        raise HostError(f"{name}() has no argument `{next(iter(kwargs))}`")
    if not least <= len(args) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise HostError(f"{name}() takes {wanted} arguments, {len(args)} were given")


def _number(name: str, value: Value) -> Any:
    value = hostops.plain(value)
    if not isinstance(value, (int, float)):
        raise HostError(f"{name}() needs a number, not {hostops.kind(value)}")
    return value


def _abs(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("abs", args, kwargs)
    if is_device(args[0]):
        from tilec.language.catalogue import modules

        return m.call(modules()["tilelang.language"].members["abs"], args, {}, m.b.span)
    return abs(_number("abs", args[0]))


def _int(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    args = (*args, kwargs["base"]) if len(args) == 1 and "base" in kwargs else args
    one("int", args, {k: v for k, v in kwargs.items() if k != "base"}, 0, 2)
    if args and is_device(args[0]):
        return arith.cast(m.b, args[0], INT32)
    values = [hostops.plain(a) for a in args]
    if values and isinstance(values[0], str) and len(values[0]) > hostops.MAX_BITS // 3:
        raise HostError("the number has too many digits")
    try:
        return hostops.checked(int(*values))
    except (ValueError, TypeError, OverflowError) as fault:
        raise HostError(f"int(): {fault}") from None


def _float(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("float", args, kwargs, 0, 1)
    if args and is_device(args[0]):
        return arith.cast(m.b, args[0], FLOAT32)
    try:
        return float(*(hostops.plain(a) for a in args))
    except (ValueError, TypeError, OverflowError) as fault:
        raise HostError(f"float(): {fault}") from None


def _bool(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("bool", args, kwargs, 0, 1)
    if args and is_device(args[0]):
        return arith.cast(m.b, args[0], BOOL)
    return bool(args and _host_true(m, args[0]))


def _host_true(m: Machine, value: Value) -> bool:
    """Truth of a value that must be the host's."""
    if is_device(value):
        raise HostError("this needs a value that is known while compiling, not a run-time one")
    if isinstance(value, (str, list, tuple, dict, set, frozenset, range)):
        return len(value) > 0
    if isinstance(value, View):
        return len(value.owner) > 0
    for name in ("__bool__", "__len__"):
        told = special(m, value, name, (), m.b.span)
        if told is not NotImplemented:
            return _host_true(m, told)
    return bool(value) if value is None or isinstance(value, (int, float)) else True


def _str(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("str", args, kwargs, 0, 1)
    return hostops.text(args[0]) if args else ""


def _repr(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("repr", args, kwargs)
    return hostops.text(args[0], 1)


def _len(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("len", args, kwargs)
    value = hostops.plain(args[0])
    if isinstance(value, Buffer):
        return m.attribute(value, "shape", m.b.span)[0]
    told = special(m, value, "__len__", (), m.b.span)
    if told is not NotImplemented:
        return told
    if (fields := parts(value)) is not None or (isinstance(value, ClassValue) and value.is_enum):
        return len(fields if fields is not None else value.members)
    if isinstance(value, View):
        return len(value.owner)
    if not isinstance(value, (str, list, tuple, dict, set, frozenset, range)):
        raise HostError(f"len() does not work on {hostops.kind(value)}")
    return len(value)


def _range(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("range", args, kwargs, 1, 3)
    if any(is_device(a) for a in args):
        return loops.counted(m.b, "serial", args[0], args[1] if len(args) > 1 else None, args[2] if len(args) > 2 else None)
    if not all(isinstance(a, int) for a in args):
        raise HostError(f"range() needs integers, not {', '.join(hostops.kind(a) for a in args)}")
    if len(args) == 3 and args[2] == 0:
        raise HostError("the step of range() must not be zero")
    return range(*args)


def _extreme(name: str) -> Callable[[Machine, Args, Kwargs], Value]:
    def extreme(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        unknown = set(kwargs) - {"key", "default"}
        if unknown or not args:
            raise HostError(f"{name}() takes values, `key` and `default`")
        values = m.iterate(args[0], m.b.span) if len(args) == 1 else list(args)
        if not values:
            if "default" in kwargs:
                return kwargs["default"]
            raise HostError(f"{name}() of nothing")
        span = m.b.span
        if kwargs.get("key") is None and any(is_device(v) for v in values):
            result = values[0]
            for v in values[1:]:
                m.b.span = span
                result = vectors.binary(m.b, name, result, v)
            return result
        keys = _keys(m, values, kwargs.get("key"))
        best = 0
        for k in range(1, len(values)):
            if hostops.compare("lt" if name == "min" else "gt", keys[k], keys[best]):
                best = k
        return values[best]

    return extreme


def _keys(m: Machine, values: list[Value], key: Value) -> list[Value]:
    span = m.b.span
    return values if key is None else [m.call(key, (v,), {}, span) for v in values]


def _sum(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    start = kwargs.get("start", args[1] if len(args) == 2 else 0)
    one("sum", args, {k: v for k, v in kwargs.items() if k != "start"}, 1, 2)
    span, total = m.b.span, start
    for value in m.iterate(args[0], span):
        m.b.span = span
        total = arith.binary(m.b, "add", total, value) if is_device(total) or is_device(value) else hostops.binary("add", total, value)
        m.spend(len(total) if isinstance(total, (list, tuple)) else 1, span)
    return total


def _pow(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("pow", args, kwargs, 2, 3)
    if any(is_device(a) for a in args[:2]):
        return arith.binary(m.b, "pow", *args[:2])
    if len(args) == 3:
        if not all(isinstance(a, int) for a in args) or args[2] == 0:
            raise HostError("pow() with three arguments needs integers and a modulus other than 0")
        try:
            return pow(*args)
        except ValueError as fault:
            raise HostError(f"pow(): {fault}") from None
    return hostops.binary("pow", *args)


def _round(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("round", args, {k: v for k, v in kwargs.items() if k != "ndigits"}, 1, 2)
    if is_device(args[0]):
        raise HostError("round() needs a value that is known while compiling; use T.round in a kernel")
    digits = kwargs.get("ndigits", args[1] if len(args) == 2 else None)
    if digits is not None and (not isinstance(digits, int) or abs(digits) > 400):
        raise HostError("round() to that many digits is not supported")
    try:
        return round(_number("round", args[0]), digits)
    except (ValueError, OverflowError) as fault:
        raise HostError(f"round(): {fault}") from None


def _divmod(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("divmod", args, kwargs, 2, 2)
    if any(is_device(a) for a in args):
        return arith.binary(m.b, "floordiv", *args), arith.binary(m.b, "mod", *args)
    return hostops.binary("floordiv", *args), hostops.binary("mod", *args)


def _zip(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if not kwargs.get("strict"):
        return Iter(zip(*(m.stream(a, m.b.span) for a in args), strict=False))
    columns = [m.iterate(a, m.b.span) for a in args]
    if len({len(c) for c in columns}) > 1:
        raise HostError("zip(): the arguments have different lengths")
    return Iter(zip(*columns, strict=False))


def _enumerate(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    start = kwargs.get("start", args[1] if len(args) == 2 else 0)
    one("enumerate", args, {k: v for k, v in kwargs.items() if k != "start"}, 1, 2)
    if not isinstance(start, int):
        raise HostError("enumerate() starts at an integer")
    return Iter(enumerate(m.stream(args[0], m.b.span), start))


def sort(m: Machine, values: list[Value], kwargs: Kwargs) -> list[Value]:
    """The values in order, with `key` and `reverse` as list.sort has them."""
    if set(kwargs) - {"key", "reverse"}:
        raise HostError("sorting takes `key` and `reverse`")
    keys = [hostops.plain(k) for k in _keys(m, values, kwargs.get("key"))]
    try:
        order = sorted(range(len(values)), key=keys.__getitem__, reverse=bool(kwargs.get("reverse", False)))
    except TypeError:
        raise HostError("these values cannot be ordered") from None
    return [values[k] for k in order]


def _sorted(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("sorted", args, {})
    return sort(m, m.iterate(args[0], m.b.span), kwargs)


def _reversed(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("reversed", args, kwargs)
    return args[0][::-1] if isinstance(args[0], range) else Iter(iter(m.iterate(args[0], m.b.span)[::-1]))


def _all_any(name: str, stop: bool) -> Callable[[Machine, Args, Kwargs], Value]:
    def quantify(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        one(name, args, kwargs)
        found: Value = not stop
        for value in m.stream(args[0], m.b.span):
            if is_device(value) or is_device(found):
                found = arith.logical(m.b, "or" if stop else "and", found, value)
            elif _host_true(m, value) == stop:
                return stop
        return found

    return quantify


def _make(name: str, build: Callable[[list[Value]], Value]) -> Callable[[Machine, Args, Kwargs], Value]:
    def make(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        one(name, args, kwargs, 0, 1)
        values = m.iterate(args[0], m.b.span) if args else []
        m.spend(len(values), m.b.span)
        return m.own(build(values))

    return make


def _dict(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("dict", args, {}, 0, 1)
    result: dict[Value, Value] = {}
    if args and isinstance(args[0], dict):
        result.update(args[0])
    elif args:
        for pair in m.iterate(args[0], m.b.span):
            parts = m.iterate(pair, m.b.span)
            if len(parts) != 2:
                raise HostError("dict() needs pairs")
            result[hostops.key(parts[0])] = parts[1]
    result.update(kwargs)
    return m.own(result)


def _map(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if len(args) < 2:
        raise HostError("map() needs a function and values")
    span = m.b.span
    return m.lazy(m.call(args[0], row, {}, span) for row in zip(*(m.stream(a, span) for a in args[1:]), strict=False))


def _filter(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("filter", args, kwargs, 2, 2)
    span = m.b.span
    return m.lazy(v for v in m.stream(args[1], span) if _host_true(m, v if args[0] is None else m.call(args[0], (v,), {}, span)))


def _next(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("next", args, kwargs, 1, 2)
    if not isinstance(args[0], Iter):
        raise HostError(f"next() needs an iterator, not {hostops.kind(args[0])}")
    value = next(args[0].source, _ABSENT)
    if value is not _ABSENT:
        return value
    if len(args) == 2:
        return args[1]
    raise HostError("next() of an iterator that is used up")


def _iter(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("iter", args, kwargs)
    return args[0] if isinstance(args[0], Iter) else Iter(m.stream(args[0], m.b.span))


def _slice(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    from tilec.language.values import Slice

    one("slice", args, kwargs, 1, 3)
    return Slice(None, args[0]) if len(args) == 1 else Slice(*args)


def is_type(value: Value, wanted: Value) -> bool:
    """isinstance() for host values and the type names of Python and the language."""
    if isinstance(wanted, tuple):
        return any(is_type(value, w) for w in wanted)
    if isinstance(wanted, Builtin) and wanted.name in _TYPES:
        found = _TYPES[wanted.name]
        return isinstance(value, found) or (wanted.name == "str" and isinstance(value, DType))
    if isinstance(wanted, Marker):
        return isinstance(value, (Expr, Buffer))
    if wanted is None:
        return value is None
    if isinstance(wanted, ClassValue):
        owner = value if isinstance(value, Instance) else enum_of(value)
        return owner is not None and inherits(owner.cls, wanted)
    raise HostError(f"isinstance() with {hostops.kind(wanted)} is not supported")


_TYPES: dict[str, Any] = {
    "int": int, "float": float, "bool": bool, "str": str, "list": list, "tuple": tuple, "dict": dict, "set": set,
    "frozenset": frozenset, "range": range,
}  # fmt: skip


def _isinstance(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("isinstance", args, kwargs, 2, 2)
    return is_type(args[0], args[1])


def _type(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("type", args, kwargs)
    if isinstance(args[0], Instance):
        return args[0].cls
    for name, found in _TYPES.items():
        if type(args[0]) is found:
            return BUILTINS[name]
    raise HostError(f"type() of {hostops.kind(args[0])} is not supported")


def _getattr(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    from tilec.diagnostics import CompileError

    one("getattr", args, kwargs, 2, 3)
    if not isinstance(args[1], str):
        raise HostError("getattr() needs a name")
    try:
        return m.attribute(args[0], args[1], m.b.span)
    except CompileError:
        if len(args) == 3 and not _may_have(args[0], args[1]):
            return args[2]
        raise


def _may_have(owner: Value, name: str) -> bool:
    """True for an attribute that is not known here and that Python may know all the same."""
    if isinstance(owner, Namespace):
        return owner.name.partition(".")[0] not in ("tilelang", "tilec", "tvm")
    plain = isinstance(owner, (str, int, float, list, tuple, dict, set, frozenset, range))
    return isinstance(owner, (Function, Builtin, Partial, Iter, View)) or (plain and hasattr(type(owner), name))


def _hasattr(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("hasattr", args, kwargs, 2, 2)
    return _getattr(m, (*args, _ABSENT), {}) is not _ABSENT


_ABSENT = object()


def _setattr(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("setattr", args, kwargs, 3, 3)
    if not isinstance(args[1], str):
        raise HostError("setattr() needs a name")
    set_attribute(m, args[0], args[1], args[2], m.b.span)
    return None


def _super_of(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("super", args, kwargs, 2, 2)
    if not isinstance(args[0], ClassValue) or not isinstance(args[1], Instance):
        raise HostError("super() takes a class and an instance of it")
    return Super(args[1], args[0])


def _vars(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("vars", args, kwargs)
    if not isinstance(args[0], Instance):
        raise HostError(f"vars() does not work on {hostops.kind(args[0])}")
    return m.own(dict(args[0].values))


def _callable(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("callable", args, kwargs)
    return isinstance(args[0], _CALLABLE)


def _chr_ord(name: str) -> Callable[[Machine, Args, Kwargs], Value]:
    def convert(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        one(name, args, kwargs)
        try:
            return chr(args[0]) if name == "chr" else ord(args[0])
        except (TypeError, ValueError, OverflowError):
            raise HostError(f"{name}() does not work on {hostops.short(args[0])}") from None

    return convert


def _ignore(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    """print() and the like: nothing is printed while compiling."""
    return None


def _bases(name: str) -> Callable[[Machine, Args, Kwargs], Value]:
    def show(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        one(name, args, kwargs)
        if not isinstance(args[0], int):
            raise HostError(f"{name}() needs an integer")
        return {"bin": bin, "hex": hex, "oct": oct}[name](args[0])

    return show


def host_call(m: Machine, function: Builtin, args: Args, kwargs: Kwargs, span: Span) -> Value:
    """Calls a builtin; its refusals become errors at the call."""
    m.b.span = span
    with m.host(span):
        return function.call(m, args, kwargs)


def dtype_of(value: Value) -> DType | None:
    """The dtype that a host value names, if it names one (Python's own int, float and bool included)."""
    if isinstance(value, DType):
        return value
    if isinstance(value, str):
        return lookup(value)
    if isinstance(value, Builtin):
        return {"int": INT32, "float": FLOAT32, "bool": BOOL}.get(value.name)
    return None


_FUNCTIONS: dict[str, Callable[[Machine, Args, Kwargs], Value]] = {
    "abs": _abs, "int": _int, "float": _float, "bool": _bool, "str": _str, "repr": _repr, "len": _len, "range": _range,
    "min": _extreme("min"), "max": _extreme("max"), "sum": _sum, "pow": _pow, "round": _round, "divmod": _divmod, "zip": _zip,
    "enumerate": _enumerate, "sorted": _sorted, "reversed": _reversed, "all": _all_any("all", False), "any": _all_any("any", True),
    "list": _make("list", list), "tuple": _make("tuple", tuple), "set": _make("set", lambda v: {hostops.key(x) for x in v}),
    "frozenset": _make("frozenset", lambda v: frozenset(hostops.key(x) for x in v)), "dict": _dict, "map": _map,
    "filter": _filter, "next": _next, "iter": _iter, "slice": _slice, "isinstance": _isinstance, "type": _type, "getattr": _getattr,
    "callable": _callable, "chr": _chr_ord("chr"), "ord": _chr_ord("ord"), "print": _ignore, "bin": _bases("bin"),
    "hex": _bases("hex"), "oct": _bases("oct"), "hasattr": _hasattr, "setattr": _setattr, "super": _super_of, "vars": _vars,
}  # fmt: skip

BUILTINS: dict[str, Value] = {name: Builtin(name, call) for name, call in _FUNCTIONS.items()} | {
    "True": True, "False": False, "None": None, "NotImplemented": None, "__debug__": True, "__name__": "__kernel__", "Ellipsis": Ellipsis,
}  # fmt: skip
