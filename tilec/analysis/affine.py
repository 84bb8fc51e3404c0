"""Linear forms: an integer expression as a sum of atoms with integer coefficients.

    affine(by * 128 + row - 3)  ->  Linear({by: 128, row: 1}, -3)

Integers wrap, so the form equals the expression modulo 2^width; it equals it exactly when its range fits the type, whatever
the steps in between did. Products of two non-constant sums are expanded into monomials, which are atoms too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field

from tilec.record import record
from tilec.ir.dtypes import DType
from tilec.ir.expr import Binary, Cast, Const, Expr, Unary, Var
from tilec.ir.visit import expr_children

_MAX_TERMS = 32


@record
class Linear:
    """sum(coefficient * term) + const. `terms` keeps the order of first appearance and holds no zero coefficient."""

    terms: dict[Expr, int] = field(default_factory=dict)
    const: int = 0

    def plus(self, other: Linear, scale: int = 1) -> Linear:
        """self + scale * other."""
        terms = dict(self.terms)
        for term, c in other.terms.items():
            total = terms.get(term, 0) + scale * c
            if total:
                terms[term] = total
            else:
                terms.pop(term, None)
        return Linear(terms, self.const + scale * other.const)

    def times(self, scale: int) -> Linear:
        """scale * self."""
        return Linear({t: scale * c for t, c in self.terms.items()}, scale * self.const) if scale else Linear()


def _never(_: Expr) -> bool:
    return False


def _no_value(_: Var) -> Expr | None:
    return None


def affine(e: Expr, exact: Callable[[Expr], bool] = _never, value: Callable[[Var], Expr | None] = _no_value) -> Linear:
    """The linear form of an integer expression.

    `exact(cast)` tells that an integer cast keeps its operand's value and that the operand does not wrap; other casts are
    atoms. `value(var)` gives the expression that a variable stands for, or None.
    """

    return _affine(e, exact, value, {})


def _affine(e: Expr, exact: Callable[[Expr], bool], value: Callable[[Var], Expr | None], known_forms: dict[Var, Linear]) -> Linear:
    """The same; `known_forms` are those of variables met before, so that a chain of `y = x + x` takes one visit each, not 2^n."""
    terms: dict[Expr, int] = {}
    const = 0

    def add_form(form: Linear, scale: int) -> None:
        nonlocal const
        const += scale * form.const
        for term, c in form.terms.items():
            terms[term] = terms.get(term, 0) + scale * c

    def add(e: Expr, scale: int) -> None:
        nonlocal const
        match e:
            case Binary():
                add_binary(e, scale)
            case Const():
                const += scale * int(e.value)
            case Unary(op="neg"):
                add(e.a, -scale)
            case Cast() if exact(e):
                add(e.a, scale)
            case Var() if (known := value(e)) is not None:
                if e not in known_forms:
                    known_forms[e] = _affine(known, exact, value, known_forms)
                add_form(known_forms[e], scale)
            case _:
                terms[e] = terms.get(e, 0) + scale

    def add_binary(e: Binary, scale: int) -> None:
        a, b = e.a, e.b
        if e.op == "add" or e.op == "sub":
            add(a, scale)
            add(b, scale if e.op == "add" else -scale)
        elif e.op == "mul" and isinstance(b, Const):
            add(a, scale * int(b.value))
        elif e.op == "mul":
            add_form(_product(_affine(a, exact, value, known_forms), _affine(b, exact, value, known_forms), e), scale)
        elif e.op == "shl" and isinstance(b, Const) and 0 <= b.value < e.dtype.bits:
            add(a, scale << int(b.value))
        else:
            terms[e] = terms.get(e, 0) + scale

    add(e, 1)
    return Linear({t: c for t, c in terms.items() if c}, const)


def _product(a: Linear, b: Linear, e: Expr) -> Linear:
    if not a.terms:
        return b.times(a.const)
    if not b.terms:
        return a.times(b.const)
    if len(a.terms) * len(b.terms) > _MAX_TERMS or any(t.dtype != e.dtype for t in (*a.terms, *b.terms)):
        return Linear({e: 1})
    out = a.times(b.const).plus(b.times(a.const))
    out = Linear(out.terms, a.const * b.const)
    for s, c in a.terms.items():
        for t, d in b.terms.items():
            out = out.plus(Linear({_monomial(s, t, e.dtype): c * d}))
    return out


def _factors(e: Expr) -> list[Expr]:
    match e:
        case Binary("mul", a, b):
            return _factors(a) + _factors(b)
        case _:
            return [e]


def _monomial(a: Expr, b: Expr, dtype: DType) -> Expr:
    """The product with its factors in one order, so that row * K and K * row are one atom."""
    first, *rest = sorted(_factors(a) + _factors(b), key=repr)
    out = first
    for f in rest:
        out = Binary("mul", out, f, dtype)
    return out


def coefficient(e: Expr, var: Var) -> int | None:
    """The integer factor of `var` in `e`; 0 when `e` does not depend on it, None when `e` is not linear in it."""
    terms = affine(e).terms
    if any(t is not var and depends_on(t, (var,)) for t in terms):
        return None
    return terms.get(var, 0)


def depends_on(e: Expr, variables: Iterable[Var]) -> bool:
    """True when `e` mentions one of `variables`."""
    wanted = frozenset(variables)

    def search(e: Expr) -> bool:
        return e in wanted if isinstance(e, Var) else any(search(c) for c in expr_children(e))

    return search(e)
