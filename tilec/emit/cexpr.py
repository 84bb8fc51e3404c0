"""Scalar expressions of the Tile IR as C text, with exactly the meaning that `ir.expr` states.

    CWriter(names, load, need, facts).expr(by * 128 + row)  ->  "by * 128 + row"

Signed arithmetic that may overflow, floor division of possibly negative numbers and the like go through small functions of the
prelude, reported by `need`; where the facts prove them unnecessary the plain operator is written. Types narrower than float
compute in float and are rounded after every operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field

from tilec.record import record
from tilec.analysis.facts import Facts
from tilec.analysis.ranges import cannot_overflow, fits_int32, interval, is_integral, within
from tilec.analysis.simplify import simplify
from tilec.emit import cmath
from tilec.emit.cliteral import NARROW, bits_literal, ctype, float_literal, literal, narrow_literal
from tilec.ir.dtypes import BFLOAT16, BOOL, FLOAT8_E5M2, FLOAT32, FLOAT64, INT32, INT64, TFLOAT32, DType, Kind, int_range
from tilec.ir.expr import POINTER_CALLS, Binary, Call, Cast, Compare, Const, Expr, Load, Logical, Reinterpret, Select, Unary, Var, const_int

__all__ = ["CWriter", "ctype", "literal"]

# C's precedences, highest binds tightest.
PRIMARY, UNARY, MUL, ADD, SHIFT, RELATION, EQUALITY, BIT_AND, BIT_XOR, BIT_OR, AND, OR, TERNARY = range(13, 0, -1)

Text = tuple[str, int]
"""C text and the precedence of its outermost operator."""

_INFIX = {
    "add": ("+", ADD), "sub": ("-", ADD), "mul": ("*", MUL), "div": ("/", MUL), "floordiv": ("/", MUL), "mod": ("%", MUL),
    "truncdiv": ("/", MUL), "truncmod": ("%", MUL), "and": ("&", BIT_AND), "or": ("|", BIT_OR), "xor": ("^", BIT_XOR),
    "shl": ("<<", SHIFT), "shr": (">>", SHIFT),
}  # fmt: skip
_COMPARE = {
    "eq": ("==", EQUALITY), "ne": ("!=", EQUALITY),
    "lt": ("<", RELATION), "le": ("<=", RELATION), "gt": (">", RELATION), "ge": (">=", RELATION),
}  # fmt: skip
_MAX_POWER = 8


@record
class CWriter:
    """Writes expressions. `names` spells variables, `load` memory reads (of the element's C type, with their precedence),
    `need` receives the prelude entries used, `facts` decide where plain operators are safe, `fast_math` allows
    approximate functions, `place` spells an element whose address is taken, `under` is the scope of what is read only where a
    condition holds."""

    names: Callable[[Var], str]
    load: Callable[[Load], Text]
    need: Callable[[str], None]
    facts: Facts = field(default_factory=Facts)
    fast_math: bool = False
    place: Callable[[Load], str] = str
    under: Callable[[Expr], AbstractContextManager[None]] = field(default=lambda cond: nullcontext())

    def expr(self, e: Expr) -> str:
        """`e` as C text of type `ctype(e.dtype)`, or of a type that converts to it without a change of value."""
        return self._text(e)[0]

    def operand(self, e: Expr, least: int = PRIMARY) -> str:
        """`e` in parentheses unless its outermost operator binds at least as tightly as `least`."""
        return _fit(self._text(e), least)

    def as_float(self, e: Expr) -> str:
        """The value of a floating `e` as C text of type float (double for float64)."""
        return self._as_float(e)[0]

    def condition(self, e: Expr) -> str:
        """`e` simplified, as the condition of an if."""
        return self.expr(simplify(e, self.facts))

    def offset(self, terms: Sequence[tuple[Expr, Expr | int]], wide: bool) -> str:
        """The flat offset of (index, stride) pairs, strides in elements.

        With `wide` it is computed in 64 bits: `(long long)row * K + col`. Without, the caller has proven that it fits 32.
        """
        pairs = [(simplify(i, self.facts), _stride(s, self.facts)) for i, s in terms]
        pairs = [(i, s) for i, s in pairs if not (_is_const(i, 0) or _is_const(s, 0))]
        if not pairs:
            return "0"
        if len(pairs) == 1 and _is_const(pairs[0][1], 1):
            return self.expr(pairs[0][0])  # a pointer takes an index of any width
        parts = [self._scaled(i, s, wide and (n == 0 or not self._fits(i, s))) for n, (i, s) in enumerate(pairs)]
        if len(parts) == 1:
            return parts[0][0]
        return " + ".join(_fit(p, ADD if n == 0 else MUL) for n, p in enumerate(parts))

    # ---- offsets --------------------------------------------------------------------------------------------------

    def _fits(self, index: Expr, stride: Expr) -> bool:
        if index.dtype != stride.dtype:
            index, stride = _widen(index), _widen(stride)
        return fits_int32(Binary("mul", index, stride, index.dtype), self.facts)

    def _scaled(self, index: Expr, stride: Expr, cast: bool) -> Text:
        if cast and index.dtype.bits < 64 and stride.dtype.bits < 64:
            if isinstance(index, Const):
                index, stride = stride, index
            left: Text = (f"(long long){_fit(self._text(index), UNARY)}", UNARY)
        else:
            left = self._text(index)
        if _is_const(stride, 1):
            return left
        if _is_const(index, 1) and not cast:
            return self._text(stride)
        return f"{_fit(left, MUL)} * {_fit(self._text(stride), UNARY)}", MUL

    # ---- dispatch -------------------------------------------------------------------------------------------------

    def _text(self, e: Expr) -> Text:
        match e:
            case Const(value=v):
                return self._const(v, e.dtype)
            case Var():
                return self.names(e), PRIMARY
            case Load():
                return self.load(e)
            case Select(c, a, b):
                return self._ternary(c, a, b, self._text)
            case Compare():
                return self._compare(e)
            case Logical(op, a, b):
                return self._logical(op, a, b)
            case Cast(a):
                return self._cast(a, e.dtype)
            case Reinterpret(a):
                return self._reinterpret(a, e.dtype)
            case Call(name) if name in cmath.EXCHANGES:
                return self._call(cmath.EXCHANGES[name], *(self._text(a) for a in e.args))
            case Call(name, (Load() as at,)) if name in POINTER_CALLS:
                return f"&{self.place(at)}", UNARY
            case Call("foreign_pointer", (pointer,)):
                self.need("foreign_pointer")
                return f"foreign_pointer{{{self._text(pointer)[0]}}}", PRIMARY
            case Call("philox"):
                return self._helper("philox", *(self._text(a) for a in e.args))
            case Call(foreign=True):
                return self._call(e.name, *(self._text(a) for a in e.args))
            case Unary() | Binary() | Call():
                if e.dtype in NARROW and not _is_foreign(e):
                    return self._narrow(self._float_operation(e), e.dtype)
                return self._float_operation(e) if e.dtype.is_float else self._int_operation(e)

    def _const(self, value: int | float, dtype: DType, typed: bool = True) -> Text:
        bits = bits_literal(float(value), dtype) if dtype in NARROW else None
        if bits is not None:
            self.need(ctype(dtype))
            return bits, PRIMARY
        text = narrow_literal(float(value), dtype, self.need) if dtype in NARROW else literal(value, dtype, self.need, typed)
        plain = (text, UNARY if text.startswith("-") else PRIMARY)
        return self._narrow(plain, dtype) if dtype in NARROW else plain

    def _call(self, function: str, *args: Text | str) -> Text:
        return f"{function}({', '.join(a if isinstance(a, str) else a[0] for a in args)})", PRIMARY

    def _helper(self, function: str, *args: Text | str, entry: str = "") -> Text:
        """A call of a prelude function; `entry` is its entry where that has another name. `f<T>` is entry f."""
        self.need(entry or function.partition("<")[0])
        return self._call(function, *args)

    def _ternary(self, cond: Expr, a: Expr, b: Expr, text: Callable[[Expr], Text]) -> Text:
        with self.under(cond):
            chosen = _fit(text(a), OR)
        return f"{_fit(self._text(cond), OR)} ? {chosen} : {_fit(text(b), TERNARY)}", TERNARY

    def _compare(self, e: Compare) -> Text:
        sign, level = _COMPARE[e.op]
        if e.a.dtype.is_float:
            a, b = self._as_float(e.a), self._as_float(e.b)
        else:
            a, b = self._pair(e.a, e.b)
        return f"{_fit(a, SHIFT)} {sign} {_fit(b, SHIFT)}", level

    def _logical(self, op: str, a: Expr, b: Expr) -> Text:
        sign, level = ("&&", AND) if op == "and" else ("||", OR)
        x, y = self._text(a), self._text(b)
        # `a && b || c` is right but asks every reader (and gcc) to think.
        least = level if op == "and" else BIT_OR
        left = _fit(x, level) if x[1] == level else _fit(x, least)
        right = _fit(y, level) if isinstance(b, Logical) and b.op == op else _fit(y, least)
        return f"{left} {sign} {right}", level

    # ---- casts ----------------------------------------------------------------------------------------------------

    def _cast(self, a: Expr, to: DType) -> Text:
        if a.dtype == to:
            return self._text(a)
        if to == BOOL:
            zero = "0.0" if a.dtype == FLOAT64 else "0.0f" if a.dtype.is_float else "0"
            value = self._as_float(a) if a.dtype.is_float else self._text(a)
            return f"{_fit(value, SHIFT)} != {zero}", EQUALITY
        if to.is_float:
            return self._narrow(self._cast_to_float(a, to), to) if to in NARROW else self._cast_to_float(a, to)
        if a.dtype.is_float:
            return self._helper(f"to_{to.name}", self._as_float(a), entry=f"to_{to.name}" + ("_f64" if a.dtype == FLOAT64 else ""))
        if to == INT32 and is_integral(a.dtype) and a.dtype.bits < 32:
            return self._text(a)  # C promotes it to int by itself
        return _c_cast(ctype(to), self._text(a))

    def _cast_to_float(self, a: Expr, to: DType) -> Text:
        """The value of `a` as a float or double from which one rounding gives `to`."""
        if a.dtype.is_float:
            value = self._as_float(a)
            if to == FLOAT64:
                return _c_cast("double", value)
            if a.dtype == FLOAT64:
                return self._helper("float_odd", value, entry="float_odd_f64") if to in NARROW else _c_cast("float", value)
            return value
        if to == BFLOAT16 and not within(interval(a, self.facts), _INT24):
            kind, wide = ("u64", "unsigned long long") if a.dtype.kind is Kind.UINT else ("i64", "long long")
            whole = self._text(a) if a.dtype.bits == 64 else _c_cast(wide, self._text(a))
            return self._helper("float_odd", whole, entry=f"float_odd_{kind}")
        return _c_cast("double" if to == FLOAT64 else "float", self._text(a))

    def _reinterpret(self, a: Expr, to: DType) -> Text:
        if a.dtype == to or {a.dtype, to} == {FLOAT32, TFLOAT32}:
            return self._text(a)
        if to in NARROW:
            self.need(ctype(to))
        exact = isinstance(a, Load | Var) or a.dtype.is_float or a.dtype.bits >= 32
        return self._helper(f"bits_as<{ctype(to)}>" if exact else f"bits_as<{ctype(to)}, {ctype(a.dtype)}>", self._text(a))

    # ---- floats ---------------------------------------------------------------------------------------------------

    def _narrow(self, value: Text, dtype: DType) -> Text:
        """A float rounded to a narrow type."""
        return self._helper(f"to_{NARROW[dtype]}", value)

    def _as_float(self, e: Expr) -> Text:
        """The value of a floating expression in float or double.

        Exact operations on narrow types need no rounding, except that rounding to e5m2 also saturates infinities.
        """
        if e.dtype not in NARROW:
            return self._text(e)
        rounds = e.dtype == FLOAT8_E5M2
        match e:
            case Const(value=v):
                text = float_literal(float(v), e.dtype, self.need)
                return text, UNARY if text.startswith("-") else PRIMARY
            case Unary() | Binary("min" | "max", _, _) if not rounds:
                return self._float_operation(e)
            case Call(name) if name in cmath.EXACT and not rounds:
                return self._float_operation(e)
            case Select(c, a, b):
                return self._ternary(c, a, b, self._as_float)
            case Cast(a) if a.dtype in NARROW and (a.dtype.bits == 8 < e.dtype.bits):
                return self._as_float(a)
            case _:
                return self._helper("to_float", self._text(e), entry=f"to_float_{NARROW[e.dtype]}")

    def _float_operation(self, e: Unary | Binary | Call) -> Text:
        """One operation in float (double for float64), before any rounding to a narrow type."""
        match e:
            case Unary(_, a):
                return f"-{_fit_unary(self._as_float(a))}", UNARY
            case Binary():
                return self._float_binary(e)
            case Call():
                return self._float_call(e)

    def _float_binary(self, e: Binary) -> Text:
        double = e.dtype == FLOAT64
        suffix, f = ("_f64", "") if double else ("", "f")
        if e.op == "pow":
            return self._float_pow(e, suffix, f)
        a, b = self._as_float(e.a), self._as_float(e.b)
        match e.op:
            case "div" if self.fast_math and not double:
                return self._call("__fdividef", a, b)
            case "add" | "sub" | "mul" | "div":
                return _infix(e.op, a, b)
            case "floordiv":
                return self._helper("float_floor_div", a, b, entry=f"float_floor_div{suffix}")
            case "mod":
                return self._helper("float_floor_mod", a, b, entry=f"float_floor_mod{suffix}")
            case "truncdiv":
                return self._call(f"trunc{f}", _infix("div", a, b))
            case "truncmod":
                return self._call(f"fmod{f}", a, b)
            case "min" | "max":
                return self._call(f"f{e.op}{f}", a, b)
            case _:
                raise AssertionError(f"no C for {e.op} on {e.dtype}")

    def _float_pow(self, e: Binary, suffix: str, f: str) -> Text:
        """A small integer exponent multiplies: exact where powf need not be."""
        base = self._as_float(e.a)
        match e.b:
            case Const(value=n) if n == int_or_none(n) and abs(n) <= _MAX_POWER:
                return self._helper("power", base, str(int(n)), entry=f"power{suffix}")
            case Cast(Const(value=n), _) if n == int_or_none(n) and abs(n) <= _MAX_POWER:
                return self._helper("power", base, str(int(n)), entry=f"power{suffix}")
            case _:
                pow_name = "__powf" if self.fast_math and f else f"pow{f}"
                return self._call(pow_name, base, self._as_float(e.b))

    def _float_call(self, e: Call) -> Text:
        if e.name == "pow" and len(e.args) == 2:
            exponent = e.args[1] if e.args[1].dtype == e.dtype else Cast(e.args[1], e.dtype)
            return self._float_binary(Binary("pow", e.args[0], exponent, e.dtype))
        found = cmath.float_function(e.name, e.dtype, self.fast_math)
        if found is None:
            return self._call(e.name, *(self._text(a) for a in e.args))
        function, entry = found
        args = [self._as_float(a) if a.dtype.is_float else self._text(a) for a in e.args]  # ldexp's exponent is an int
        return self._call(function, *args) if entry is None else self._helper(function, *args, entry=entry)

    # ---- integers -------------------------------------------------------------------------------------------------

    def _int_operation(self, e: Unary | Binary | Call) -> Text:
        match e:
            case Unary():
                return self._int_unary(e)
            case Binary():
                return self._bool_binary(e) if e.dtype == BOOL else self._int_binary(e)
            case Call():
                return self._int_call(e)

    def _int_unary(self, e: Unary) -> Text:
        if e.op == "not":
            return f"!{_fit_unary(self._text(e.a))}", UNARY
        if e.op == "neg" and e.dtype.kind is Kind.INT and e.dtype.bits >= 32 and not cannot_overflow(e, self.facts):
            return self._helper(f"wrap_sub<{ctype(e.dtype)}>", "0", self._text(e.a))
        text: Text = (f"{'-' if e.op == 'neg' else '~'}{_fit_unary(self._text(e.a))}", UNARY)
        return text if e.dtype.bits >= 32 or cannot_overflow(e, self.facts) else _c_cast(ctype(e.dtype), text)

    def _bool_binary(self, e: Binary) -> Text:
        """Bool arithmetic is modulo 2."""
        op = {"add": "xor", "sub": "xor", "mul": "and", "min": "and", "max": "or"}.get(e.op, e.op)
        return _infix(op, self._text(e.a), self._text(e.b))

    def _int_binary(self, e: Binary) -> Text:
        match e.op:
            case "add" | "sub" | "mul":
                return self._ring(e)
            case "floordiv" | "mod" | "truncdiv" | "truncmod":
                return self._division(e)
            case "min" | "max":
                if e.dtype.bits == 64:
                    return self._helper(f"{e.op}_of<{ctype(e.dtype)}>", self._text(e.a), self._text(e.b))
                return self._call(e.op, self._text(e.a), self._text(e.b))
            case "and" | "or" | "xor":
                return _infix(e.op, *self._pair(e.a, e.b))
            case "shl" | "shr":
                return self._shift(e)
            case "pow":
                return self._helper(f"int_pow<{ctype(e.dtype)}>", self._text(e.a), self._text(e.b))
            case _:
                raise AssertionError(f"no C for {e.op} on {e.dtype}")

    def _pair(self, a: Expr, b: Expr) -> tuple[Text, Text]:
        """Two operands of one infix operator; a 64-bit literal needs no suffix beside an operand of 64 bits."""

        def one(e: Expr, other: Expr) -> Text:
            return self._const(e.value, e.dtype, typed=not _is_wide(other)) if isinstance(e, Const) else self._text(e)

        return one(a, b), one(b, a)

    def _ring(self, e: Binary) -> Text:
        name = ctype(e.dtype)
        narrow = e.dtype.bits < 32
        if cannot_overflow(e, self.facts) or (e.dtype.kind is Kind.UINT and not narrow):
            return _infix(e.op, *self._pair(e.a, e.b))
        if narrow and not (e.op == "mul" and e.dtype.kind is Kind.UINT):
            return _c_cast(name, _infix(e.op, self._text(e.a), self._text(e.b)))
        return self._helper(f"wrap_{e.op}<{name}>", *self._pair(e.a, e.b))

    def _division(self, e: Binary) -> Text:
        a, b = interval(e.a, self.facts), interval(e.b, self.facts)
        floor = e.op in ("floordiv", "mod")
        below_zero = b[1] < 0 and a[0] > int_range(e.dtype)[0]  # the smallest number divided by -1 overflows
        if (b[0] >= 1 and (a[0] >= 0 or not floor)) or (not floor and below_zero):
            return _infix(e.op, *self._pair(e.a, e.b))
        kind = "div" if e.op.endswith("div") else "mod"
        return self._helper(f"{'floor' if floor else 'trunc'}_{kind}<{ctype(e.dtype)}>", *self._pair(e.a, e.b))

    def _shift(self, e: Binary) -> Text:
        count = interval(e.b, self.facts)
        legal = count[0] >= 0 and count[1] < e.dtype.bits
        a, b = self._text(e.a), self._text(e.b)
        if legal and (e.op == "shr" or (e.dtype.kind is Kind.UINT and e.dtype.bits >= 32)):
            return _infix(e.op, a, b)
        if legal and interval(e.a, self.facts)[0] >= 0 and cannot_overflow(e, self.facts):
            return _infix(e.op, a, b)
        if not within(count, INT32):
            b = self._helper("shift_count", b)
        return self._helper(f"shift_{'left' if e.op == 'shl' else 'right'}<{ctype(e.dtype)}>", a, b)

    def _int_call(self, e: Call) -> Text:
        match e.name, e.args:
            case "ceildiv", (a, b) if e.dtype.is_int:
                return self._ceildiv(a, b, e.dtype)
            case "abs", (a,) if e.dtype.is_int:
                return self._text(a) if interval(a, self.facts)[0] >= 0 else self._helper(f"wrap_abs<{ctype(e.dtype)}>", self._text(a))
            case ("popcount" | "clz" | "ffs"), (a,):
                return self._count_bits(e.name, a, e.dtype)
            case name, (a,) if name in cmath.PREDICATES and a.dtype.is_float:
                function = cmath.PREDICATES[name]
                return self._helper(function, self._as_float(a), entry=function + ("_f64" if a.dtype == FLOAT64 else ""))
            case name, (a,) if name in cmath.PREDICATES:
                return ("true" if name == "isfinite" else "false"), PRIMARY
            case name, (a,) if name in cmath.ROUNDERS and e.dtype == a.dtype:
                return self._text(a)
            case ("pow" | "power"), (a, b) if e.dtype.is_int:
                return self._int_binary(Binary("pow", a, b, e.dtype))
            case "fma", (a, b, c) if e.dtype.is_int:
                return self._text(Binary("add", Binary("mul", a, b, e.dtype), c, e.dtype))
            case _:
                return self._call(e.name, *(self._text(a) for a in e.args))

    def _ceildiv(self, a: Expr, b: Expr, dtype: DType) -> Text:
        """(a + b - 1) / b where no step of that can overflow, else a function."""
        if isinstance(b, Const) and int(b.value) >= 1 and interval(a, self.facts)[0] >= 0:
            raised = Binary("add", a, const_int(int(b.value) - 1, dtype), dtype)
            if cannot_overflow(raised, self.facts):
                return _infix("floordiv", *self._pair(raised, b))
        return self._helper(f"ceil_div<{ctype(dtype)}>", *self._pair(a, b))

    def _count_bits(self, name: str, a: Expr, dtype: DType) -> Text:
        text = self._text(a)
        bits = a.dtype.bits
        if a.dtype.kind is Kind.INT and bits < 32:
            text = _c_cast(f"unsigned {'char' if bits == 8 else 'short'}", text)
        function = {"popcount": "__popc", "clz": "__clz", "ffs": "__ffs"}[name] + ("ll" if bits == 64 else "")
        count = self._call(function, text)
        if name == "clz" and bits < 32:
            count = (f"{count[0]} - {32 - bits}", ADD)
        return count if dtype == INT32 else _c_cast(ctype(dtype), count)


_INT24 = DType("int25", Kind.INT, 25)  # integers that a float holds exactly


def int_or_none(value: int | float) -> int | None:
    """`value` as an int when it is a whole number."""
    return int(value) if value == value and abs(value) != float("inf") and value == int(value) else None


def _fit(text: Text, least: int) -> str:
    return text[0] if text[1] >= least else f"({text[0]})"


def _fit_unary(text: Text) -> str:
    """The operand of a prefix operator; a second sign needs parentheses, or it would read as a decrement."""
    return f"({text[0]})" if text[1] < UNARY or text[0].startswith(("-", "~", "+")) else text[0]


def _infix(op: str, a: Text, b: Text) -> Text:
    """Operands of shifts and bit operators are parenthesised unless they are atoms: nobody remembers those precedences."""
    sign, level = _INFIX[op]
    if level == ADD and b[1] == UNARY and b[0].startswith("-"):
        sign, b = ("-" if op == "add" else "+"), (b[0][1:], PRIMARY)
    if level in (ADD, MUL):
        return f"{_fit(a, level)} {sign} {_fit(b, level + 1)}", level
    left = a[0] if a[1] >= UNARY or (a[1] == level and level != SHIFT) else f"({a[0]})"
    return f"{left} {sign} {_fit(b, UNARY)}", level


def _c_cast(name: str, value: Text) -> Text:
    return f"({name}){_fit(value, UNARY)}", UNARY


def _stride(s: Expr | int, facts: Facts) -> Expr:
    if isinstance(s, int):
        return const_int(s, INT32 if within((s, s), INT32) else INT64)
    return simplify(s, facts)


def _widen(e: Expr) -> Expr:
    return e if e.dtype == INT64 else const_int(int(e.value), INT64) if isinstance(e, Const) else Cast(e, INT64)


def _is_const(e: Expr, value: int) -> bool:
    return isinstance(e, Const) and e.value == value


def _is_foreign(e: Expr) -> bool:
    """True for a call of a function of the author's own, which returns its C type directly."""
    return isinstance(e, Call) and cmath.float_function(e.name, e.dtype, False) is None


def _is_wide(e: Expr) -> bool:
    """True when the C text of a 64-bit expression surely has a 64-bit type."""
    match e:
        case Const():
            return False
        case Binary("shl" | "shr", a, _) | Unary(_, a):
            return _is_wide(a)
        case Binary(_, a, b):
            return _is_wide(a) or _is_wide(b)
        case Select(_, a, b):
            return _is_wide(a) and _is_wide(b)
        case _:
            return True
