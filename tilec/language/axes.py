"""T.launch_thread: the axes of a grid, declared one by one where a kernel has no T.Kernel.

    bx = T.launch_thread("blockIdx.x", 8)
    tx = T.launch_thread("threadIdx.x", 128)     ->  a launch of 8 blocks of 128 threads; bx and tx are its indices

Under T.Kernel it names an index that is there already, as T.thread_binding does.
"""

from __future__ import annotations

from typing import Any

from tilec.ir.dtypes import INT32
from tilec.ir.expr import Const, Expr, Var, VarKind
from tilec.language.access import as_expr, host_int
from tilec.language.bind import Entry, works
from tilec.language.builder import Builder, LaunchState
from tilec.language.context import in_kernel
from tilec.language.launch import AXES, extent_of, thread_counts
from tilec.language.show import describe
from tilec.language.warp import DEFAULT_THREADS

KINDS = {"threadIdx": VarKind.THREAD, "blockIdx": VarKind.BLOCK}


def launch_thread(b: Builder, thread: Any, extent: Any) -> Var:
    """The index along an axis of `extent` blocks or threads: "blockIdx.x", "threadIdx.y" or an index of T.env_thread; it declares
    the axis in a kernel without T.Kernel."""
    launch, (kind, axis) = in_kernel(b, "launch_thread"), _axis(b, thread)
    size = _size(b, kind, axis, extent)
    known = _declared(launch, kind, axis) if launch.axes is None else launch.axes.get((kind, axis))
    if known is not None and known != size and isinstance(known, Const) and isinstance(size, Const):
        name = f"{'threadIdx' if kind is VarKind.THREAD else 'blockIdx'}.{AXES[axis]}"
        text = f"T.launch_thread gives {name} {size.value} values, this kernel has {known.value} along {AXES[axis]}"
        raise b.error("TL0402" if kind is VarKind.THREAD else "TL0401", text, help="one launch has one extent along each axis")
    if launch.axes is not None:
        launch.axes[kind, axis] = size
        launch.grid = grid_of(launch)
    variables = launch.thread_vars if kind is VarKind.THREAD else launch.block_vars
    if axis >= len(variables):
        raise b.error("TL0401", f"this launch has no blocks along {AXES[axis]}", help="give T.Kernel one more extent")
    return variables[axis]


def _axis(b: Builder, thread: Any) -> tuple[VarKind, int]:
    if isinstance(thread, Var) and thread.kind in (VarKind.THREAD, VarKind.BLOCK):
        return thread.kind, thread.axis
    kind, _, axis = str(thread).partition(".")
    if not isinstance(thread, str) or kind not in KINDS or axis not in tuple(AXES):
        raise b.error("TL0206", f"unknown thread axis {describe(thread)}", help='use "threadIdx.x", "blockIdx.y" or the like')
    return KINDS[kind], AXES.index(axis)


def _size(b: Builder, kind: VarKind, axis: int, extent: Any) -> Expr:
    if kind is VarKind.BLOCK:
        return as_expr(b, extent_of(b, axis, extent), INT32 if isinstance(extent, int) else None)
    given = host_int(b, extent, "the extent of T.launch_thread")
    counts = [1, 1, 1]
    counts[axis] = given
    thread_counts(b, tuple(counts))
    return Const(given, INT32)


def _declared(launch: LaunchState, kind: VarKind, axis: int) -> Expr | None:
    """The extent that T.Kernel gives an axis."""
    if kind is VarKind.THREAD:
        return Const((launch.threads or DEFAULT_THREADS)[axis], INT32)
    return launch.grid[axis] if axis < len(launch.grid) else None


def grid_of(launch: LaunchState) -> tuple[Expr, ...]:
    """The grid that the axes declared so far give; extents along axes in between are 1."""
    axes = launch.axes or {}
    most = max((axis for kind, axis in axes if kind is VarKind.BLOCK), default=0)
    return tuple(axes.get((VarKind.BLOCK, axis), Const(1, INT32)) for axis in range(most + 1))


def threads_of(b: Builder, launch: LaunchState) -> tuple[int, int, int]:
    """The threads of a block that the axes declared so far give; one along each of the others. Raises TL0402 for too many."""
    sizes = [(launch.axes or {}).get((VarKind.THREAD, axis)) for axis in range(3)]
    counts = thread_counts(b, tuple(1 if s is None else int(s.value) for s in sizes if s is None or isinstance(s, Const)))
    assert counts is not None
    return counts


ENTRIES: tuple[Entry, ...] = works(launch_thread)
