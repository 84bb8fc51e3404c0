"""Names without a value yet, and T.let, which gives them one.

    v = T.int32()
    T.let(v, bx * 128 + tx)                 ->  Let(v, bx * 128 + tx): v is a constant from here on
    T.Let(A[u] + 1.0, where={u: bx})        ->  A[bx] + 1.0
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilec.diagnostics import Label
from tilec.ir.dtypes import DType
from tilec.ir.expr import Expr, Var, VarKind
from tilec.ir.tile import Let, Seq, Stmt
from tilec.ir.visit import stmt_children, stmt_exprs, substitute, walk_expr
from tilec.language.access import as_expr, dtype_of
from tilec.language.bind import Entry, works
from tilec.language.builder import Builder
from tilec.language.context import in_kernel
from tilec.language.show import describe

_HOW = "give it one with T.let(name, value), or assign the value to a name: `x = ...`"


def Var_(b: Builder, name: Any = "", dtype: Any = "int32", span: Any = None) -> Var:
    """A name that T.let or T.Let gives a value. In annotations, an expression."""
    return unbound(b, dtype_of(b, dtype), str(name))


def var(b: Builder, dtype: Any = "int32", name: Any = "") -> Var:
    """T.Var, the type first."""
    return Var_(b, name, dtype)


def unbound(b: Builder, dtype: DType, name: str = "") -> Var:
    """A variable that has no value yet: `x = T.int32()`."""
    if dtype.lanes > 1 or not (dtype.is_int or dtype.is_float):
        raise b.error("TL0302", f"a name for T.let must be of a number's type, not {dtype}")
    made = Var(name or b.hint or "value", dtype, VarKind.LET, span=b.span)
    b.unbound.append(made)
    return made


def let(b: Builder, v: Any, value: Any, body: Any = None) -> Expr:
    """Gives the name `v` (of T.int32() or T.Var) its value, for what follows or the `with` it stands in; with a body, the body's
    value under it."""
    name = _name(b, v)
    found = as_expr(b, value, name.dtype)
    if body is not None:
        return substitute(as_expr(b, body), {name: found})
    in_kernel(b, "let")
    b.emit(Let(name, found, b.span))
    return name


def Let_(b: Builder, expr: Any, where: Any) -> Expr:
    """The value of an expression in which names of T.Var have the values of `where`: T.Let(A[u] + 1, where={u: i})."""
    if not isinstance(where, Mapping) or not where:
        raise b.error("TL0206", f"`where` must be a dict of names and values, got {describe(where)}")
    table: dict[Var, Expr] = {}
    for key, value in where.items():
        name = _name(b, key)
        table[name] = as_expr(b, value, name.dtype)
    return substitute(as_expr(b, expr), table)


def _name(b: Builder, v: Any) -> Var:
    if isinstance(v, Var) and any(v is u for u in b.unbound):
        return v
    text = f"T.let names what has no value yet, got {describe(v)}"
    raise b.error("TL0206", text, help="make the name with T.int32() or T.Var, or assign the value to a name: `x = ...`")


def check_bound(b: Builder, body: Stmt) -> None:
    """Raises TL0201 for a name of T.Var that is used where T.let has not given it a value, or given two."""
    if b.unbound:
        _check(b, body, set())


def _check(b: Builder, s: Stmt, known: set[Var]) -> None:
    for e in stmt_exprs(s):
        for x in walk_expr(e):
            if x in b.unbound and x not in known:
                assert isinstance(x, Var)
                raise b.error("TL0201", f"`{x.name}` is used where it has no value", Label(x.span, "made here"), span=s.span, help=_HOW)
    if isinstance(s, Let):
        if s.var in known and s.var in b.unbound:
            raise b.error("TL0206", f"`{s.var.name}` has a value already", Label(s.var.span, "made here"), span=s.span,
                          help="a name of T.let is a constant; T.alloc_var makes a variable")  # fmt: skip
        known.add(s.var)
        return
    for child in stmt_children(s):
        _check(b, child, known if isinstance(s, Seq) else set(known))


ENTRIES: tuple[Entry, ...] = works(let) + works(Let_, name="Let", host=True) + works(Var_, name="Var", host=True) + works(var, host=True)
