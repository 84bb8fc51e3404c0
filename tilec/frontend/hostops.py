"""Python's operators on host values, with bounds: no operation may make a huge integer, string or list.

    binary("pow", 2, 10) -> 1024;  binary("pow", 10, 10**9) -> HostError("the result would have more than 4096 bits")

A dtype behaves like the string of its name here, as TileLang's own do.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from tilec.frontend.values import EnumMember, Instance
from tilec.ir.dtypes import DType

MAX_BITS = 4096
MAX_ITEMS = 200_000
MAX_WIDTH = 10_000

SEQUENCE = (list, tuple, range, str)


class HostError(Exception):
    """A host operation that Python refuses, or that would be too large; the text is the message for the user."""


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "floordiv": operator.floordiv,
    "mod": operator.mod, "pow": operator.pow, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "shl": operator.lshift, "shr": operator.rshift,
}  # fmt: skip
_SIGN = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "pow": "**", "and": "&", "or": "|", "xor": "^",
    "shl": "<<", "shr": ">>",
}  # fmt: skip
_ORDER: dict[str, Callable[[Any, Any], bool]] = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}


def plain(value: Any) -> Any:
    """A dtype as its name, anything else as it is."""
    return value.name if isinstance(value, DType) else value


def binary(op: str, a: Any, b: Any) -> Any:
    """`a op b` for host values, with Python's meaning."""
    a, b = plain(a), plain(b)
    _bound(op, a, b)
    try:
        if op == "mod" and isinstance(a, str):
            return percent(a, b)
        result = _BINARY[op](a, b)
    except HostError:
        raise
    except TypeError:
        raise HostError(f"`{_SIGN[op]}` does not work on {kind(a)} and {kind(b)}") from None
    except (ArithmeticError, ValueError) as fault:
        raise HostError(f"{fault} in `{short(a)} {_SIGN[op]} {short(b)}`") from None
    if isinstance(result, complex):
        raise HostError(f"`{short(a)} {_SIGN[op]} {short(b)}` is a complex number")
    return checked(result)


def _bound(op: str, a: Any, b: Any) -> None:
    """Refuses operations whose result would be too large, before they are done."""
    whole = isinstance(a, int) and isinstance(b, int)
    if op == "mul":
        count, items = (a, b) if isinstance(a, int) else (b, a)
        if isinstance(count, int) and isinstance(items, (str, list, tuple)) and len(items) * max(0, count) > MAX_ITEMS:
            raise HostError(f"the result would have {len(items) * count} elements")
    bits = 0
    if whole and op == "pow" and b > 0:
        bits = a.bit_length() * b
    elif whole and op == "shl" and b > 0:
        bits = a.bit_length() + b
    if bits > MAX_BITS and a not in ((0, 1, -1) if op == "pow" else (0,)):
        raise HostError(f"the result would have more than {MAX_BITS} bits")


def checked(value: Any) -> Any:
    """`value` itself when it is within the bounds on size."""
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise HostError(f"the result would have more than {MAX_BITS} bits")
    if isinstance(value, (str, list, tuple, dict, set)) and len(value) > MAX_ITEMS:
        raise HostError(f"the result would have {len(value)} elements")
    return value


def unary(op: str, a: Any) -> Any:
    """`-a`, `+a`, `~a` for host numbers (op neg, pos, invert)."""
    try:
        match op:
            case "neg":
                return -a
            case "pos":
                return +a
            case _:
                return ~a
    except TypeError:
        raise HostError(f"`{'~' if op == 'invert' else '-'}` does not work on {kind(a)}") from None


def equal(a: Any, b: Any) -> bool:
    """`a == b`; values of the language and of the evaluator are equal only to themselves."""
    a, b = plain(a), plain(b)
    if a is b:
        return not (isinstance(a, float) and a != a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        same = isinstance(a, list) == isinstance(b, list) and len(a) == len(b)
        return same and all(equal(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(v, b[k]) for k, v in a.items())
    simple = (int, float, str, range, set, frozenset)
    return isinstance(a, simple) and isinstance(b, simple) and bool(a == b)


def compare(op: str, a: Any, b: Any) -> bool:
    """`a op b` for eq, ne, lt, le, gt, ge, in, not_in, is, is_not."""
    match op:
        case "eq":
            return equal(a, b)
        case "ne":
            return not equal(a, b)
        case "is":
            return identical(a, b)
        case "is_not":
            return not identical(a, b)
        case "in":
            return contains(b, a)
        case "not_in":
            return not contains(b, a)
    try:
        return bool(_ORDER[op](plain(a), plain(b)))
    except TypeError:
        raise HostError(f"{kind(a)} and {kind(b)} cannot be ordered") from None


def identical(a: Any, b: Any) -> bool:
    """`a is b`; a dtype is one object however it is reached."""
    return a is b or (isinstance(a, DType) and isinstance(b, DType) and a == b)


def contains(items: Any, value: Any) -> bool:
    """`value in items`."""
    items = plain(items)
    match items:
        case str():
            if not isinstance(plain(value), str):
                raise HostError(f"`in` a string needs a string on its left, not {kind(value)}")
            return plain(value) in items
        case dict() | set() | frozenset():
            return key(value) in items
        case range():
            return value in items if isinstance(value, int) else False
        case list() | tuple():
            return any(equal(value, item) for item in items)
        case _:
            raise HostError(f"`in` does not work on {kind(items)}")


def key(value: Any) -> Any:
    """`value` as the key of a dict or member of a set; dtypes become their names, so that either finds the other."""
    value = plain(value)
    if isinstance(value, tuple):
        return tuple(key(v) for v in value)
    if isinstance(value, Instance) and value.cls.kind == "tuple":
        return tuple(key(value.values[n]) for n in value.cls.fields)
    if isinstance(value, Instance) and value.cls.kind == "data":
        raise HostError(f"an instance of the data class `{value.cls.name}` cannot be a key here")
    try:
        hash(value)
    except TypeError:
        raise HostError(f"{kind(value)} cannot be a key") from None
    return value


def subscript(items: Any, index: Any) -> Any:
    """`items[index]` for host containers; `index` is a host value, a slice() included."""
    items = plain(items)
    try:
        if isinstance(items, dict):
            return items[key(index)]
        if isinstance(items, SEQUENCE):
            return items[index]
    except KeyError:
        raise HostError(f"no key {short(index)}; there are {', '.join(map(short, list(items)[:8])) or 'none'}") from None
    except IndexError:
        raise HostError(f"index {short(index)} is out of range: there are {len(items)} elements") from None
    except (TypeError, ValueError):
        raise HostError(f"{kind(index)} cannot index {kind(items)}") from None
    raise HostError(f"{kind(items)} cannot be indexed")


def percent(form: str, values: Any) -> str:
    """`form % values` with bounded widths."""
    check_widths(form)
    if "*" in form:
        raise HostError("`*` widths in `%` formats are not supported")
    args = tuple(printable(v) for v in values) if isinstance(values, tuple) else printable(values)
    try:
        return str(checked(form % args))
    except (TypeError, ValueError, KeyError, OverflowError) as fault:
        raise HostError(f"bad format: {fault}") from None


def check_widths(form: str) -> None:
    """Refuses format texts that ask for very wide results."""
    digits = ""
    for c in form + " ":
        if c.isdigit():
            digits += c
            if len(digits) > 6 or int(digits) > MAX_WIDTH:
                raise HostError(f"a format width above {MAX_WIDTH}")
        else:
            digits = ""


def format_value(value: Any, spec: str) -> str:
    """`format(value, spec)` with bounded width."""
    check_widths(spec)
    try:
        return format(printable(value), spec)
    except (TypeError, ValueError, OverflowError) as fault:
        raise HostError(f"bad format {spec!r}: {fault}") from None


def printable(value: Any) -> Any:
    """A value that Python's own formatting may show: host values as they are, others as a short text."""
    value = plain(value)
    if value is None or isinstance(value, (int, float, str, range)):
        return value
    return text(value)


def text(value: Any, depth: int = 0) -> str:
    """`str(value)` as a message would show it; values that are not the host's appear by their kind."""
    value = plain(value)
    if value is None or isinstance(value, (int, float, range)):
        return str(value)
    if isinstance(value, str):
        return repr(value) if depth else value
    if depth > 8:
        return "..."
    if isinstance(value, dict):
        return "{" + ", ".join(f"{text(k, depth + 1)}: {text(v, depth + 1)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple, set, frozenset)):
        inner = ", ".join(text(v, depth + 1) for v in value)
        left, right = "[]" if isinstance(value, list) else "()" if isinstance(value, tuple) else "{}"
        return left + inner + ("," if isinstance(value, tuple) and len(value) == 1 else "") + right
    if isinstance(value, EnumMember):
        return f"{value.cls.name}.{value.name}"
    if isinstance(value, Instance):
        fields = [f"{n}={text(value.values[n], depth + 1)}" for n in value.cls.fields if n in value.values]
        return f"{value.cls.name}({', '.join(fields)})" if value.cls.kind in ("data", "tuple") else f"<{value.cls.name}>"
    name = getattr(value, "name", None)
    return f"<{name}>" if isinstance(name, str) else f"<{kind(value)}>"


def spelled(value: Any) -> str:
    """A value as the banner of a kernel shows it: strings without quotes, as -D takes them."""
    return value if isinstance(value, str) and len(value) <= 40 else short(value) if not isinstance(value, DType) else value.name


def short(value: Any) -> str:
    """A value in a message, at most 40 characters."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    shown = text(value, 1)
    return shown if len(shown) <= 40 else shown[:37] + "..."


def kind(value: Any) -> str:
    """What a value is, for messages: `a list`, `an int`, `None`, `a kernel`."""
    if value is None:
        return "None"
    name = {
        "int": "an int", "float": "a float", "bool": "a bool", "str": "a string", "list": "a list", "tuple": "a tuple",
        "dict": "a dict", "set": "a set", "frozenset": "a set", "range": "a range", "DType": "a dtype", "Function": "a function",
        "Builtin": "a function", "BoundMethod": "a method", "Primitive": "a function", "Partial": "a function", "Iter": "an iterator",
        "View": "a view of a dict",
        "KernelValue": "a kernel", "Module": "a module", "Namespace": "a module", "Marker": "a decorator", "ClassValue": "a class",
        "Buffer": "a tile", "Ref": "an element", "Slice": "a slice", "LoopSpec": "a loop", "KernelSpec": "a launch",
        "TensorSpec": "a tensor annotation", "HostTensor": "a tensor of the host program", "TunerSpec": "a tuner",
        "Instance": "an instance", "EnumMember": "a member of an enumeration", "IntMember": "an int",
        "TextMember": "a string", "Super": "super()", "ellipsis": "...", "Emitter": "an emitter",
    }  # fmt: skip
    return name.get(type(value).__name__, "a run-time value")


def as_list(values: Sequence[Any] | range) -> list[Any]:
    """The elements of a sequence as a list, within the bound on size."""
    if len(values) > MAX_ITEMS:
        raise HostError(f"the result would have {len(values)} elements")
    return list(values)
