"""Generic traversal of expressions and statements: one place that knows the children of every node.

    map_expr(e, f) rebuilds e with f applied to its direct children; walk_expr(e) yields e and everything below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from tilec.ir.expr import POINTER_CALLS, Binary, Buffer, Call, Cast, Compare, Const, Expr, Load, Logical, Reinterpret, Select, Unary, Var
from tilec.ir.tile import (
    Alloc, Atomic, Barrier, Break, BulkCopy, Continue, Control, Copy, Evaluate, Fill, For, Gemm, If, Let, Mbarrier, Parallel, Print,
    Reduce, Region, Scan, Seq, Stmt, Store, Trap, While,
)  # fmt: skip
from tilec.record import replace

ExprMap = Callable[[Expr], Expr]


def expr_children(e: Expr) -> tuple[Expr, ...]:
    """The direct operands of an expression."""
    match e:
        case Const() | Var():
            return ()
        case Load(_, indices):
            return indices
        case Unary(_, a) | Cast(a) | Reinterpret(a):
            return (a,)
        case Binary(_, a, b) | Compare(_, a, b) | Logical(_, a, b):
            return (a, b)
        case Select(c, a, b):
            return (c, a, b)
        case Call(_, args):
            return args


def map_expr(e: Expr, f: ExprMap) -> Expr:
    """`e` with `f` applied to each direct operand; `e` itself when nothing changed."""
    old = expr_children(e)
    new = tuple(f(c) for c in old)
    if all(a is b for a, b in zip(old, new, strict=True)):
        return e
    match e:
        case Const() | Var():
            return e
        case Load():
            return replace(e, indices=new)
        case Unary() | Cast() | Reinterpret():
            return replace(e, a=new[0])
        case Binary() | Compare() | Logical():
            return replace(e, a=new[0], b=new[1])
        case Select():
            return replace(e, cond=new[0], a=new[1], b=new[2])
        case Call():
            return replace(e, args=new)


def walk_expr(e: Expr) -> Iterator[Expr]:
    """`e` and everything below it, parents first."""
    stack = [e]
    while stack:
        here = stack.pop()
        yield here
        stack.extend(reversed(expr_children(here)))


def substitute(e: Expr, table: Mapping[Var, Expr]) -> Expr:
    """`e` with variables replaced by the expressions of `table`."""
    if isinstance(e, Var):
        return table.get(e, e)
    return map_expr(e, lambda c: substitute(c, table))


def map_region(r: Region, f: ExprMap) -> Region:
    """A region with `f` applied to its starts and extents."""
    return replace(r, starts=tuple(map(f, r.starts)), extents=tuple(map(f, r.extents)))


def map_stmt(s: Stmt, expr: ExprMap, stmt: Callable[[Stmt], Stmt]) -> Stmt:
    """`s` rebuilt with `expr` applied to its direct expressions and `stmt` to its direct statements."""
    match s:
        case Seq():
            return replace(s, body=tuple(map(stmt, s.body)))
        case For():
            return replace(s, start=expr(s.start), stop=expr(s.stop), step=expr(s.step), body=stmt(s.body))
        case Parallel():
            return replace(s, extents=tuple(map(expr, s.extents)), body=stmt(s.body))
        case While():
            return replace(s, cond=expr(s.cond), body=stmt(s.body))
        case If():
            return replace(s, cond=expr(s.cond), then=stmt(s.then), orelse=stmt(s.orelse))
        case Break() | Continue() | Alloc() | Control():
            return s
        case Let():
            return replace(s, value=expr(s.value))
        case Store():
            return replace(s, indices=tuple(map(expr, s.indices)), value=expr(s.value))
        case Copy():
            return replace(s, src=map_region(s.src, expr), dst=map_region(s.dst, expr))
        case Fill():
            return replace(s, dst=map_region(s.dst, expr), value=expr(s.value))
        case Gemm():
            marks = None if s.marks is None else map_region(s.marks, expr)
            return replace(s, a=map_region(s.a, expr), b=map_region(s.b, expr), c=map_region(s.c, expr), clear=expr(s.clear), marks=marks)
        case Reduce() | Scan():
            return replace(s, src=map_region(s.src, expr), dst=map_region(s.dst, expr))
        case Atomic():
            return replace(s, indices=tuple(map(expr, s.indices)), operands=tuple(map(expr, s.operands)))
        case Barrier():
            return replace(s, id=None if s.id is None else expr(s.id), count=None if s.count is None else expr(s.count))
        case Mbarrier():
            return replace(s, index=expr(s.index), value=None if s.value is None else expr(s.value))
        case BulkCopy():
            index = None if s.index is None else expr(s.index)
            return replace(s, src=map_region(s.src, expr), dst=map_region(s.dst, expr), index=index)
        case Trap():
            return replace(s, cond=expr(s.cond))
        case Print():
            return replace(s, args=tuple(map(expr, s.args)))
        case Evaluate():
            return replace(s, value=expr(s.value))


def stmt_children(s: Stmt) -> tuple[Stmt, ...]:
    """The direct statements inside a statement."""
    match s:
        case Seq(body):
            return body
        case For() | Parallel() | While():
            return (s.body,)
        case If():
            return (s.then, s.orelse)
        case _:
            return ()


def walk_stmt(s: Stmt) -> Iterator[Stmt]:
    """`s` and every statement below it, parents first."""
    stack = [s]
    while stack:
        here = stack.pop()
        yield here
        stack.extend(reversed(stmt_children(here)))


def flat(s: Stmt) -> list[Stmt]:
    """The statements of a body with nested sequences opened."""
    return [x for child in s.body for x in flat(child)] if isinstance(s, Seq) else [s]


def stmt_exprs(s: Stmt) -> tuple[Expr, ...]:
    """The direct expressions of a statement (those of regions included), not those of the statements inside it."""
    found: list[Expr] = []

    def keep(e: Expr) -> Expr:
        found.append(e)
        return e

    map_stmt(s, keep, lambda child: child)
    return tuple(found)


def regions(s: Stmt) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
    """The regions a tile statement reads and those it writes; a GEMM's accumulator is in both."""
    match s:
        case Copy() | BulkCopy():
            return (s.src,), (s.dst,)
        case Fill():
            return (), (s.dst,)
        case Gemm():
            return (s.a, s.b, s.c, *(() if s.marks is None else (s.marks,))), (s.c,)
        case Reduce():
            return ((s.src,) if s.clear else (s.src, s.dst)), (s.dst,)
        case Scan():
            return (s.src,), (s.dst,)
        case _:
            return (), ()


def buffers_of(s: Stmt) -> Iterator[Buffer]:
    """The buffers that a statement itself names, not those of the statements inside it; some of them repeatedly."""
    if isinstance(s, Store | Atomic | Alloc | Mbarrier):
        yield s.buffer
    if isinstance(s, BulkCopy) and s.barrier is not None:
        yield s.barrier
    for side in regions(s):
        yield from (r.buffer for r in side)
    for root in stmt_exprs(s):
        yield from (e.buffer for e in walk_expr(root) if isinstance(e, Load))


def viewed(stmts: Iterable[Stmt]) -> frozenset[Buffer]:
    """Buffers that have views, and these."""
    return frozenset(x for s in stmts for b in buffers_of(s) if b.view_of is not None for x in (b, storage(b)))


def pointers(root: Expr) -> Iterator[tuple[Buffer, str]]:
    """The buffers to which an expression makes pointers, with r, w or rw for what may be done through them."""
    for e in walk_expr(root):
        match e:
            case Call(name, (Load(buffer),)) if name in POINTER_CALLS:
                yield buffer, POINTER_CALLS[name]
            case _:
                pass


def storage(buffer: Buffer) -> Buffer:
    """The buffer that owns the bytes of `buffer`: itself, or the root of its chain of views."""
    while buffer.view_of is not None:
        buffer = buffer.view_of
    return buffer


def replace_buffers(s: Stmt, table: Mapping[Buffer, Buffer]) -> Stmt:
    """`s` with buffers replaced wherever they are read, written or declared; views of a replaced buffer follow it."""
    known = dict(table)

    def buffer(old: Buffer) -> Buffer:
        if old not in known:
            base = None if old.view_of is None else buffer(old.view_of)
            known[old] = old if base is old.view_of else replace(old, view_of=base)
        return known[old]

    def expr(e: Expr) -> Expr:
        e = map_expr(e, expr)
        return replace(e, buffer=buffer(e.buffer)) if isinstance(e, Load) else e

    def region(r: Region) -> Region:
        return replace(r, buffer=buffer(r.buffer))

    def stmt(old: Stmt) -> Stmt:
        new = map_stmt(old, expr, stmt)
        match new:
            case Store() | Alloc() | Atomic() | Mbarrier():
                return replace(new, buffer=buffer(new.buffer))
            case BulkCopy():
                barrier = None if new.barrier is None else buffer(new.barrier)
                return replace(new, src=region(new.src), dst=region(new.dst), barrier=barrier)
            case Copy() | Reduce() | Scan():
                return replace(new, src=region(new.src), dst=region(new.dst))
            case Fill():
                return replace(new, dst=region(new.dst))
            case Gemm():
                marks = None if new.marks is None else region(new.marks)
                return replace(new, a=region(new.a), b=region(new.b), c=region(new.c), marks=marks)
            case _:
                return new

    return stmt(s)
