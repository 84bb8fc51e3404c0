"""Lengths of slices: stop - start in a normal form, so that `(i + 1) * 64 - i * 64` is 64.

    difference(b, stop, start) -> Const(64, INT32);  equal(n * 2, n + n) -> True

An integer expression is a polynomial over its atoms (variables, loads, divisions ...): a sum of products with integer
coefficients. Wrap-around is a ring, so rewriting sums and products keeps the value at every width.
"""

from __future__ import annotations

from tilec.ir.dtypes import INT32, DType
from tilec.ir.expr import Binary, Cast, Const, Expr, Unary
from tilec.language.access import cast_expr
from tilec.language.constants import fits
from tilec.language.promote import common

Monomial = tuple[Expr, ...]
Polynomial = dict[Monomial, int]
_MOST_TERMS = 64  # longer products stay as they are written


def polynomial(e: Expr) -> Polynomial:
    """The normal form of an integer expression; the empty product is the constant term."""
    match e:
        case Const(value) if not e.dtype.is_float:  # a float that strayed here is no number of elements
            return {(): int(value)} if value else {}
        case Unary("neg", a):
            return _scale(polynomial(a), -1)
        case Binary("add", a, b):
            return _add(polynomial(a), polynomial(b))
        case Binary("sub", a, b):
            return _add(polynomial(a), _scale(polynomial(b), -1))
        case Binary("mul", a, b):
            p, q = polynomial(a), polynomial(b)
            return _multiply(p, q) if len(p) * len(q) <= _MOST_TERMS else {(e,): 1}
        case Cast(a) if a.dtype.is_int and e.dtype.is_int and e.dtype.bits > a.dtype.bits >= 32:
            return polynomial(a)  # 32-bit index arithmetic does not wrap in a valid slice
        case _:
            return {(e,): 1}


def _add(p: Polynomial, q: Polynomial) -> Polynomial:
    total = dict(p)
    for term, factor in q.items():
        total[term] = total.get(term, 0) + factor
    return {term: factor for term, factor in total.items() if factor}


def _scale(p: Polynomial, factor: int) -> Polynomial:
    return {term: factor * f for term, f in p.items()}


def _multiply(p: Polynomial, q: Polynomial) -> Polynomial:
    total: Polynomial = {}
    for s, f in p.items():
        for t, g in q.items():
            total = _add(total, {tuple(sorted(s + t, key=hash)): f * g})
    return total


def equal(x: Expr, y: Expr) -> bool:
    """True when two integer expressions are surely equal."""
    return not _add(polynomial(x), _scale(polynomial(y), -1))


def difference(stop: Expr, start: Expr) -> Expr:
    """stop - start as a literal where it does not depend on anything, otherwise as short an expression as was found."""
    terms = _add(polynomial(stop), _scale(polynomial(start), -1))
    dtype = common(stop.dtype, start.dtype)
    if not terms or set(terms) == {()}:
        value = terms.get((), 0)
        return Const(value, INT32 if fits(value, INT32) else dtype)
    return _rebuild(terms, dtype)


def _rebuild(terms: Polynomial, dtype: DType) -> Expr:
    """A sum of products again, positive terms first."""
    total: Expr | None = None
    for term, factor in sorted(terms.items(), key=lambda item: item[1] < 0):
        product = _product(term, abs(factor), dtype)
        if total is None:
            total = product if factor > 0 else Unary("neg", product, dtype)
        else:
            total = Binary("add" if factor > 0 else "sub", total, product, dtype)
    return total if total is not None else Const(0, dtype)


def _product(term: Monomial, factor: int, dtype: DType) -> Expr:
    parts = [cast_expr(atom, dtype) for atom in term]
    if factor != 1 or not parts:
        parts.append(Const(factor, dtype))
    product = parts[0]
    for part in parts[1:]:
        product = Binary("mul", product, part, dtype)
    return product


def constant(e: Expr) -> int | None:
    """The value of an expression that is a literal in its normal form, else None."""
    terms = polynomial(e)
    if not terms:
        return 0
    return terms.get(()) if set(terms) == {()} else None
