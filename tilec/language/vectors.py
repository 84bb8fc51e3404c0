"""Operations on vectors: the operators lane by lane, T.Ramp, T.Broadcast, T.Shuffle, T.extract_lane, bits read as another type.

    T.float32x4(x, y, z, w) * 2.0          ->  Vec((x * 2.0, y * 2.0, z * 2.0, w * 2.0))
    T.reinterpret(T.uint32(7), T.uint8x4)  ->  Vec((7, 0, 0, 0))
    T.add2(a, b)                           ->  a + b, of vectors of two floats
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tilec.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT32, LANES, UINT8, UINT16, UINT32, UINT64, DType
from tilec.ir.expr import Binary, Cast, Const, Expr, Reinterpret
from tilec.language import arith, mathfns
from tilec.language.access import as_expr, dtype_of, host_int
from tilec.language.bind import Entry, works
from tilec.language.builder import Builder
from tilec.language.constants import convert
from tilec.language.lanes import among, broadcast, each, vector
from tilec.language.promote import VALUES
from tilec.language.show import describe
from tilec.language.values import Vec

_WORDS = {8: UINT8, 16: UINT16, 32: UINT32, 64: UINT64}
_PAIRS = (FLOAT16, BFLOAT16, FLOAT32)


def binary(b: Builder, op: str, x: Any, y: Any) -> Any:
    """`x op y`; of vectors lane by lane."""
    if among(x, y):
        return each(b, lambda b, p, q: arith.binary(b, op, p, q), x, y)
    return arith.binary(b, op, x, y)


def compare(b: Builder, op: str, x: Any, y: Any) -> Any:
    """`x op y`, one of the comparisons; of vectors lane by lane, which gives a vector of bools."""
    if among(x, y):
        return each(b, lambda b, p, q: arith.compare(b, op, p, q), x, y)
    return arith.compare(b, op, x, y)


def unary(b: Builder, op: str, x: Any) -> Any:
    """`-x`, `+x`, `~x` or `not x`; of vectors lane by lane."""
    if among(x):
        return each(b, partial(_unary, op), x)
    return _unary(op, b, x)


def _unary(op: str, b: Builder, x: Any) -> Any:
    return as_expr(b, x) if op == "pos" else arith.unary(b, op, x)


def select(b: Builder, cond: Any, x: Any, y: Any) -> Any:
    """`x if cond else y`, where any of them may be vectors."""
    return each(b, arith.select, cond, x, y) if among(cond, x, y) else arith.select(b, cond, x, y)


def cast(b: Builder, x: Any, dtype: Any) -> Any:
    """`T.float16(x)`, `T.float16x2(x)`: a number becomes each lane of a vector, lanes are converted one by one."""
    return _convert(b, arith.cast, x, dtype_of(b, dtype, vectors=True))


def _convert(b: Builder, fn: Any, x: Any, wanted: DType) -> Any:
    if wanted.lanes == 1 and not among(x):
        return fn(b, x, wanted)
    if not among(x):
        return Vec((fn(b, x, wanted.lane),) * wanted.lanes)
    found = vector(b, x)
    if wanted.lanes not in (1, len(found.lanes)):
        raise b.error("TL0302", f"cannot convert {describe(found)} to {wanted}", help="the numbers of lanes must be equal")
    if wanted.lanes == 1:
        raise b.error("TL0302", f"cannot convert {describe(found)} to {wanted}", help="T.extract_lane(x, 0) gives its first lane")
    return each(b, lambda b, e: fn(b, e, wanted.lane), found)


def pack(b: Builder, dtype: DType, parts: tuple[Any, ...]) -> Vec:
    """`T.float16x2(x, y)`: a vector of numbers, one for each lane."""
    if len(parts) != dtype.lanes:
        raise b.error("TL0203", f"`{dtype}(...)` takes one value, or {dtype.lanes}, {len(parts)} were given")
    return Vec(tuple(arith.cast(b, p, dtype.lane) for p in parts))


def convert_to(b: Builder, value: Any, dtype: Any, round: Any = "", sat: Any = True, rbits: Any = None) -> Any:
    """Conversion: floats round to nearest even, float to integer truncates, integers wrap, 8-bit floats saturate (not with sat=False)."""
    wanted = dtype_of(b, dtype, vectors=True)
    if wanted.lanes == 1 and not among(value):
        return mathfns.cast(b, value, wanted, round, sat)
    return _convert(b, lambda b, x, d: mathfns.cast(b, x, d, round, sat), value, wanted)


def convert_first(b: Builder, dtype: Any, value: Any) -> Any:
    """T.cast with the type first."""
    return convert_to(b, value, dtype)


def reinterpret(b: Builder, value: Any, dtype: Any) -> Any:
    """The same bits as another type of the same width; a vector's lanes begin at the lowest bits."""
    if isinstance(value, (DType, str)) and not isinstance(dtype, (DType, str)):
        value, dtype = dtype, value
    wanted = dtype_of(b, dtype, vectors=True)
    if not among(value) and wanted.lanes == 1:
        return mathfns.reinterpret(b, value, wanted)
    lanes = vector(b, value).lanes if among(value) else (as_expr(b, value),)
    own = lanes[0].dtype
    if own.bits * len(lanes) != wanted.bits * wanted.lanes:
        text = f"cannot reinterpret {own.bits * len(lanes)} bits as {wanted}, which has {wanted.bits * wanted.lanes}"
        raise b.error("TL0317", text, help="use T.cast to convert the value")
    bits = _regrouped(tuple(_raw(b, x) for x in lanes), own.bits, wanted.bits)
    found = tuple(_typed(x, wanted.lane) for x in bits)
    return Vec(found) if wanted.lanes > 1 else found[0]


def _raw(b: Builder, x: Expr) -> Expr:
    """The bits of a value as an unsigned integer of its width."""
    word = _WORDS.get(x.dtype.bits)
    if word is None:
        raise b.error("TL0317", f"the bits of {x.dtype} cannot be taken alone")
    if isinstance(x, Const) and x.dtype.is_int:
        return Const(convert(x.value, word), word)
    return x if x.dtype == word else Cast(x, word) if x.dtype.is_int else Reinterpret(x, word)


def _typed(bits: Expr, dtype: DType) -> Expr:
    """The value with these bits, which are an unsigned integer of at least the type's width."""
    if dtype in VALUES:
        from tilec.language.packed import decode

        return decode(Cast(bits, INT32), dtype)
    if isinstance(bits, Const) and dtype.is_int:
        return Const(convert(bits.value, dtype), dtype)
    if isinstance(bits, Reinterpret) and bits.a.dtype == dtype:
        return bits.a
    return bits if bits.dtype == dtype else Cast(bits, dtype) if dtype.is_int else Reinterpret(bits, dtype)


def _regrouped(words: tuple[Expr, ...], have: int, want: int) -> tuple[Expr, ...]:
    """Words of `have` bits as words of `want` bits (of 8 at least: of 4, each in one of 8), the lowest first."""
    if have == want:
        return words
    if want > have:
        per, wide = want // have, _WORDS[want]
        return tuple(_joined(words[k : k + per], have, wide) for k in range(0, len(words), per))
    per, narrow = have // want, _WORDS.get(want)
    parts = []
    for w in words:
        for k in range(per):
            part = w if k == 0 else Binary("shr", w, Const(k * want, INT32), w.dtype)
            parts.append(Cast(part, narrow) if narrow else Binary("and", part, Const((1 << want) - 1, w.dtype), w.dtype))
    return tuple(parts)


def _joined(words: tuple[Expr, ...], have: int, wide: DType) -> Expr:
    out: Expr = Cast(words[0], wide)
    for k, w in enumerate(words[1:], 1):
        out = Binary("or", out, Binary("shl", Cast(w, wide), Const(k * have, INT32), wide), wide)
    return out


def Ramp(b: Builder, base: Any, stride: Any, lanes: Any) -> Vec:
    """The vector base, base + stride, base + 2 * stride, ...; as an index it names that many elements."""
    n = _lane_count(b, lanes, "T.Ramp")
    return Vec(tuple(as_expr(b, arith.binary(b, "add", as_expr(b, base), arith.binary(b, "mul", as_expr(b, stride), k))) for k in range(n)))


def Broadcast(b: Builder, value: Any, lanes: Any) -> Vec:
    """The vector of `lanes` copies of a number."""
    n = _lane_count(b, lanes, "T.Broadcast")
    if among(value):
        return Vec(vector(b, value).lanes * n)
    return broadcast(b, value, n)


def _lane_count(b: Builder, lanes: Any, what: str) -> int:
    n = host_int(b, lanes, f"the number of lanes of {what}")
    if n not in LANES:
        raise b.error("TL0206", f"{what} makes vectors of 2, 4, 8, 16, 32 or 64 lanes, got {n}")
    return n


def Shuffle(b: Builder, vectors: Any, indices: Any) -> Any:
    """The lanes of `vectors`, taken as one row, at `indices`; one index gives a number."""
    given = vectors if isinstance(vectors, (tuple, list)) else (vectors,)
    rows = [x for v in given for x in (vector(b, v).lanes if among(v) else (as_expr(b, v),))]
    items = indices if isinstance(indices, (tuple, list)) else (indices,)
    places = [i if isinstance(i, (int, Const)) else None for i in items]
    if not rows or not items:
        raise b.error("TL0206", "T.Shuffle needs at least one lane and one index")
    if None in places and len(items) == 1:
        return _chosen(b, rows, as_expr(b, items[0]))
    chosen = [host_int(b, i, "an index of T.Shuffle") for i in items]
    bad = next((i for i in chosen if not 0 <= i < len(rows)), None)
    if bad is not None:
        raise b.error("TL0305", f"there is no lane {bad} among {len(rows)}")
    kind = arith.common_dtype(b, *rows) if len({x.dtype for x in rows}) > 1 else rows[0].dtype
    found = tuple(as_expr(b, rows[i], kind) for i in chosen)
    return found[0] if len(found) == 1 else Vec(found)


def _chosen(b: Builder, rows: list[Expr], place: Expr) -> Any:
    """One of several values, by a number that is only known at run time."""
    out: Any = rows[-1]
    for k in range(len(rows) - 2, -1, -1):
        out = arith.select(b, arith.compare(b, "eq", place, k), rows[k], out)
    return out


def extract_lane(b: Builder, value: Any, lane: Any) -> Expr:
    """One lane of a vector, by a number known while compiling."""
    if not among(value):
        help_ = "T.shfl_sync(x, lane) is the value of a lane of the warp"
        raise b.error("TL0206", f"T.extract_lane takes a vector, got {describe(value)}", help=help_)
    lanes, k = vector(b, value).lanes, host_int(b, lane, "the lane of T.extract_lane")
    if not 0 <= k < len(lanes):
        raise b.error("TL0305", f"lane {k} is outside a vector of {len(lanes)}")
    return lanes[k]


def _half(b: Builder, value: Any, dtype: Any, upper: bool) -> Any:
    if not among(value):
        value, dtype = dtype, value  # T.vectorlow(dtype, vector)
    lanes = vector(b, value).lanes
    part = lanes[len(lanes) // 2 :] if upper else lanes[: len(lanes) // 2]
    return Vec(part) if len(part) > 1 else part[0]


def vectorlow(b: Builder, dtype: Any, vec: Any) -> Any:
    """The first half of a vector."""
    return _half(b, vec, dtype, False)


def vectorhigh(b: Builder, dtype: Any, vec: Any) -> Any:
    """The second half of a vector."""
    return _half(b, vec, dtype, True)


def vectorcombine(b: Builder, dtype: Any, vec1: Any, vec2: Any) -> Vec:
    """Two vectors as one."""
    return Vec(vector(b, vec1).lanes + vector(b, vec2).lanes)


def _pairs(b: Builder, name: str, *values: Any) -> None:
    """The operands of a packed operation: vectors of two floats of one type."""
    for v in values:
        kind = vector(b, v).dtype if among(v) else None
        if kind is None or kind.lanes != 2 or kind.lane not in _PAIRS:
            raise b.error("TL0302", f"T.{name} takes float16x2, bfloat16x2 or float32x2, got {kind or describe(v)}")
    if len({vector(b, v).dtype.name for v in values}) > 1:
        raise b.error("TL0302", f"the operands of T.{name} must have one type")


def _packed(name: str, op: str, doc: str) -> Any:
    def function(b: Builder, x: Any, y: Any) -> Any:
        _pairs(b, name, x, y)
        return each(b, lambda b, p, q: arith.binary(b, op, p, q), x, y)

    function.__doc__ = doc
    return function


def fma2(b: Builder, x: Any, y: Any, z: Any) -> Any:
    """x * y + z of vectors of two floats, with one rounding."""
    _pairs(b, "fma2", x, y, z)
    return each(b, mathfns.fma, x, y, z)


def abs2(b: Builder, x: Any) -> Any:
    """The absolute values of a vector of two floats."""
    _pairs(b, "abs2", x)
    return each(b, mathfns.abs_, x)


_PACKED = {
    "add2": ("add", "x + y of vectors of two floats."), "sub2": ("sub", "x - y of vectors of two floats."),
    "mul2": ("mul", "x * y of vectors of two floats."), "max2": ("max", "The larger lanes of vectors of two floats; NaN is dropped."),
    "min2": ("min", "The smaller lanes of vectors of two floats; NaN is dropped."),
}  # fmt: skip

CONVERSIONS: tuple[Entry, ...] = (
    works(convert_to, name="cast", host=True) + works(convert_first, name="Cast", host=True) + works(reinterpret, host=True)
)

ENTRIES: tuple[Entry, ...] = (
    works(Ramp, "ramp", host=True)
    + works(Broadcast, "broadcast", host=True)
    + works(Shuffle)
    + works(extract_lane)
    + works(vectorlow)
    + works(vectorhigh)
    + works(vectorcombine)
    + tuple(e for name, (op, doc) in _PACKED.items() for e in works(_packed(name, op, doc), name=name))
    + works(fma2)
    + works(abs2)
)

__all__ = ["CONVERSIONS", "ENTRIES", "binary", "cast", "compare", "pack", "reinterpret", "select", "unary"]
