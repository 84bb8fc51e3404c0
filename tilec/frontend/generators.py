"""Generator functions: their statements run as far as the next value that is asked for.

    def gen():
        SEEN.append(1)
        yield 1            next(gen()) -> 1, and SEEN has one element; gen() alone changes nothing

A statement without a `yield` runs as everywhere else; those around one are the few below.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import lru_cache

import libcst as cst

from tilec.frontend.expressions import condition, unpack
from tilec.frontend.machine import Flow, Jump, Loop, Machine, Return
from tilec.frontend.statements import run_statement
from tilec.frontend.syntax import walk
from tilec.frontend.values import Frame, Iter
from tilec.language.values import Value

Steps = Generator[Value, None, Flow]


def generator(m: Machine, body: cst.BaseSuite, frame: Frame) -> Iter:
    """The iterator that calling a generator function gives. In a kernel its statements are recorded at once."""
    return m.lazy(_resumed(m, _block(m, body, frame)))


def _resumed(m: Machine, steps: Steps) -> Iterator[Value]:
    """The values of a generator, whose loops are its own whoever asks for the next one."""
    own: list[Loop] = []
    while True:
        kept, m.loops = m.loops, own
        try:
            value = next(steps)
        except StopIteration:
            return
        finally:
            own, m.loops = m.loops, kept
        yield value


@lru_cache(maxsize=1024)
def _yields(node: cst.CSTNode) -> bool:
    return any(isinstance(n, cst.Yield) for n in walk(node, into_functions=False))


def _block(m: Machine, body: cst.CSTNode, frame: Frame) -> Steps:
    match body:
        case cst.IndentedBlock() | cst.SimpleStatementLine() | cst.SimpleStatementSuite():
            for part in body.body:
                flow = yield from _block(m, part, frame) if isinstance(part, cst.SimpleStatementLine) else _statement(m, part, frame)
                if flow is not None:
                    return flow
            return None
        case _:
            return (yield from _statement(m, body, frame))


def _statement(m: Machine, node: cst.CSTNode, frame: Frame) -> Steps:
    if not _yields(node) or isinstance(node, (cst.FunctionDef, cst.ClassDef)):
        return run_statement(m, node, frame)
    m.step(node, frame)
    match node:
        case cst.Expr(value=cst.Yield() as given):
            yield from _values(m, given, frame)
        case cst.If(test=test, body=body, orelse=orelse):
            if _known(m, test, frame):
                return (yield from _block(m, body, frame))
            if orelse is not None:
                return (yield from _statement(m, orelse, frame) if isinstance(orelse, cst.If) else _block(m, orelse.body, frame))
        case cst.For() | cst.While():
            return (yield from _loop(m, node, frame))
        case cst.Try(body=body, orelse=orelse, finalbody=last):
            flow = yield from _block(m, body, frame)
            if flow is None and orelse is not None:
                flow = yield from _block(m, orelse.body, frame)
            after = (yield from _block(m, last.body, frame)) if last is not None else None
            return flow if after is None else after
        case _:
            place = frame.source.span(node)
            raise m.fail("TL0102", "a `yield` in this place is not supported", place, help="let it be a statement of its own")
    return None


def _values(m: Machine, node: cst.Yield, frame: Frame) -> Iterator[Value]:
    span = frame.source.span(node)
    match node.value:
        case None:
            yield None
        case cst.From(item=item):
            yield from m.stream(m.eval(item, frame), span)
        case value:
            yield m.eval(value, frame)


def _known(m: Machine, test: cst.BaseExpression, frame: Frame) -> bool:
    found = condition(m, test, frame)
    if not isinstance(found, bool):
        raise m.fail("TL0213", "a generator's conditions need values that are known while compiling", frame.source.span(test))
    return found


def _loop(m: Machine, node: cst.For | cst.While, frame: Frame) -> Steps:
    for _ in _rounds(m, node, frame):
        m.step(node, frame)
        m.loops.append(Loop("host", m.depth))
        flow = yield from _block(m, node.body, frame)
        m.loops.pop()
        if flow is Jump.BREAK:
            return None
        if isinstance(flow, Return):
            return flow
    return (yield from _block(m, node.orelse.body, frame)) if node.orelse is not None else None


def _rounds(m: Machine, node: cst.For | cst.While, frame: Frame) -> Iterator[None]:
    """One element for each round of a loop, with the names of a `for` bound."""
    if isinstance(node, cst.While):
        while _known(m, node.test, frame):
            yield
        return
    for item in m.stream(m.eval(node.iter, frame), frame.source.span(node.iter)):
        unpack(m, node.target, item, frame)
        yield
