"""Which sizes a run-time expression depends on, so that an error can name the -D that makes it a compile-time value."""

from __future__ import annotations

from tilec.ir.expr import Expr, Var, VarKind
from tilec.ir.visit import walk_expr


def size_help(e: Expr) -> str:
    """`give -D K=VALUE` for the extents in an expression; empty when it depends on anything else."""
    free = [v for v in walk_expr(e) if isinstance(v, Var)]
    if not free or any(v.kind is not VarKind.EXTENT for v in free):
        return ""
    return "give " + " ".join(f"-D {name}=VALUE" for name in dict.fromkeys(v.name for v in free))
