"""T.annotate_layout: of a tile a hint, of a tensor in global memory an order of its elements in memory.

T.annotate_layout({dQ: T.Layout(dQ.shape, lambda i, j: [i // 8, j, i % 8])})
    ->  dQ[i, j] lies where [i // 8, j, i % 8] lies in a dense tensor of shape [M / 8, N, 8] over the same bytes

The order is part of the tensor's meaning for whoever reads it next: every kernel that uses the tensor needs the annotation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tilec.record import record
from tilec.analysis.facts import Facts
from tilec.analysis.ranges import interval
from tilec.ir.dtypes import INT32, INT64
from tilec.ir.expr import Binary, Buffer, Cast, Compare, Const, Expr, Load, Logical, Scope, Select, Var, VarKind
from tilec.ir.tile import Atomic, Copy, Fill, If, Let, Parallel, Region, Seq, Stmt, Store
from tilec.ir.visit import buffers_of, map_expr, map_stmt, substitute, walk_expr, walk_stmt
from tilec.language.access import as_expr, buffer_label, cast_expr
from tilec.language.arith import binary
from tilec.language.bind import Entry, ignored, works
from tilec.language.builder import Builder
from tilec.language.constants import fits
from tilec.language.context import in_kernel, shape_items
from tilec.language.extents import constant, equal
from tilec.language.show import describe, shape_text


@record
class LayoutValue:
    """`T.Layout(shape, fn)`: the author's function from an index to a place."""

    fn: Any


@record
class Order:
    """The place of each element: `places`, over the indices `vars`, in `view`, a tensor over the same bytes.

    `guarded` are dimensions whose index must be tested first, because some index out of range has a place in range.
    """

    vars: tuple[Var, ...]
    places: tuple[Expr, ...]
    view: Buffer
    guarded: tuple[int, ...]


def Layout(b: Builder, shape: Any, forward_fn: Any = None) -> LayoutValue:
    """An order of elements: `forward_fn` gives the place of an index, as in T.Layout(A.shape, lambda i, j: [i // 8, j, i % 8])."""
    shape_items(b, shape)
    return LayoutValue(forward_fn)


def Fragment(b: Builder, *args: Any, **kwargs: Any) -> None:
    """A layout of registers for T.annotate_layout."""


def annotate_layout(b: Builder, layouts: Any) -> None:
    """Layouts of tiles are hints, the plan chooses; that of a tensor in global memory permutes its elements in memory."""
    in_kernel(b, "annotate_layout")
    if not isinstance(layouts, Mapping):
        raise b.error("TL0206", f"T.annotate_layout takes a dictionary of buffers, got {describe(layouts)}")
    for buffer, layout in layouts.items():
        if not isinstance(buffer, Buffer):
            raise b.error("TL0206", f"T.annotate_layout is for buffers, got {describe(buffer)}")
        if isinstance(layout, (int, float, str, tuple, list, Buffer)):
            told = f"the layout of `{buffer.name}` is {describe(layout)}"
            raise b.error("TL0206", told, help="write T.Layout(shape, lambda i, j: [...])")
        if buffer.scope is not Scope.GLOBAL:
            continue
        fn = layout.fn if isinstance(layout, LayoutValue) else layout
        if fn is None or b.apply is None:
            text = f"the layout of the global tensor `{buffer.name}` must be a function of the index"
            raise b.error("TL0343", text, *buffer_label(buffer), help="write T.Layout(A.shape, lambda i, j: [...])")
        b.orders[buffer] = order(b, buffer, fn)


def order(b: Builder, buffer: Buffer, fn: Any) -> Order:
    """Evaluates the author's function once for an index that stands for all."""
    if buffer.strides is not None:
        raise b.error("TL0343", f"`{buffer.name}` has strides of its own", *buffer_label(buffer), help="use one or the other")
    variables = tuple(Var("ijklmnpq"[d % 8], INT32, VarKind.LOOP, span=b.span) for d in range(buffer.rank))
    assert b.apply is not None
    with b.block() as extra:
        found = b.apply(fn, variables)
    table: dict[Var, Expr] = {}
    for s in extra:
        if not isinstance(s, Let):
            raise b.error("TL0343", "a layout may only compute with the index")
        table[s.var] = substitute(s.value, table)
    items = found if isinstance(found, (tuple, list)) else (found,)
    places = tuple(substitute(as_expr(b, e), table) for e in items)
    if any(not e.dtype.is_int or any(isinstance(x, Load) for x in walk_expr(e)) for e in places):
        raise b.error("TL0343", f"the layout of `{buffer.name}` must give integers that depend on the index only")
    facts = Facts()
    for v, extent in zip(variables, buffer.shape, strict=True):
        facts = facts.with_index(v, extent)
    by = dict(zip(variables, buffer.shape, strict=True))
    shape = tuple(_extent(b, buffer, e, by, facts) for e in places)
    _same_size(b, buffer, shape)
    view = Buffer(f"{buffer.name}_places", buffer.dtype, shape, Scope.GLOBAL, None, buffer, buffer.safe_value, buffer.workspace, b.span)
    guarded = tuple(d for d, v in enumerate(variables) if not any(_follows(e, v, buffer.shape[d]) for e in places))
    return Order(variables, places, view, guarded)


def _extent(b: Builder, buffer: Buffer, place: Expr, by: Mapping[Var, Expr], facts: Facts) -> Expr:
    """How many values one coordinate of the place takes."""
    match place:
        case Var() if place in by:
            return by[place]
        case Binary("floordiv", Var() as v, Const() as n) if v in by and constant(by[v]) is None:
            return as_expr(b, binary(b, "floordiv", binary(b, "add", by[v], int(n.value) - 1), n))
    low, high = interval(place, facts)
    if low < 0 or not fits(high + 1, INT32):
        text = f"a coordinate of the layout of `{buffer.name}` may reach from {low} to {high}"
        raise b.error("TL0343", text, *buffer_label(buffer), help="its range must follow from the shape; give sizes with -D")
    return Const(high + 1, INT32)


def _same_size(b: Builder, buffer: Buffer, shape: tuple[Expr, ...]) -> None:
    sizes = []
    for extents in (buffer.shape, shape):
        total: Expr = Const(1, INT64)
        for e in extents:
            total = as_expr(b, binary(b, "mul", total, e))
        sizes.append(total)
    known = [constant(n) for n in sizes]
    if None not in known and not equal(*sizes):
        text = f"the layout of `{buffer.name}` has {known[1]} places ({shape_text(shape)}) for {known[0]} elements"
        raise b.error("TL0343", text, *buffer_label(buffer), help="every element needs a place of its own")


def _follows(place: Expr, v: Var, extent: Expr) -> bool:
    """True when a coordinate leaves its range whenever `v` leaves that of its dimension."""
    match place:
        case Var():
            return place is v
        case Binary("floordiv", Var() as x, Const(n)):
            size = constant(extent)
            return x is v and size is not None and int(n) > 0 and size % int(n) == 0
        case _:
            return False


# ---- the body of a launch under its orders -------------------------------------------------------------------------


def apply_orders(b: Builder, body: Stmt) -> Stmt:
    """`body` with every access to a tensor that has an order of its own going to the places of its elements."""
    orders: dict[Buffer, Order] = b.orders
    if not orders or not any(x in orders for s in walk_stmt(body) for x in buffers_of(s)):
        return body

    def expr(e: Expr) -> Expr:
        e = map_expr(e, expr)
        if not isinstance(e, Load) or e.buffer not in orders:
            return e
        found = orders[e.buffer]
        load = Load(found.view, _place(found, e.indices))
        inside = _inside(found, e.buffer, e.indices)
        safe = e.buffer.safe_value or Const(0.0 if e.dtype.is_float else 0, e.dtype)
        return load if inside is None else Select(inside, load, safe, e.dtype)

    def stmt(s: Stmt) -> Stmt:
        match s:
            case Copy(src, dst) if src.buffer in orders or dst.buffer in orders:
                s = elementwise(dst, Load(src.buffer, ()), src, s)
            case Fill(dst, value) if dst.buffer in orders:
                s = elementwise(dst, value, None, s)
        s = map_stmt(s, expr, stmt)
        if not isinstance(s, Store | Atomic) or s.buffer not in orders:
            return s
        found = orders[s.buffer]
        inside = _inside(found, s.buffer, s.indices)
        new = _moved(s, found)
        return new if inside is None or (isinstance(s, Atomic) and s.result is not None) else If(inside, new, Seq((), s.span), s.span)

    return stmt(body)


def _moved(s: Store | Atomic, found: Order) -> Stmt:
    return replace(s, buffer=found.view, indices=_place(found, s.indices))


def _place(found: Order, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
    table: dict[Var, Expr] = {v: cast_expr(i, INT32) for v, i in zip(found.vars, indices, strict=True)}
    return tuple(substitute(e, table) for e in found.places)


def _inside(found: Order, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr | None:
    """The test that an index is in range where its place does not tell."""
    out: Expr | None = None
    for d in found.guarded:
        index, extent = indices[d], buffer.shape[d]
        if isinstance(index, Const) and constant(extent) is not None:
            continue
        wide = INT64 if INT64 in (index.dtype, extent.dtype) else INT32
        i, n = (_widened(e, wide) for e in (index, extent))
        test = Logical("and", Compare("ge", i, Const(0, wide)), Compare("lt", i, n))
        out = test if out is None else Logical("and", out, test)
    return out


def _widened(e: Expr, dtype: Any) -> Expr:
    return e if e.dtype == dtype else Const(e.value, dtype) if isinstance(e, Const) else Cast(e, dtype)


def elementwise(dst: Region, value: Expr, src: Region | None, s: Copy | Fill) -> Stmt:
    """A copy or fill as a loop over elements."""
    sides = [r for r in (dst, src) if r is not None]
    walked = [[d for d, e in enumerate(r.extents) if constant(e) != 1] for r in sides]
    longest = max(range(len(sides)), key=lambda n: len(walked[n]))
    extents = tuple(sides[longest].extents[d] for d in walked[longest])
    variables = tuple(Var("ijklmnpq"[n % 8], INT32, VarKind.LOOP, span=s.span) for n in range(len(extents)))

    def indices(r: Region, dims: list[int]) -> tuple[Expr, ...]:
        steps = dict(zip(dims, variables, strict=True))
        return tuple(_sum(start, steps[d]) if d in steps else start for d, start in enumerate(r.starts))

    read: Expr = value if src is None else Load(src.buffer, indices(src, walked[1]))
    store = Store(dst.buffer, indices(dst, walked[0]), cast_expr(read, dst.buffer.dtype), s.span)
    return Parallel(variables, extents, Seq((store,), s.span), s.span) if variables else store


def _sum(a: Expr, v: Var) -> Expr:
    if isinstance(a, Const) and a.value == 0:
        return v
    return Binary("add", a, _widened(v, a.dtype), a.dtype)


ENTRIES: tuple[Entry, ...] = works(annotate_layout) + works(Layout, host=True) + ignored(Fragment, host=True)
