"""Element-wise loops that fill a shared tile from a tensor as a copy would, from places that are computed or read.

    for i, j in T.Parallel(64, 32): tile[i, j] = T.if_then_else(inside, X[rows[i], k * 32 + j], 0)
 -> tile[i, j] = X[rows[i], k * 32 + j] if inside else 0, which can be copied in chunks and ahead of time
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilec.ir.expr import Cast, Const, Expr, Load, Logical, Scope, Select, Unary, Var
from tilec.ir.dtypes import BOOL
from tilec.ir.tile import If, Let, Parallel, Stmt, Store
from tilec.ir.visit import flat, map_stmt, substitute, walk_expr
from tilec.plan.domains import static, static_shape


def gather(s: Parallel, lets: Mapping[Var, Expr]) -> Parallel | None:
    """The loop as one store of `load` or of `load if cond else 0` to a whole shared tile; None for other loops.

    Names bound in it, and those of `lets`, are spelled out.
    """
    known = dict(lets)
    body = flat(s.body)
    for x in body[:-1]:
        if not isinstance(x, Let):
            return None
        known[x.var] = x.value
    store = _store(body[-1]) if body else None
    if store is None or store.buffer.scope is not Scope.SHARED or store.buffer.view_of is not None:
        return None
    if store.indices != s.vars or tuple(map(static, s.extents)) != static_shape(store.buffer):
        return None
    found = _selected(_inlined(store.value, known), None)
    if found is None:
        return None
    load, cond = found
    if load.buffer.scope is not Scope.GLOBAL or load.dtype != store.buffer.dtype:
        return None
    zero = Const(0.0 if load.dtype.is_float else 0, load.dtype)
    value: Expr = load if cond is None else Select(cond, load, zero, load.dtype)
    done = replace(s, body=replace(store, value=value))
    inlined = map_stmt(done, lambda e: _inlined(e, known), lambda child: child)
    assert isinstance(inlined, Parallel)
    return inlined


def source(s: Parallel) -> tuple[Load, Expr | None]:
    """The element that a gathering loop reads, and the condition under which it does."""
    assert isinstance(s.body, Store)
    value = s.body.value
    if isinstance(value, Select):
        assert isinstance(value.a, Load)
        return value.a, value.cond
    assert isinstance(value, Load)
    return value, None


def _inlined(e: Expr, known: Mapping[Var, Expr]) -> Expr:
    while any(isinstance(x, Var) and x in known for x in walk_expr(e)):
        e = substitute(e, known)
    return e


def _store(s: Stmt) -> Store | None:
    """A store, or a branch that stores to one place either way, as a store."""
    if isinstance(s, Store):
        return s
    if not isinstance(s, If):
        return None
    arms = [flat(s.then), flat(s.orelse)]
    if any(len(a) != 1 for a in arms):
        return None
    yes, no = (_store(a[0]) for a in arms)
    if yes is None or no is None or yes.buffer is not no.buffer or yes.indices != no.indices:
        return None
    return replace(yes, value=Select(s.cond, yes.value, no.value, yes.buffer.dtype))


def _selected(e: Expr, cond: Expr | None) -> tuple[Load, Expr | None] | None:
    """The element that `e` is where it is not 0, and when that is."""
    match e:
        case Load():
            return e, cond
        case Cast(Load() as load, dtype) if dtype == load.dtype:
            return load, cond
        case Select(test, a, b) if _zero(b):
            return _selected(a, test if cond is None else Logical("and", cond, test))
        case Select(test, a, b) if _zero(a):
            other = Unary("not", test, BOOL)
            return _selected(b, other if cond is None else Logical("and", cond, other))
        case _:
            return None


def _zero(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 0
