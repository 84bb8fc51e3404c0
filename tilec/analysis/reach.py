"""Accesses that are sure to leave a tile: the first and last values of loops, blocks and threads show it while compiling.

    s = T.alloc_shared((8,), "int32")
    for i in T.serial(9):
        s[i] = 1            ->  TL0305: the index `i` of `s` reaches 8, outside dimension 0, whose extent is 8

Only what certainly happens is told: not what stands under a condition, in a loop that may be left early or never entered, or
where an index is no sum of multiples of names whose values are known. Tensors in global memory are guarded instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from tilec.analysis.affine import affine
from tilec.diagnostics import Diagnostic, Label, Severity, Span
from tilec.ir.expr import POINTER_CALLS, Buffer, Call, Const, Expr, Load, Logical, Scope, Select, Var
from tilec.ir.kernel import Kernel, Launch
from tilec.ir.show import show
from tilec.ir.tile import Atomic, Break, Continue, For, If, Let, Parallel, Region, Seq, Stmt, Store, While
from tilec.ir.visit import expr_children, regions, stmt_exprs, walk_stmt

Range: TypeAlias = tuple[int, int]
"""The first and the last value of a name, both taken; smaller first."""


def outside(kernel: Kernel) -> tuple[Diagnostic, ...]:
    """An error for each access of a tile that is sure to happen and to lie outside of it."""
    found: dict[Diagnostic, None] = {}
    for launch in kernel.launches:
        found |= dict.fromkeys(_statement(launch.body, _of_launch(launch), {}))
    return tuple(found)


def _of_launch(launch: Launch) -> dict[Var, Range]:
    """The values of thread indices, and of block indices where the grid is known."""
    ranges = {v: (0, n - 1) for v, n in zip(launch.thread_vars, launch.threads or (), strict=False)}
    for v, extent in zip(launch.block_vars, launch.grid, strict=False):
        if isinstance(extent, Const) and int(extent.value) > 0:
            ranges[v] = (0, int(extent.value) - 1)
    return ranges


def _statement(s: Stmt, ranges: Mapping[Var, Range], lets: dict[Var, Expr]) -> Iterator[Diagnostic]:
    """What is outside in `s`, where every combination of the values in `ranges` comes by."""
    match s:
        case Seq():
            for child in s.body:
                yield from _statement(child, ranges, lets)
        case For():
            yield from _accesses(s, ranges, lets)
            taken = _loop(s)
            if taken is not None and not _left_early(s.body):
                yield from _statement(s.body, {**ranges, s.var: taken}, dict(lets))
        case Parallel():
            yield from _accesses(s, ranges, lets)
            if all(isinstance(e, Const) and int(e.value) > 0 for e in s.extents):
                taken_all = {v: (0, int(e.value) - 1) for v, e in zip(s.vars, s.extents, strict=True) if isinstance(e, Const)}
                yield from _statement(s.body, {**ranges, **taken_all}, dict(lets))
        case If() | While():
            yield from _expression(s.cond, s.span, ranges, lets)
        case Let():
            yield from _accesses(s, ranges, lets)
            lets[s.var] = s.value
        case _:
            yield from _accesses(s, ranges, lets)


def _loop(s: For) -> Range | None:
    """The first and last value of a loop that is sure to be entered."""
    if not (isinstance(s.start, Const) and isinstance(s.stop, Const) and isinstance(s.step, Const)) or int(s.step.value) == 0:
        return None
    values = range(int(s.start.value), int(s.stop.value), int(s.step.value))
    return (min(values[0], values[-1]), max(values[0], values[-1])) if values else None


def _left_early(body: Stmt) -> bool:
    return any(isinstance(s, Break | Continue) for s in walk_stmt(body))


def _accesses(s: Stmt, ranges: Mapping[Var, Range], lets: Mapping[Var, Expr]) -> Iterator[Diagnostic]:
    """What is outside in the expressions and regions of one statement."""
    for e in stmt_exprs(s):
        yield from _expression(e, s.span, ranges, lets)
    if isinstance(s, Store | Atomic):
        yield from _element(s.buffer, s.indices, s.span, ranges, lets)
    for region in (r for side in regions(s) for r in side):
        yield from _region(region, ranges, lets)


def _expression(e: Expr, span: Span, ranges: Mapping[Var, Range], lets: Mapping[Var, Expr]) -> Iterator[Diagnostic]:
    """What is outside in an expression; what only one arm or the second operand of `and` reads is left alone."""
    match e:
        case Select():
            yield from _expression(e.cond, span, ranges, lets)
        case Logical():
            yield from _expression(e.a, span, ranges, lets)
        case _:
            if isinstance(e, Load):
                yield from _element(e.buffer, e.indices, span, ranges, lets)
            pointed_at = e.args[0] if isinstance(e, Call) and e.name in POINTER_CALLS else e  # a pointer may stand behind the last element
            for child in expr_children(pointed_at):
                yield from _expression(child, span, ranges, lets)


def _element(
    buffer: Buffer, indices: tuple[Expr, ...], span: Span, ranges: Mapping[Var, Range], lets: Mapping[Var, Expr]
) -> Iterator[Diagnostic]:
    for dim, e in enumerate(indices):
        extent, taken = _extent(buffer, dim), _range(e, ranges, lets)
        if extent is None or taken is None or 0 <= taken[0] <= taken[1] < extent:
            continue
        reached = taken[0] if taken[0] < 0 else taken[1]
        text = f"the index `{show(e)}` of `{buffer.name}` reaches {reached}, outside dimension {dim}, whose extent is {extent}"
        yield _error(text, span, buffer)


def _region(region: Region, ranges: Mapping[Var, Range], lets: Mapping[Var, Expr]) -> Iterator[Diagnostic]:
    for dim, (start, length) in enumerate(zip(region.starts, region.extents, strict=True)):
        extent, taken = _extent(region.buffer, dim), _range(start, ranges, lets)
        if extent is None or taken is None or not isinstance(length, Const) or int(length.value) <= 0:
            continue
        size = int(length.value)
        if taken[0] >= 0 and taken[1] + size <= extent:
            continue
        first = taken[0] if taken[0] < 0 else taken[1]
        text = f"a slice of `{region.buffer.name}` reaches {first}:{first + size}, outside dimension {dim}, whose extent is {extent}"
        yield _error(text, region.span, region.buffer)


def _extent(buffer: Buffer, dim: int) -> int | None:
    size = buffer.shape[dim]
    return int(size.value) if buffer.scope is not Scope.GLOBAL and isinstance(size, Const) else None


def _range(e: Expr, ranges: Mapping[Var, Range], lets: Mapping[Var, Expr]) -> Range | None:
    """The smallest and largest value of `e`, both taken; None where that is not known."""
    form = affine(e, value=lets.get)
    lo = hi = form.const
    for term, c in form.terms.items():
        if not isinstance(term, Var) or term not in ranges:
            return None
        a, b = ranges[term]
        lo, hi = lo + min(c * a, c * b), hi + max(c * a, c * b)
    return lo, hi


def _error(text: str, span: Span, buffer: Buffer) -> Diagnostic:
    label = Label(buffer.span, f"{buffer.name} {'has' if buffer.rank == 1 else 'is'} {'×'.join(show(n) for n in buffer.shape)}")
    help_line = "make the tile larger or the loop shorter, or put the access under an `if` (tiles are not guarded, tensors are)"
    return Diagnostic(Severity.ERROR, "TL0305", text, span, (label,), help_line)
