"""Loops: over host values they run while compiling, over `range` and the language's loops they are recorded.

    for ko in T.Pipelined(T.ceildiv(K, 32), num_stages=3): ...   ->  For(ko, 0, ceildiv(K, 32), 1, "pipelined", ...)
    for k, w in enumerate([3, 5]): ...                           ->  the body twice
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import libcst as cst

from tilec.diagnostics import Span
from tilec.frontend.expressions import condition, unpack
from tilec.frontend.machine import SPREAD, Flow, Jump, Loop, Machine, Return
from tilec.frontend.names import assigned, is_var, snapshot, target_names
from tilec.frontend.persistent import record_persistent
from tilec.frontend.sizes import size_help
from tilec.frontend.skips import without_continue
from tilec.frontend.syntax import walk
from tilec.frontend.values import Frame, Poison, Stale
from tilec.ir.dtypes import BOOL, INT32, INT64, DType
from tilec.ir.expr import Buffer, Compare, Const, Expr, Load, Scope, Var, VarKind
from tilec.ir.tile import Alloc, Break, For, If, Parallel, Seq, Stmt, Store, While
from tilec.language.builder import Domain
from tilec.language import arith
from tilec.language.sums import in_order
from tilec.language.values import LoopSpec, Value

__all__ = ["run_for", "run_while", "size_help"]


def run_for(m: Machine, node: cst.For, frame: Frame) -> Flow:
    """Runs or records a `for` statement."""
    span = frame.source.span(node.iter)
    value = m.eval(node.iter, frame)
    if isinstance(value, range) and frame.dsl and m.b.launch is not None:
        value = LoopSpec("serial", value.start, value.stop, value.step, span=span)
    if not isinstance(value, LoopSpec):
        return _host_for(m, node, value, frame)
    if m.b.launch is None:
        if all(isinstance(v, int) for v in (value.start, value.stop, value.step)) and not value.extents:
            return _host_for(m, node, range(value.start, value.stop, value.step), frame)
        raise m.fail("TL0205", "a run-time loop outside of T.Kernel", span, help="move it under `with T.Kernel(...)`")
    return _device_for(m, node, value, frame)


def _host_for(m: Machine, node: cst.For, value: Value, frame: Frame) -> Flow:
    place = frame.source.span(node.iter)
    if m.b.launch is None:
        items = m.stream(value, place)
    else:
        items = iter(snapshot(m, m.iterate(value, place), next(iter(target_names(node.target)), "item"), place))
    for item in items:
        m.step(node, frame)
        unpack(m, node.target, item, frame)
        flow = _once(m, node.body, frame)
        if flow is Jump.BREAK:
            return None
        if isinstance(flow, Return):
            return flow
    return m.run(node.orelse.body, frame) if node.orelse is not None else None


def _once(m: Machine, body: cst.BaseSuite, frame: Frame) -> Flow:
    """One pass of a loop that runs while compiling."""
    m.loops.append(Loop("host", m.depth))
    try:
        return m.run(body, frame)
    finally:
        m.loops.pop()


def run_while(m: Machine, node: cst.While, frame: Frame) -> Flow:
    """Runs or records a `while` statement."""
    endless = _is_true(node.test)
    if m.b.launch is None or not (endless or _runs_on_device(m, node, frame)):
        return _host_while(m, node, frame)
    span = frame.source.span(node)
    carried = _Carried(m, frame, assigned(node.body), span)
    left = _left_flag(m, node, span)
    with m.deeper(), m.b.block() as tests:
        cond = True if endless else condition(m, node.test, frame)
    test: Expr = Const(cond, BOOL) if isinstance(cond, bool) else cond
    with m.deeper(), m.b.block() as body:
        if tests:
            body.extend(tests)
            body.append(If(test, Seq(()), Seq((Break(span),)), span))
            test = Const(True, BOOL)
        _body(m, node.body, frame, Loop("serial", m.depth, left))
    carried.end()
    if endless and not any(map(_leaves, body)):
        raise m.fail("TL0105", "this loop never ends: its condition is always true, and no `break` leaves it", span,
                     help="leave it with `break`, or loop while a T.alloc_var says so")  # fmt: skip
    m.b.emit(While(test, Seq(tuple(body), span), span))
    _else_part(m, node, frame, left, span)
    return None


def _leaves(s: Stmt) -> bool:
    """True when a statement of a loop's body may leave the loop."""
    match s:
        case Break():
            return True
        case Seq(body):
            return any(map(_leaves, body))
        case If():
            return _leaves(s.then) or _leaves(s.orelse)
        case _:
            return False


def _is_true(test: cst.BaseExpression) -> bool:
    match test:
        case cst.Name(value="True") | cst.Integer(value="1"):
            return True
        case _:
            return False


def _runs_on_device(m: Machine, node: cst.While, frame: Frame) -> bool:
    """True when the condition, as it stands before the loop, depends on run-time values. What it records is dropped."""
    with m.b.block():
        return not isinstance(condition(m, node.test, frame), bool)


def _host_while(m: Machine, node: cst.While, frame: Frame) -> Flow:
    while True:
        m.step(node, frame)
        known = condition(m, node.test, frame)
        if not isinstance(known, bool):
            raise m.fail("TL0213", "this `while` becomes a run-time loop after it was started", frame.source.span(node.test),
                         help=size_help(known) or "keep its counter in a T.alloc_var")  # fmt: skip
        if not known:
            return m.run(node.orelse.body, frame) if node.orelse is not None else None
        flow = _once(m, node.body, frame)
        if flow is Jump.BREAK:
            return None
        if isinstance(flow, Return):
            return flow


class _Carried:
    """Names that a run-time loop assigns: unreadable in the body until assigned there, and unreadable afterwards."""

    __slots__ = ("before", "frame", "marks", "names", "span")

    def __init__(self, m: Machine, frame: Frame, names: frozenset[str], span: Span) -> None:
        self.frame, self.names, self.span = frame, names, span
        self.before: dict[str, Value] = {n: frame.names[n] for n in names if n in frame.names}
        self.marks: dict[str, Stale] = {}
        reason = "a run-time loop assigns it, so its value would carry over from one iteration to the next"
        for name, value in self.before.items():
            if not is_var(value) and not isinstance(value, Stale):
                frame.names[name] = self.marks[name] = Stale(name, reason, span, value)

    def end(self) -> None:
        """What the names are after the loop."""
        for name in self.names:
            now = self.frame.names.get(name)
            if isinstance(now, Poison):
                continue
            if now is not None and now is self.marks.get(name):
                self.frame.names[name] = self.before[name]
            elif now is not None and not (is_var(now) and now is self.before.get(name)):
                self.frame.names[name] = Stale(name, "it is assigned in a run-time loop", self.span, now)


def _device_for(m: Machine, node: cst.For, spec: LoopSpec, frame: Frame) -> Flow:
    span = frame.source.span(node)
    targets = tuple(target_names(node.target))
    carried = _Carried(m, frame, assigned(node.body), _header(frame, node))
    if spec.kind in ("grid", "parallel", "persistent") and len(targets) != len(spec.extents):
        text = f"{len(targets)} loop variable{'s' * (len(targets) != 1)} for {len(spec.extents)} extent{'s' * (len(spec.extents) != 1)}"
        raise m.fail("TL0203", text, frame.source.span(node.target))
    if spec.kind not in ("grid", "parallel", "persistent") and len(targets) != 1:
        raise m.fail("TL0203", "this loop has one variable", frame.source.span(node.target))
    places = [frame.source.span(n) for n in walk(node.target) if isinstance(n, cst.Name)]
    left = _left_flag(m, node, span)
    run = _Recorder(m, node, frame, targets, places, left, span)
    match spec.kind:
        case "parallel" if not m.b.in_parallel:
            run.parallel(spec)
        case "parallel" | "grid":
            run.nest(spec)
        case "persistent":
            record_persistent(m, spec, targets, places, span, run.decoded)
        case _:
            run.counted(spec)
    carried.end()
    for name in targets:
        frame.names[name] = Stale(name, "it is the variable of a run-time loop that is over", _header(frame, node))
    _else_part(m, node, frame, left, span)
    return None


def _header(frame: Frame, node: cst.For) -> Span:
    target, values = frame.source.span(node.target), frame.source.span(node.iter)
    return Span(target.file, target.line, target.col, values.end_line, values.end_col)


class _Recorder:
    """Records the body of one `for` statement under the loops that its specification asks for."""

    __slots__ = ("frame", "left", "m", "node", "places", "span", "targets")

    def __init__(
        self, m: Machine, node: cst.For, frame: Frame, targets: tuple[str, ...], places: list[Span], left: Buffer | None, span: Span
    ) -> None:
        self.m, self.node, self.frame = m, node, frame
        self.targets, self.places, self.left, self.span = targets, places, left, span

    def _var(self, k: int, dtype: DType) -> Var:
        var = Var(self.targets[k], dtype, VarKind.LOOP, span=self.places[k])
        self.frame.names[self.targets[k]] = var
        return var

    def _record(self, kind: str) -> Seq:
        domain = self.m.b.domain if kind != "parallel" else None
        if domain is not None:
            domain.repeated += 1
        with self.m.deeper(), self.m.b.block() as body:
            _body(self.m, self.node.body, self.frame, Loop(kind, self.m.depth, self.left))
        if domain is not None:
            domain.repeated -= 1
        return Seq(tuple(without_continue(body, self.span) if kind in SPREAD else body), self.span)

    def counted(self, spec: LoopSpec) -> None:
        """One counted loop: serial, unroll, vectorized or pipelined."""
        m = self.m
        m.b.span = spec.span
        dtype = spec.start.dtype if isinstance(spec.start, Expr) else counter_type(spec.start, spec.stop, spec.step)
        start, stop, step = (arith.as_expr(m.b, v, dtype) for v in (spec.start, spec.stop, spec.step))
        var = self._var(0, dtype)
        body = self._record("vectorized" if spec.kind == "vectorized" else "serial")
        place = _outline(self.span, spec)
        m.b.emit(For(var, start, stop, step, spec.kind, body, spec.options.get("num_stages"), place, spec.options.get("unroll_factor", 0)))

    def parallel(self, spec: LoopSpec) -> None:
        """One nest of independent iterations."""
        m = self.m
        extents = tuple(arith.as_expr(m.b, e, counter_type(e)) for e in spec.extents)
        variables = tuple(self._var(k, e.dtype) for k, e in enumerate(extents))
        m.b.in_parallel, m.b.domain = True, Domain(variables, extents)
        try:
            body = self._record("parallel")
        finally:
            domain, m.b.in_parallel, m.b.domain = m.b.domain, False, None
        for s in (*domain.before, in_order(m.b, Parallel(variables, extents, body, _outline(self.span, spec))), *domain.after):
            m.b.emit(s)

    def nest(self, spec: LoopSpec) -> None:
        """Nested serial loops, for T.grid and for T.Parallel inside of T.Parallel."""
        m = self.m
        extents = [arith.as_expr(m.b, e, counter_type(e)) for e in spec.extents]
        variables = [self._var(k, e.dtype) for k, e in enumerate(extents)]
        kind = "nested" if spec.kind == "parallel" else "serial" if len(extents) == 1 else "grid"
        body: Stmt = self._record(kind)
        for var, extent in zip(reversed(variables), reversed(extents), strict=True):
            body = For(var, Const(0, var.dtype), extent, Const(1, var.dtype), "serial", body, None, _outline(self.span, spec))
        m.b.emit(body)

    def decoded(self, values: list[Expr]) -> Seq:
        """The body of a loop whose variables are computed from a counter."""
        for name, value in zip(self.targets, values, strict=True):
            self.frame.names[name] = value
        return self._record("serial")


def _outline(span: Span, spec: LoopSpec) -> Span:
    """The first line of a loop: from `for` to the end of what it runs over."""
    if spec.span.line and spec.span.file == span.file:
        return Span(span.file, span.line, span.col, spec.span.end_line, spec.span.end_col)
    return span


def counter_type(*bounds: Value) -> DType:
    """The type of a loop variable: int64 when a bound is, or does not fit int32."""
    wide = any(e.dtype.bits == 64 if isinstance(e, Expr) else not -(1 << 31) <= e < 1 << 31 for e in bounds)
    return INT64 if wide else INT32


def _body(m: Machine, body: cst.BaseSuite, frame: Frame, loop: Loop) -> None:
    with _inside(m, loop):
        m.run(body, frame)


@contextmanager
def _inside(m: Machine, loop: Loop) -> Iterator[None]:
    m.loops.append(loop)
    try:
        yield
    finally:
        m.loops.pop()


def _left_flag(m: Machine, node: cst.For | cst.While, span: Span) -> Buffer | None:
    """The variable that tells whether a loop with an else part was left by `break`."""
    if node.orelse is None or not any(isinstance(n, cst.Break) for n in walk(node.body)):
        return None
    flag = Buffer("left_early", INT32, (), Scope.VAR, span=span)
    m.b.emit(Alloc(flag, span))
    m.b.emit(Store(flag, (), Const(0, INT32), span))
    return flag


def _else_part(m: Machine, node: cst.For | cst.While, frame: Frame, left: Buffer | None, span: Span) -> None:
    """The else part of a recorded loop: it runs unless the loop was left by `break`."""
    if node.orelse is None:
        return
    if left is None:
        m.run(node.orelse.body, frame)
        return
    carried = _Carried(m, frame, assigned(node.orelse.body), span)
    for name, value in carried.before.items():
        frame.names[name] = value
    with m.deeper(), m.b.block() as body:
        m.run(node.orelse.body, frame)
    carried.end()
    m.b.emit(If(Compare("eq", Load(left, ()), Const(0, INT32)), Seq(tuple(body), span), Seq(()), span))
