"""Gives GEMMs on Hopper whose rows the copy engine cannot reach copies of their operands with rows that it can (-O3).

    padded(kernel) -> for M, N, K of 4095, 4097, 4093: copy A, copy B, multiply the copies; the kernel itself for all others

The copies lie in the workspace that the caller provides. They cost two passes over the operands, which is little beside a product
that runs several times as fast; small products go the general way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilec.diagnostics import Diagnostic, Severity
from tilec.ir.dtypes import BOOL, INT32, INT64
from tilec.ir.expr import Binary, Buffer, Call, Compare, Const, Expr, Load, Logical, Scope, Select, Unary, Var, VarKind
from tilec.ir.kernel import Kernel, Launch
from tilec.ir.tile import Copy, Parallel, Stmt, Store
from tilec.ir.visit import map_stmt, stmt_exprs, walk_expr, walk_stmt
from tilec.plan.access import conjunction
from tilec.plan.domains import cast
from tilec.plan.hopper.gemm_match import Match, match
from tilec.plan.pipelines import touched
from tilec.plan.plan import LaunchPlan
from tilec.plan.workspace import Workspace
from tilec.record import record

LINE = 128
"""Bytes that rows of the copies are a multiple of."""

LEAST = 1 << 20
"""Elements of either operand from which on copies pay."""

BLOCK = (8, 512)
"""Rows and columns that a block copies."""

THREADS = 256


@record
class Padded:
    """The launches in place of one: those of the kernel itself first, then the copies and the product of the copies, which are
    for tensors that `pays` holds of."""

    kernel: Kernel
    pays: Expr


def padded(kernel: Kernel, divisors: Mapping[Var, int], ieee: bool) -> Padded | None:
    """The kernel with padded copies beside it; None where they cannot help."""
    if len(kernel.launches) != 1 or not divisors:
        return None
    launch = kernel.launches[0]
    found = match(launch, frozenset(touched([launch.body])[1]), ieee)
    if isinstance(found, str):
        return None
    sources = [c.src.buffer for c in found.copies]
    if len(set(sources)) != 2 or any(b.rank != 2 or b.strides is not None or _elsewhere(launch, found, b) for b in sources):
        return None
    copies = {b: _copy_of(b, {p.name for p in kernel.params}) for b in sources}
    product = replace(launch, body=_reading(launch.body, copies))
    launches = (launch, *(_copying(b, c, launch) for b, c in copies.items()), product)
    return Padded(replace(kernel, launches=launches), _pays(sources, divisors))


def only_where_they_pay(launches: list[LaunchPlan], scratch: Workspace, pays: Expr) -> tuple[list[LaunchPlan], Workspace]:
    """The kernel's own launch for all other tensors, the copies and their product and the workspace for those."""
    text = "large operands whose rows are no multiple of 16 bytes are copied to a workspace first"
    remark = Diagnostic(Severity.REMARK, "TL0506", text, launches[0].launch.span)
    own = _only_where(launches[0], Unary("not", pays, BOOL))
    own = replace(own, variants=(replace(own.variants[0], remarks=(*own.variants[0].remarks, remark)), *own.variants[1:]))
    assert scratch.bytes is not None
    needed = Select(pays, scratch.bytes, Const(0, INT64), INT64)
    return [own, *(_only_where(g, pays) for g in launches[1:])], replace(scratch, bytes=needed)


def _only_where(launch: LaunchPlan, when: Expr) -> LaunchPlan:
    """The launch without blocks unless `when` holds: nothing is queued then."""

    def gated(grid: tuple[Expr, Expr, Expr]) -> tuple[Expr, Expr, Expr]:
        return (Select(when, grid[0], Const(0, grid[0].dtype), grid[0].dtype), *grid[1:])

    variants = tuple(v if v.grid is None else replace(v, grid=gated(v.grid)) for v in launch.variants)
    return replace(launch, grid=gated(launch.grid), variants=variants)


def _elsewhere(launch: Launch, found: Match, b: Buffer) -> bool:
    """True when a launch reads a tensor other than by its one copy to a tile."""
    copies = [s for s in walk_stmt(launch.body) if isinstance(s, Copy) and s.src.buffer is b]
    loads = any(isinstance(e, Load) and e.buffer is b for s in walk_stmt(launch.body) for r in stmt_exprs(s) for e in walk_expr(r))
    return loads or len(copies) != 1


def _copy_of(b: Buffer, taken: set[str]) -> Buffer:
    """A tensor in the workspace for a copy, its rows on lines of their own."""
    name = f"{b.name}_padded"
    while name in taken:
        name += "_"
    per = Const(LINE // b.dtype.bytes, INT64)
    row = Binary("mul", Call("ceildiv", (cast(b.shape[1], INT64), per), INT64), per, INT64)
    return Buffer(name, b.dtype, b.shape, Scope.GLOBAL, (row, Const(1, INT64)), workspace=True, span=b.span)


def _copying(source: Buffer, copy: Buffer, launch: Launch) -> Launch:
    """The launch that copies a tensor."""
    rows, columns = BLOCK
    by, bx = Var("block_row", INT32, VarKind.BLOCK, 0), Var("block_column", INT32, VarKind.BLOCK, 1)
    i, j = Var("row", INT32, VarKind.LOOP), Var("column", INT32, VarKind.LOOP)
    at = tuple(
        Binary("add", Binary("mul", b, Const(n, INT32), INT32), v, INT32) for b, n, v in ((by, rows, i), (bx, columns, j))
    )
    body = Parallel((i, j), (Const(rows, INT32), Const(columns, INT32)), Store(copy, at, Load(source, at), launch.span), launch.span)
    grid = tuple(Call("ceildiv", (e, Const(n, e.dtype)), e.dtype) for e, n in zip(source.shape, BLOCK, strict=True))
    return Launch((by, bx), grid, (THREADS, 1, 1), (), body, span=launch.span)


def _reading(body: Stmt, copies: Mapping[Buffer, Buffer]) -> Stmt:
    """A body that reads the copies."""

    def stmt(s: Stmt) -> Stmt:
        s = map_stmt(s, lambda e: e, stmt)
        if isinstance(s, Copy) and s.src.buffer in copies:
            return replace(s, src=replace(s.src, buffer=copies[s.src.buffer]))
        return s

    return stmt(body)


def _pays(sources: list[Buffer], divisors: Mapping[Var, int]) -> Expr:
    """Rows off the chunks of the copy engine, and operands that are not small."""
    off: Expr | None = None
    for v, n in divisors.items():
        test = Compare("ne", Binary("mod", v, Const(n, v.dtype), v.dtype), Const(0, v.dtype))
        off = test if off is None else Logical("or", off, test)
    sizes = (Binary("mul", cast(b.shape[0], INT64), cast(b.shape[1], INT64), INT64) for b in sources)
    pays = conjunction([Compare("ge", n, Const(LEAST, INT64)) for n in sizes])
    assert off is not None and pays is not None
    return Logical("and", pays, off)
