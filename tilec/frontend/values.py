"""The evaluator's own values: functions, kernels, modules, poison and the frames that hold names.

Host values (int, str, list, dict, ...) are Python's own; values of the language stand in `tilec.language.values`.

    def f(x): ...        ->  Function("f", node, frame, ...)
    import numpy         ->  Poison("numpy", <why it cannot be used>)
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import libcst as cst

from tilec.record import record
from tilec.diagnostics import CompileError, Span
from tilec.frontend.source import Source
from tilec.language.values import Marker, Value

if TYPE_CHECKING:
    from tilec.frontend.machine import Machine


class Fatal(CompileError):
    """An error that ends the reading even in host code nobody needs: a failed assert, a raise, a spent budget."""


class Reported(CompileError):
    """Stands for an error that has been kept already; it stops what depends on it without a second message."""


@record(eq=False)
class Poison:
    """Something that could not be evaluated, with the error to give should a kernel need it."""

    what: str
    cause: CompileError


@record(eq=False)
class Stale:
    """A name whose value depends on run-time control flow: reading it is an error that tells what to do instead."""

    name: str
    reason: str
    span: Span
    sample: Value | None = None  # a value that the name takes, where one is known


@record(eq=False)
class Deferred:
    """A name of an import that has not been needed yet: the file that it reads imports no other file, so it may be run later."""

    load: Callable[[], Value]


@dataclass(slots=True, eq=False)
class Module:
    """A file whose statements run in their order. `bindings` lists, per name, the statements that bind it; `names` are its names now;
    `state` is new, running or done."""

    name: str
    path: str
    source: Source
    statements: tuple[cst.CSTNode, ...]
    bindings: Mapping[str, tuple[int, ...]]
    package: bool = False
    names: dict[str, Value] = field(default_factory=dict)
    state: str = "new"

    @property
    def frame(self) -> Frame:
        """The scope of the module's statements."""
        return Frame(self.source, self.names, module=self)


@dataclass(slots=True, eq=False)
class Frame:
    """The names of one scope. A module's frame has `module`, and shares its names.

    `dsl` is true in bodies of kernels and macros, where `range` makes a run-time loop. `locals` are the names a function
    assigns; `depth` is how many run-time loops and branches surrounded the place where the frame began.
    """

    source: Source
    names: dict[str, Value] = field(default_factory=dict)
    parent: Frame | None = None
    module: Module | None = None
    live: Frame | None = None  # of a frozen scope: the one that it is a copy of, which may have bound more names since
    locals: frozenset[str] | None = None
    outer: dict[str, Frame] = field(default_factory=dict)  # names declared nonlocal or global
    dsl: bool = False
    depth: int = 0
    kernel: bool = False  # the body of a kernel function
    klass: bool = False  # the body of a class, whose names its functions do not see
    method: tuple[ClassValue, str] | None = None  # the class of a method and the name of its first parameter


def frozen(frame: Frame, mentioned: frozenset[str], keep: Container[int], held: dict[int, Value]) -> Frame:
    """A scope with the values that its names have now: a kernel is made where its function is decorated, whatever is bound later.

    Containers that the kernel or a function it calls has `mentioned` are copied, for they may change later; those with an id in `keep`
    are not. Functions that are mentioned see frozen scopes themselves. `held` has the copies by the id of what they are copies of.
    """
    if id(frame) in held:
        known: Frame = held[id(frame)]
        return known
    parent = None if frame.parent is None else frozen(frame.parent, mentioned, keep, held)
    result = held[id(frame)] = Frame(
        frame.source, {}, parent, frame.module, frame, frame.locals, frame.outer, frame.dsl, frame.depth, frame.kernel, frame.klass,
        frame.method,
    )  # fmt: skip
    for name, value in frame.names.items():
        if name not in mentioned:
            result.names[name] = value
        elif isinstance(value, Function):
            result.names[name] = replace(value, frame=frozen(value.frame, mentioned, keep, held))
        else:
            result.names[name] = _copied(value, keep, held)
    return result


def _copied(value: Value, keep: Container[int], held: dict[int, Value]) -> Value:
    """A list, dict or set with all that it holds; anything else is what it is."""
    if not isinstance(value, (list, dict, set)) or id(value) in keep:
        return value
    if id(value) not in held:
        made: Value = type(value)()
        held[id(value)] = made
        if isinstance(value, dict):
            made.update((k, _copied(v, keep, held)) for k, v in value.items())
        elif isinstance(value, list):
            made.extend(_copied(v, keep, held) for v in value)
        else:
            made.update(value)
    return held[id(value)]


@record(eq=False)
class Function:
    """A def or lambda with the scope it was made in. `kind` is plain, macro, prim or jit."""

    name: str
    node: cst.FunctionDef | cst.Lambda
    frame: Frame
    defaults: Mapping[str, Value]
    kind: str = "plain"
    markers: tuple[Marker, ...] = ()
    home: ClassValue | None = None  # the class whose body defines it
    cache: dict[Value, Value] | None = None  # results by arguments, under functools.lru_cache

    @property
    def span(self) -> Span:
        """The place of the function's name."""
        match self.node:
            case cst.FunctionDef(name=name):
                return self.frame.source.span(name)
            case _:
                return self.frame.source.span(self.node)


@record(eq=False)
class KernelValue:
    """A kernel that host code holds: the decorated function, the factory that made it and the values it was made with."""

    function: Function
    factory: Function | None = None
    markers: tuple[Marker, ...] = ()
    bindings: tuple[tuple[str, str], ...] = ()
    siblings: int = 1
    scope: Frame | None = None  # where it is defined


@record(eq=False)
class Builtin:
    """A host callable that the evaluator implements: `call(machine, args, kwargs)`."""

    name: str
    call: Callable[[Machine, tuple[Value, ...], Mapping[str, Value]], Value]


@record(eq=False)
class BoundMethod:
    """A method of a host or device value, not yet called."""

    owner: Value
    name: str


@record(eq=False)
class Partial:
    """functools.partial."""

    function: Value
    args: tuple[Value, ...]
    kwargs: Mapping[str, Value]


@record(eq=False)
class Iter:
    """A generator or iterator: `source` computes its values when they are taken."""

    source: Iterator[Value]


@record(eq=False)
class View:
    """dict.keys(), .values() or .items(): what the dictionary holds whenever it is looked at."""

    owner: dict[Value, Value]
    name: str

    def items(self) -> list[Value]:
        """What the view holds now."""
        return list(getattr(self.owner, self.name)())


@record(eq=False)
class ClassValue:
    """A class of the user's file. `kind` is plain, data (a data class), tuple (a named tuple), open (any fields) or one of the
    enumerations; `unknown` names a base that could not be read. `properties` are methods that are read like fields, `statics` those
    without an instance, `of_class` those of the class itself."""

    name: str
    names: dict[str, Value]
    span: Span
    fields: tuple[str, ...] = ()
    kind: str = "plain"
    bases: tuple[ClassValue, ...] = ()
    frozen: bool = False
    unknown: str = ""
    properties: frozenset[str] = frozenset()
    statics: frozenset[str] = frozenset()
    of_class: frozenset[str] = frozenset()
    members: list[Value] = field(default_factory=list)

    @property
    def is_enum(self) -> bool:
        """True for the enumerations."""
        return self.kind.startswith("enum")


@record(eq=False)
class Instance:
    """An instance of a class of the user's file."""

    cls: ClassValue
    values: dict[str, Value]


@record(eq=False)
class EnumMember:
    """A member of an enumeration of the user's file."""

    cls: ClassValue
    name: str
    value: Value


@record(eq=False)
class Super:
    """super(): the attributes that an instance has from behind a class."""

    owner: Instance
    after: ClassValue


@record(eq=False)
class FieldSpec:
    """dataclasses.field(...): Ellipsis stands for no default."""

    default: Value
    factory: Value


AUTO = Marker("auto")
"""enum.auto(): the value that an enumeration gives by itself."""
