"""Expressions with inputs over edge values and the results that NumPy and Python give, independently of the writer.

test_cexpr.py runs them on the CPU, benchmarks/gpu_numeric.py on a GPU.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from tilec.analysis.facts import Facts
from tilec.analysis.rounding import round_float
from tilec.analysis.simplify import simplify
from tilec.emit import prelude
from tilec.emit.cexpr import PRIMARY, CWriter, ctype
from tilec.ir.dtypes import (
    ALL,
    BFLOAT16,
    BOOL,
    FLOAT8_E4M3,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    TFLOAT32,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    DType,
    int_range,
    wrap,
)  # fmt: skip
from tilec.ir.expr import (
    Binary,
    Buffer,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logical,
    Reinterpret,
    Scope,
    Select,
    Unary,
    Var,
    const_int,
)  # fmt: skip
from tilec.ir.visit import walk_expr

NUMPY: dict[DType, Any] = {
    BOOL: np.bool_, INT8: np.int8, INT16: np.int16, INT32: np.int32, INT64: np.int64, UINT8: np.uint8, UINT16: np.uint16,
    UINT32: np.uint32, UINT64: np.uint64, FLOAT16: np.float16, BFLOAT16: ml_dtypes.bfloat16, FLOAT8_E4M3: ml_dtypes.float8_e4m3fn,
    FLOAT8_E5M2: ml_dtypes.float8_e5m2, TFLOAT32: np.float32, FLOAT32: np.float32, FLOAT64: np.float64,
}  # fmt: skip
INTEGERS = [d for d in ALL if d.is_int]
FLOATS = [d for d in ALL if d.is_float]
LIMITS = {FLOAT8_E4M3: 448.0, FLOAT8_E5M2: 57344.0}
INDEX = Var("i")
STORED = {np.dtype(n): d for d, n in NUMPY.items()}


def array(name: str, dtype: DType) -> Load:
    """Element i of an argument of the C function."""
    return Load(Buffer(name, dtype, (const_int(1),), Scope.GLOBAL), (INDEX,))


@dataclass
class Case:
    """An expression over A[i] and B[i], its inputs and the expected outputs; `facts` speak of its variables."""

    expr: Expr
    inputs: dict[str, np.ndarray]
    expected: np.ndarray
    ulp: float = 0.0
    facts: Facts = field(default_factory=Facts)
    needed: set[str] = field(default_factory=set)
    text: str = ""

    def __post_init__(self) -> None:
        writer = CWriter(lambda v: f"{v.name}[i]", lambda load: (f"{load.buffer.name}[i]", PRIMARY), self.needed.add, self.facts)
        self.text = writer.expr(self.expr)


def wide(a: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # signalling NaN
        return a.astype(np.float64)


def complaint(case: Case, got: np.ndarray, slack: float = 1.0) -> str:
    """What is wrong with the outputs, "" for nothing: equal to the bit (NaN for NaN, sign of zero too) or within `ulp * slack`."""
    if not case.expr.dtype.is_float:
        bad = np.flatnonzero(got != case.expected)
    else:
        g, w = wide(got), wide(case.expected)
        equal = (np.isnan(g) & np.isnan(w)) | ((g == w) & (np.signbit(g) == np.signbit(w)))
        if case.ulp:
            with np.errstate(invalid="ignore"):
                equal |= np.abs(g - w) <= slack * case.ulp * np.spacing(np.abs(case.expected)).astype(np.float64)
        bad = np.flatnonzero(~equal)
    seen = [(*(a[k] for a in case.inputs.values()), got[k], case.expected[k]) for k in bad[:4]]
    return f"{case.text} as {case.expr.dtype}: {bad.size} wrong, (inputs, got, expected) {seen}" if bad.size else ""


def int_edges(dtype: DType) -> list[int]:
    lo, hi = int_range(dtype)
    some = (-129, -128, -33, -7, -3, -2, -1, 0, 1, 2, 3, 7, 8, 31, 32, 63, 64, 127, 128, 255, 1 << 20, (1 << 24) + 1)
    middle = [n for n in some if lo < n < hi]
    return [lo, lo + 1, *(n for n in middle if n != lo + 1), hi - 1, hi]


def float_edges(dtype: DType) -> np.ndarray:
    """Zeros, ones, halves, ties, subnormals, the largest numbers, infinities and NaN of a type."""
    info = ml_dtypes.finfo(NUMPY[dtype])
    tiny, small, top = float(info.smallest_subnormal), float(info.tiny), float(info.max)
    values = [0.0, tiny, 3 * tiny, small, 0.1, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 5.5, 7.0, 127.5, 300.0, top / 2, top]
    both = [s * v for v in values for s in (1.0, -1.0)] + [math.nan, math.inf, -math.inf]
    return np.array(both).clip(-math.inf, math.inf).astype(NUMPY[dtype])


def pairs(values: Iterable[Any], dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    both = list(itertools.product(values, repeat=2))
    return np.array([a for a, _ in both], NUMPY[dtype]), np.array([b for _, b in both], NUMPY[dtype])


def narrow(value: np.ndarray, dtype: DType) -> np.ndarray:
    """Rounded to a type; fp8 saturates and keeps NaN."""
    with np.errstate(all="ignore"):
        limit = LIMITS.get(dtype)
        return (np.where(np.isnan(value), value, np.clip(value, -limit, limit)) if limit else value).astype(NUMPY[dtype])


def computing(dtype: DType) -> Any:
    """The type that arithmetic on `dtype` happens in."""
    return np.float64 if dtype == FLOAT64 else np.float32


def toward_zero(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def int_power(a: int, n: int, bits: int) -> int:
    return pow(a, n, 1 << bits) if n >= 0 else {1: 1, -1: 1 if n % 2 == 0 else -1}.get(a, 0)


def int_operations(bits: int) -> dict[str, Callable[[int, int], int]]:
    return {
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
        "floordiv": lambda a, b: a // b if b else 0, "mod": lambda a, b: a % b if b else 0,
        "truncdiv": toward_zero, "truncmod": lambda a, b: a - b * toward_zero(a, b) if b else 0,
        "min": min, "max": max, "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
        "shl": lambda a, b: a << b if 0 <= b < bits else 0,
        "shr": lambda a, b: a >> b if 0 <= b < bits else (-1 if a < 0 else 0),
        "pow": lambda a, b: int_power(a, b, bits),
    }  # fmt: skip


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip


def integer_arithmetic() -> list[Case]:
    cases = []
    for d in INTEGERS:
        a, b = pairs(int_edges(d), d)
        A, B = array("A", d), array("B", d)
        xs, ys = [int(x) for x in a], [int(y) for y in b]

        def expect(f: Callable[[int, int], int], xs: list[int] = xs, ys: list[int] = ys, d: DType = d) -> np.ndarray:
            return np.array([wrap(f(x, y), d) for x, y in zip(xs, ys, strict=True)], NUMPY[d])

        both = {"A": a, "B": b}
        cases += [Case(Binary(op, A, B, d), both, expect(f)) for op, f in int_operations(d.bits).items()]
        cases += [Case(Compare(op, A, B), both, np.array([f(x, y) for x, y in zip(xs, ys, strict=True)])) for op, f in COMPARISONS.items()]
        cases.append(Case(Call("ceildiv", (A, B), d), both, expect(lambda x, y: -(-x // y) if y else 0)))
        one = {"A": a}
        cases.append(Case(Unary("neg", A, d), one, expect(lambda x, _: -x)))
        cases.append(Case(Unary("invert", A, d), one, expect(lambda x, _: ~x)))
        cases.append(Case(Call("abs", (A,), d), one, expect(lambda x, _: abs(x))))
        unsigned = [x & ((1 << d.bits) - 1) for x in xs]
        counts = {"popcount": [u.bit_count() for u in unsigned], "clz": [d.bits - u.bit_length() for u in unsigned]}
        cases += [Case(Call(name, (A,), INT32), one, np.array(w, np.int32)) for name, w in counts.items()]
        for n in (1, 7, 8, 32):
            cases.append(Case(Binary("floordiv", A, Const(n, d), d), one, expect(lambda x, _, n=n: x // n)))
            cases.append(Case(Binary("mod", A, Const(n, d), d), one, expect(lambda x, _, n=n: x % n)))
            cases.append(Case(Binary("sub", Binary("mul", A, Const(n, d), d), Const(n, d), d), one, expect(lambda x, _, n=n: x * n - n)))
    return cases


def integer_casts() -> list[Case]:
    cases = []
    for source, to in itertools.permutations([*INTEGERS, BOOL], 2):
        values = [0, 1] if source == BOOL else int_edges(source)
        a = np.array(values, NUMPY[source])
        expected = [bool(v) for v in values] if to == BOOL else [wrap(v, to) for v in values]
        cases.append(Case(Cast(array("A", source), to), {"A": a}, np.array(expected, NUMPY[to])))
        if to.is_int and source.is_int:
            # The cast inside an expression: the operand's width must not leak into it.
            inner = Binary("add", array("A", source), array("A", source), source)
            tripled = [wrap(3 * wrap(wrap(2 * v, source), to), to) for v in values]
            cases.append(Case(Binary("mul", Cast(inner, to), Const(3, to), to), {"A": a}, np.array(tripled, NUMPY[to])))
    return cases


def numpy_float_operations(t: Any) -> dict[str, Callable[[Any, Any], Any]]:
    return {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "floordiv": np.floor_divide, "mod": np.mod,
        "truncmod": np.fmod, "min": np.fmin, "max": np.fmax, "truncdiv": lambda a, b: np.trunc(a / b),
    }  # fmt: skip


def float_arithmetic() -> list[Case]:
    cases = []
    for d in FLOATS:
        a, b = pairs(float_edges(d), d)
        t = computing(d)
        x, y = a.astype(t), b.astype(t)
        A, B = array("A", d), array("B", d)
        with np.errstate(all="ignore"):
            for op, f in numpy_float_operations(t).items():
                expected = f(x, y)
                if op in ("min", "max"):  # -0 is below +0, as max.f32 has it
                    zero = (x == 0) & (y == 0)
                    sign = (np.signbit(x) | np.signbit(y)) if op == "min" else (np.signbit(x) & np.signbit(y))
                    expected = np.where(zero, np.where(sign, t(-0.0), t(0.0)), expected)
                cases.append(Case(Binary(op, A, B, d), {"A": a, "B": b}, narrow(expected, d)))
            # Rounded after every operation: (a * b) + a in three steps.
            product = narrow(x * y, d).astype(t)
            cases.append(Case(Binary("add", Binary("mul", A, B, d), A, d), {"A": a, "B": b}, narrow(product + x, d)))
            cases += [Case(Compare(op, A, B), {"A": a, "B": b}, f(x, y)) for op, f in COMPARISONS.items()]
            cases.append(Case(Select(Compare("lt", A, B), A, Unary("neg", B, d), d), {"A": a, "B": b}, np.where(x < y, a, narrow(-y, d))))
    return cases


def float_functions() -> list[Case]:
    exact = {"abs": np.abs, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint, "sqrt": np.sqrt}
    close: dict[str, Callable[[Any], Any]] = {
        "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "expm1": np.expm1,
        "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "atan": np.arctan,
        "asin": np.arcsin, "acos": np.arccos, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
        "exp10": lambda x: np.power(10.0, x), "rsqrt": lambda x: 1 / np.sqrt(x), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "erf": np.vectorize(math.erf),
    }  # fmt: skip
    questions = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}
    cases = []
    for d in FLOATS:
        a = float_edges(d)
        A, x = array("A", d), a.astype(np.float64)
        with np.errstate(all="ignore"):
            cases += [Case(Call(name, (A,), d), {"A": a}, narrow(f(a.astype(computing(d))), d)) for name, f in exact.items()]
            small = a[np.abs(x) < 100]
            for name, f in close.items():
                if name == "exp10":
                    small = small[np.abs(small.astype(np.float64)) < 5]
                expected = narrow(f(small.astype(np.float64)), d)
                cases.append(Case(Call(name, (A,), d), {"A": small}, expected, ulp=4 if computing(d) == NUMPY[d] else 1))
            cases += [Case(Call(name, (A,), BOOL), {"A": a}, f(x)) for name, f in questions.items()]
    return cases


def powers() -> list[Case]:
    a = np.array([2, -2, 0.5, 4, 0, 3], np.float32)
    A = array("A", FLOAT32)
    cases = []
    with np.errstate(all="ignore"):
        for n in (0, -1, 1, 2, 3, -3, 8):
            expected = np.array([np.float64(x) ** n for x in a]).astype(np.float32)
            ulp = 1 if n < 0 else 0
            cases.append(Case(Binary("pow", A, Const(float(n), FLOAT32), FLOAT32), {"A": a}, expected, ulp=ulp))
            cases.append(Case(Binary("pow", A, Cast(const_int(n), FLOAT32), FLOAT32), {"A": a}, expected, ulp=ulp))
            cases.append(Case(Call("pow", (A, const_int(n)), FLOAT32), {"A": a}, expected, ulp=ulp))
        cases.append(Case(Binary("pow", A, Const(1.5, FLOAT32), FLOAT32), {"A": a}, np.power(a, np.float32(1.5)), ulp=2))
    return cases


def float_to_integer_casts() -> list[Case]:
    """Truncated, clamped to the type, NaN is 0."""
    cases = []
    for source, to in itertools.product(FLOATS, INTEGERS):
        lo, hi = int_range(to)
        t = NUMPY[source]
        ends = [float(v) + f for v in (lo, hi) for f in (-1.5, -0.75, 0.0, 0.75, 1.5)] + [1e10, -1e10, 3e19, -3e19]
        a = np.concatenate([float_edges(source), narrow(np.array(ends), source).astype(t)])
        expected = [0 if math.isnan(x) else hi if x == math.inf else lo if x == -math.inf else max(lo, min(hi, int(x))) for x in wide(a)]
        cases.append(Case(Cast(array("A", source), to), {"A": a}, np.array(expected, NUMPY[to])))
    return cases


def nearest(value: int, dtype: DType) -> float:
    """An integer rounded once to a float type, by trying the neighbours of an approximation."""
    t = NUMPY[dtype]
    limit = LIMITS.get(dtype)
    if limit is not None:
        value = int(max(-limit, min(limit, value)))
    with np.errstate(over="ignore"):
        guess = t(float(value))
    if not np.isfinite(float(guess)):
        return float(guess)
    span = [guess, np.nextafter(guess, t(np.inf)), np.nextafter(guess, t(-np.inf))]
    span = [g for g in span if np.isfinite(float(g))]
    best = min(abs(int(float(g)) - value) for g in span)
    tied = [g for g in span if abs(int(float(g)) - value) == best]
    if len(tied) == 1:
        return float(tied[0])
    return float(next(g for g in tied if int(np.frombuffer(g.tobytes(), f"u{g.nbytes}")[0]) % 2 == 0))


def integer_to_float_casts() -> list[Case]:
    """Rounded once, to nearest even, from every width."""
    rng = random.Random(7)
    cases = []
    for source, to in itertools.product([*INTEGERS, BOOL], FLOATS):
        values = [0, 1] if source == BOOL else int_edges(source)
        if source.bits >= 32:
            lo, hi = int_range(source)
            # Next to ties of 8, 11, 24 and 53 bits, where rounding twice would go wrong.
            ties = [((1 << p) + 1 << s) + e for p in (7, 8, 10, 11, 23, 24, 52, 53) for s in (1, 8, 20, 38) for e in (-1, 0, 1)]
            values = values + [v for t in ties for v in (t, -t) if lo <= v <= hi] + [rng.randint(lo, hi) for _ in range(20)]
        a = np.array(values, NUMPY[source])
        expected = np.array([nearest(v, to) for v in values]).astype(NUMPY[to])
        if to == FLOAT16:
            expected = np.array([math.copysign(math.inf, v) if abs(v) >= 65520 else nearest(v, to) for v in values]).astype(np.float16)
        cases.append(Case(Cast(array("A", source), to), {"A": a}, expected))
    return cases


def float_to_float_casts(thorough: bool = False) -> list[Case]:
    """Every value of the small types, and for the large ones values next to boundaries of the narrow one (all when `thorough`)."""
    rng = np.random.default_rng(11)
    cases = []
    for source, to in itertools.permutations(FLOATS, 2):
        t = NUMPY[source]
        if source.bits <= 16:
            a = np.arange(1 << source.bits).astype(f"u{source.bytes}").view(t)
        else:
            steps = np.arange(1 << min(to.bits, 16)).astype(f"u{min(to.bytes, 2)}")
            with np.errstate(all="ignore"):
                base = steps.view(NUMPY[to] if to.bits <= 16 else np.float16).astype(np.float64)
                middles = (base[:-1] + base[1:]) / 2
                chosen = np.concatenate([base, middles]).astype(t)
                chosen = chosen if thorough else chosen[rng.integers(0, chosen.size, 6000)]
                random_bits = rng.integers(0, 1 << 62, 2000).astype(np.uint64) * np.uint64(4)
                extra = random_bits.view(np.float64).astype(t)
                a = np.concatenate([chosen, np.nextafter(chosen, t(np.inf)), np.nextafter(chosen, t(-np.inf)), extra, float_edges(source)])
        with np.errstate(all="ignore"):
            expected = narrow(a.astype(np.float64) if to == FLOAT64 or source == FLOAT64 else a.astype(np.float32), to)
        cases.append(Case(Cast(array("A", source), to), {"A": a}, round_once(a, to, expected)))
    return cases


def round_once(a: np.ndarray, to: DType, guess: np.ndarray) -> np.ndarray:
    """ml_dtypes rounds doubles by way of float; of the neighbours of its answer takes the one nearest to the double."""
    if a.dtype != np.float64 or to in (FLOAT64, FLOAT32, TFLOAT32, FLOAT16):
        return guess
    with np.errstate(all="ignore"):
        return np.array([round_float(float(x), to) for x in a]).astype(NUMPY[to])


def reinterpret() -> list[Case]:
    cases = []
    groups = [[d for d in ALL if d.bits == n and d != BOOL] for n in (8, 16, 32, 64)]
    for source, to in itertools.chain(*(itertools.permutations(g, 2) for g in groups)):
        rng = np.random.default_rng(3)
        a = rng.integers(0, 256, 64 * source.bytes, np.uint8).view(NUMPY[source])
        a = np.concatenate([a, float_edges(source) if source.is_float else np.array(int_edges(source), NUMPY[source])])
        cases.append(Case(Reinterpret(array("A", source), to), {"A": a}, a.view(NUMPY[to])))
    for op, source, to in [("add", INT16, FLOAT16), ("add", UINT8, FLOAT8_E4M3), ("sub", INT8, UINT8), ("add", INT32, FLOAT32)]:
        a = np.array(int_edges(source), NUMPY[source])
        moved = np.array([wrap(v + (3 if op == "add" else -3), source) for v in int_edges(source)], NUMPY[source])
        cases.append(Case(Reinterpret(Binary(op, array("A", source), Const(3, source), source), to), {"A": a}, moved.view(NUMPY[to])))
    return cases


def constants_of(dtype: DType) -> list[Any]:
    if dtype == BOOL:
        return [True, False]
    if dtype.is_int:
        return int_edges(dtype) + ([5_000_000_000, -5_000_000_000] if dtype == INT64 else [])
    values = [0.0, -0.0, 0.1, -0.1, 1.0, 1e-40, 1e-45, 3.4028234663852886e38, 16777217.0, 1e300, 5e-324, 1 / 3, 2.0**-149, 1e22]
    values += [65504.0, 65520.0, 8388608.5, 123456789.0, 1e7, 1e-5, 1e16]
    rng = random.Random(5)
    values += [rng.uniform(-1, 1) * 10.0 ** rng.randint(-44, 38) for _ in range(5)]
    return [*values, *(-v for v in values), math.inf, -math.inf, math.nan]


def constants_are_exact() -> list[Case]:
    cases = []
    for d in ALL:
        for value in constants_of(d):
            if d.is_float:
                expected = narrow(np.array([value], np.float64), d)
                if d not in (FLOAT64, FLOAT32, TFLOAT32, FLOAT16):
                    expected = round_once(np.array([value], np.float64), d, expected)
                if d == FLOAT8_E5M2 and math.isinf(value):
                    expected = np.array([value], NUMPY[d])  # a constant is no cast: the type has infinities
            else:
                expected = np.array([value], NUMPY[d])
            never = Compare("eq", array("A", INT32), const_int(1))
            cases.append(Case(Select(never, array("B", d), Const(value, d), d), {"A": np.zeros(1, np.int32), "B": expected}, expected))
    return cases


def bools() -> list[Case]:
    a, b = pairs([False, True], BOOL)
    A, B = array("A", BOOL), array("B", BOOL)
    both = {"A": a, "B": b}
    table = {"and": a & b, "or": a | b, "xor": a ^ b, "min": a & b, "max": a | b, "add": a ^ b}
    cases = [Case(Binary(op, A, B, BOOL), both, w) for op, w in table.items()]
    cases += [Case(Logical("and", A, Logical("or", B, Unary("not", A, BOOL))), both, a & (b | ~a))]
    cases += [Case(Logical("or", Logical("and", A, B), Unary("not", Logical("or", A, B), BOOL)), both, (a & b) | ~(a | b))]
    cases += [Case(Compare("eq", A, B), both, a == b), Case(Compare("ne", Compare("lt", A, B), B), both, (a < b) != b)]
    return cases


# ---- random expressions with facts --------------------------------------------------------------------------------

RANGES: dict[DType, list[tuple[int, int]]] = {
    INT32: [(0, 127), (0, 31), (-5, 9), (1, 64), (-(2**31), 2**31 - 1), (0, 2**31 - 1)],
    INT64: [(0, 127), (-(2**40), 2**40), (-(2**63), 2**63 - 1)],
    UINT32: [(0, 127), (0, 2**32 - 1)],
    INT8: [(-128, 127), (0, 15)],
    UINT16: [(0, 65535), (0, 100)],
}


class Generator:
    """Random expressions over a few variables, each with a range that the writer knows."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.facts = Facts()
        for d, ranges in RANGES.items():
            for n, (lo, hi) in enumerate(ranges):
                v = Var(f"v_{d.name}_{n}", d)
                self.facts = self.facts.with_range(v, lo, hi)
        self.variables = {d: [v for v in self.facts.known if v.dtype == d] for d in RANGES}

    def integer(self, d: DType, depth: int) -> Expr:
        rng = self.rng
        if depth == 0:
            lo, hi = int_range(d)
            some = [n for n in (1, 2, 3, 7, 8, 32, -1, -4, lo, hi) if lo <= n <= hi]
            return rng.choice(self.variables[d]) if rng.random() < 0.7 else Const(rng.choice(some), d)
        kind = rng.randrange(10)
        if kind == 0:
            return Select(self.condition(depth - 1), self.integer(d, depth - 1), self.integer(d, depth - 1), d)
        if kind == 1:
            return Cast(self.integer(rng.choice(list(RANGES)), depth - 1), d)
        if kind == 2:
            return Unary(rng.choice(["neg", "invert"]), self.integer(d, depth - 1), d)
        if kind == 3:
            a = self.integer(d, depth - 1)
            return Call("abs", (a,), d) if rng.random() < 0.3 else Call("ceildiv", (a, self.integer(d, 0)), d)
        op = rng.choice([*int_operations(d.bits), "add", "sub", "mul"])
        return Binary(op, self.integer(d, depth - 1), self.integer(d, depth - 1), d)

    def condition(self, depth: int) -> Expr:
        d = self.rng.choice(list(RANGES))
        return Compare(self.rng.choice(list(COMPARISONS)), self.integer(d, depth), self.integer(d, depth))


def evaluate(e: Expr, env: dict[Var, int]) -> int:
    match e:
        case Const(value=n):
            return int(n)
        case Var():
            return env[e]
        case Unary(op, a):
            return wrap(-evaluate(a, env) if op == "neg" else ~evaluate(a, env), e.dtype)
        case Binary(op, a, b):
            return wrap(int_operations(e.dtype.bits)[op](evaluate(a, env), evaluate(b, env)), e.dtype)
        case Compare(op, a, b):
            return int(COMPARISONS[op](evaluate(a, env), evaluate(b, env)))
        case Select(c, a, b):
            return evaluate(a if evaluate(c, env) else b, env)
        case Cast(a):
            return wrap(evaluate(a, env), e.dtype)
        case Call("ceildiv", (a, b)):
            x, y = evaluate(a, env), evaluate(b, env)
            return wrap(-(-x // y), e.dtype) if y else 0
        case Call("abs", (a,)):
            return wrap(abs(evaluate(a, env)), e.dtype)
        case _:
            raise AssertionError(e)


def random_integer_expressions(simplified: bool = False) -> list[Case]:
    """With ranges known, plain operators are chosen: the sanitizer finds any that overflows, Python any wrong value."""
    made = Generator(2024 + simplified)
    rng = made.rng
    ranges = {v: made.facts.numbers(v) for v in made.facts.known}
    samples = [{v: rng.choice([lo, hi, rng.randint(lo, hi)]) for v, (lo, hi) in ranges.items()} for _ in range(48)]
    cases = []
    for n in range(160):
        e = made.integer(list(RANGES)[n % len(RANGES)], 1 + n % 3)
        used = list(dict.fromkeys(v for v in walk_expr(e) if isinstance(v, Var))) or made.variables[INT32][:1]
        inputs = {v.name: np.array([s[v] for s in samples], NUMPY[v.dtype]) for v in used}
        expected = np.array([evaluate(e, s) for s in samples], NUMPY[e.dtype])
        cases.append(Case(simplify(e, made.facts) if simplified else e, inputs, expected, facts=made.facts))
    return cases


FAMILIES: dict[str, Callable[[], list[Case]]] = {
    f.__name__: f
    for f in (
        integer_arithmetic, integer_casts, float_arithmetic, float_functions, powers, float_to_integer_casts, integer_to_float_casts,
        float_to_float_casts, reinterpret, constants_are_exact, bools, random_integer_expressions,
    )
} | {"simplified_integer_expressions": lambda: random_integer_expressions(simplified=True)}  # fmt: skip
"""Every family of cases by name."""


def device_text(cases: list[Case]) -> str:
    """The cases as CUDA: the prelude entries they need and one kernel f0, f1, ... a case."""
    needed: set[str] = set()
    kernels = []
    for n, case in enumerate(cases):
        types = [case.expr.dtype, *(STORED[a.dtype] for a in case.inputs.values())]
        needed |= case.needed | {ctype(d) for d in types if ctype(d).endswith("_t")}
        parameters = ", ".join(f"const {ctype(STORED[a.dtype])}* {name}" for name, a in case.inputs.items())
        head = f'extern "C" __global__ void f{n}({parameters}, {ctype(case.expr.dtype)}* out, int count) {{'
        kernels.append(f"{head}\n  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < count) out[i] = {case.text};\n}}")
    return prelude.select(needed) + "\n".join(kernels)
