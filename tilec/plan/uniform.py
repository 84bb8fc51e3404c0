"""Which private variables and arrays may differ from thread to thread, so that a branch on them parts the block.

    w = T.alloc_var("int32"); w = 3; while w > 0: w = w - 1        every thread has the same w
    v = T.alloc_var("int32"); if s[tx] > 0: v = 1                  v differs

What is stored under a condition that differs, or a number of times that differs, differs too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilec.ir.expr import WARP_CALLS, Buffer, Call, Expr, Load, Scope, Var, VarKind
from tilec.ir.tile import Atomic, Break, Continue, For, If, Let, Parallel, Stmt, Store, While
from tilec.ir.visit import pointers, stmt_children, stmt_exprs, walk_expr, walk_stmt

_PRIVATE = (Scope.LOCAL, Scope.VAR)


@dataclass(slots=True)
class _Flow:
    """What is known to differ so far; `grown` tells that a walk found more."""

    found: set[Var | Buffer] = field(default_factory=set)
    grown: bool = True

    def differ(self, *exprs: Expr) -> bool:
        """Whether any of the values may differ."""
        for e in exprs:
            for x in walk_expr(e):
                if isinstance(x, Var) and (x.kind is VarKind.THREAD or x in self.found):
                    return True
                if (isinstance(x, Call) and (x.foreign or x.name in WARP_CALLS)) or (isinstance(x, Load) and x.buffer in self.found):
                    return True
        return False

    def add(self, what: Var | Buffer) -> None:
        """Remembers something that differs."""
        self.grown = self.grown or what not in self.found
        self.found.add(what)

    def walk(self, s: Stmt, parted: bool) -> None:
        """One statement; `parted`: not all threads do it, or not equally often."""
        match s:
            case Let(var, value):
                if parted or self.differ(value):
                    self.add(var)
            case Store(buffer, indices, value):
                if buffer.scope in _PRIVATE and (parted or self.differ(*indices, value)):
                    self.add(buffer)
            case Atomic(result=Var() as result):
                self.add(result)  # threads come one after another
            case If(cond):
                parted = parted or self.differ(cond)
            case For(var):
                parted = parted or self.differ(s.start, s.stop, s.step) or self.leaves(s.body)
                if parted:
                    self.add(var)
            case While(cond, body):
                parted = parted or self.differ(cond) or self.leaves(body)
            case Parallel():
                parted = True
            case _:
                pass
        for e in stmt_exprs(s):
            for b, mode in pointers(e):
                if "w" in mode and b.scope in _PRIVATE:
                    self.add(b)
        for child in stmt_children(s):
            self.walk(child, parted)

    def leaves(self, body: Stmt) -> bool:
        """Whether some threads may leave a loop, or a turn of it, before others."""
        return any(
            isinstance(s, If | For | While) and self.differ(*stmt_exprs(s)) and any(isinstance(x, Break | Continue) for x in walk_stmt(s))
            for s in walk_stmt(body)
        )  # fmt: skip


def varying(body: Stmt) -> frozenset[Buffer]:
    """Private buffers whose contents may differ from thread to thread."""
    flow = _Flow()
    while flow.grown:
        flow.grown = False
        flow.walk(body, False)
    return frozenset(x for x in flow.found if isinstance(x, Buffer))
