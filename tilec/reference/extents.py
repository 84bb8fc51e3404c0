"""Run-time extents from the shapes of the arrays that are passed.

    infer_extents(kernel, {"A": zeros((130, 45)), ...}, {}) -> {"M": 130, "K": 45, ...}
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from tilec.ir.expr import Binary, Buffer, Call, Cast, Const, Expr, Var
from tilec.ir.kernel import Kernel
from tilec.ir.visit import walk_expr
from tilec.reference.errors import InputError
from tilec.reference.values import Array


def infer_extents(kernel: Kernel, arrays: Mapping[str, Array], given: Mapping[str, int | float]) -> dict[Var, int]:
    """Values of the extents (and of integer parameters that are extents) from shapes and strides; `given` ones win.

    Raises InputError when shapes contradict each other or an extent stays unknown.
    """
    known: dict[Var, int] = {}
    names = (*kernel.extents, *(p for p in kernel.params if isinstance(p, Var) and p.dtype.is_int))
    for var in names:
        if var.name in given:
            known[var] = int(given[var.name])
    facts = [fact for p in kernel.params if isinstance(p, Buffer) and p.name in arrays for fact in _facts(p, arrays[p.name])]
    while _learn(facts, known):
        pass
    for expr, value, where in facts:
        found = evaluate_extent(expr, known)
        if found is not None and found != value:
            raise InputError(f"{where} is {value}, but {found} is expected")
    missing = [v.name for v in kernel.extents if v not in known]
    if missing:
        told = f"the extent {missing[0]} does" if len(missing) == 1 else f"the extents {', '.join(missing)} do"
        raise InputError(f"{told} not follow from the arrays; pass {' '.join(f'-D {n}=VALUE' for n in missing)}")
    return known


def _facts(buffer: Buffer, array: Array) -> list[tuple[Expr, int, str]]:
    """What an array says: (expression, its value, where that comes from). A stride along one element says nothing."""
    if array.ndim != buffer.rank:
        raise InputError(f"`{buffer.name}` has {buffer.rank} dimension{'s' * (buffer.rank != 1)}, the array has {array.ndim}")
    facts = [(e, n, f"dimension {d} of `{buffer.name}`") for d, (e, n) in enumerate(zip(buffer.shape, array.shape, strict=True))]
    for d, e in enumerate(buffer.strides or ()):
        if array.shape[d] > 1 and array.size:
            facts.append((e, array.strides[d] // array.itemsize, f"stride {d} of `{buffer.name}`"))
    return facts


def _learn(facts: list[tuple[Expr, int, str]], known: dict[Var, int]) -> bool:
    """Solves one fact that has a single unknown; False when there is none."""
    for expr, value, _ in facts:
        unknown = {v for v in walk_expr(expr) if isinstance(v, Var) and v not in known}
        if len(unknown) == 1:
            solved = _solve(expr, value, known)
            if solved is not None:
                known[solved[0]] = solved[1]
                return True
    return False


def _solve(e: Expr, value: int, known: Mapping[Var, int]) -> tuple[Var, int] | None:
    """The unknown of `e == value`, through sums, differences, products and casts."""
    match e:
        case Var():
            return e, value
        case Cast(a):
            return _solve(a, value, known)
        case Binary(op, a, b):
            left, right = evaluate_extent(a, known), evaluate_extent(b, known)
            if op == "add":
                return _solve(b, value - left, known) if left is not None else _solve(a, value - (right or 0), known)
            if op == "sub":
                return _solve(b, left - value, known) if left is not None else _solve(a, value + (right or 0), known)
            factor = left if left is not None else right
            if op == "mul" and factor and value % factor == 0:
                return _solve(b if left is not None else a, value // factor, known)
    return None


def evaluate_extent(e: Expr, known: Mapping[Var, int]) -> int | None:
    """The value of an integer expression over known extents, or None when it needs something else."""
    match e:
        case Const(value):
            return int(value)
        case Var():
            return known.get(e)
        case Cast(a):
            return evaluate_extent(a, known)
        case Binary(op, a, b):
            return _arith(op, evaluate_extent(a, known), evaluate_extent(b, known))
        case Call("ceildiv", (a, b)):
            left, right = evaluate_extent(a, known), evaluate_extent(b, known)
            return None if left is None or not right else -(-left // right)
        case _:
            return None


def _arith(op: str, a: int | None, b: int | None) -> int | None:
    if a is None or b is None or op not in _INTEGERS or (b == 0 and op in ("floordiv", "mod")):
        return None
    return _INTEGERS[op](a, b)


_INTEGERS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "mod": operator.mod,
    "min": min, "max": max,
}  # fmt: skip
