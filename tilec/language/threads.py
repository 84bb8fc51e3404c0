"""Code for some threads only, and reductions over the threads of a block.

with T.ws(0): ...                       ->  scalar statements inside run under `thread number // 128 == 0`
T.tvm_thread_allreduce(..., tx, ...)    ->  a butterfly of shuffles, then the warps' results through shared memory
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tilec.ir.dtypes import INT32
from tilec.ir.expr import Buffer, Compare, Const, Expr, Load, Logical, Scope, Var, VarKind
from tilec.ir.tile import (
    Alloc, Atomic, Barrier, Copy, Evaluate, Fill, For, Gemm, If, Parallel, Print, Reduce, Scan, Seq, Stmt, Store, Trap, While,
)  # fmt: skip
from tilec.ir.visit import walk_stmt
from tilec.language.access import as_expr, host_int
from tilec.language.arith import binary
from tilec.language.bind import Entry, works
from tilec.language.builder import Builder
from tilec.language.context import in_kernel
from tilec.language.regions import is_element, write
from tilec.language.show import describe
from tilec.language.values import Ref, WithSpec
from tilec.language.warp import DEFAULT_THREADS, WARP, butterfly, held, thread_number, together

GROUP = 128
"""Threads of a warp group."""


@dataclass(frozen=True, slots=True)
class Reducer:
    """`T.comm_reducer(lambda x, y: x + y, [0])`: the author's function of two values."""

    combine: Any


def ws(b: Builder, *groups: Any) -> WithSpec:
    """`with T.ws(0, 2):` runs the scalar statements inside in these warp groups (of 128 threads) only; tiles belong to all threads."""
    launch = in_kernel(b, "ws")
    threads = prod(launch.threads or DEFAULT_THREADS)
    wanted = [host_int(b, g, "a warp group") for g in groups]
    most = max(1, threads // GROUP)
    for g in wanted:
        if not 0 <= g < most:
            raise b.error("TL0402", f"there is no warp group {g}: a block of {threads} threads has {most}")
    if not wanted:
        raise b.error("TL0203", "T.ws needs the numbers of warp groups")
    return WithSpec("ws", lambda b, run: _in_groups(b, wanted, run))


def _in_groups(b: Builder, groups: list[int], run: Callable[[], None]) -> None:
    span = b.span
    group = held(b, as_expr(b, binary(b, "floordiv", thread_number(b, "ws"), GROUP)), "group")
    cond: Expr | None = None
    for g in groups:
        one = Compare("eq", group, Const(g, group.dtype))
        cond = one if cond is None else Logical("or", cond, one)
    assert cond is not None
    with b.block() as inside:
        run()
    for s in _only_where(cond, inside):
        b.emit(replace(s, span=span) if isinstance(s, Seq) else s)


def _only_where(cond: Expr, body: list[Stmt]) -> list[Stmt]:
    """`body` with its scalar effects under `cond`; statements about tiles and what holds them stay with all threads."""
    if not any(_for_all(s) for top in body for s in walk_stmt(top)):
        return [If(cond, Seq(tuple(body), body[0].span), Seq((), body[0].span), body[0].span)] if body else []
    out: list[Stmt] = []
    for s in body:
        match s:
            case Seq():
                out += _only_where(cond, list(s.body))
            case For() | While():
                out.append(replace(s, body=Seq(tuple(_only_where(cond, [s.body])), s.span)))
            case If():
                yes, no = (Seq(tuple(_only_where(cond, [x])), s.span) for x in (s.then, s.orelse))
                out.append(replace(s, then=yes, orelse=no))
            case Store() | Atomic() | Print() | Trap() | Evaluate():
                out.append(If(cond, s, Seq((), s.span), s.span))
            case Barrier(kind) if kind != "block":
                out.append(If(cond, s, Seq((), s.span), s.span))
            case _:
                out.append(s)
    return out


def _for_all(s: Stmt) -> bool:
    """True for statements that only the whole block can carry out, or that later code depends on."""
    if isinstance(s, Alloc):
        return s.buffer.scope in (Scope.SHARED, Scope.FRAGMENT)
    return isinstance(s, (Copy, Fill, Gemm, Reduce, Scan, Parallel))


def attr(b: Builder, node: Any, attr_key: Any = "", value: Any = None) -> WithSpec:
    """`with T.attr(reducer, "reduce_scope", ...):` names the function of the T.tvm_thread_allreduce inside; other attributes are hints."""

    def enter(b: Builder, run: Callable[[], None]) -> None:
        kept = b.reducer
        b.reducer = node if isinstance(node, Reducer) else kept
        try:
            run()
        finally:
            b.reducer = kept

    return WithSpec("attr", enter)


def comm_reducer(b: Builder, fcombine: Any, identity: Any = None) -> Reducer:
    """A reduction from a function of two values and its neutral element."""
    return Reducer(fcombine)


def tvm_thread_allreduce(b: Builder, size: Any, value: Any, cond: Any, out: Any, *axes: Any, dtype: Any = None) -> None:
    """out = `value` combined over the threads along the given axes, in each of them."""
    together(b, "tvm_thread_allreduce")
    if not isinstance(b.reducer, Reducer):
        text = "T.tvm_thread_allreduce needs a reducer around it"
        raise b.error("TL0205", text, help='put it under `with T.attr(T.comm_reducer(...), "reduce_scope", ...)`')
    target = Ref(out, (0,) * out.rank, b.span) if isinstance(out, Buffer) else out
    if not is_element(target):
        raise b.error("TL0206", f"the result of T.tvm_thread_allreduce must be an element, got {describe(out)}")
    kind = target.buffer.dtype
    width = _extent(b, axes)
    threads = prod(in_kernel(b, "tvm_thread_allreduce").threads or DEFAULT_THREADS)
    hint, b.hint = b.hint, ""
    mine = held(b, as_expr(b, value, kind), "part")
    op = _operation(b, mine)
    if op and width <= WARP and width & (width - 1) == 0:
        total: Expr = butterfly(b, op, mine, width)
    elif op and width % WARP == 0:
        total = _over_warps(b, butterfly(b, op, mine, WARP), width, threads)
    else:
        total = _over_threads(b, mine, width, threads)
    b.hint = hint
    write(b, target, total)


def _extent(b: Builder, axes: tuple[Any, ...]) -> int:
    """How many neighbouring threads the axes name together."""
    counts = in_kernel(b, "tvm_thread_allreduce").threads or DEFAULT_THREADS
    given = {v.axis for v in axes if isinstance(v, Var) and v.kind is VarKind.THREAD}
    wide = [a for a in range(3) if counts[a] > 1]
    used = [a for a in wide if a in given]
    if used != wide[: len(used)] or any(not isinstance(v, (Var, Const, int)) for v in axes):
        raise b.error("TL0206", "T.tvm_thread_allreduce takes thread indices from x on: tx, or tx and ty, or all three")
    return prod(counts[a] for a in used)


def _combined(b: Builder, x: Expr, y: Expr) -> Expr:
    assert b.apply is not None and isinstance(b.reducer, Reducer)
    return as_expr(b, b.apply(b.reducer.combine, (x, y)), x.dtype)


def _operation(b: Builder, like: Var) -> str:
    """The name of the author's function when it is one plain operation, else nothing."""
    from tilec.ir.expr import Binary

    x, y = Var("x", like.dtype), Var("y", like.dtype)
    with b.block() as extra:
        e = _combined(b, x, y)
    match e:
        case Binary("add" | "mul" | "max" | "min" | "and" | "or" | "xor" as op, p, q) if {p, q} == {x, y} and not extra:
            return op
        case _:
            return ""


def _over_warps(b: Builder, total: Expr, width: int, threads: int) -> Expr:
    """Combines the results of the warps of each group of `width` threads."""
    warps = width // WARP
    number = thread_number(b, "tvm_thread_allreduce")
    parts = _shared(b, total, threads // WARP)
    warp = as_expr(b, binary(b, "floordiv", number, WARP))
    lane = as_expr(b, binary(b, "mod", number, WARP))
    store = Store(parts, (warp,), total, b.span)
    b.emit(If(Compare("eq", lane, Const(0, lane.dtype)), store, Seq((), b.span), b.span))
    first = as_expr(b, binary(b, "mul", binary(b, "floordiv", number, width), warps))
    return _folded(b, parts, first, warps)


def _over_threads(b: Builder, mine: Expr, width: int, threads: int) -> Expr:
    """Combines the values of each group of `width` threads, one after another."""
    number = thread_number(b, "tvm_thread_allreduce")
    parts = _shared(b, mine, threads)
    b.emit(Store(parts, (number,), mine, b.span))
    first = as_expr(b, binary(b, "mul", binary(b, "floordiv", number, width), width))
    return _folded(b, parts, first, width)


def _shared(b: Builder, like: Expr, count: int) -> Buffer:
    parts = Buffer("parts", like.dtype, (Const(count, INT32),), Scope.SHARED, span=b.span)
    b.emit(Alloc(parts, b.span))
    return parts


def _folded(b: Builder, parts: Buffer, first: Expr, count: int) -> Expr:
    """parts[first] to parts[first + count - 1], combined in this order."""
    total: Expr = held(b, Load(parts, (first,)), "total")
    for k in range(1, count):
        total = held(b, _combined(b, total, Load(parts, (as_expr(b, binary(b, "add", first, k)),))), "total")
    return total


ENTRIES: tuple[Entry, ...] = works(ws) + works(attr) + works(comm_reducer, host=True) + works(tvm_thread_allreduce)
