"""Tiles that are read before anything has written them: a missing T.clear, T.fill or T.copy.

    acc = T.alloc_fragment((64, 64), "float32")
    T.gemm(a, b, acc)       ->  a warning, TL0325: `acc` is read here before anything has written it

Told where it is sure, or where no statement of the launch writes the tile at all. Behind a condition the order is left to the author.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilec.diagnostics import Diagnostic, Label, Severity, Span
from tilec.ir.expr import POINTER_CALLS, Buffer, Call, Const, Expr, Load, Logical, Scope, Select
from tilec.ir.kernel import Kernel
from tilec.ir.tile import Atomic, For, Gemm, If, Mbarrier, Parallel, Region, Seq, Stmt, Store, While
from tilec.ir.visit import expr_children, pointers, regions, stmt_exprs, storage, walk_stmt

_TILES = (Scope.SHARED, Scope.FRAGMENT, Scope.LOCAL)


def unwritten(kernel: Kernel) -> tuple[Diagnostic, ...]:
    """A warning for each tile of the kernel whose first reader comes before its first writer."""
    found: dict[Buffer, Diagnostic] = {}
    for launch in kernel.launches:
        ever = {b for s in walk_stmt(launch.body) for b in _written(s)}
        for tile, at, reader in _early(launch.body, set(), ever, True):
            if tile.scope in _TILES and tile not in found:
                found[tile] = _warning(tile, at, reader)
    return tuple(found.values())


def _early(s: Stmt, written: set[Buffer], ever: set[Buffer], sure: bool) -> Iterator[tuple[Buffer, Span, Stmt]]:
    """The tiles that `s` reads unwritten, each with the place. `written` grows by what `s` writes; `sure` is false behind conditions,
    where only tiles count that are not written `ever`."""
    for tile, certain, span in _read(s):
        if tile not in written and ((sure and certain) or tile not in ever):
            yield tile, span, s
    match s:
        case Seq():
            for child in s.body:
                yield from _early(child, written, ever, sure)
        case For() | Parallel():
            yield from _early(s.body, written, ever, sure)
        case While():
            yield from _early(s.body, written, ever, False)
        case If():
            before = set(written)
            for branch in (s.then, s.orelse):
                inside = set(before)
                yield from _early(branch, inside, ever, False)
                written |= inside
        case _:
            written.update(_written(s))


def _written(s: Stmt) -> Iterator[Buffer]:
    """The tiles that a statement itself writes, or lets a function of the author write."""
    if isinstance(s, Store | Atomic | Mbarrier):
        yield storage(s.buffer)
    yield from (storage(r.buffer) for r in regions(s)[1])
    for e in stmt_exprs(s):
        yield from (storage(b) for b, how in pointers(e) if "w" in how)


def _read(s: Stmt) -> Iterator[tuple[Buffer, bool, Span]]:
    """The tiles that a statement itself reads, with whether it is sure to, and where."""
    for e in stmt_exprs(s):
        yield from ((b, certain, s.span) for b, certain in _loads(e, True))
    for r in _regions_read(s):
        yield storage(r.buffer), True, r.span if r.span.line else s.span
    if isinstance(s, Atomic) and s.op not in ("exch", "store"):
        yield storage(s.buffer), True, s.span


def _regions_read(s: Stmt) -> tuple[Region, ...]:
    if isinstance(s, Gemm):
        return (s.a, s.b, s.c) if isinstance(s.clear, Const) and not s.clear.value else (s.a, s.b)
    return regions(s)[0]


def _loads(e: Expr, certain: bool) -> Iterator[tuple[Buffer, bool]]:
    """The tiles that an expression reads; what only one arm or the second operand of `and` reads is not certain."""
    match e:
        case Call() if e.name in POINTER_CALLS:
            return
        case Select():
            yield from _loads(e.cond, certain)
            yield from _loads(e.a, False)
            yield from _loads(e.b, False)
        case Logical():
            yield from _loads(e.a, certain)
            yield from _loads(e.b, False)
        case _:
            if isinstance(e, Load):
                yield storage(e.buffer), certain
            for child in expr_children(e):
                yield from _loads(child, certain)


def _warning(tile: Buffer, at: Span, reader: Stmt) -> Diagnostic:
    wanted = f"T.clear({tile.name})" if isinstance(reader, Gemm) else f"T.copy into `{tile.name}`, T.fill or T.clear"
    hint = f"write {wanted} before this and its loop: a new tile holds whatever was there"
    text = f"`{tile.name}` is read here before anything has written it"
    return Diagnostic(Severity.WARNING, "TL0325", text, at, (Label(tile.span, f"{tile.name} is made here"),), hint)
