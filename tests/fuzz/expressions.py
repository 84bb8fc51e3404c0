"""Random expressions of a given type, over the tiles, tensors, scalars and index variables in reach.

    Expressions(choices, tiles, scalars).value(FLOAT16, context, depth=2)  ->  Value("T.max(f1[i, 3 - j], x[0]) * 2", FLOAT16, ...)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from tests.fuzz.choices import Choices
from tests.fuzz.values import FLOATS, FP8, INTS, LARGEST, Context, Tile, Value, dtype, is_unsigned, noise_of, whole_range
from tilec.ir.dtypes import BOOL, FLOAT32, INT32, DType, int_range
from tilec.language.promote import common

_COMPARISONS = ("<", "<=", "==", "!=", ">", ">=")


@dataclass(slots=True)
class Expressions:
    """Makes expressions. `tiles` are what may be read now (ready ones count), `scalars` the uniform values in reach."""

    choices: Choices
    tiles: list[Tile]
    scalars: list[Value]

    def index(self, extent: int, context: Context, depth: int = 1) -> str:
        """An index from 0 to extent - 1."""
        c = self.choices
        if extent == 1:
            return "0"
        small = [(v, n) for v, n in context.indices if n <= extent]
        kind = c.weighted(((6, "plain"), (2, "shift"), (2, "mirror"), (2, "constant"), (2, "wrap"), (1, "divide"), (1, "data")))
        if kind in ("plain", "shift", "mirror") and small:
            v, n = c.pick(small)
            slack = c.below(extent - n + 1) if kind != "plain" else 0
            if kind == "mirror":
                return f"{n - 1 + slack} - {v}"
            return f"{v} + {slack}" if slack else v
        if kind == "data" and depth > 0:
            found = self.leaf(c.pick((INT32, dtype("int8"), dtype("uint8"))), context, depth - 1)
            return f"T.cast({found.text}, 'int32') % {extent}"
        if kind == "divide" and context.indices:
            v, n = c.pick(context.indices)
            return f"{v} // {-(-n // extent) + c.below(2)}"
        if kind != "constant" and context.indices:
            v, n = c.pick(context.indices)
            return f"({v} * {c.pick((1, 3, 2, 5))} + {c.below(7)}) % {extent}"
        return str(c.below(extent))

    def constant(self, d: DType) -> Value:
        """A literal of exactly that type."""
        c = self.choices
        if d is BOOL:
            return Value(c.pick(("T.bool(False)", "T.bool(True)")), d, bound=1, peak=1)
        if d.is_float:
            number = c.pick((0, 1, 2, -1, 3, 0.5, -2.5, 0.1))
            bound = abs(int(number)) if number == int(number) else None
            return Value(f"T.cast({float(number)}, '{d}')", d, bound=bound, peak=abs(number) + 0.1)
        low, high = int_range(d)
        number = c.pick((0, 1, 2, 3, 7, 100, max(low, -1), max(low, -5), high, low))
        return Value(f"T.cast({int(number)}, '{d}')", d, bound=abs(int(number)) if abs(number) < 1000 else None, peak=abs(number))

    def leaf(self, d: DType, context: Context, depth: int, exact: bool = True) -> Value:
        """An element, scalar, index variable or literal, cast to the type if need be."""
        c = self.choices
        tiles = [t for t in self.tiles if t.ready and t.name not in context.hidden and (t.noise == 0 or not exact)]
        kind = c.weighted(((1, "constant"), (7, "tile"), (2, "bound"), (1, "index"), (1, "scalar")))
        bound = [v for v in context.leaves if v.exact or not exact]
        if kind == "tile" and tiles:
            same = [t for t in tiles if t.dtype is d]
            tile = c.pick(same if same and c.chance(80) else tiles)
            index = [self.index(n, context, depth - 1) for n in tile.shape]
            if tile.scope == "global" and c.chance(15):  # out of range reads give 0
                at = c.below(len(index))
                index[at] = f"{index[at]} {c.pick('+-')} {c.pick((1, 3, tile.shape[at]))}"
            return self.cast(tile.element(*index), d)
        if kind in ("tile", "bound") and bound:
            return self.cast(c.pick(bound), d)
        if kind == "index" and context.indices:
            name, n = c.pick(context.indices)
            return self.cast(Value(name, INT32, bound=n - 1, peak=n), d)
        if kind == "scalar" and self.scalars:
            return self.cast(c.pick(self.scalars), d)
        return self.constant(d)

    def cast(self, value: Value, d: DType) -> Value:
        """The value in another type."""
        if value.dtype is d:
            return value
        assert value.exact or d.is_float
        bound = value.bound if value.bound is not None and value.bound <= whole_range(d) and not is_unsigned(d) else None
        noise = max(value.noise, noise_of(d)) if value.noise else 0.0
        return Value(f"T.cast({value.text}, '{d}')", d, noise, bound, value.peak if d.is_float else inf)

    def value(self, d: DType, context: Context, depth: int, exact: bool = True) -> Value:
        """An expression of that type; with `exact`, one on whose bits both runs agree."""
        return self.choices.expression(lambda: self._value(d, context, depth, exact))

    def _value(self, d: DType, context: Context, depth: int, exact: bool) -> Value:
        c = self.choices
        if depth <= 0 or c.chance(15):
            return self.leaf(d, context, 1, exact)
        if d is BOOL:
            return self.condition(context, depth)
        if c.chance(12):
            other = dtype(c.pick((*FLOATS, *INTS, *FP8, "bool")))
            return self.cast(self.value(other, context, depth - 1, exact or not (d.is_float and other.is_float)), d)
        if c.chance(12):
            return self.select(d, context, depth, exact)
        if d.name in FP8:
            return self.cast(self.value(FLOAT32, context, depth - 1, exact), d)
        made = self.floating(d, context, depth, exact) if d.is_float else self.integer(d, context, depth)
        return self.tame(self.cast(made, d))

    def condition(self, context: Context, depth: int) -> Value:
        """A bool of comparisons."""
        c = self.choices
        kind = c.pick(("compare", "compare", "and", "or", "not", "leaf"))
        if kind == "leaf" or depth <= 0:
            return self.leaf(BOOL, context, 1)
        if kind in ("and", "or"):
            a, b = self.condition(context, depth - 1), self.condition(context, depth - 1)
            return Value(f"({a.text} {kind} {b.text})", BOOL, bound=1, peak=1)
        if kind == "not":
            return Value(f"(not {self.condition(context, depth - 1).text})", BOOL, bound=1, peak=1)
        d = dtype(c.pick(("int32", "float32", "float16", "int8", "uint8", "int64", "bfloat16")))
        a, b = self.value(d, context, depth - 1), self.value(d, context, depth - 1)
        return Value(f"({a.text} {c.pick(_COMPARISONS)} {b.text})", BOOL, bound=1, peak=1)

    def select(self, d: DType, context: Context, depth: int, exact: bool) -> Value:
        """One of two values."""
        test = self.condition(context, depth - 1)
        a, b = (self.value(d, context, depth - 1, exact) for _ in range(2))
        text = f"({a.text} if {test.text} else {b.text})" if self.choices.chance(50) else f"T.if_then_else({test.text}, {a.text}, {b.text})"
        bound = None if a.bound is None or b.bound is None else max(a.bound, b.bound)
        return Value(text, d, max(a.noise, b.noise), bound, max(a.peak, b.peak))

    def tame(self, v: Value) -> Value:
        """A value that differs between runs is kept small, so that it cannot overflow in one of them only."""
        if v.exact or v.peak <= min(1e4, LARGEST[v.dtype.name] / 4):
            return v
        return self.clamped(v, 100)

    def clamped(self, v: Value, limit: int, whole: bool = False) -> Value:
        """The value cut to a range; a whole number when asked."""
        text = f"T.floor({v.text})" if whole and v.dtype.is_float else v.text
        low = "" if is_unsigned(v.dtype) else f"T.max({text}, T.cast({-limit}, '{v.dtype}'))"
        text = f"T.min({low or text}, T.cast({limit}, '{v.dtype}'))"
        return Value(text, v.dtype, v.noise, limit if whole or not v.dtype.is_float else None, limit)

    def floating(self, d: DType, context: Context, depth: int, exact: bool) -> Value:
        """An operation on floats."""
        c = self.choices
        a = self.value(d, context, depth - 1, exact)
        kinds = ("+", "-", "*", "T.max", "T.min", "neg", "T.abs", "divide", "whole", "literal", "function")
        kind = c.pick(kinds)
        if kind == "function" and not exact and d in (FLOAT32, dtype("float64")):
            return self.function(a)
        if kind in ("neg", "T.abs"):
            return Value(f"(-{a.text})" if kind == "neg" else f"T.abs({a.text})", d, a.noise, a.bound, a.peak)
        if kind == "divide":
            return Value(f"({a.text} / T.cast({c.pick((2, 3, -4))}.0, '{d}'))", d, a.noise, None, a.peak)
        if kind == "whole" and a.exact:
            bound = None if a.peak > whole_range(d) - 1 else int(a.peak) + 1
            return Value(f"{c.pick(('T.floor', 'T.ceil', 'T.round', 'T.trunc'))}({a.text})", d, 0.0, bound, a.peak + 1)
        if kind == "literal":
            return Value(f"({a.text} {c.pick('+-*')} {c.pick((2.5, 0.25, 1.5))})", common(d, FLOAT32), a.noise, None, a.peak * 2.5 + 2.5)
        other = d if c.chance(80) else dtype(c.pick(FLOATS))
        b = self.value(other, context, depth - 1, exact)
        op = kind if kind in ("+", "-", "*", "T.max", "T.min") else "+"
        return self.arithmetic(op, a, b)

    def arithmetic(self, op: str, a: Value, b: Value) -> Value:
        """+, -, *, max or min of two floats."""
        d = common(a.dtype, b.dtype)
        noise = max(a.noise, b.noise)
        noise = max(noise, noise_of(d)) if noise else 0.0
        both = a.bound is not None and b.bound is not None
        if op in ("T.max", "T.min"):
            bound = max(a.bound or 0, b.bound or 0) if both else None
            return Value(f"{op}({a.text}, {b.text})", d, noise, bound, max(a.peak, b.peak))
        if op == "*":
            bound, peak = ((a.bound or 0) * (b.bound or 0), a.peak * b.peak if a.peak and b.peak else 0.0)
        else:
            bound, peak = ((a.bound or 0) + (b.bound or 0), a.peak + b.peak)
        return Value(f"({a.text} {op} {b.text})", d, noise, bound if both and bound <= whole_range(d) else None, peak)

    def function(self, a: Value) -> Value:
        """A transcendental function of a small argument."""
        small = self.clamped(a, 4)
        name = self.choices.pick(("exp2", "exp", "sigmoid", "tanh", "sin", "cos", "erf", "log2", "rsqrt", "sqrt"))
        text = small.text if name not in ("log2", "rsqrt", "sqrt") else f"(T.abs({small.text}) + T.cast(1.0, '{a.dtype}'))"
        return Value(f"T.{name}({text})", a.dtype, max(a.noise, noise_of(a.dtype)), None, 64.0)

    def integer(self, d: DType, context: Context, depth: int) -> Value:
        """An operation on integers; all of them wrap alike."""
        c = self.choices
        a = self.value(d, context, depth - 1)
        kind = c.pick(("+", "-", "*", "&", "|", "^", "T.max", "T.min", "//", "%", "shift", "~", "neg", "T.abs", "quotient", "literal"))
        if kind in ("~", "neg"):
            return Value(f"({'~' if kind == '~' else '-'}{a.text})", d)
        if kind == "T.abs":
            return Value(f"T.abs({a.text})", d)
        if kind in ("//", "%"):
            by = c.pick((2, 3, 7, 16) if is_unsigned(d) else (2, 3, 7, 16, -3, -4))
            bound = abs(by) if kind == "%" else None
            return Value(f"({a.text} {kind} {by})", d, bound=bound, peak=bound or inf)
        if kind == "shift":
            return Value(f"({a.text} {c.pick(('<<', '>>'))} {c.below(d.bits)})", d)
        if kind == "literal":
            return Value(f"({a.text} {c.pick('+-*&|^')} {c.pick((1, 2, 3, 5, 100))})", d)
        b = self.value(d, context, depth - 1)
        if kind == "quotient":
            divisor = f"(({b.text} & T.cast(7, '{d}')) + T.cast(1, '{d}'))"
            return Value(f"({a.text} {c.pick(('//', '%'))} {divisor})", d)
        if kind in ("T.max", "T.min"):
            return Value(f"{kind}({a.text}, {b.text})", d)
        return Value(f"({a.text} {kind} {b.text})", d)
