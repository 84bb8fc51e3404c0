"""Ranges and divisors of integer expressions, with wrap-around taken into account.

    bounds(by * 128 + row, facts) -> (0, 4095)      divisor(k * 32 + 8, facts) -> 8

`bounds` is about the value that the expression has at its type's width: where a sum may wrap, the answer is the type's range.
"""

from __future__ import annotations

from math import gcd
from operator import mul

from tilec.analysis import intervals as iv
from tilec.analysis.affine import Linear, affine
from tilec.analysis.facts import Facts
from tilec.analysis.intervals import Interval
from tilec.ir.dtypes import BOOL, INT32, DType, Kind, int_range
from tilec.ir.expr import Binary, Call, Cast, Compare, Const, Expr, Load, Logical, Reinterpret, Select, Unary, Var

NO_FACTS = Facts()


def within(inner: Interval, dtype: DType) -> bool:
    """True when every value of the interval is one of `dtype`."""
    lo, hi = int_range(dtype)
    return lo <= inner[0] and inner[1] <= hi


def is_integral(dtype: DType) -> bool:
    """True for integers and bool: the types that have ranges."""
    return dtype.is_int or dtype.kind is Kind.BOOL


def bounds(e: Expr, facts: Facts = NO_FACTS) -> tuple[int | None, int | None]:
    """Smallest and largest value of `e`, inclusive; (None, None) for floats and handles."""
    return interval(e, facts) if is_integral(e.dtype) else (None, None)


def interval(e: Expr, facts: Facts = NO_FACTS) -> Interval:
    """`bounds` of an integer or bool expression, never None."""
    if facts is NO_FACTS:
        facts = Facts()  # that one is shared by all callers and remembers nothing
    if isinstance(e, Var) and e in facts.ranges:
        return facts.ranges[e]
    if id(e) in facts.seen:
        return facts.seen[id(e)][1]
    found = _interval(e, facts)
    known = found if found is not None and within(found, e.dtype) else int_range(e.dtype)
    if isinstance(e, Var):
        facts.ranges[e] = known
    elif not isinstance(e, Const):
        facts.seen[id(e)] = e, known
    return known


def linear(e: Expr, facts: Facts = NO_FACTS) -> Linear:
    """The linear form of `e`, through casts that keep the value and through known Lets."""

    def keeps_value(c: Expr) -> bool:
        if not (isinstance(c, Cast) and c.a.dtype.is_int and c.dtype.is_int):
            return False
        whole = linear_interval(linear(c.a, facts), facts)
        return within(whole, c.a.dtype) and within(whole, c.dtype)

    return affine(e, keeps_value, lambda v: facts.about(v).equals)


def linear_interval(form: Linear, facts: Facts = NO_FACTS) -> Interval:
    """The range of a linear form over the exact integers."""
    lo = hi = form.const
    for term, c in form.terms.items():
        a, b = iv.scale(interval(term, facts), c)
        lo, hi = lo + a, hi + b
    return lo, hi


def is_exact(e: Expr, facts: Facts = NO_FACTS) -> bool:
    """True when the value of `e` is its linear form over the exact integers: no wrap-around in the end."""
    return within(linear_interval(linear(e, facts), facts), e.dtype)


def cannot_overflow(e: Binary | Unary, facts: Facts = NO_FACTS) -> bool:
    """True when the last operation of an integer add, sub, mul, shl, neg ... stays within the type for the operands' values."""
    if not e.dtype.is_int:
        return False
    if e.op == "invert":
        return e.dtype.kind is Kind.INT  # ~x of an unsigned number wraps always, of a signed one never
    raw = _operation(e, facts)
    if raw is not None and within(raw, e.dtype):
        return True
    if not _is_linear(e):
        return False
    # x + y - y: the operands equal their linear forms, so the result is the difference of those.
    operands = (e.a, e.b) if isinstance(e, Binary) else (e.a,)
    return all(is_exact(a, facts) for a in (e, *operands))


def _is_linear(e: Binary | Unary) -> bool:
    return e.op in ("add", "sub", "neg") or (isinstance(e, Binary) and e.op == "mul" and (isinstance(e.a, Const) or isinstance(e.b, Const)))


def _is_ring(e: Binary | Unary) -> bool:
    return e.op in ("add", "sub", "mul", "neg")


def fits_int32(e: Expr, facts: Facts = NO_FACTS) -> bool:
    """True when `e` is proven not to wrap at the width of its type, its products included, and to lie in the range of int32."""
    form = linear(e, facts)
    lo = hi = form.const
    for term, c in form.terms.items():
        a, b = iv.scale(_true_product(term, facts), c)
        lo, hi = lo + a, hi + b
    return within((lo, hi), INT32) and within((lo, hi), e.dtype)


def passes_end(stop: Expr, step: int | None, facts: Facts = NO_FACTS) -> bool:
    """True when a counter that a loop advances by `step` (None: not known) up to `stop` may leave its type in the last step."""
    if step is None:
        return True
    lo, hi = interval(stop, facts)
    last = hi - 1 + step if step > 0 else lo + 1 + step
    return not within((last, last), stop.dtype)


def _true_product(term: Expr, facts: Facts) -> Interval:
    """The range of a monomial over the exact integers: its own type may be too narrow for it."""
    match term:
        case Binary("mul", a, b):
            return iv.corners(mul, _true_product(a, facts), _true_product(b, facts))
        case _:
            return interval(term, facts)


def _interval(e: Expr, facts: Facts) -> Interval | None:
    match e:
        case Const(value=n):
            return int(n), int(n)
        case Var():
            return _variable(e, facts)
        case Binary() | Unary():
            return _arithmetic(e, facts)
        case Compare() | Logical():
            known = decide(e, facts)
            return None if known is None else (int(known), int(known))
        case Select(c, a, b):
            known = decide(c, facts)
            if known is not None:
                return interval(a if known else b, facts)
            return iv.join(interval(a, facts), interval(b, facts))
        case Cast(a):
            return _cast(a, e.dtype, facts)
        case Call():
            return _call(e, facts)
        case Load() | Reinterpret():
            return None


def _variable(v: Var, facts: Facts) -> Interval:
    lo, hi = facts.numbers(v) if v.dtype.is_int else int_range(v.dtype)
    entry = facts.about(v)
    if entry.equals is not None:
        a, b = interval(entry.equals, facts)
        lo, hi = max(lo, a), min(hi, b)
    if entry.below is not None:
        hi = min(hi, interval(entry.below, facts)[1] - 1)
    if entry.at_least is not None:
        lo = max(lo, interval(entry.at_least, facts)[0])
    lo, hi = lo + -lo % entry.divisor, hi - hi % entry.divisor
    # Contradicting facts describe code that never runs; any non-empty range will do there.
    return (lo, hi) if lo <= hi else int_range(v.dtype)


def _cast(a: Expr, to: DType, facts: Facts) -> Interval | None:
    if not is_integral(a.dtype):
        return None
    inner = interval(a, facts)
    if to == BOOL:
        return (0, 0) if inner == (0, 0) else (1, 1) if inner[0] > 0 or inner[1] < 0 else None
    return inner


def _arithmetic(e: Binary | Unary, facts: Facts) -> Interval | None:
    if e.dtype.is_int and (_is_ring(e) or e.op == "shl"):
        form = linear(e, facts)
        if list(form.terms) != [e]:
            whole = linear_interval(form, facts)
            direct = _operation(e, facts) if e.op == "mul" else None
            if not within(whole, e.dtype):
                return direct
            if direct is None or not within(direct, e.dtype):
                return whole
            return max(whole[0], direct[0]), min(whole[1], direct[1])
    return _operation(e, facts)


def _operation(e: Binary | Unary, facts: Facts) -> Interval | None:
    """The range of the last operation over the exact integers; None when nothing is known."""
    a = interval(e.a, facts)
    if isinstance(e, Unary):
        return _unary(e, a)
    b = interval(e.b, facts)
    match e.op:
        case "add":
            return a[0] + b[0], a[1] + b[1]
        case "sub":
            return a[0] - b[1], a[1] - b[0]
        case "mul":
            return iv.corners(mul, a, b)
        case "floordiv":
            return iv.divide(iv.floor_div, a, b)
        case "truncdiv":
            return iv.divide(iv.trunc_div, a, b)
        case "mod":
            return iv.floormod(a, b)
        case "truncmod":
            return iv.truncmod(a, b)
        case "min":
            return min(a[0], b[0]), min(a[1], b[1])
        case "max":
            return max(a[0], b[0]), max(a[1], b[1])
        case "and" | "or" | "xor":
            return iv.bitwise(e.op, a, b)
        case "shl" | "shr":
            return _shift(e.op, a, b, e.dtype)
        case "pow":
            return iv.corners(pow, a, b) if a[0] >= 1 and b[0] >= 0 and b[1] <= 64 else None
        case _:
            return None


def _unary(e: Unary, a: Interval) -> Interval:
    match e.op:
        case "neg":
            return -a[1], -a[0]
        case "not":
            return 1 - a[1], 1 - a[0]
        case _:
            top = int_range(e.dtype)[1] if e.dtype.kind is not Kind.INT else -1
            return top - a[1], top - a[0]


def _shift(op: str, a: Interval, b: Interval, dtype: DType) -> Interval | None:
    if b[0] < 0:
        # A negative count acts like one beyond the width: nothing is left but the sign.
        return None
    if op == "shr":
        return iv.corners(lambda x, n: x >> min(n, dtype.bits), a, b)
    return iv.corners(lambda x, n: x << n, a, b) if b[1] < dtype.bits else None


def _call(e: Call, facts: Facts) -> Interval | None:
    if not e.args or not all(is_integral(a.dtype) for a in e.args):
        return None
    a = interval(e.args[0], facts)
    match e.name, len(e.args):
        case "ceildiv", 2:
            return iv.divide(iv.ceil_div, a, interval(e.args[1], facts))
        case "abs", 1:
            return (0 if a[0] <= 0 <= a[1] else min(abs(a[0]), abs(a[1]))), max(abs(a[0]), abs(a[1]))
        case ("popcount" | "clz" | "ffs"), 1:
            return 0, e.args[0].dtype.bits
        case _:
            return None


def decide(cond: Expr, facts: Facts = NO_FACTS) -> bool | None:
    """The truth of a condition by the ranges of its operands alone; `proofs.prove` knows more."""
    match cond:
        case Const(value=n):
            return bool(n)
        case Logical(op, a, b):
            x, y = decide(a, facts), decide(b, facts)
            stops = op == "or"
            if x is stops or y is stops:
                return stops
            return (not stops) if x is not None and y is not None else None
        case Unary("not", a):
            inner = decide(a, facts)
            return None if inner is None else not inner
        case Compare(op, a, b) if is_integral(a.dtype):
            return compare(op, interval(a, facts), interval(b, facts))
        case Select(c, a, b):
            known = decide(c, facts)
            return None if known is None else decide(a if known else b, facts)
        case _:
            return None


def compare(op: str, a: Interval, b: Interval) -> bool | None:
    """The truth of `a op b` for all values of two intervals, or None."""
    match op:
        case "lt":
            return True if a[1] < b[0] else False if a[0] >= b[1] else None
        case "le":
            return True if a[1] <= b[0] else False if a[0] > b[1] else None
        case "gt":
            return compare("lt", b, a)
        case "ge":
            return compare("le", b, a)
        case _:
            apart = a[1] < b[0] or b[1] < a[0]
            same = True if a[0] == a[1] == b[0] == b[1] else False if apart else None
            return same if op == "eq" or same is None else not same


def divisor(e: Expr, facts: Facts = NO_FACTS) -> int:
    """The largest known number that divides every value of the integer expression `e`; 0 when `e` is 0, 1 when nothing is known."""
    if not is_integral(e.dtype):
        return 1
    lo, hi = interval(e, facts)
    if lo == hi:
        return abs(lo)
    if facts is NO_FACTS:
        return _divisor(e, Facts())
    if id(e) not in facts.divisors:
        facts.divisors[id(e)] = e, _divisor(e, facts)
    return facts.divisors[id(e)][1]


def linear_divisor(form: Linear, facts: Facts = NO_FACTS) -> int:
    """The largest known divisor of a linear form over the exact integers."""
    return gcd(form.const, *(c * divisor(t, facts) for t, c in form.terms.items()))


def _power_of_two(n: int, dtype: DType) -> int:
    """The part of a divisor that survives wrap-around."""
    return gcd(n, 1 << dtype.bits)


def _divisor(e: Expr, facts: Facts) -> int:
    match e:
        case Var():
            entry = facts.about(e)
            return entry.divisor if entry.equals is None else max(entry.divisor, divisor(entry.equals, facts))
        case Binary("add" | "sub" | "mul" | "shl", _, _) | Unary("neg", _):
            return _ring_divisor(e, facts)
        case Binary("min" | "max", a, b) | Select(_, a, b):
            return gcd(divisor(a, facts), divisor(b, facts))
        case Binary("mod" | "truncmod", a, b):
            return gcd(divisor(a, facts), divisor(b, facts))
        case Binary("floordiv" | "truncdiv", a, Const(value=int(n))) | Call("ceildiv", (a, Const(value=int(n)))) if n > 0:
            d = divisor(a, facts)
            return d // n if d % n == 0 else 1
        case Binary("shr", a, Const(value=int(n))) if 0 <= n < e.dtype.bits:
            d = divisor(a, facts)
            return d >> n if d % (1 << n) == 0 else 1
        case Binary("and", a, b):
            return max(_power_of_two(divisor(a, facts), e.dtype), _power_of_two(divisor(b, facts), e.dtype))
        case Binary("or" | "xor", a, b):
            return gcd(divisor(a, facts), divisor(b, facts), 1 << e.dtype.bits)
        case Cast(a) if a.dtype.is_int and e.dtype.is_int:
            d = divisor(a, facts)
            return d if within(interval(a, facts), e.dtype) else _power_of_two(d, e.dtype)
        case _:
            return 1


def _ring_divisor(e: Expr, facts: Facts) -> int:
    form = linear(e, facts)
    if list(form.terms) != [e]:
        found = linear_divisor(form, facts)
        if not within(linear_interval(form, facts), e.dtype):
            found = _power_of_two(found, e.dtype)
        return found
    if isinstance(e, Binary) and e.op == "mul":
        found = divisor(e.a, facts) * divisor(e.b, facts)
        return found if cannot_overflow(e, facts) else _power_of_two(found, e.dtype)
    return 1
