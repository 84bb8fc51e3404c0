"""From a typed Python function to a primitive of the language: the function's own signature binds the arguments.

    works(copy) -> Entry("copy", ...);  entry.primitive().call(b, (A, B), {"disable_tma": True})

The first parameter of each function is the builder and is not the author's. The signature is read from the code object, so
that nothing heavy is imported on the compile path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import partial
from types import FunctionType
from typing import Any

from tilec.record import record
from tilec.language.builder import Builder
from tilec.language.keywords import settle
from tilec.language.lanes import among, each
from tilec.language.values import Primitive

_VARARGS, _VARKEYWORDS = 0x04, 0x08  # flags of a code object


class State(Enum):
    """What the compiler does with a name."""

    WORKS = "works"
    IGNORED = "accepted and ignored"
    REFUSED = "refused"


@record
class Entry:
    """One callable name of the language with the function behind it. `instead` says what to use when it is refused."""

    name: str
    fn: Any  # a function, which mypy would take for a method
    state: State = State.WORKS
    host: bool = False
    instead: str = ""
    lanewise: bool = False  # of vectors it is computed lane by lane

    @property
    def doc(self) -> str:
        """One line on what the name means."""
        return (self.fn.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ").replace("    ", "")

    def primitive(self) -> Primitive:
        """The value that the evaluator calls."""
        call = invoke_lanes if self.lanewise else invoke
        return Primitive(self.name, partial(call, self.name, self.fn), self.host)


def works(fn: Any, *aliases: str, host: bool = False, name: str = "", lanewise: bool = False) -> tuple[Entry, ...]:
    """The entries of a function that is compiled, under its own name (a trailing underscore dropped) and its aliases."""
    names = (name or fn.__name__.rstrip("_"), *aliases)
    return tuple(Entry(n, fn, State.WORKS, host, lanewise=lanewise) for n in names)


def ignored(fn: Any, *aliases: str, host: bool = False, name: str = "") -> tuple[Entry, ...]:
    """The entries of a function whose meaning does not change the kernel."""
    return tuple(Entry(e.name, e.fn, State.IGNORED, host) for e in works(fn, *aliases, name=name))


def refused(instead: str, *names: str) -> tuple[Entry, ...]:
    """Entries for names that exist in the language and are not compiled."""
    return tuple(Entry(n, _refuser(n, instead), State.REFUSED, True, instead) for n in names)


def _refuser(name: str, instead: str) -> Any:
    def refuse(b: Builder, *args: Any, **kwargs: Any) -> Any:
        raise b.error("TL0204", f"`T.{name}` is not supported", help=instead)

    return refuse


def parameters(fn: FunctionType) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """Names of the positional parameters (the builder apart), of the keyword-only ones, and how many must be given."""
    code = fn.__code__
    names = code.co_varnames[1 : code.co_argcount]
    only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    return names, only, len(names) - len(fn.__defaults__ or ())


def invoke(name: str, fn: FunctionType, b: Builder, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Binds the arguments of one call and makes it; TL0202 for unknown keywords, TL0203 for too many or too few."""
    names, only, required = parameters(fn)
    flags = fn.__code__.co_flags
    if kwargs and not flags & _VARKEYWORDS:
        args, kwargs = settle(name, args, kwargs, names + only)
    if len(args) > len(names) and not flags & _VARARGS:
        most = f"at most {len(names)} positional argument{'s' if len(names) != 1 else ''}"
        raise b.error("TL0203", f"`T.{name}` takes {most}, {len(args)} were given", help=signature(name, fn))
    for key in kwargs:
        if key in names[: len(args)]:
            raise b.error("TL0203", f"`T.{name}` got `{key}` twice", help=signature(name, fn))
        if key not in names and key not in only and not flags & _VARKEYWORDS:
            raise b.error("TL0202", f"`T.{name}` has no argument `{key}`", help=_keyword_help(name, fn, key, names + only))
    missing = [n for n in names[len(args) : required] if n not in kwargs]
    missing += [n for n in only if n not in (fn.__kwdefaults__ or {}) and n not in kwargs]
    if missing:
        listed = ", ".join(f"`{n}`" for n in missing)
        raise b.error("TL0203", f"`T.{name}` needs the argument{'s' if len(missing) > 1 else ''} {listed}", help=signature(name, fn))
    return fn(b, *args, **kwargs)


def invoke_lanes(name: str, fn: FunctionType, b: Builder, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """`invoke` for a function of numbers, which takes vectors lane by lane."""
    if not among(*args, *kwargs.values()):
        return invoke(name, fn, b, args, kwargs)
    keys = tuple(kwargs)

    def one(b: Builder, *values: Any) -> Any:
        return invoke(name, fn, b, values[: len(args)], dict(zip(keys, values[len(args) :], strict=True)))

    return each(b, one, *args, *kwargs.values())


def _keyword_help(name: str, fn: FunctionType, key: str, known: Iterable[str]) -> str:
    known = tuple(known)
    whole = [k for k in known if key.lower() in k.lower().split("_")]  # `stages` is num_stages rather than stage
    near = whole[0] if whole else nearest(key, known)
    return f"did you mean `{near}`?" if near else signature(name, fn)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, if one is close."""
    from difflib import SequenceMatcher, get_close_matches

    table: dict[str, list[str]] = {}
    for k in known:
        table.setdefault(k.lower().replace("_", ""), []).append(k)
    near = get_close_matches(name.lower().replace("_", ""), list(table), 1, 0.6)
    return max(table[near[0]], key=lambda k: SequenceMatcher(None, name, k).ratio()) if near else None


def signature(name: str, fn: FunctionType) -> str:
    """`gemm(A, B, C, transpose_A=False, ...)` as the author would write it."""
    names, only, required = parameters(fn)
    defaults = fn.__defaults__ or ()
    parts = list(names[:required]) + [f"{n}={_default(d)}" for n, d in zip(names[required:], defaults, strict=True)]
    code = fn.__code__
    extra = code.co_varnames[code.co_argcount + code.co_kwonlyargcount :]
    if code.co_flags & _VARARGS:
        parts.append("*" + extra[0])
    elif only:
        parts.append("*")
    parts += [f"{n}={_default((fn.__kwdefaults__ or {})[n])}" if n in (fn.__kwdefaults__ or {}) else n for n in only]
    if code.co_flags & _VARKEYWORDS:
        parts.append("**" + extra[1 if code.co_flags & _VARARGS else 0])
    return f"{name}({', '.join(parts)})"


def _default(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
