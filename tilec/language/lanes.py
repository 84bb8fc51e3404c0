"""Vectors of the language: float32x4 and its kin are values of several lanes, and every operation is done lane by lane.

The Tile IR has no vectors. A tile of them has one dimension more, whose extent is the number of lanes (`Buffer.lanes`); a value is
a `Vec`, a tuple of expressions. A slice of a known length, and an element under an index that is itself a vector, are vectors too.

    v = T.alloc_local((8,), "float32x4")   ->  Buffer("v", FLOAT32, (8, 4), LOCAL, lanes=4)
    v[i] * 2.0                             ->  Vec((v[i, 0] * 2.0, v[i, 1] * 2.0, v[i, 2] * 2.0, v[i, 3] * 2.0))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tilec.ir.dtypes import INT32, LANES, DType
from tilec.ir.expr import Binary, Buffer, Const, Expr, Load, Scope, Var, VarKind
from tilec.ir.tile import Alloc, For, Let, Seq, Store
from tilec.ir.visit import walk_expr
from tilec.language.access import as_expr, cast_expr, element, expand, index
from tilec.language.builder import Builder
from tilec.language.extents import constant, difference
from tilec.language.show import describe
from tilec.language.values import Ref, Slice, Vec

Place = tuple[Buffer, tuple[Expr, ...]]
"""An element: its buffer and its indices."""

_MEMORY = (Scope.GLOBAL, Scope.SHARED)


def is_vector(value: Any) -> bool:
    """True for a value of several lanes: a vector, an element or variable of a vector type, a slice, an element at vector indices."""
    kind = type(value)
    if kind is Vec:
        return True
    if kind is Ref:
        if value.buffer.lanes and len(value.items) == value.buffer.rank - 1:
            return not any(isinstance(i, Slice) or i is Ellipsis for i in value.items)
        return any(isinstance(i, Vec) for i in value.items) or _sliced(value) is not None
    return kind is Buffer and value.lanes > 0 and value.rank == 1 and value.scope is Scope.LOCAL


def is_variable(value: Any) -> bool:
    """True for the buffer of a T.alloc_var of a vector type."""
    return type(value) is Buffer and is_vector(value)


def among(*values: Any) -> bool:
    """True when one of the operands of an operation is a vector."""
    return any(type(v) is Vec or (type(v) in (Ref, Buffer) and is_vector(v)) for v in values)


def _sliced(ref: Ref) -> int | None:
    """The length of a slice that stands for a vector: the only one, of the last dimension, of a length that is a number of lanes."""
    if ref.buffer.scope is Scope.FRAGMENT or len(ref.items) != ref.buffer.rank or not ref.items:
        return None
    last = ref.items[-1]
    if not isinstance(last, Slice) or any(isinstance(i, Slice) or i is Ellipsis for i in ref.items[:-1]):
        return None
    if last.step not in (None, 1) or last.start is None or last.stop is None:
        return None
    start, stop = (Const(x, INT32) if isinstance(x, int) else x for x in (last.start, last.stop))
    if not (isinstance(start, Expr) and isinstance(stop, Expr)):
        return None
    length = constant(difference(stop, start))
    return length if length in LANES else None


def vector(b: Builder, value: Any) -> Vec:
    """A vector as its lanes; memory is read where the result is used."""
    if isinstance(value, Vec):
        return value
    if not is_vector(value):
        raise b.error("TL0206", f"a vector is needed, got {describe(value)}", help="such as T.float32x4(x, y, z, w)")
    places = places_of(b, value)
    side = not (isinstance(value, Ref) and any(isinstance(i, Vec) for i in value.items))
    return Vec(tuple(Load(buffer, at) for buffer, at in places), places[0] if side else None)


def places_of(b: Builder, target: Any) -> tuple[Place, ...]:
    """The elements that a target of several lanes names, in order."""
    if isinstance(target, Buffer):
        return tuple((target, (Const(k, INT32),)) for k in range(target.lanes))
    buffer = target.buffer
    if any(isinstance(i, Vec) for i in target.items):
        return tuple((buffer, element(b, replace(target, items=items))) for items in _spread(b, target))
    items = expand(b, target)
    first = tuple(index(b, target, d, i) for d, i in enumerate(items[:-1]))
    if buffer.lanes and len(target.items) == buffer.rank - 1:
        return tuple((buffer, (*first, Const(k, INT32))) for k in range(buffer.lanes))
    start = index(b, target, buffer.rank - 1, items[-1].start)
    return tuple((buffer, (*first, further(start, k))) for k in range(_sliced(target) or 0))


def _spread(b: Builder, ref: Ref) -> Iterator[tuple[Any, ...]]:
    """The items of a reference with vectors among its indices, for each lane."""
    for k in range(count(b, *(i for i in ref.items if isinstance(i, Vec)))):
        yield tuple(i.lanes[k] if isinstance(i, Vec) else i for i in ref.items)


def further(start: Expr, k: int) -> Expr:
    """`start + k`, short where it can be."""
    if k == 0:
        return start
    if isinstance(start, Const):
        return Const(int(start.value) + k, start.dtype)
    if isinstance(start, Binary) and start.op == "add" and isinstance(start.b, Const):
        return Binary("add", start.a, Const(int(start.b.value) + k, start.dtype), start.dtype)
    return Binary("add", start, Const(k, start.dtype), start.dtype)


def count(b: Builder, *vectors: Vec) -> int:
    """The number of lanes that all vectors have."""
    sizes = {len(v.lanes) for v in vectors}
    if len(sizes) != 1:
        text = " and ".join(str(n) for n in sorted(sizes))
        raise b.error("TL0301", f"vectors of {text} lanes cannot be combined", help="vectors of an operation have the same number of lanes")
    return sizes.pop()


def each(b: Builder, fn: Callable[..., Any], *values: Any) -> Vec:
    """A function of numbers on vectors, lane by lane; a number among them is the same for each lane."""
    parts = [vector(b, v) if among(v) else v for v in values]
    lanes = count(b, *(p for p in parts if isinstance(p, Vec)))
    found = (fn(b, *(p.lanes[k] if isinstance(p, Vec) else p for p in parts)) for k in range(lanes))
    return Vec(tuple(as_expr(b, x) for x in found))


def broadcast(b: Builder, value: Any, lanes: int, dtype: DType | None = None) -> Vec:
    """A vector of `lanes` lanes, each of `dtype`: of a vector its own, of a number copies."""
    if among(value):
        found = vector(b, value)
        if len(found.lanes) != lanes:
            raise b.error("TL0301", f"a vector of {lanes} lanes is needed, got {describe(found)}")
        return found if dtype is None else Vec(tuple(as_expr(b, x, dtype) for x in found.lanes), _same(found, dtype))
    return Vec((as_expr(b, value, dtype),) * lanes)


def _same(v: Vec, dtype: DType) -> Place | None:
    return v.source if v.source is not None and v.source[0].dtype == dtype else None


def held(b: Builder, v: Vec, name: str) -> Vec:
    """The vector as a name keeps it: computed here and now. What lies side by side in memory is read at once."""
    if v.source is not None and v.source[0].scope in _MEMORY and not b.in_parallel:
        own = _private(b, name, v)
        _move(b, v.source, (own, (Const(0, INT32),)), len(v.lanes))
        return Vec(tuple(Load(own, (Const(k, INT32),)) for k in range(len(v.lanes))), (own, (Const(0, INT32),)))
    return Vec(tuple(let(b, x, f"{name}_{k}") for k, x in enumerate(v.lanes)))


def let(b: Builder, e: Expr, name: str) -> Expr:
    """A value computed here and now: a variable that holds it, unless it is one already or a literal."""
    if isinstance(e, (Var, Const)):
        return e
    var = Var(name, e.dtype, VarKind.LET, span=b.span)
    b.emit(Let(var, e, b.span))
    return var


def _private(b: Builder, name: str, v: Vec) -> Buffer:
    own = Buffer(name, v.lanes[0].dtype, (Const(len(v.lanes), INT32),), Scope.LOCAL, span=b.span)
    b.emit(Alloc(own, b.span))
    return own


def _move(b: Builder, src: Place, dst: Place, lanes: int) -> None:
    """Copies neighbours, as one access where alignment allows it."""
    k = Var("k", INT32, VarKind.LOOP, span=b.span)
    (source, at), (target, to) = src, dst
    store = Store(target, (*to[:-1], _plus(to[-1], k)), Load(source, (*at[:-1], _plus(at[-1], k))), b.span)
    b.emit(For(k, Const(0, INT32), Const(lanes, INT32), Const(1, INT32), "vectorized", Seq((store,), b.span), span=b.span))


def _plus(start: Expr, k: Var) -> Expr:
    if isinstance(start, Const) and start.value == 0:
        return k
    return Binary("add", start, cast_expr(k, start.dtype), start.dtype)


def store(b: Builder, target: Any, value: Any) -> None:
    """`target = value` for a target of several lanes. All lanes are computed before the first is stored."""
    places = places_of(b, target)
    buffer, first = places[0]
    if isinstance(value, Ref) and not is_vector(value) and any(isinstance(i, Slice) for i in value.items):
        raise b.error("TL0308", f"cannot assign a region to {len(places)} elements of `{buffer.name}`", help="use T.copy")
    v = broadcast(b, value, len(places), buffer.dtype)
    side = not (isinstance(target, Ref) and any(isinstance(i, Vec) for i in target.items))
    if side and buffer.scope in _MEMORY and not b.in_parallel:
        if v.source is not None and v.source[0].scope is Scope.LOCAL and _whole(v):
            _move(b, v.source, (buffer, first), len(places))
            return
        own = _private(b, f"{buffer.name}_lanes", v)
        for k, x in enumerate(v.lanes):
            b.emit(Store(own, (Const(k, INT32),), x, b.span))
        _move(b, (own, (Const(0, INT32),)), (buffer, first), len(places))
        return
    reads = any(isinstance(x, Load) for e in v.lanes for x in walk_expr(e))
    lanes = [let(b, x, f"{buffer.name}_{k}") if reads else x for k, x in enumerate(v.lanes)]
    for (_, at), x in zip(places, lanes, strict=True):
        b.emit(Store(buffer, at, x, b.span))


def _whole(v: Vec) -> bool:
    return v.source is not None and all(isinstance(x, Load) and x.buffer is v.source[0] for x in v.lanes)
