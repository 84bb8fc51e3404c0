"""The pieces of Python's standard library that kernels' host code uses: math, itertools, functools, operator, typing, and the
modules that make classes (`library_classes`).

    math.ceil(7 / 2) -> 4;  itertools.product([1, 2], "ab") -> (1, "a"), (1, "b"), ...
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tilec.frontend import hostops
from tilec.frontend.builtins import BUILTINS, one
from tilec.frontend.hostops import HostError
from tilec.frontend.library_classes import CLASSES
from tilec.frontend.machine import Machine, is_device
from tilec.frontend.values import Builtin, Function, Iter, KernelValue, Partial
from tilec.language.values import Marker, Namespace, Value

Args = tuple[Value, ...]
Kwargs = Mapping[str, Value]


def _numeric(name: str, function: Callable[..., Any]) -> Builtin:
    def call(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        if any(is_device(a) for a in args):
            raise HostError(f"math.{name}() needs values that are known while compiling; use T.{name} in a kernel")
        if kwargs or not all(isinstance(a, (int, float)) for a in args):
            raise HostError(f"math.{name}() takes numbers")
        if name in ("factorial", "comb", "perm") and any(a > 500 for a in args):
            raise HostError(f"math.{name}() of so large a number")
        try:
            return hostops.checked(function(*args))
        except (ValueError, TypeError, ArithmeticError) as fault:
            raise HostError(f"math.{name}(): {fault}") from None

    return Builtin(name, call)


def _math_prod(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("prod", args, {k: v for k, v in kwargs.items() if k != "start"})
    total = kwargs.get("start", 1)
    for value in m.iterate(args[0], m.b.span):
        total = hostops.binary("mul", total, value)
    return total


_MATH_NAMES = (
    "ceil", "floor", "sqrt", "log", "log2", "log10", "log1p", "exp", "exp2", "expm1", "pow", "gcd", "lcm", "isqrt", "trunc", "fabs",
    "isnan", "isinf", "isfinite", "isclose", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "erf", "erfc",
    "cbrt", "copysign", "fmod", "hypot", "comb", "perm", "factorial", "degrees", "radians",
)  # fmt: skip


def _rows(name: str, count: Callable[[list[int], Any], int], make: Callable[..., Iterable[Any]]) -> Builtin:
    """A function of itertools whose number of results is known before they are made."""

    def call(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        extra = kwargs.get("repeat", 1) if name == "product" else None
        takes = len(args) - (name in ("combinations", "permutations", "repeat") and len(args) > 1)
        numbers = args[takes:]
        if set(kwargs) - {"repeat"} or not all(isinstance(n, int) for n in (*numbers, extra or 0)):
            raise HostError(f"itertools.{name}() does not take these arguments")
        columns = [m.iterate(a, m.b.span) if name != "repeat" else [a] for a in args[:takes]]
        total = count([len(c) for c in columns], numbers[0] if numbers else extra)
        if total > hostops.MAX_ITEMS:
            raise HostError(f"itertools.{name}() would give {total} results")
        m.spend(total, m.b.span)
        try:
            return Iter(iter(list(make(*columns, *numbers) if name != "product" else make(*columns, repeat=extra))))
        except (TypeError, ValueError) as fault:
            raise HostError(f"itertools.{name}(): {fault}") from None

    return Builtin(name, call)


def _product_count(sizes: list[int], repeat: Any) -> int:
    if len(sizes) * repeat > 64:
        raise HostError("itertools.product() of so many values")
    return int(math.prod(sizes) ** max(0, repeat))


def _choices(sizes: list[int], r: Any) -> int:
    n = sizes[0] if sizes else 0
    return math.perm(n, n if r is None else r) if n <= 64 and (r is None or r >= 0) else hostops.MAX_ITEMS + 1


def _starmap(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("starmap", args, kwargs, 2, 2)
    span = m.b.span
    return m.lazy(m.call(args[0], tuple(m.iterate(row, span)), {}, span) for row in m.stream(args[1], span))


def _chain(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("chain", (0,), kwargs)
    span = m.b.span
    return m.lazy(v for a in args for v in m.stream(a, span))


def _islice(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("islice", args, kwargs, 2, 4)
    if not all(a is None or (isinstance(a, int) and 0 <= a <= hostops.MAX_ITEMS) for a in args[1:]) or (len(args) == 4 and args[3] == 0):
        raise HostError("itertools.islice() takes numbers that are not negative")
    return Iter(itertools.islice(m.stream(args[0], m.b.span), *args[1:]))


def _count(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    args = (kwargs.get("start", args[0] if args else 0), kwargs.get("step", args[1] if len(args) > 1 else 1))
    if not all(isinstance(a, (int, float)) for a in args):
        raise HostError("itertools.count() takes numbers")
    span = m.b.span

    def values() -> Iterator[Value]:
        for value in itertools.count(*args):
            m.spend(1, span)
            yield value

    return Iter(values())


def _accumulate(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    function = kwargs.get("func", args[1] if len(args) > 1 else None)
    one("accumulate", args, {k: v for k, v in kwargs.items() if k not in ("func", "initial")}, 1, 2)
    span = m.b.span

    def join(a: Value, b: Value) -> Value:
        return hostops.binary("add", a, b) if function is None else m.call(function, (a, b), {}, span)

    return m.lazy(itertools.accumulate(m.stream(args[0], span), join, initial=kwargs.get("initial")))


def _while(name: str, take: bool) -> Builtin:
    def call(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        one(name, args, kwargs, 2, 2)
        span = m.b.span
        chosen = itertools.takewhile if take else itertools.dropwhile
        return m.lazy(chosen(lambda v: BUILTINS["bool"].call(m, (m.call(args[0], (v,), {}, span),), {}), m.stream(args[1], span)))

    return Builtin(name, call)


_ITERTOOLS = {
    "product": _rows("product", _product_count, itertools.product),
    "chain": Builtin("chain", _chain), "count": Builtin("count", _count), "takewhile": _while("takewhile", True),
    "dropwhile": _while("dropwhile", False),
    "combinations": _rows("combinations", _choices, itertools.combinations),
    "permutations": _rows("permutations", _choices, itertools.permutations),
    "repeat": _rows("repeat", lambda _, n: hostops.MAX_ITEMS + 1 if n is None else n, lambda v, n: itertools.repeat(v[0], n)),
    "islice": Builtin("islice", _islice),
    "zip_longest": _rows("zip_longest", lambda sizes, _: max(sizes, default=0), itertools.zip_longest),
    "pairwise": _rows("pairwise", lambda sizes, _: sum(sizes), itertools.pairwise),
    "starmap": Builtin("starmap", _starmap),
    "accumulate": Builtin("accumulate", _accumulate),
}  # fmt: skip


def _partial(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if not args:
        raise HostError("functools.partial() needs a function")
    return Partial(args[0], args[1:], dict(kwargs))


def _reduce(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("reduce", args, kwargs, 2, 3)
    span = m.b.span
    values = [*args[2:], *m.iterate(args[1], span)]
    if not values:
        raise HostError("functools.reduce() of nothing")
    total = values[0]
    for value in values[1:]:
        total = m.call(args[0], (total, value), {}, span)
    return total


def _transparent(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    """lru_cache and cache: a function is computed once for the same arguments."""
    if len(args) == 1 and isinstance(args[0], (Function, KernelValue, Partial)) and not kwargs:
        return _with_cache(args[0])
    return Builtin("decorator", lambda m, inner, _: _with_cache(inner[0]) if inner else None)


def _with_cache(value: Value) -> Value:
    return replace(value, cache={}) if isinstance(value, Function) and value.kind == "plain" else value


def _wraps(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("wraps", args, {})

    def named(m: Machine, inner: Args, _: Kwargs) -> Value:
        one("wraps", inner, {})
        both = isinstance(inner[0], Function) and isinstance(args[0], Function)
        return replace(inner[0], name=args[0].name) if both else inner[0]

    return Builtin("wraps", named)


def _item_getter(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("itemgetter", args, kwargs, 1, 64)

    def get(m: Machine, inner: Args, _: Kwargs) -> Value:
        one("itemgetter", inner, {})
        found = tuple(hostops.subscript(inner[0], a) for a in args)
        return found[0] if len(args) == 1 else found

    return Builtin("itemgetter", get)


def _attr_getter(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one("attrgetter", args, kwargs)
    return Builtin("attrgetter", lambda m, inner, _: m.attribute(inner[0], args[0], m.b.span))


def _compared(op: str) -> Builtin:
    def call(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        one(op, args, kwargs, 2, 2)
        return hostops.compare(op, *args)

    return Builtin(op, call)


def _operator(op: str) -> Builtin:
    def call(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        one(op, args, kwargs, 2, 2)
        return hostops.binary(op, *args)

    return Builtin(op, call)


_TYPING = (
    "Any", "Optional", "Union", "List", "Tuple", "Dict", "Set", "Callable", "Literal", "Iterable", "Iterator", "Sequence", "Mapping",
    "Annotated", "NamedTuple", "Protocol", "TypeVar", "Generic", "Final", "ClassVar", "cast", "overload",
)  # fmt: skip

LIBRARY: dict[str, Namespace] = {
    "math": Namespace("math", {
        **{n: _numeric(n, getattr(math, n)) for n in _MATH_NAMES if hasattr(math, n)},
        "prod": Builtin("prod", _math_prod), "pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan, "tau": math.tau,
    }),
    "itertools": Namespace("itertools", _ITERTOOLS),
    "functools": Namespace("functools", {
        "partial": Builtin("partial", _partial), "reduce": Builtin("reduce", _reduce), "lru_cache": Builtin("lru_cache", _transparent),
        "cache": Builtin("cache", _transparent), "wraps": Builtin("wraps", _wraps),
        "cached_property": Builtin("cached_property", _transparent),
    }),
    "operator": Namespace("operator", {
        "add": _operator("add"), "sub": _operator("sub"), "mul": _operator("mul"), "floordiv": _operator("floordiv"),
        "mod": _operator("mod"), "truediv": _operator("div"), "and_": _operator("and"), "or_": _operator("or"), "xor": _operator("xor"),
        "pow": _operator("pow"), "lshift": _operator("shl"), "rshift": _operator("shr"),
        **{name: _compared(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
        "itemgetter": Builtin("itemgetter", _item_getter), "attrgetter": Builtin("attrgetter", _attr_getter),
    }),
    "typing": Namespace("typing", {n: Marker("annotation") for n in _TYPING} | {"TYPE_CHECKING": False}),
    "typing_extensions": Namespace("typing_extensions", {n: Marker("annotation") for n in _TYPING} | {"TYPE_CHECKING": False}),
    "__future__": Namespace("__future__", {"annotations": True, "division": True, "print_function": True}),
    "builtins": Namespace("builtins", BUILTINS),
    **CLASSES,
}  # fmt: skip
"""Modules by name. Their callables are the evaluator's own; nothing of the user's is ever handed to Python."""
