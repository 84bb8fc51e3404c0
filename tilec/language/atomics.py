"""T.atomic_add and its kin, for one element or for whole tiles.

T.atomic_add(C[i, j], v)          ->  Atomic("add", C, (i, j), (v,))
T.atomic_add(C[by * 64, 0], acc)  ->  Parallel over acc of Atomic("add", C, (by * 64 + i, j), (acc[i, j],))
"""

from __future__ import annotations

from typing import Any

from tilec.ir.dtypes import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    DType,
)  # fmt: skip
from tilec.ir.expr import Buffer, Expr, Load, Scope, Var, VarKind, const_int
from tilec.ir.tile import Atomic, Parallel, Region, Seq
from tilec.language.access import as_expr, buffer_label, element, where
from tilec.language.arith import binary
from tilec.language.bind import Entry, works
from tilec.language.builder import Builder
from tilec.language.context import host_flag, in_kernel, scope_error, tile_statement
from tilec.language.extents import constant
from tilec.language.lanes import among, broadcast, is_vector, places_of
from tilec.language.regions import is_element, is_empty, pair, region
from tilec.language.show import describe
from tilec.language.values import Ref, Vec

ORDERS = ("relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst")
_INTS = (INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64)
_NUMBERS = (*_INTS, FLOAT16, BFLOAT16, FLOAT32, FLOAT64)
TYPES: dict[str, tuple[DType, ...]] = {
    "add": _NUMBERS, "max": _NUMBERS, "min": _NUMBERS, "and": _INTS, "or": _INTS, "xor": _INTS,
    "load": _NUMBERS, "store": _NUMBERS, "exch": _NUMBERS, "cas": _NUMBERS,
}  # fmt: skip
"""The element types of each operation."""


def atomic_add(b: Builder, dst: Any, value: Any, memory_order: Any = None, return_prev: Any = False, use_tma: Any = False) -> Expr | None:
    """dst += value, indivisibly; element or tile form. return_prev gives the old value of an element."""
    return _update(b, "add", dst, value, memory_order, return_prev)


def atomic_max(b: Builder, dst: Any, value: Any, memory_order: Any = None, return_prev: Any = False) -> Expr | None:
    """dst = max(dst, value), indivisibly; NaN is dropped."""
    return _update(b, "max", dst, value, memory_order, return_prev)


def atomic_min(b: Builder, dst: Any, value: Any, memory_order: Any = None, return_prev: Any = False) -> Expr | None:
    """dst = min(dst, value), indivisibly; NaN is dropped."""
    return _update(b, "min", dst, value, memory_order, return_prev)


def atomic_and(b: Builder, dst: Any, value: Any, memory_order: Any = None, return_prev: Any = False) -> Expr | None:
    """dst &= value, indivisibly."""
    return _update(b, "and", dst, value, memory_order, return_prev)


def atomic_or(b: Builder, dst: Any, value: Any, memory_order: Any = None, return_prev: Any = False) -> Expr | None:
    """dst |= value, indivisibly."""
    return _update(b, "or", dst, value, memory_order, return_prev)


def atomic_xor(b: Builder, dst: Any, value: Any, memory_order: Any = None, return_prev: Any = False) -> Expr | None:
    """dst ^= value, indivisibly."""
    return _update(b, "xor", dst, value, memory_order, return_prev)


def atomic_exch(b: Builder, dst: Any, value: Any, memory_order: Any = None, return_prev: Any = True) -> Expr:
    """element = value, indivisibly; gives the value before."""
    ref = _element(b, "exch", dst)
    return _emit(b, "exch", ref, (as_expr(b, value, ref.buffer.dtype),), _order(b, memory_order), host_flag(b, return_prev, "return_prev"))


def atomic_cas(b: Builder, dst: Any, compare: Any, value: Any, memory_order: Any = None, return_prev: Any = True) -> Expr:
    """element = value if its bits are those of `compare`, indivisibly; gives the value before."""
    ref = _element(b, "cas", dst)
    operands = (as_expr(b, compare, ref.buffer.dtype), as_expr(b, value, ref.buffer.dtype))
    return _emit(b, "cas", ref, operands, _order(b, memory_order), host_flag(b, return_prev, "return_prev"))


def atomic_addx2(b: Builder, dst: Any, value: Any, return_prev: Any = False, memory_order: Any = None) -> Any:
    """Two neighbouring elements += a vector, or two others; each is indivisible. return_prev gives the vector of the old values."""
    return _vector_add(b, 2, dst, value, memory_order, return_prev)


def atomic_addx4(b: Builder, dst: Any, value: Any, return_prev: Any = False, memory_order: Any = None) -> Any:
    """Four neighbouring elements += a vector, or four others; each is indivisible. return_prev gives the vector of the old values."""
    return _vector_add(b, 4, dst, value, memory_order, return_prev)


def atomic_load(b: Builder, src: Any, memory_order: Any = "seq_cst") -> Expr:
    """The value of an element, read indivisibly."""
    ref = _element(b, "load", src)
    return _emit(b, "load", ref, (), _order(b, memory_order), keep=True)


def atomic_store(b: Builder, dst: Any, src: Any, memory_order: Any = "seq_cst") -> None:
    """element = value, written indivisibly."""
    ref = _element(b, "store", dst)
    _emit(b, "store", ref, (as_expr(b, src, ref.buffer.dtype),), _order(b, memory_order), keep=False)


def _update(b: Builder, op: str, dst: Any, value: Any, memory_order: Any, return_prev: Any) -> Expr | None:
    in_kernel(b, f"atomic_{op}")
    order, keep = _order(b, memory_order), host_flag(b, return_prev, "return_prev")
    if is_vector(dst) and (isinstance(value, Vec) or is_element(dst)):
        lanes: Expr | None = _vector_update(b, op, dst, value, order, keep)
        return lanes
    whole = (isinstance(value, Buffer) and value.rank > 0) or (isinstance(value, Ref) and not is_element(value))
    if is_element(dst) and not whole:
        ref = _element(b, op, dst)
        operand = as_expr(b, value, ref.buffer.dtype)
        return _emit(b, op, ref, (operand,), order, keep)
    if keep:
        text = f"return_prev of T.atomic_{op} is only defined for one element"
        raise b.error("TL0341", text, help="index one element, inside T.Parallel")
    _tile_update(b, op, dst, value, order, whole)
    return None


def _element(b: Builder, op: str, dst: Any) -> Ref:
    """The element that an atomic works on, after the checks of its place and type."""
    in_kernel(b, f"atomic_{op}")
    if not isinstance(dst, Ref) or not is_element(dst):
        raise b.error("TL0206", f"T.atomic_{op} works on an element of a buffer, got {describe(dst)}", help="index it: `C[i, j]`")
    _check(b, op, dst.buffer)
    return dst


def _check(b: Builder, op: str, buffer: Buffer) -> None:
    hint = "private memory needs no atomics: use `+=` and the like"
    scope_error(b, buffer, f"the target of T.atomic_{op}", (Scope.GLOBAL, Scope.SHARED), hint)
    if buffer.dtype not in TYPES[op]:
        names = ", ".join(map(str, TYPES[op]))
        raise b.error("TL0340", f"T.atomic_{op} is not supported on {buffer.dtype}", *buffer_label(buffer), help=f"supported: {names}")


def _order(b: Builder, value: Any) -> str:
    if value is None:
        return "relaxed"
    if value not in ORDERS:
        raise b.error("TL0206", f"unknown memory order {describe(value)}", help=f"use one of {', '.join(ORDERS)}")
    return str(value)


def _emit(b: Builder, op: str, ref: Ref, operands: tuple[Expr, ...], order: str, keep: bool) -> Expr:
    """Emits the statement; gives the variable that holds the old value, or the operand when nobody asked."""
    result = Var(b.hint or "old", ref.buffer.dtype, VarKind.LET, span=b.span) if keep else None
    b.emit(Atomic(op, ref.buffer, element(b, ref), operands, order, result, b.span))
    return result if result is not None else operands[0]


def _vector_add(b: Builder, lanes: int, dst: Any, value: Any, memory_order: Any, return_prev: Any) -> Vec | None:
    """Neighbouring elements along the last dimension, one atomic each."""
    name = f"atomic_addx{lanes}"
    in_kernel(b, name)
    order, keep = _order(b, memory_order), host_flag(b, return_prev, "return_prev")
    places = _neighbours(b, name, dst, lanes)
    _check(b, "add", places[0].buffer)
    if among(value):
        operands = broadcast(b, value, lanes, places[0].buffer.dtype).lanes
    elif isinstance(value, (Ref, Buffer)):
        operands = tuple(as_expr(b, r, places[0].buffer.dtype) for r in _neighbours(b, name, value, lanes))
    else:
        text = f"the value of T.{name} must be a vector of {lanes} or the first of {lanes} elements"
        raise b.error("TL0206", f"{text}, got {describe(value)}")
    olds = tuple(_emit(b, "add", r, (e,), order, keep) for r, e in zip(places, operands, strict=True))
    return Vec(olds) if keep else None


def _vector_update(b: Builder, op: str, dst: Any, value: Any, order: str, keep: bool) -> Any:
    """Each lane of an element of a vector type, one atomic each."""
    places = places_of(b, dst)
    _check(b, op, places[0][0])
    operands = broadcast(b, value, len(places), places[0][0].dtype).lanes
    olds = tuple(_emit(b, op, Ref(x, at, b.span), (e,), order, keep) for (x, at), e in zip(places, operands, strict=True))
    return Vec(olds) if keep else None


def _neighbours(b: Builder, name: str, start: Any, lanes: int) -> tuple[Ref, ...]:
    """The elements from the start of a buffer or region on, or from an element on, along the last dimension."""
    if is_vector(start):
        found = tuple(Ref(buffer, at, b.span) for buffer, at in places_of(b, start))
        if len(found) != lanes:
            raise b.error("TL0206", f"T.{name} works on {lanes} elements, got {len(found)}")
        return found
    if isinstance(start, (Buffer, Ref)) and not is_element(start):
        whole = region(b, start)
        start = Ref(whole.buffer, whole.starts, b.span)
    if not isinstance(start, Ref):
        raise b.error("TL0206", f"T.{name} works on elements of a buffer, got {describe(start)}", help="index it: `C[i, j]`")
    return tuple(_advance(b, start, k) if k else start for k in range(lanes))


def _advance(b: Builder, ref: Ref, count: int) -> Ref:
    """The element `count` places further along the last dimension."""
    items = element(b, ref)
    if not items:
        raise b.error("TL0206", f"`{ref.buffer.name}` is a single element", *buffer_label(ref.buffer), help="use T.atomic_add")
    return Ref(ref.buffer, (*items[:-1], binary(b, "add", items[-1], count)), where(b, ref))


def _tile_update(b: Builder, op: str, dst: Any, value: Any, order: str, whole: bool) -> None:
    """Every element of a region, as a parallel loop of element atomics."""
    tile_statement(b, f"atomic_{op}")
    if whole:
        source, target = pair(b, f"atomic_{op}", value, dst, empty=True)
    else:
        source, target = None, region(b, dst, f"the target of T.atomic_{op}", empty=True)
    _check(b, op, target.buffer)
    if is_empty(target):
        return
    dims = [d for d, e in enumerate(target.extents) if constant(e) != 1]
    variables = tuple(Var("ijklmn"[n] if n < 6 else f"i{n}", INT32, VarKind.LOOP, span=b.span) for n in range(len(dims)))
    operand = as_expr(b, value) if source is None else Load(source.buffer, _indices(b, source, variables))
    update = Atomic(op, target.buffer, _indices(b, target, variables), (as_expr(b, operand, target.buffer.dtype),), order, None, b.span)
    extents = tuple(target.extents[d] for d in dims)
    if not dims:  # one element, which is still updated once for the block
        variables, extents = (Var("i", INT32, VarKind.LOOP, span=b.span),), (const_int(1),)
    b.emit(Parallel(variables, extents, Seq((update,), b.span), b.span))


def _indices(b: Builder, r: Region, variables: tuple[Var, ...]) -> tuple[Expr, ...]:
    """The indices of one element of a region, one variable a dimension whose extent is not 1."""
    rest = iter(variables)
    return tuple(s if constant(e) == 1 else binary(b, "add", s, next(rest)) for s, e in zip(r.starts, r.extents, strict=True))


ENTRIES: tuple[Entry, ...] = tuple(
    e
    for fn in (
        atomic_add, atomic_max, atomic_min, atomic_and, atomic_or, atomic_xor, atomic_addx2, atomic_addx4, atomic_load, atomic_store,
    )
    for e in works(fn)
) + works(atomic_cas) + works(atomic_exch, "atomic_exchange")  # fmt: skip
