"""Threads by number and what they exchange: lanes, warps and warp groups, shuffles, votes, reductions of a warp.

T.get_lane_idx()         ->  tx % 32
T.shfl_xor(v, 1)         ->  let v_1 = shfl_xor(0xffffffff, v, 1, 32)
T.warp_reduce_sum(v)     ->  five exchanges, each followed by an addition

Every exchange is bound to a variable where it stands, so that all threads come to it in the order of the source.
"""

from __future__ import annotations

from typing import Any

from tilec.ir.dtypes import BOOL, FLOAT64, INT32, INT64, UINT8, UINT16, UINT32, UINT64, DType
from tilec.ir.expr import Binary, Call, Cast, Compare, Const, Expr, Reinterpret, Select, Var, VarKind
from tilec.ir.tile import Let
from tilec.language.access import as_expr, host_int
from tilec.language.arith import binary, truth
from tilec.language.bind import Entry, works
from tilec.language.builder import Builder
from tilec.language.context import in_kernel
from tilec.language.values import Ref

WARP = 32
FULL = 0xFFFFFFFF
DEFAULT_THREADS = (128, 1, 1)
_LANES = (1, 2, 4, 8, 16)
_BITS = {8: UINT8, 16: UINT16}


def thread_number(b: Builder, name: str) -> Expr:
    """The number of the thread in its block, x fastest."""
    launch = in_kernel(b, name)
    x, y, z = launch.threads or DEFAULT_THREADS
    number: Any = launch.thread_vars[0]
    if y > 1 or z > 1:
        number = binary(b, "add", number, binary(b, "mul", launch.thread_vars[1], x))
    if z > 1:
        number = binary(b, "add", number, binary(b, "mul", launch.thread_vars[2], x * y))
    return as_expr(b, number)


def get_lane_idx(b: Builder, warp_size: Any = None) -> Expr:
    """The number of the thread in its warp, 0 to 31."""
    return as_expr(b, binary(b, "mod", thread_number(b, "get_lane_idx"), _size(b, warp_size, WARP, "warp_size")))


def get_warp_idx(b: Builder, warp_size: Any = None) -> Expr:
    """The number of the warp in its block."""
    return as_expr(b, binary(b, "floordiv", thread_number(b, "get_warp_idx"), _size(b, warp_size, WARP, "warp_size")))


def get_warp_group_idx(b: Builder, warp_size: Any = None, warps_per_group: Any = None) -> Expr:
    """The number of the group of four warps in its block."""
    size = _size(b, warp_size, WARP, "warp_size") * _size(b, warps_per_group, 4, "warps_per_group")
    return as_expr(b, binary(b, "floordiv", thread_number(b, "get_warp_group_idx"), size))


def shuffle_elect(b: Builder, thread_extent: Any = 0) -> Expr:
    """True in the first thread of every `thread_extent` threads, of the block for 0."""
    number, extent = thread_number(b, "shuffle_elect"), host_int(b, thread_extent, "thread_extent")
    if extent < 0:
        raise b.error("TL0206", f"thread_extent must not be negative, got {extent}")
    first = number if extent == 0 else as_expr(b, binary(b, "mod", number, extent))
    return Compare("eq", first, Const(0, first.dtype))


def elect_one_sync(b: Builder) -> Expr:
    """True in one thread of the warp, the first."""
    lane = get_lane_idx(b)
    return Compare("eq", lane, Const(0, lane.dtype))


def _size(b: Builder, given: Any, default: int, what: str) -> int:
    size = default if given is None else host_int(b, given, what)
    if size < 1:
        raise b.error("TL0206", f"{what} must be positive, got {size}")
    return size


def shfl_xor(b: Builder, value: Any, delta: Any, width: Any = WARP, mask: Any = FULL) -> Expr:
    """The value of the lane whose number differs in the bits of `delta`."""
    return _shuffle(b, "shfl_xor", value, delta, width, mask)


def shfl_down(b: Builder, value: Any, delta: Any, width: Any = WARP, mask: Any = FULL) -> Expr:
    """The value of the lane `delta` further up in its group of `width`; the own value where there is none."""
    return _shuffle(b, "shfl_down", value, delta, width, mask)


def shfl_up(b: Builder, value: Any, delta: Any, width: Any = WARP, mask: Any = FULL) -> Expr:
    """The value of the lane `delta` further down in its group of `width`; the own value where there is none."""
    return _shuffle(b, "shfl_up", value, delta, width, mask)


def shfl_sync(b: Builder, value: Any, srcLane: Any, width: Any = WARP, mask: Any = FULL) -> Expr:
    """The value of lane `srcLane` of the group of `width` lanes."""
    return _shuffle(b, "shfl_idx", value, srcLane, width, mask)


def tvm_warp_shuffle(b: Builder, mask: Any, value: Any, warp_id: Any, width: Any = WARP, warp_size: Any = WARP) -> Expr:
    """T.shfl_sync with its arguments in another order."""
    return _shuffle(b, "shfl_idx", value, warp_id, width, mask)


def tvm_warp_shuffle_up(b: Builder, mask: Any, value: Any, offset: Any, width: Any = WARP, warp_size: Any = WARP) -> Expr:
    """T.shfl_up with its arguments in another order."""
    return _shuffle(b, "shfl_up", value, offset, width, mask)


def tvm_warp_shuffle_down(b: Builder, mask: Any, value: Any, offset: Any, width: Any = WARP, warp_size: Any = WARP) -> Expr:
    """T.shfl_down with its arguments in another order."""
    return _shuffle(b, "shfl_down", value, offset, width, mask)


def _shuffle(b: Builder, name: str, value: Any, lane: Any, width: Any, mask: Any) -> Expr:
    together(b, name)
    span = host_int(b, width, "width")
    if span not in (1, 2, 4, 8, 16, 32):
        raise b.error("TL0206", f"width must be a power of two up to 32, got {span}")
    own = as_expr(b, value)
    if not (own.dtype.is_int or own.dtype.is_float or own.dtype is BOOL):
        raise b.error("TL0315", f"`T.{name}` is not defined for {own.dtype}")
    word = _word(own)
    call = Call(name, (_mask(b, mask), word, as_expr(b, lane, INT32), Const(span, INT32)), word.dtype)
    return _back(held(b, call, b.hint or "other"), own.dtype)


def _word(e: Expr) -> Expr:
    """A value in a type that shuffles take: 32 or 64 bits."""
    if e.dtype.bits >= 32:
        return e
    if e.dtype.is_float:
        return Cast(Reinterpret(e, _BITS[e.dtype.bits]), UINT32)
    return Cast(e, INT32)


def _back(e: Expr, dtype: DType) -> Expr:
    """The value of type `dtype` that travelled in a word."""
    if e.dtype == dtype:
        return e
    return Reinterpret(Cast(e, _BITS[dtype.bits]), dtype) if dtype.is_float else Cast(e, dtype)


def _mask(b: Builder, mask: Any) -> Expr:
    if isinstance(mask, Const):
        mask = mask.value
    if isinstance(mask, int):
        return Const(int(mask) % (1 << 32), UINT32)
    return as_expr(b, mask, UINT32)


def together(b: Builder, name: str) -> None:
    """Refuses an exchange between threads outside of a kernel or inside of T.Parallel."""
    in_kernel(b, name)
    if b.in_parallel:
        text = f"`T.{name}` exchanges values between threads and cannot be used inside T.Parallel"
        raise b.error("TL0205", text, help="its iterations belong to no thread in particular; move it out of the loop")


def held(b: Builder, e: Expr, hint: str) -> Var:
    """A variable that holds the value of `e` from here on."""
    var = Var(hint, e.dtype, VarKind.LET, span=b.span)
    b.emit(Let(var, e, b.span))
    return var


def _vote(b: Builder, name: str, predicate: Any, mask: Any, dtype: DType) -> Expr:
    together(b, name)
    met = truth(b, predicate)
    cond = Const(met, BOOL) if isinstance(met, bool) else met
    return held(b, Call(name, (_mask(b, mask), cond), dtype), b.hint or "vote")


def any_sync(b: Builder, predicate: Any, mask: Any = FULL) -> Expr:
    """1 if the condition holds in any lane of `mask`, else 0."""
    return Cast(_vote(b, "any_sync", predicate, mask, BOOL), INT32)


def all_sync(b: Builder, predicate: Any, mask: Any = FULL) -> Expr:
    """1 if the condition holds in all lanes of `mask`, else 0."""
    return Cast(_vote(b, "all_sync", predicate, mask, BOOL), INT32)


def ballot_sync(b: Builder, predicate: Any, mask: Any = FULL) -> Expr:
    """The lanes of `mask` in which the condition holds, a bit each (uint64)."""
    return Cast(_vote(b, "ballot", predicate, mask, UINT32), UINT64)


def ballot(b: Builder, predicate: Any) -> Expr:
    """The lanes of the warp in which the condition holds, a bit each (uint64)."""
    return ballot_sync(b, predicate)


def activemask(b: Builder) -> Expr:
    """The lanes that are here at this moment, a bit each (uint64)."""
    together(b, "activemask")
    return Cast(held(b, Call("activemask", (), UINT32), b.hint or "active"), UINT64)


def match_any_sync(b: Builder, value: Any, mask: Any = FULL) -> Expr:
    """The lanes of `mask` whose value has the same bits, a bit each (uint32)."""
    together(b, "match_any_sync")
    word = _word(as_expr(b, value))
    if word.dtype.is_float:
        word = Reinterpret(word, UINT64 if word.dtype == FLOAT64 else UINT32)
    return held(b, Call("match_any", (_mask(b, mask), word), UINT32), b.hint or "same")


def match_all_sync(b: Builder, value: Any, mask: Any = FULL) -> Expr:
    """`mask` if all its lanes have the same value, else 0 (uint32)."""
    lanes = _mask(b, mask)
    same = match_any_sync(b, value, lanes)
    return Select(Compare("eq", same, lanes), lanes, Const(0, UINT32), UINT32)


def syncthreads_and(b: Builder, predicate: Any) -> Expr:
    """Waits for all threads of the block; 1 if the condition holds in all of them, else 0."""
    return _block_vote(b, "sync_and", predicate)


def syncthreads_or(b: Builder, predicate: Any) -> Expr:
    """Waits for all threads of the block; 1 if the condition holds in any of them, else 0."""
    return _block_vote(b, "sync_or", predicate)


def syncthreads_count(b: Builder, predicate: Any) -> Expr:
    """Waits for all threads of the block; the number of those in which the condition holds."""
    return _block_vote(b, "sync_count", predicate)


def _block_vote(b: Builder, name: str, predicate: Any) -> Expr:
    together(b, name)
    met = truth(b, predicate)
    cond = Const(met, BOOL) if isinstance(met, bool) else met
    vote = held(b, Call(name, (cond,), INT32), b.hint or "vote")
    return vote if name == "sync_count" else Cast(Compare("ne", vote, Const(0, INT32)), INT32)


def warp_reduce_sum(b: Builder, value: Any) -> Expr:
    """The sum over the lanes of the warp, in each of them."""
    return butterfly(b, "add", value, _LANES)


def warp_reduce_max(b: Builder, value: Any) -> Expr:
    """The maximum over the lanes of the warp, in each of them."""
    return butterfly(b, "max", value, _LANES)


def warp_reduce_min(b: Builder, value: Any) -> Expr:
    """The minimum over the lanes of the warp, in each of them."""
    return butterfly(b, "min", value, _LANES)


def warp_reduce_bitand(b: Builder, value: Any) -> Expr:
    """The bitwise and over the lanes of the warp, in each of them."""
    return butterfly(b, "and", value, _LANES)


def warp_reduce_bitor(b: Builder, value: Any) -> Expr:
    """The bitwise or over the lanes of the warp, in each of them."""
    return butterfly(b, "or", value, _LANES)


def butterfly(b: Builder, op: str, value: Any, distances: tuple[int, ...]) -> Expr:
    """The combination over all lanes whose numbers differ in these bits only, in each of them."""
    together(b, f"warp_reduce_{op}")
    hint, b.hint = b.hint or "total", ""
    total: Expr = held(b, as_expr(b, value), hint)
    if op in ("and", "or") and not total.dtype.is_int:
        raise b.error("TL0315", f"a bitwise reduction is not defined for {total.dtype}")
    for distance in reversed(distances):
        total = held(b, Binary(op, total, _shuffle(b, "shfl_xor", total, distance, WARP, FULL), total.dtype), hint)
    return total


def any_of(b: Builder, values: Any) -> Expr:
    """True if any element of a buffer or region is not zero."""
    return _over_elements(b, "any_of", "or", values)


def all_of(b: Builder, values: Any) -> Expr:
    """True if all elements of a buffer or region are not zero."""
    return _over_elements(b, "all_of", "and", values)


_MOST_ELEMENTS = 64


def _over_elements(b: Builder, name: str, op: str, values: Any) -> Expr:
    from itertools import product

    from tilec.ir.expr import Logical
    from tilec.language.extents import constant
    from tilec.language.regions import region

    in_kernel(b, name)
    box = region(b, values, f"the argument of T.{name}")
    sizes = [constant(e) for e in box.extents]
    count = 1
    for n in sizes:
        count = count * n if n is not None else _MOST_ELEMENTS + 1
    if count > _MOST_ELEMENTS:
        raise b.error("TL0206", f"T.{name} takes at most {_MOST_ELEMENTS} elements", help="use T.reduce_any or T.reduce_all on a tile")
    out: Expr | None = None
    for place in product(*(range(n or 0) for n in sizes)):
        items = tuple(binary(b, "add", s, k) for s, k in zip(box.starts, place, strict=True))
        one = truth(b, Ref(box.buffer, items, b.span))
        met = Const(one, BOOL) if isinstance(one, bool) else one
        out = met if out is None else Logical(op, out, met)
    return out if out is not None else Const(op == "and", BOOL)


def find_first_set(b: Builder, value: Any) -> Expr:
    """The place of the lowest bit that is set, counted from 1; 0 if none is."""
    e = as_expr(b, value)
    if e.dtype not in (INT32, UINT32, INT64, UINT64):
        e = as_expr(b, e, INT32)
    return Call("ffs", (e,), INT32)


_LANEWISE = (shfl_xor, shfl_down, shfl_up, shfl_sync, warp_reduce_sum, warp_reduce_max, warp_reduce_min)
"""Exchanges that take vectors lane by lane."""

ENTRIES: tuple[Entry, ...] = tuple(
    e
    for fn in (
        get_lane_idx, get_warp_group_idx, shuffle_elect, elect_one_sync, shfl_xor, shfl_down, shfl_up, shfl_sync, tvm_warp_shuffle,
        tvm_warp_shuffle_up, tvm_warp_shuffle_down, any_sync, all_sync, ballot_sync, ballot, activemask, match_any_sync,
        match_all_sync, syncthreads_and, syncthreads_or, syncthreads_count, warp_reduce_sum, warp_reduce_max, warp_reduce_min,
        warp_reduce_bitand, warp_reduce_bitor, any_of, all_of,
    )
    for e in works(fn, lanewise=fn in _LANEWISE)
) + works(get_warp_idx, "get_warp_idx_sync") + works(find_first_set, name="__ffs")  # fmt: skip
ENTRIES += works(activemask, name="tvm_warp_activemask")
