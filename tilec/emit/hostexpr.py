"""Expressions that the host computes, such as the size of a grid: their text in the manifest and in the C++ launcher.

Both come from one Tile IR expression over extents, integer parameters and addresses. The manifest's text is Python's
(`hosteval` reads it); the launcher's is 64-bit C++ that agrees with it for every admitted extent: operators where ranges
prove that nothing wraps and nothing is negative, else helpers that saturate or round as Python does.

    ceildiv(N, 128) * M, both int32:
    manifest_text -> "ceildiv(N, 128) * M";  cxx(...).text -> "ceildiv(N, 128) * M" with helpers {"ceildiv"}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tilec.record import record
from tilec.diagnostics import NOWHERE, CompileError, Span, error
from tilec.ir.dtypes import Kind, int_range
from tilec.ir.expr import Binary, Call, Cast, Compare, Const, Expr, Logical, Select, Unary, Var, VarKind
from tilec.ir.visit import walk_expr

HELPERS: Mapping[str, str] = {
    "aligned": "[](const void* p, unsigned long long bytes) { return reinterpret_cast<unsigned long long>(p) % bytes == 0; }",
    "ceildiv": "[](long long a, long long b) { return a / b + (a % b != 0 && (a < 0) == (b < 0)); }",
    "floordiv": "[](long long a, long long b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }",
    "floormod": "[](long long a, long long b) { return a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0); }",
    "smaller": "[](long long a, long long b) { return a < b ? a : b; }",
    "larger": "[](long long a, long long b) { return a < b ? b : a; }",
    # Saturating, so that a size that no memory holds is refused and never wraps to a small one.
    "plus": "[](long long a, long long b) {"
    " return b > 0 ? (a > 9223372036854775807LL - b ? 9223372036854775807LL : a + b)"
    " : (a < -9223372036854775807LL - b ? -9223372036854775807LL : a + b); }",
    "times": "[](long long a, long long b) {"
    " const double size = static_cast<double>(a) * static_cast<double>(b);"
    " return size > 9.2e18 ? 9223372036854775807LL : size < -9.2e18 ? -9223372036854775807LL : a * b; }",
}
"""The lambdas that a launcher declares when its expressions need them, by name."""

_WIDE = (1 << 63) - 1
_NARROW = (1 << 31) - 1
_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%"}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_TERNARY, _OR, _AND, _NOT, _CMP, _SUM, _PRODUCT, _UNARY, _ATOM = range(9)
_LEVEL = {"add": _SUM, "sub": _SUM, "mul": _PRODUCT, "floordiv": _PRODUCT, "mod": _PRODUCT}


def unsupported(e: Expr, span: Span) -> CompileError:
    """The error for an expression that cannot be computed before the launch."""
    what = e.name if isinstance(e, Call) else e.op if isinstance(e, Unary | Binary) else type(e).__name__.lower()
    return error(
        "TL0405", f"the size of a grid or buffer cannot be computed with `{what}` on the host", span,
        help="use integers, extents, + - * // %, T.min, T.max, T.ceildiv and comparisons",
    )  # fmt: skip


# ---- the manifest's text


def manifest_text(e: Expr, span: Span = NOWHERE) -> str:
    """`e` in the manifest's grammar. Raises TL0405 at `span` for what the grammar lacks."""
    return _python(e, span)[0]


def _python(e: Expr, span: Span) -> tuple[str, int]:
    def at(x: Expr, level: int) -> str:
        text, own = _python(x, span)
        return text if own >= level else f"({text})"

    match e:
        case Const(value, dtype) if dtype.kind is not Kind.FLOAT:
            return str(int(value)), _ATOM if value >= 0 else _UNARY
        case Var(name):
            return name, _ATOM
        case Cast(a, dtype) if dtype.is_int:
            return _python(a, span)
        case Unary("neg", a):
            return f"-{at(a, _UNARY)}", _UNARY
        case Unary("not", a):
            return f"not {at(a, _NOT)}", _NOT
        case Binary(op, a, b) if op in _SYMBOLS:
            level = _LEVEL[op]
            return f"{at(a, level)} {_SYMBOLS[op]} {at(b, level + 1)}", level
        case Binary("min" | "max" as op, a, b) | Call("min" | "max" | "ceildiv" as op, (a, b)):
            return f"{op}({at(a, _TERNARY)}, {at(b, _TERNARY)})", _ATOM
        case Binary("shl" | "shr" as op, a, Const(value)):
            return f"{at(a, _PRODUCT)} {'*' if op == 'shl' else '//'} {1 << int(value)}", _PRODUCT
        case Compare(op, a, b):
            return f"{at(a, _SUM)} {_COMPARE[op]} {at(b, _SUM)}", _CMP
        case Logical(op, a, b):
            level = _AND if op == "and" else _OR
            return f"{at(a, level)} {op} {at(b, level)}", level
        case Select(c, a, b):
            return f"{at(a, _OR)} if {at(c, _OR)} else {at(b, _TERNARY)}", _TERNARY
        case _:
            raise unsupported(e, span)


# ---- the launcher's text


@record
class Cxx:
    """C++ text with its precedence, the range its value lies in, and whether its type is 64 bits wide."""

    text: str
    level: int
    low: int
    high: int
    wide: bool = True

    def at(self, level: int) -> str:
        """The text, in parentheses if it binds less than `level`."""
        return self.text if self.level >= level else f"({self.text})"


@dataclass(slots=True)
class CxxWriter:
    """Writes host expressions of one launcher; collects the helpers they call and the divisors that must not be zero.

    `names` gives the C name of a variable, `addresses` that of a tensor by its name in the source; the launcher refuses calls
    where a variable in `nonnegative` is below zero.
    """

    names: Callable[[Var], str]
    addresses: Mapping[str, str] = field(default_factory=dict)
    span: Span = NOWHERE
    helpers: set[str] = field(default_factory=set)
    divisors: dict[str, None] = field(default_factory=dict)
    nonnegative: frozenset[Var] = frozenset()

    def write(self, e: Expr) -> Cxx:
        """`e` as C++; raises TL0405 for what a host cannot compute."""
        match e:
            case Const(value, dtype) if dtype.kind is not Kind.FLOAT:
                wide = abs(value) > _NARROW
                return Cxx(f"{int(value)}{'LL' if wide else ''}", _ATOM if value >= 0 else _UNARY, int(value), int(value), wide)
            case Var():
                return self._var(e)
            case Cast(a, dtype) if dtype.is_int:
                return self.write(a)
            case Unary("neg", a):
                x = self._widened(self.write(a), -1)
                return Cxx(f"-{x.at(_ATOM)}", _UNARY, -x.high, -x.low)
            case Unary("not", a):
                return Cxx(f"!{self.write(a).at(_ATOM)}", _UNARY, 0, 1, False)
            case Binary("add" | "sub" | "mul" as op, a, b):
                return self._arithmetic(op, self.write(a), self.write(b))
            case Binary("shl" | "shr" as op, a, Const(value, dtype)):
                return self.write(Binary("mul" if op == "shl" else "floordiv", a, Const(1 << int(value), dtype), a.dtype))
            case Binary("floordiv" | "mod" as op, a, b) | Call("ceildiv" as op, (a, b)):
                return self._division(op, self.write(a), self.write(b))
            case Binary("min" | "max" as op, a, b) | Call("min" | "max" as op, (a, b)):
                return self._extreme(op, self.write(a), self.write(b))
            case Compare() | Logical() | Select():
                return self._logic(e)
            case _:
                raise unsupported(e, self.span)

    def condition(self, e: Expr) -> str:
        """`e` as the text of a condition."""
        return self.write(e).text

    def _var(self, v: Var) -> Cxx:
        if v.name in self.addresses:
            return Cxx(f"reinterpret_cast<long long>({self.addresses[v.name]})", _ATOM, 0, _WIDE)
        if not (v.dtype.is_int or v.dtype.kind is Kind.BOOL):
            raise unsupported(v, self.span)
        low, high = int_range(v.dtype)
        low, high = max(low, -_WIDE), min(high, _WIDE)  # an unsigned 64-bit size beyond that is refused before
        if v.kind is VarKind.EXTENT or v in self.nonnegative:
            low = 0
        if v.dtype.kind is Kind.UINT and v.dtype.bits >= 32:
            return Cxx(f"static_cast<long long>({self.names(v)})", _ATOM, low, high)
        return Cxx(self.names(v), _ATOM, low, high, v.dtype.bits > 32)

    def _widened(self, x: Cxx, *others: int) -> Cxx:
        """`x` in a 64-bit type unless every value in `others` fits 32 bits."""
        if x.wide or not others or all(-_NARROW <= v <= _NARROW for v in others):
            return x
        return Cxx(f"static_cast<long long>({x.text})", _ATOM, x.low, x.high)

    def _arithmetic(self, op: str, a: Cxx, b: Cxx) -> Cxx:
        if op == "mul":
            ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        elif op == "add":
            ends = [a.low + b.low, a.high + b.high]
        else:
            ends = [a.low - b.high, a.high - b.low]
        low, high = min(ends), max(ends)
        if low < -_WIDE or high > _WIDE:
            right = b.text if op != "sub" else f"-{b.at(_ATOM)}"
            return self._call("times" if op == "mul" else "plus", [a.text, right], max(low, -_WIDE), min(high, _WIDE))
        if not (a.wide or b.wide):
            a = self._widened(a, low, high)
        level = _LEVEL[op]
        return Cxx(f"{a.at(level)} {_SYMBOLS[op]} {b.at(level + 1)}", level, low, high, a.wide or b.wide)

    def _division(self, op: str, a: Cxx, b: Cxx) -> Cxx:
        if b.low <= 0 <= b.high:
            self.divisors[b.text] = None
        low, high = self._quotient_range(op, a, b)
        if op != "ceildiv" and a.low >= 0 and b.low >= 0:
            symbol = "/" if op == "floordiv" else "%"
            return Cxx(f"{a.at(_PRODUCT)} {symbol} {b.at(_UNARY)}", _PRODUCT, low, high, a.wide or b.wide)
        return self._call({"floordiv": "floordiv", "mod": "floormod"}.get(op, op), [a.text, b.text], low, high)

    @staticmethod
    def _quotient_range(op: str, a: Cxx, b: Cxx) -> tuple[int, int]:
        if op == "mod":
            return min(b.low + 1, 0), max(b.high - 1, 0)
        divisors = [d for d in (b.low, b.high, 1, -1) if d != 0 and b.low <= d <= b.high] or [1]
        ends = [sign * (x // (sign * d)) for x in (a.low, a.high) for d in divisors for sign in ((-1,) if op == "ceildiv" else (1,))]
        return min(ends), max(ends)

    def _extreme(self, op: str, a: Cxx, b: Cxx) -> Cxx:
        pick = min if op == "min" else max
        return self._call("smaller" if op == "min" else "larger", [a.text, b.text], pick(a.low, b.low), pick(a.high, b.high))

    def _call(self, helper: str, args: list[str], low: int, high: int) -> Cxx:
        self.helpers.add(helper)
        return Cxx(f"{helper}({', '.join(args)})", _ATOM, low, high)

    def _logic(self, e: Compare | Logical | Select) -> Cxx:
        match e:
            case Compare(op, a, b):
                if (divisor := self._alignment(e)) is not None:
                    self.helpers.add("aligned")
                    return Cxx(f"{'!' if op == 'ne' else ''}aligned({divisor[0]}, {divisor[1]})", _UNARY, 0, 1, False)
                return Cxx(f"{self.write(a).at(_SUM)} {_COMPARE[op]} {self.write(b).at(_SUM)}", _CMP, 0, 1, False)
            case Logical("and", a, b):
                return Cxx(f"{self.write(a).at(_AND)} && {self.write(b).at(_AND)}", _AND, 0, 1, False)
            case Logical(_, a, b):  # compilers ask for parentheses around && here
                x, y = (s if s.level != _AND else Cxx(f"({s.text})", _ATOM, 0, 1, False) for s in (self.write(a), self.write(b)))
                return Cxx(f"{x.at(_OR)} || {y.at(_OR)}", _OR, 0, 1, False)
            case Select(c, a, b):
                x, y = self.write(a), self.write(b)
                text = f"{self.write(c).at(_OR)} ? {x.at(_OR)} : {y.at(_OR)}"
                return Cxx(text, _TERNARY, min(x.low, y.low), max(x.high, y.high), x.wide or y.wide)

    def _alignment(self, e: Compare) -> tuple[str, int] | None:
        """For `address % n == 0` (or `!=`): the pointer and n."""
        match e:
            case Compare("eq" | "ne", Binary("mod", a, Const(n)), Const(0)):
                while isinstance(a, Cast):
                    a = a.a
                if isinstance(a, Var) and a.name in self.addresses:
                    return self.addresses[a.name], int(n)
        return None


def variables(*exprs: Expr | None) -> set[Var]:
    """Every variable the expressions name."""
    return {v for e in exprs if e is not None for v in walk_expr(e) if isinstance(v, Var)}
