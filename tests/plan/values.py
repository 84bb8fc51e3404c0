"""Evaluates the small index expressions that the planner makes, for tests."""

from __future__ import annotations

from collections.abc import Mapping

from tilec.ir.expr import Binary, Compare, Const, Expr, Logical, Unary, Var


def value(e: Expr, env: Mapping[Var, int]) -> int:
    """The value of an expression of literals, variables and arithmetic."""
    match e:
        case Const(v):
            return int(v)
        case Var():
            return env[e]
        case Unary("neg", a):
            return -value(a, env)
        case Binary(op, a, b):
            x, y = value(a, env), value(b, env)
            table = {"add": x + y, "sub": x - y, "mul": x * y, "floordiv": x // y if y else 0, "mod": x % y if y else 0}
            return table[op]
        case Compare(op, a, b):
            x, y = value(a, env), value(b, env)
            return int({"eq": x == y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[op])
        case Logical("and", a, b):
            return value(a, env) and value(b, env)
        case _:
            raise AssertionError(e)
