"""Rewrites index expressions into shorter ones of exactly the same value, wrap-around included.

    simplify((by * 128 + row) // 128, facts)  ->  by          when 0 <= row < 128 and the sum cannot wrap

Sums keep the author's shape unless something combines or cancels. Floats are left alone, apart from exact constants.
"""

from __future__ import annotations

from dataclasses import replace
from math import isfinite

from tilec.analysis import intervals as iv
from tilec.analysis.affine import Linear
from tilec.analysis.facts import Facts
from tilec.analysis.proofs import prove
from tilec.analysis.ranges import NO_FACTS, divisor, interval, is_exact, is_integral, linear_interval, within
from tilec.analysis.rounding import round_float
from tilec.ir.dtypes import BOOL, DType, Kind, wrap
from tilec.ir.expr import Binary, Call, Cast, Compare, Const, Expr, Load, Logical, Select, Unary, const_int
from tilec.ir.visit import map_expr

_INVERSE = {"eq": "ne", "ne": "eq", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


def simplify(e: Expr, facts: Facts = NO_FACTS) -> Expr:
    """An expression that equals `e` for all values that `facts` allow, and is no longer than it.

    Loads stay as they are, indices included: the plan knows each by its buffer and indices.
    """
    if isinstance(e, Const | Load):
        return e
    e = _operands(e, facts)
    if isinstance(e, Const):
        return e
    if is_integral(e.dtype) and not isinstance(e, Call):
        lo, hi = interval(e, facts)
        if lo == hi:
            return Const(bool(lo) if e.dtype == BOOL else lo, e.dtype)
    match e:
        case Binary() if e.dtype.is_int:
            return _binary(e, facts)
        case Unary():
            return _unary(e)
        case Compare() | Logical():
            return _condition(e, facts)
        case Select(c, a, b):
            known = prove(c, facts)
            return (a if known else b) if known is not None else a if a == b else e
        case Cast():
            return _cast(e, facts)
        case Call("ceildiv", (a, b)) if e.dtype.is_int:
            return _ceildiv(e, a, b, facts)
        case _:
            return e


def _operands(e: Expr, facts: Facts) -> Expr:
    """`e` with its operands simplified. A sum is one operation on all its terms: partial sums are not looked at alone."""
    inside = _operands if _is_sum(e) else simplify
    return map_expr(e, lambda c: inside(c, facts) if _is_sum(c) else simplify(c, facts))


def _is_sum(e: Expr) -> bool:
    return isinstance(e, Binary) and e.op in ("add", "sub") and e.dtype.is_int


def _number(e: Expr) -> int | None:
    return int(e.value) if isinstance(e, Const) and e.dtype.is_int else None


def fold(op: str, a: int, b: int, dtype: DType) -> int | None:
    """The value of an integer operation on two constants at the width of `dtype`, None when it has no constant rule."""
    match op:
        case "add":
            out = a + b
        case "sub":
            out = a - b
        case "mul":
            out = a * b
        case "floordiv":
            out = iv.floor_div(a, b)
        case "mod":
            out = a - b * iv.floor_div(a, b) if b else 0
        case "truncdiv":
            out = iv.trunc_div(a, b)
        case "truncmod":
            out = a - b * iv.trunc_div(a, b) if b else 0
        case "min":
            out = min(a, b)
        case "max":
            out = max(a, b)
        case "and":
            out = a & b
        case "or":
            out = a | b
        case "xor":
            out = a ^ b
        case "shl":
            out = a << b if 0 <= b < dtype.bits else 0
        case "shr":
            out = a >> b if 0 <= b < dtype.bits else -(a < 0)
        case "pow":
            return int_pow(a, b, dtype)
        case _:
            return None
    return wrap(out, dtype)


def int_pow(a: int, n: int, dtype: DType) -> int:
    """a ** n that wraps; a negative exponent rounds towards zero, so only 1 and -1 have non-zero powers (0 ** -1 is 0)."""
    if n >= 0:
        return wrap(pow(a, n, 1 << dtype.bits), dtype)
    return 1 if a == 1 else (-1 if n % 2 else 1) if a == -1 else 0


def _binary(e: Binary, facts: Facts) -> Expr:
    a, b = _number(e.a), _number(e.b)
    if a is not None and b is not None:
        value = fold(e.op, a, b, e.dtype)
        return e if value is None else Const(value, e.dtype)
    match e.op:
        case "add" | "sub":
            return _sum(e)
        case "mul":
            return _product(e, facts)
        case "floordiv" | "mod":
            return _division(e, facts)
        case "truncdiv" | "truncmod":
            if interval(e.a, facts)[0] >= 0 and interval(e.b, facts)[0] > 0:
                return _division(replace(e, op="floordiv" if e.op == "truncdiv" else "mod"), facts)
            return e
        case "min" | "max":
            return _extreme(e, facts)
        case _:
            return _bits(e)


def _sum(e: Binary) -> Expr:
    """Adds like terms and constants of a chain of + and -; keeps the chain when nothing combines."""
    found: list[tuple[Expr, int]] = []
    _collect(e, 1, found)
    total = Linear()
    constants = 0
    for term, c in found:
        if isinstance(term, Const):
            total = Linear(total.terms, total.const + c * int(term.value))
            constants += 1
        else:
            base, k = _scaled(term)
            total = total.plus(Linear({base: c * k}))
    value = wrap(total.const, e.dtype)
    kept = len(total.terms) + (value != 0)
    if kept == len(found) and (constants == 0 or isinstance(e.b, Const)) and not (isinstance(e.b, Const) and int(e.b.value) < 0):
        return e
    return rebuild(Linear(total.terms, value), e.dtype)


def _collect(e: Expr, sign: int, out: list[tuple[Expr, int]]) -> None:
    match e:
        case Binary("add", a, b):
            _collect(a, sign, out)
            _collect(b, sign, out)
        case Binary("sub", a, b):
            _collect(a, sign, out)
            _collect(b, -sign, out)
        case Unary("neg", a):
            _collect(a, -sign, out)
        case _:
            out.append((e, sign))


def _scaled(e: Expr) -> tuple[Expr, int]:
    match e:
        case Binary("mul", a, Const(value=n)) | Binary("mul", Const(value=n), a):
            return a, int(n)
        case _:
            return e, 1


def rebuild(form: Linear, dtype: DType) -> Expr:
    """The linear form as an expression of type `dtype`: a term with a positive coefficient first, the constant last."""
    items = [(t, _signed(c, dtype)) for t, c in form.terms.items()]
    items = [(t, c) for t, c in items if c]
    items.sort(key=lambda item: item[1] < 0)
    out: Expr | None = None
    for term, c in items:
        scaled = _times(term, c if out is None else abs(c), dtype)
        out = scaled if out is None else Binary("add" if c > 0 else "sub", out, scaled, dtype)
    if out is None:
        return const_int(wrap(form.const, dtype), dtype)
    const = _signed(form.const, dtype)
    if const == 0:
        return out
    return Binary("add" if const > 0 else "sub", out, const_int(wrap(abs(const), dtype), dtype), dtype)


def _signed(n: int, dtype: DType) -> int:
    """n at the width of `dtype`, read as a signed number: so that unsigned sums print x - 1 and not x + 4294967295."""
    return wrap(n, DType("", Kind.INT, dtype.bits))


def _times(term: Expr, c: int, dtype: DType) -> Expr:
    if c == 1:
        return term
    return Unary("neg", term, dtype) if c == -1 else Binary("mul", term, const_int(wrap(c, dtype), dtype), dtype)


def _product(e: Binary, facts: Facts) -> Expr:
    if _number(e.a) is not None:
        e = replace(e, a=e.b, b=e.a)
    n = _number(e.b)
    if n == 1:
        return e.a
    if n == -1 and e.dtype.kind is Kind.INT:
        return Unary("neg", e.a, e.dtype)
    match e.a, n:
        case Binary("mul", x, Const(value=m)), int():
            return _product(replace(e, a=x, b=const_int(wrap(int(m) * n, e.dtype), e.dtype)), facts)
        case Binary("floordiv", x, Const(value=m)), int() if m == n and n > 0 and divisor(x, facts) % n == 0:
            return x
        case Call("ceildiv", (x, Const(value=m))), int() if m == n and n > 0 and divisor(x, facts) % n == 0:
            return x
        case _:
            return e


def _division(e: Binary, facts: Facts) -> Expr:
    """floordiv and mod by a positive constant; other divisors only by ranges."""
    quotient = e.op == "floordiv"
    a, b = interval(e.a, facts), interval(e.b, facts)
    if a[0] >= 0 and a[1] < b[0]:
        return const_int(0, e.dtype) if quotient else e.a
    n = _number(e.b)
    if n is None or n <= 0:
        return e
    if n == 1:
        return e.a if quotient else const_int(0, e.dtype)
    match e.a:
        case Binary("floordiv", x, Const(value=int(m))) if quotient and m > 0 and within((m * n, m * n), e.dtype):
            return _division(Binary("floordiv", x, const_int(m * n, e.dtype), e.dtype), facts)
        case Binary("mod", x, Const(value=int(m))) if not quotient and m > 0 and m % n == 0:
            return _division(replace(e, a=x), facts)
    return _split(e, n, quotient, facts)


def _split(e: Binary, n: int, quotient: bool, facts: Facts) -> Expr:
    """(n * q + r) // n is q + r // n, and (n * q + r) % n is r % n, when the sum does not wrap."""
    found: list[tuple[Expr, int]] = []
    _collect(e.a, 1, found)
    whole, rest = Linear(), Linear()
    for term, c in found:
        if isinstance(term, Const):
            value = c * int(term.value)
            whole, rest = whole.plus(Linear(const=value // n)), rest.plus(Linear(const=value % n))
            continue
        base, k = _scaled(term)
        if not is_exact(term, facts):
            return e
        if k % n == 0:
            whole = whole.plus(Linear({base: c * (k // n)}))
        elif not quotient and divisor(term, facts) % n == 0:
            whole = whole.plus(Linear({term: c}))
        else:
            rest = rest.plus(Linear({base: c * k}))
    if not is_exact(e.a, facts) or not (whole.terms or whole.const):
        return e
    lo, hi = linear_interval(rest, facts)
    if lo >= 0 and hi < n:
        return rebuild(whole if quotient else rest, e.dtype)
    if not quotient and within((lo, hi), e.dtype):
        return replace(e, a=rebuild(rest, e.dtype))
    return e


def _ceildiv(e: Call, a: Expr, b: Expr, facts: Facts) -> Expr:
    x, n = _number(a), _number(b)
    if n is None:
        return e
    if x is not None:
        return Const(wrap(iv.ceil_div(x, n), e.dtype), e.dtype)
    if n == 1:
        return a
    if n > 0 and divisor(a, facts) % n == 0:
        return _division(Binary("floordiv", a, b, e.dtype), facts)
    lo, hi = interval(e, facts)
    return const_int(lo, e.dtype) if lo == hi else e


def _extreme(e: Binary, facts: Facts) -> Expr:
    first = prove(Compare("le" if e.op == "min" else "ge", e.a, e.b), facts)
    if first:
        return e.a
    return e.b if first is False or prove(Compare("le" if e.op == "min" else "ge", e.b, e.a), facts) else e


def _bits(e: Binary) -> Expr:
    a, b = _number(e.a), _number(e.b)
    match e.op:
        case "shl" | "shr" if b == 0:
            return e.a
        case "or" | "xor" if b == 0:
            return e.a
        case "or" | "xor" if a == 0:
            return e.b
        case "and" if b == wrap(-1, e.dtype):
            return e.a
        case "and" if a == wrap(-1, e.dtype):
            return e.b
        case "pow" if b == 1:
            return e.a
        case _:
            return e


def _unary(e: Unary) -> Expr:
    match e:
        case Unary("neg", Const(value=n)) if e.dtype.is_int:
            return Const(wrap(-int(n), e.dtype), e.dtype)
        case Unary("neg", Unary("neg", a)):
            return a
        case Unary("invert", Unary("invert", a)):
            return a
        case Unary("not", Unary("not", a)):
            return a
        case Unary("not", Compare(op, a, b)) if is_integral(a.dtype) or op in ("eq", "ne"):
            return Compare(_INVERSE[op], a, b)
        case _:
            return e


def _condition(e: Compare | Logical, facts: Facts) -> Expr:
    known = prove(e, facts)
    if known is not None:
        return Const(known, BOOL)
    if isinstance(e, Logical):
        neutral = e.op == "and"
        if prove(e.a, facts) is neutral:
            return e.b
        if prove(e.b, facts) is neutral or e.a == e.b:
            return e.a
        return e
    if e.a.dtype.is_int and isinstance(e.a, Const) and not isinstance(e.b, Const):
        mirror = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
        return Compare(mirror.get(e.op, e.op), e.b, e.a)
    return e


def _cast(e: Cast, facts: Facts) -> Expr:
    a, to = e.a, e.dtype
    if a.dtype == to:
        return a
    match a:
        case Const(value=v) if a.dtype.is_int and to.is_int:
            return Const(wrap(int(v), to), to)
        case Const(value=v) if to.is_float and (is_integral(a.dtype) or isfinite(v)):
            rounded = round_float(v if isinstance(v, float) else int(v), to)
            return Const(rounded, to) if isfinite(rounded) else e
        case Cast(inner) if inner.dtype.is_int and a.dtype.is_int and to.is_int and within(interval(inner, facts), a.dtype):
            return inner if inner.dtype == to else Cast(inner, to)
        case _:
            return e
