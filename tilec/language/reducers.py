"""T.alloc_reducer: a tile that the iterations of parallel loops combine into, each once.

r = T.alloc_reducer((64,), "float32"); T.clear(r)
for i, j in T.Parallel(64, 32): r[i] += A[i, j]     ->  parallel: part[i, j] = A[i, j]; reduce sum part -> r dim 1 keep

A loop whose contributions are one a point of its domain becomes a reduction; other contributions are atomic additions to a
tile in shared memory. Either way the tile holds the result of what has been contributed so far.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tilec.record import record
from tilec.ir.dtypes import INT32, DType, int_range
from tilec.ir.expr import Binary, Buffer, Const, Expr, Load, Scope, Select, Var
from tilec.ir.tile import Alloc, Atomic, Copy, Fill, If, Parallel, Reduce, Region, Seq, Stmt, Store
from tilec.ir.visit import flat, map_stmt, replace_buffers, walk_stmt
from tilec.language.access import as_expr, buffer_label, element
from tilec.language.alloc import alloc_shared
from tilec.language.bind import Entry, works
from tilec.language.builder import Builder
from tilec.language.context import tile_statement
from tilec.language.extents import constant
from tilec.language.regions import is_element, pair, region
from tilec.language.show import describe
from tilec.language.values import Ref

OPS = {"sum": "add", "max": "max", "min": "min", "bitand": "and", "bitor": "or", "bitxor": "xor"}
_REDUCES = {atomic: reduce for reduce, atomic in OPS.items()}


def alloc_reducer(b: Builder, shape: Any, dtype: Any, op: Any = "sum", replication: Any = None) -> Buffer:
    """A tile that parallel loops combine into with `+=`, T.max or T.min (`op`); fill it before, T.finalize_reducer it after."""
    if not isinstance(op, str) or op not in OPS:
        raise b.error("TL0331", f"unknown reduction {describe(op)}", help=f"use one of {', '.join(OPS)}")
    if replication not in (None, "all", "none"):
        raise b.error("TL0206", f'replication is "all" or "none", got {describe(replication)}')
    b.hint = b.hint or "reducer"
    buffer = alloc_shared(b, shape, dtype)
    if op.startswith("bit") and not buffer.dtype.is_int:
        raise b.error("TL0331", f"the reduction {op} is not defined for {buffer.dtype}")
    b.reducers[buffer] = OPS[op]
    return buffer


def _reducer(b: Builder, value: Any, what: str) -> Buffer:
    if not isinstance(value, Buffer) or value not in b.reducers:
        raise b.error("TL0206", f"T.{what} takes a tile of T.alloc_reducer, got {describe(value)}")
    return value


def reducer_init(b: Builder, reducer: Any, init: Any = None) -> None:
    """Starts from `init`, or from the neutral element of the reduction."""
    tile_statement(b, "reducer_init")
    buffer = _reducer(b, reducer, "reducer_init")
    start = identity(b.reducers[buffer], buffer.dtype) if init is None else as_expr(b, init, buffer.dtype)
    b.emit(Fill(region(b, buffer), start, b.span))


def reducer_update(b: Builder, target: Any, value: Any) -> None:
    """Combines `value` into the element `target`, once for each iteration."""
    if not isinstance(target, Ref) or not is_element(target):
        raise b.error("TL0206", f"T.reducer_update takes an element, got {describe(target)}", help="T.reducer_update(r[i], x)")
    buffer = _reducer(b, target.buffer, "reducer_update")
    b.emit(Atomic(b.reducers[buffer], buffer, element(b, target), (as_expr(b, value, buffer.dtype),), span=b.span))


def finalize_reducer(b: Builder, reducer: Any, dst: Any = None, batch: Any = 1, annotations: Any = None) -> None:
    """The result is complete from here on; with `dst` it is copied there."""
    tile_statement(b, "finalize_reducer")
    buffer = _reducer(b, reducer, "finalize_reducer")
    if dst is not None:
        b.emit(Copy(*pair(b, "copy", buffer, dst), b.span))


def update(b: Builder, buffer: Buffer, indices: tuple[Expr, ...], value: Expr) -> Atomic:
    """`r[i] += x` in a parallel loop as one contribution; an error when it is anything else."""
    op, own = b.reducers[buffer], Load(buffer, indices)
    match value:
        case Binary(found, left, right) if found == op and left == own:
            return Atomic(op, buffer, indices, (right,), span=b.span)
        case Binary(found, left, right) if found == op and right == own:
            return Atomic(op, buffer, indices, (left,), span=b.span)
        case _:
            spelled = {"add": "r[i] += x", "max": "r[i] = T.max(r[i], x)", "min": "r[i] = T.min(r[i], x)"}.get(op, f"r[i] {op}= x")
            text = f"`{buffer.name}` only takes contributions to its reduction in a parallel loop"
            raise b.error("TL0331", text, *buffer_label(buffer), help=f"write `{spelled}`")


def identity(op: str, dtype: DType) -> Const:
    """The value that changes nothing."""
    if dtype.is_float:
        return Const({"max": -math.inf, "min": math.inf}.get(op, 0.0), dtype)
    low, high = int_range(dtype)
    return Const({"max": low, "min": high, "and": -1 if low < 0 else high}.get(op, 0), dtype)


# ---- from contributions to reductions ------------------------------------------------------------------------------


@record
class _Part:
    """A contribution that is one a point of a parallel loop: the variable it is combined over, None for none."""

    over: int | None


def settle(b: Builder, body: Stmt) -> Stmt:
    """`body` with the reducers whose contributions all come one a point of a loop turned into reductions in registers."""
    table: dict[Buffer, Buffer] = {}
    for buffer in b.reducers:
        updates = [s for s in walk_stmt(body) if isinstance(s, Atomic) and s.buffer is buffer]
        loops = [s for s in walk_stmt(body) if isinstance(s, Parallel)]
        plain = [u for loop in loops for u, _ in _direct(loop, buffer) if _part(loop, u) is not None]
        if updates and len(plain) == len(updates):
            body = _reduced(body, buffer)
            table[buffer] = replace(buffer, scope=Scope.FRAGMENT)
    return replace_buffers(body, table) if table else body


def _direct(loop: Parallel, buffer: Buffer) -> Iterable[tuple[Atomic, Expr | None]]:
    """The contributions that stand in the body of a loop itself, or alone under one condition there."""
    for s in flat(loop.body):
        match s:
            case Atomic() if s.buffer is buffer:
                yield s, None
            case If(cond, then, orelse) if not flat(orelse):
                inside = flat(then)
                if len(inside) == 1 and isinstance(inside[0], Atomic) and inside[0].buffer is buffer:
                    yield inside[0], cond
            case _:
                pass


def _part(loop: Parallel, s: Atomic) -> _Part | None:
    if any(constant(e) is None for e in loop.extents):
        return None
    if len(loop.vars) == 1 and [constant(n) for n in s.buffer.shape] == [1] and constant(s.indices[0]) == 0:
        return _Part(0)  # the one element of a reducer takes a row
    places = [loop.vars.index(i) if isinstance(i, Var) and i in loop.vars else -1 for i in s.indices]
    if -1 in places or places != sorted(set(places)):
        return None
    if any(constant(n) != constant(loop.extents[p]) for n, p in zip(s.buffer.shape, places, strict=True)):
        return None
    rest = [d for d in range(len(loop.vars)) if d not in places]
    return _Part(rest[0] if rest else None) if len(rest) <= 1 else None


def _reduced(body: Stmt, buffer: Buffer) -> Stmt:
    def stmt(s: Stmt) -> Stmt:
        if isinstance(s, Parallel):
            found = list(_direct(s, buffer))
            return _with_reductions(s, found) if found else s
        return map_stmt(s, lambda e: e, stmt)

    return stmt(body)


def _with_reductions(loop: Parallel, found: list[tuple[Atomic, Expr | None]]) -> Stmt:
    """A loop whose contributions go to tiles of its own, and their reductions behind it."""
    before: list[Stmt] = []
    after: list[Stmt] = []
    table: dict[int, Stmt] = {}
    for s, cond in found:
        part = _part(loop, s)
        assert part is not None
        value: Expr = s.operands[0]
        if cond is not None:
            value = Select(cond, value, identity(s.op, s.buffer.dtype), s.buffer.dtype)
        if part.over is None:
            table[id(s)] = Store(s.buffer, s.indices, Binary(s.op, Load(s.buffer, s.indices), value, s.buffer.dtype), s.span)
            continue
        tile = Buffer(f"{s.buffer.name}_part", s.buffer.dtype, loop.extents, Scope.FRAGMENT, span=s.buffer.span)
        before.append(Alloc(tile, s.span))
        table[id(s)] = Store(tile, loop.vars, value, s.span)
        after.append(Reduce(_REDUCES[s.op], _whole(tile), _whole(s.buffer), part.over, False, span=s.span))
    inside: list[Stmt] = []
    for x in flat(loop.body):
        one = next((s for s, cond in found if x is s or (cond is not None and isinstance(x, If) and flat(x.then)[:1] == [s])), None)
        inside.append(x if one is None else table[id(one)])
    return Seq((*before, replace(loop, body=Seq(tuple(inside), loop.span)), *after), loop.span)


def _whole(buffer: Buffer) -> Region:
    return Region(buffer, tuple(Const(0, INT32) for _ in buffer.shape), buffer.shape, buffer.span)


ENTRIES: tuple[Entry, ...] = works(alloc_reducer) + works(reducer_init) + works(reducer_update) + works(finalize_reducer)
