"""`continue` in a loop whose iterations are independent: the rest of the iteration under a condition.

    for i in T.Parallel(64):            parallel i in 64:
        if A[i] < 0:                      if not A[i] < 0:
            continue                        B[i] = A[i]
        B[i] = A[i]

Serial loops keep their `continue`; loops that are spread over threads or vectors have no place to jump to. Where both branches of an
`if` may go on and one of them may not, a variable remembers which it was, so that nothing is recorded twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilec.diagnostics import Span, error
from tilec.ir.dtypes import BOOL, INT32
from tilec.ir.expr import Buffer, Compare, Const, Load, Scope, Unary
from tilec.ir.tile import Alloc, Continue, Control, If, Seq, Stmt, Store
from tilec.ir.visit import walk_stmt
from tilec.language.sync import LEAVE


def without_continue(body: Sequence[Stmt], span: Span) -> list[Stmt]:
    """The statements of an iteration without the Continues that end it; those of loops inside stay."""
    if not any(_skips(s) for s in body):
        return list(body)
    return _Guard(span).whole(body)


def without_returns(body: Sequence[Stmt], span: Span) -> list[Stmt]:
    """The statements of a launch without T.thread_return: what follows it is under a condition. Raises TL0204 for one in a loop."""
    inside = next((s for top in body for s in walk_stmt(top) if isinstance(s, Control) and s.kind == LEAVE), None)
    if inside is None:
        return list(body)
    out = without_continue([_jumping(s) for s in body], span)
    inside = next((s for top in out for s in walk_stmt(top) if isinstance(s, Control) and s.kind == LEAVE), None)
    if inside is not None:
        text = "`T.thread_return` leaves a kernel from its top level or a branch, not from a loop"
        raise error("TL0204", text, inside.span, help="break out of the loop, and return behind it")
    return out


def _jumping(s: Stmt) -> Stmt:
    match s:
        case Control(kind=kind, span=span) if kind == LEAVE:
            return Continue(span)
        case Seq(body):
            return Seq(tuple(map(_jumping, body)), s.span)
        case If(cond, then, orelse):
            return If(cond, _jumping(then), _jumping(orelse), s.span)
        case _:
            return s


class _Guard:
    """Rewrites one iteration."""

    __slots__ = ("flag", "span", "used")

    def __init__(self, span: Span) -> None:
        self.flag, self.used, self.span = Buffer("skipped", INT32, (), Scope.VAR, span=span), False, span

    def whole(self, body: Sequence[Stmt]) -> list[Stmt]:
        out = self.guarded(body, False)
        head: list[Stmt] = [Alloc(self.flag, self.span), Store(self.flag, (), Const(0, INT32), self.span)] if self.used else []
        return head + out

    def guarded(self, body: Sequence[Stmt], told: bool) -> list[Stmt]:
        """`body` without its Continues; with `told` the flag is set where one stood, because statements follow that must know."""
        out: list[Stmt] = []
        for k, s in enumerate(body):
            if not _skips(s):
                out.append(s)
                continue
            if isinstance(s, Continue):
                return [*out, *([Store(self.flag, (), Const(1, INT32), s.span)] if told else [])]
            rest = body[k + 1 :]
            if isinstance(s, Seq):
                return out + self.guarded((*s.body, *rest), told)
            assert isinstance(s, If)
            return out + self.branch(s, rest, told)
        return out

    def branch(self, s: If, rest: Sequence[Stmt], told: bool) -> list[Stmt]:
        """An `if` with a Continue in it, and what follows: the rest moves into the only branch that comes to it."""
        then, other = _parts(s.then), _parts(s.orelse)
        if not rest or _ends(then) or _ends(other):
            first = self.guarded(then if _ends(then) else (*then, *rest), told)
            second = self.guarded(other if _ends(other) else (*other, *rest), told)
            if not first:
                return [If(Unary("not", s.cond, BOOL), _block(second, s.orelse), Seq(()), s.span)] if second else []
            return [If(s.cond, _block(first, s.then), _block(second, s.orelse), s.span)]
        self.used = True
        marked = If(s.cond, _block(self.guarded(then, True), s.then), _block(self.guarded(other, True), s.orelse), s.span)
        test = Compare("eq", Load(self.flag, ()), Const(0, INT32))
        return [marked, If(test, Seq(tuple(self.guarded(rest, told)), s.span), Seq(()), s.span)]


def _block(body: list[Stmt], old: Stmt) -> Seq:
    return Seq(tuple(body), old.span)


def _parts(s: Stmt) -> tuple[Stmt, ...]:
    return s.body if isinstance(s, Seq) else (s,)


def _skips(s: Stmt) -> bool:
    """True when a statement may end the iteration; the loops in it keep their own."""
    match s:
        case Continue():
            return True
        case Seq(body):
            return any(_skips(x) for x in body)
        case If(_, then, orelse):
            return _skips(then) or _skips(orelse)
        case _:
            return False


def _ends(body: Sequence[Stmt]) -> bool:
    """True when no path comes to the end of `body`."""
    for s in body:
        match s:
            case Continue():
                return True
            case Seq(inner) if _ends(inner):
                return True
            case If(_, then, orelse) if _ends(_parts(then)) and _ends(_parts(orelse)):
                return True
    return False
