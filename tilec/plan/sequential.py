"""Iterations that one thread has to carry out alone, because they read memory that they also change.

Registers that several threads hold alike are computed by all of them, while one of them does the stores. In an iteration such as

    v = total[i]; total[i] = v + part[i]; before[i] = v

with `part` and `before` held by several threads, the others would read `total[i]` before or after that store. When nothing but
memory changes, the thread that stores does all of the iteration; else the loop may not walk such registers at all.
"""

from __future__ import annotations

from tilec.ir.expr import Buffer, Load, Scope
from tilec.ir.tile import Atomic, Print, Stmt, Store
from tilec.ir.visit import storage, stmt_exprs, walk_expr, walk_stmt

_MEMORY = (Scope.GLOBAL, Scope.SHARED)


def rereads(body: Stmt) -> bool:
    """True when an iteration reads memory that it changes, or uses what an atomic found there."""
    stmts = list(walk_stmt(body))
    if any(isinstance(s, Atomic) and s.result is not None for s in stmts):
        return True
    changed = {storage(s.buffer) for s in stmts if isinstance(s, Store | Atomic) and s.buffer.scope in _MEMORY}
    return any(isinstance(e, Load) and storage(e.buffer) in changed for s in stmts for root in stmt_exprs(s) for e in walk_expr(root))


def written_registers(body: Stmt) -> set[Buffer]:
    """The fragments that an iteration writes."""
    return {s.buffer for s in walk_stmt(body) if isinstance(s, Store) and s.buffer.scope is Scope.FRAGMENT}


def leaves_registers(body: Stmt) -> bool:
    """True when a loop body has an effect that copies of a thread must not repeat."""
    return any(
        isinstance(s, Atomic | Print) or (isinstance(s, Store) and s.buffer.scope in _MEMORY) for s in walk_stmt(body)
    )
