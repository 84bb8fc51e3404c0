"""The evaluator: brings expressions, statements, calls and modules together in one machine.

    Evaluator(request).eval(<1 + 2>, frame)  ->  3
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import libcst as cst

from tilec.diagnostics import Span
from tilec.frontend import calls, generators, methods, modules
from tilec.frontend.expressions import closure, evaluate
from tilec.frontend.machine import Flow, Machine
from tilec.frontend.statements import run_block
from tilec.frontend.values import Frame, Module
from tilec.language.values import Namespace, Value


@dataclass(slots=True)
class Evaluator(Machine):
    """A machine whose operations are those of the frontend's parts."""

    def eval(self, node: cst.CSTNode, frame: Frame) -> Value:
        """The value of an expression."""
        return evaluate(self, node, frame)

    def run(self, body: cst.BaseSuite, frame: Frame) -> Flow:
        """Runs the statements of a block."""
        return run_block(self, body, frame)

    def call(self, function: Value, args: tuple[Value, ...], kwargs: Mapping[str, Value], span: Span) -> Value:
        """Calls any callable value."""
        return calls.call(self, function, args, kwargs, span)

    def generator(self, body: cst.BaseSuite, frame: Frame) -> Value:
        """The iterator of a generator function with this body."""
        return generators.generator(self, body, frame)

    def define(self, node: cst.FunctionDef, frame: Frame) -> Value:
        """The value of a `def` statement."""
        return calls.define(self, node, frame, closure(self, frame))

    def import_module(self, name: str, frame: Frame, level: int, span: Span) -> Value:
        """The module of a dotted name; poison when it cannot be read."""
        return modules.import_module(self, name, frame, level, span)

    def leaf(self, name: str, frame: Frame, level: int) -> str:
        """The key of a file whose import may wait; else empty."""
        return modules.leaf(self, name, frame, level)

    def module_name(self, module: Module, name: str) -> Value:
        """The value of a module's name."""
        return modules.module_name(self, module, name)

    def exports(self, module: Value) -> tuple[str, ...]:
        """The names that `from module import *` gives."""
        return modules.exports(self, module)

    def attribute(self, owner: Value, name: str, span: Span) -> Value:
        """`owner.name`."""
        match owner:
            case Namespace():
                return self.use(modules.namespace_attribute(self, owner, name, span), span)
            case Module():
                return self.use(modules.module_attribute(self, owner, name, span), span)
            case _:
                return methods.attribute(self, owner, name, span)

    def iterate(self, value: Value, span: Span) -> list[Value]:
        """The elements of a host iterable."""
        return methods.iterate(self, value, span)

    def stream(self, value: Value, span: Span) -> Iterator[Value]:
        """The elements of a host iterable, each when it is taken."""
        return methods.stream(self, value, span)
