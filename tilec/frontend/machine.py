"""The state of one reading and the operations that its parts call on each other.

Expressions call functions, functions run statements, statements evaluate expressions: the parts meet here, in an interface
that `tilec.frontend.evaluate` completes, so that no part imports another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NoReturn

import libcst as cst

from tilec.record import record
from tilec.diagnostics import CompileError, Diagnostic, Label, Span, error
from tilec.frontend.hostops import HostError
from tilec.frontend.request import Request
from tilec.frontend.values import Fatal, Frame, Instance, Iter, KernelValue, Module, Poison, Reported
from tilec.ir.expr import Buffer, Expr, Var
from tilec.ir.kernel import Launch, Param
from tilec.language.builder import Builder
from tilec.language.values import EmptySpec, Ref, Value, Vec

MAX_STEPS = 250_000
MAX_ERRORS = 20


SPREAD = ("parallel", "vectorized")  # kinds of loops whose iterations are spread over threads or vectors


class Jump(Enum):
    """How a block of statements ended other than at its end."""

    BREAK = "break"
    CONTINUE = "continue"


@record
class Return:
    """A block ended at a `return`."""

    value: Value
    span: Span


Flow = Jump | Return | None


@dataclass(slots=True)
class Loop:
    """A loop around the statement being run: kind is host, serial, grid, vectorized, parallel or nested.

    `depth` is the run-time depth of its body; `left` is the flag that a break sets when the loop has an else part.
    """

    kind: str
    depth: int
    left: Buffer | None = None


class Form(ABC):
    """What the evaluator asks the kind of kernel that is being recorded."""

    @abstractmethod
    def size(self, m: Machine, name: str, span: Span) -> Value:
        """The value of one name of T.const: an int, or a run-time extent."""

    @abstractmethod
    def output(self, m: Machine, spec: EmptySpec) -> Value:
        """The tensor that a T.empty stands for."""

    @abstractmethod
    def declare(self, m: Machine, name: str, annotation: cst.BaseExpression, frame: Frame) -> None:
        """Meets `name: annotation` in the body."""

    def parameters(self) -> tuple[Param, ...]:
        """The parameters declared so far, in their order."""
        return ()


@dataclass(slots=True)
class Machine(ABC):
    """One reading: the request, the files, the kernel being recorded, the budgets."""

    request: Request
    b: Builder = field(default_factory=Builder)
    files: list[str] = field(default_factory=list)
    modules: dict[str, Module] = field(default_factory=dict)
    steps: int = 0
    calls: int = 0
    depth: int = 0  # run-time loops and branches around the current statement
    loops: list[Loop] = field(default_factory=list)
    created: list[KernelValue] = field(default_factory=list)  # kernels that the running factory has defined
    errors: list[Diagnostic] = field(default_factory=list)
    dynamics: dict[tuple[str, str], Var] = field(default_factory=dict)
    sizes: dict[str, Expr] = field(default_factory=dict)  # names of T.dynamic in their order: variables, or literals that -D gives
    fresh: set[Buffer] = field(default_factory=set)  # alloc_var results that no name holds yet
    owners: dict[int, tuple[Value, int]] = field(default_factory=dict)  # containers made at a run-time depth above 0
    spoiled: dict[int, tuple[Value, Poison]] = field(default_factory=dict)  # containers that a failed statement may have changed
    recording: bool = False  # inside a kernel function, where an error is an error
    form: Form | None = None  # the kernel being recorded
    launches: list[Launch] = field(default_factory=list)
    notes: list[Diagnostic] = field(default_factory=list)
    used: set[str] = field(default_factory=set)  # -D names that were asked for
    exhausted: int = 0  # statements of modules that have used up the budget of steps
    waiting: dict[str, list[tuple[dict[str, Value], str]]] = field(default_factory=dict)  # by file, names that are Deferred

    @abstractmethod
    def eval(self, node: cst.CSTNode, frame: Frame) -> Value:
        """The value of an expression."""

    @abstractmethod
    def run(self, body: cst.BaseSuite, frame: Frame) -> Flow:
        """Runs the statements of a block."""

    @abstractmethod
    def call(self, function: Value, args: tuple[Value, ...], kwargs: Mapping[str, Value], span: Span) -> Value:
        """Calls any callable value."""

    @abstractmethod
    def generator(self, body: cst.BaseSuite, frame: Frame) -> Value:
        """The iterator of a generator function with this body."""

    @abstractmethod
    def define(self, node: cst.FunctionDef, frame: Frame) -> Value:
        """The value of a `def` statement."""

    @abstractmethod
    def import_module(self, name: str, frame: Frame, level: int, span: Span) -> Value:
        """The module of a dotted name, run if it is a file; poison when it cannot be read."""

    @abstractmethod
    def leaf(self, name: str, frame: Frame, level: int) -> str:
        """The key of a file that has not been run and imports no other file, so that an import of it may wait; else empty."""

    @abstractmethod
    def module_name(self, module: Module, name: str) -> Value:
        """The value that a module's name has now. Raises KeyError when nothing has bound it."""

    @abstractmethod
    def exports(self, module: Value) -> tuple[str, ...]:
        """The names that `from module import *` gives."""

    @abstractmethod
    def attribute(self, owner: Value, name: str, span: Span) -> Value:
        """`owner.name`."""

    @abstractmethod
    def iterate(self, value: Value, span: Span) -> list[Value]:
        """The elements of a host iterable."""

    @abstractmethod
    def stream(self, value: Value, span: Span) -> Iterator[Value]:
        """The elements of a host iterable, each when it is taken."""

    def step(self, node: cst.CSTNode, frame: Frame, count: int = 1) -> None:
        """Spends steps of the budget. Raises Fatal TL0104 when it is used up."""
        self.steps += count
        if self.steps > MAX_STEPS:
            place = frame.source.span(node)
            raise Fatal(*error("TL0104", f"evaluating this file takes more than {MAX_STEPS} steps; it stopped here", place,
                               help="is this loop endless? use `T.serial` for loops that belong into the kernel").diagnostics)  # fmt: skip

    def spend(self, count: int, span: Span) -> None:
        """Spends steps for `count` elements made at once."""
        self.steps += count
        if self.steps > MAX_STEPS:
            text = f"evaluating this file takes more than {MAX_STEPS} steps; it stopped here"
            raise Fatal(*error("TL0104", text, span).diagnostics)

    def fail(self, code: str, message: str, span: Span, *labels: Label, help: str = "") -> CompileError:
        """An error with the chain of call sites; the caller raises it."""
        return error(code, message, span, *labels, help=help, chain=self.b.chain)

    def use(self, value: Value, span: Span) -> Value:
        """`value`, unless it is poison: then its error is raised with this place as a label."""
        if not isinstance(value, Poison):
            if not self.spoiled or id(value) not in self.spoiled:
                return value
            value = self.spoiled[id(value)][1]
        cause = value.cause
        if isinstance(cause, Reported):
            raise cause
        first = cause.diagnostics[0]
        label = Label(span, f"`{value.what}` is needed here")
        labels = first.labels if span == first.span or any(x.text == label.text for x in first.labels) else (*first.labels, label)
        raise CompileError(replace(first, labels=labels), *cause.diagnostics[1:])

    def keep(self, fault: CompileError) -> Reported:
        """Keeps an error of the kernel for the end and gives the mark that stands for it. Too many end the reading."""
        if not isinstance(fault, Reported):
            self.errors.extend(d for d in fault.diagnostics if d not in self.errors)
        if len(self.errors) >= MAX_ERRORS:
            raise Fatal(*self.errors)
        return Reported(*fault.diagnostics)

    @contextmanager
    def host(self, span: Span) -> Iterator[None]:
        """Turns refusals of host operations into errors at `span`."""
        try:
            yield
        except HostError as fault:
            raise self.fail("TL0108", str(fault), span) from None

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Steps out of the kernel being recorded, to evaluate host code that it has just reached."""
        b = self.b
        kept = (self.recording, self.depth, self.loops, b.launch, b.in_parallel, b.chain, b.span, b.hint, self.form)
        self.recording, self.depth, self.loops, self.form = False, 0, [], None
        b.launch, b.in_parallel, b.chain = None, False, ()
        try:
            yield
        finally:
            self.recording, self.depth, self.loops, b.launch, b.in_parallel, b.chain, b.span, b.hint, self.form = kept

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """Marks what runs inside as depending on run-time control flow."""
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def lazy(self, values: Iterator[Value]) -> Iter:
        """An iterator that computes its values when they are taken; in a kernel, where computing records, all at once."""
        return Iter(iter(list(values)) if self.b.launch is not None else _Guarded(self, values))

    def own(self, value: Value) -> Value:
        """Remembers at which run-time depth a container was made, so that later changes of it can be judged."""
        if self.depth and isinstance(value, (list, dict, set, Instance)):
            self.owners[id(value)] = (value, self.depth)
        return value

    def may_change(self, value: Value, span: Span) -> None:
        """Refuses to change a host container from inside a run-time loop or branch that it lives outside of."""
        if self.owners.get(id(value), (None, 0))[1] != self.depth:
            text = "this changes a Python container inside a run-time loop or branch, which happens only once, while compiling"
            raise self.fail("TL0106", text, span, help="keep run-time values in T.alloc_var, T.alloc_local or a tile")


class _Guarded:
    """An iterator that must not be asked for a value by what computes its values."""

    __slots__ = ("busy", "m", "values")

    def __init__(self, m: Machine, values: Iterator[Value]) -> None:
        self.m, self.values, self.busy = m, values, False

    def __iter__(self) -> Iterator[Value]:
        return self

    def __next__(self) -> Value:
        if self.busy:
            raise self.m.fail("TL0108", "this iterator is asked for a value while it computes one", self.m.b.span)
        self.busy = True
        try:
            return next(self.values)
        finally:
            self.busy = False


def is_device(value: Any) -> bool:
    """True for values that exist only on the device."""
    return isinstance(value, (Expr, Buffer, Ref, Vec))


def unreachable(node: Any) -> NoReturn:
    """Says that a kind of node was forgotten: an internal fault, never the user's."""
    raise AssertionError(f"no case for {type(node).__name__}")
