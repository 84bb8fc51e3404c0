"""Code for some threads only, and reductions over the threads of a block.

with T.ws(0): ...                       ->  scalar statements inside run under `thread number // 128 == 0`
T.tvm_thread_allreduce(..., tx, ...)    ->  a butterfly of shuffles, then the warps' results through shared memory
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

from tilec.record import record
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Buffer, Compare, Const, Expr, Load, Logical, Scope, Var, VarKind
from tilec.ir.tile import (
    Alloc, Atomic, Barrier, Copy, Evaluate, Fill, For, Gemm, If, Parallel, Print, Reduce, Scan, Seq, Stmt, Store, Trap, While,
)  # fmt: skip
from tilec.ir.visit import map_stmt, walk_stmt
from tilec.language.access import as_expr, host_int
from tilec.language.arith import binary
from tilec.language.bind import Entry, ignored, works
from tilec.language.builder import Builder
from tilec.language.context import in_kernel
from tilec.language.regions import is_element, write
from tilec.language.show import describe
from tilec.language.values import Ref, WithSpec
from tilec.language.warp import DEFAULT_THREADS, WARP, butterfly, held, thread_number, together

GROUP = 128
"""Threads of a warp group."""


@record
class Reducer:
    """`T.comm_reducer(lambda x, y: x + y, [0])`: the author's function of two values."""

    combine: Any


def ws(b: Builder, *groups: Any) -> WithSpec:
    """`with T.ws(0, 2):` runs the statements inside in these warp groups (of 128 threads) only. In a kernel without barriers of its
    own (T.alloc_barrier, T.wgmma_gemm, T.tma_copy), tiles still belong to all threads."""
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
    in_kernel(b, "ws").groups.append(cond)
    with b.block() as inside:
        run()
    if inside:
        b.emit(If(cond, Seq(tuple(inside), span), Seq((), span), span))


def settle_groups(b: Builder, body: Stmt, groups: list[Expr]) -> Stmt:
    """`body` with its T.ws as they are meant where no barriers are written by hand: tiles belong to all threads."""

    def visit(s: Stmt) -> Stmt:
        s = map_stmt(s, lambda e: e, visit)
        if isinstance(s, If) and any(s.cond is g for g in groups):
            return Seq(tuple(_only_where(s.cond, [s.then])), s.span)
        return s

    return visit(body) if groups else body


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


def sblock(b: Builder, name: Any = "", no_realize: Any = False) -> WithSpec:
    """`with T.sblock("name"):` only groups the statements inside."""
    return WithSpec("sblock", lambda b, run: run())


def marked(b: Builder, name: Any, payload: Any = None) -> WithSpec:
    """`with iket.range("name"):` marks the statements inside for a profiler."""
    return WithSpec("range", lambda b, run: run())


MARKED: tuple[Entry, ...] = ignored(marked, name="range", host=True)
"""Members of tilelang.tools.cuda.iket that statements stand in."""


def comm_reducer(b: Builder, fcombine: Any, identity: Any = None) -> Reducer:
    """A reduction from a function of two values and its neutral element."""
    return Reducer(fcombine)


def tvm_thread_allreduce(b: Builder, size: Any, value: Any, cond: Any, out: Any, *axes: Any, dtype: Any = None) -> None:
    """out = `value` combined over the threads along the given axes, in each of them."""
    together(b, "tvm_thread_allreduce")
    if not isinstance(b.reducer, Reducer):
        text = "T.tvm_thread_allreduce needs a reducer around it"
        raise b.error("TL0205", text, help='put it under `with T.attr(T.comm_reducer(...), "reduce_scope", ...)`')
    if not (cond is True or (isinstance(cond, Const) and bool(cond.value))):
        text = "the condition of T.tvm_thread_allreduce must be True"
        raise b.error("TL0206", text, help="give threads that do not count the reducer's identity: T.if_then_else(cond, value, 0)")
    target = Ref(out, (0,) * out.rank, b.span) if isinstance(out, Buffer) else out
    if not is_element(target):
        raise b.error("TL0206", f"the result of T.tvm_thread_allreduce must be an element, got {describe(out)}")
    hint, b.hint = b.hint, ""
    mine = held(b, as_expr(b, value, target.buffer.dtype), "part")
    op, group = _operation(b, mine), _Group.of(b, axes)
    total: Expr = mine
    if op and group.even:
        total = butterfly(b, op, mine, tuple(d for d in group.distances if d < WARP))
        group = group.beyond_warps()
    if group.size > 1:
        total = _through_memory(b, total, group)
    b.hint = hint
    write(b, target, total)


@record
class _Group:
    """The threads that are combined: along each axis (place value in the thread's number, size), the fastest first."""

    axes: tuple[tuple[int, int], ...]
    threads: int

    @staticmethod
    def of(b: Builder, axes: tuple[Any, ...]) -> _Group:
        """The group of the thread indices that the author names."""
        counts = in_kernel(b, "tvm_thread_allreduce").threads or DEFAULT_THREADS
        if any(not (isinstance(v, (Const, int)) or (isinstance(v, Var) and v.kind is VarKind.THREAD)) for v in axes):
            raise b.error("TL0206", "T.tvm_thread_allreduce takes thread indices: T.get_thread_binding(0) and the like")
        given = {v.axis for v in axes if isinstance(v, Var)}
        places = (1, counts[0], counts[0] * counts[1])
        return _Group(tuple((places[a], counts[a]) for a in range(3) if a in given and counts[a] > 1), prod(counts))

    @property
    def size(self) -> int:
        """How many threads are combined."""
        return prod(n for _, n in self.axes)

    @property
    def even(self) -> bool:
        """True when all places and sizes are powers of two, so that partners differ in single bits of the number."""
        return all(n & (n - 1) == 0 for pair in self.axes for n in pair)

    @property
    def distances(self) -> tuple[int, ...]:
        """The bits in which partners differ, for an even group."""
        return tuple(place << k for place, size in self.axes for k in range(size.bit_length() - 1))

    def beyond_warps(self) -> _Group:
        """What is left of an even group when the lanes of each warp have been combined."""
        return _Group(tuple((d, 2) for d in self.distances if d >= WARP), self.threads)

    def steps(self) -> list[int]:
        """The numbers of all threads of a group, from its first one."""
        out = [0]
        for place, size in self.axes:
            out = [n + k * place for k in range(size) for n in out]
        return sorted(out)


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


def _through_memory(b: Builder, mine: Expr, group: _Group) -> Expr:
    """The values of a group through shared memory, combined one after another by each of its threads."""
    number = thread_number(b, "tvm_thread_allreduce")
    parts = Buffer("parts", mine.dtype, (Const(group.threads, INT32),), Scope.SHARED, span=b.span)
    b.emit(Alloc(parts, b.span))
    b.emit(Store(parts, (number,), mine, b.span))
    first: Any = number
    for place, size in group.axes:
        digit = binary(b, "mod", binary(b, "floordiv", number, place), size)
        first = binary(b, "sub", first, binary(b, "mul", digit, place))
    start = held(b, as_expr(b, first), "first")
    total: Expr | None = None
    for step in group.steps():
        one = Load(parts, (as_expr(b, binary(b, "add", start, step)),))
        total = held(b, one if total is None else _combined(b, total, one), "total")
    assert total is not None
    return total


ENTRIES: tuple[Entry, ...] = (
    works(ws, "WarpSpecialize")
    + works(attr)
    + works(comm_reducer, host=True)
    + works(tvm_thread_allreduce)
    + works(sblock, "block")
)
