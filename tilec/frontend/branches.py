"""`if`: one branch on the host; both, recorded, under a run-time condition.

After a run-time `if`, a name that both paths leave alike keeps its value; any other has none, and reading it is an error
that names T.alloc_var.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import libcst as cst

from tilec.diagnostics import Span
from tilec.frontend import hostops
from tilec.frontend.expressions import condition
from tilec.frontend.machine import Flow, Jump, Machine, is_device
from tilec.frontend.names import assigned
from tilec.frontend.sizes import size_help
from tilec.frontend.values import Frame, Poison, Stale
from tilec.ir.expr import Expr
from tilec.ir.tile import If, Seq, Stmt
from tilec.language.values import Value

_UNBOUND: Any = object()


def run_if(m: Machine, node: cst.If, frame: Frame) -> Flow:
    """Runs or records an `if`, with its elif and else parts."""
    cond = condition(m, node.test, frame)
    if isinstance(cond, bool):
        if cond:
            return m.run(node.body, frame)
        return _orelse(m, node.orelse, frame)
    if m.b.launch is None:
        place = frame.source.span(node.test)
        raise m.fail("TL0213", "this branch needs a value that is only known at run time", place, help=size_help(cond))
    return _device(m, node, cond, frame)


def _orelse(m: Machine, orelse: cst.If | cst.Else | None, frame: Frame) -> Flow:
    match orelse:
        case cst.If():
            return run_if(m, orelse, frame)
        case cst.Else(body=body):
            return m.run(body, frame)
        case None:
            return None


def _device(m: Machine, node: cst.If, cond: Expr, frame: Frame) -> Flow:
    then, other = partial(m.run, node.body, frame), partial(_orelse, m, node.orelse, frame)
    return branch(m, cond, frame, assigned(node), then, other, frame.source.span(node.test), frame.source.span(node))


def branch(
    m: Machine, cond: Expr, frame: Frame, names: frozenset[str], run: Callable[[], Flow], orelse: Callable[[], Flow], place: Span,
    whole: Span | None = None,
) -> Flow:  # fmt: skip
    """Records both sides of a run-time condition that stands at `place`; they assign `names`."""
    span = whole or place
    before = {n: frame.names.get(n, _UNBOUND) for n in names}
    with m.deeper(), m.b.block() as then:
        left = run()
    after_then = {n: frame.names.get(n, _UNBOUND) for n in names}
    _restore(frame, before)
    with m.deeper(), m.b.block() as other:
        right = orelse()
    after_else = {n: frame.names.get(n, _UNBOUND) for n in names}
    for name in names:
        _merge(frame, name, (after_then[name], left), (after_else[name], right), place)
    m.b.span = span
    m.b.emit(If(cond, _seq(then, span), _seq(other, span), place))
    return left if left is not None and right is not None else None


def _seq(body: list[Stmt], span: Span) -> Seq:
    return Seq(tuple(body), span)


def _restore(frame: Frame, names: dict[str, Value]) -> None:
    for name, value in names.items():
        if value is _UNBOUND:
            frame.names.pop(name, None)
        else:
            frame.names[name] = value


def _merge(frame: Frame, name: str, then: tuple[Value, Flow], other: tuple[Value, Flow], place: Span) -> None:
    """What a name is after the `if`: a path that leaves the loop does not count."""
    a, b = then[0], other[0]
    if isinstance(then[1], Jump):
        a = b
    elif isinstance(other[1], Jump):
        b = a
    if a is _UNBOUND and b is _UNBOUND:
        frame.names.pop(name, None)
    elif isinstance(a, Poison) or isinstance(b, Poison):
        frame.names[name] = a if isinstance(a, Poison) else b
    elif same(a, b):
        frame.names[name] = a
    else:
        sample = b if a is _UNBOUND else a
        frame.names[name] = Stale(name, "it is assigned under a condition that is only known at run time", place, sample)


def same(a: Value, b: Value) -> bool:
    """True when two bindings are interchangeable: one object, or equal host values of one type."""
    if a is b:
        return True
    plain = type(a) is type(b) and not is_device(a) and isinstance(a, (int, float, str, tuple, type(None)))
    return plain and hostops.equal(a, b)
