"""Scratch memory that the caller provides: where each tensor of T.alloc_global lies in it, and how much is needed.

    partial = T.alloc_global((4, M, N), "float32")  ->  {partial: 0}, 16 * M * N bytes rounded up to a multiple of 256
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tilec.record import record
from tilec.ir.dtypes import INT64
from tilec.ir.expr import Binary, Buffer, Const, Expr
from tilec.ir.kernel import Kernel
from tilec.ir.tile import Barrier
from tilec.ir.visit import buffers_of, storage, walk_stmt
from tilec.plan.domains import add, cast

ALIGNMENT = 256
"""Bytes that every tensor of the workspace starts on a multiple of."""


@record
class Workspace:
    """Byte offsets of the tensors in scratch memory and the bytes of all; the first `zeroed` bytes start as zeros."""

    offsets: Mapping[Buffer, Expr] = field(default_factory=dict)
    bytes: Expr | None = None
    zeroed: int = 0


def place_workspace(kernel: Kernel) -> Workspace:
    """Where the scratch tensors of all launches lie, in the order of their first use; the counter of grid barriers first."""
    waits = any(isinstance(s, Barrier) and s.kind == "grid" for launch in kernel.launches for s in walk_stmt(launch.body))
    zeroed = ALIGNMENT if waits else 0
    top: Expr = Const(zeroed, INT64)
    offsets: dict[Buffer, Expr] = {}
    for b in workspaces(kernel):
        offsets[b] = top
        top = _total(top, _rounded(_size(b)))
    return Workspace(offsets, None if isinstance(top, Const) and top.value == 0 else top, zeroed)


def workspaces(kernel: Kernel) -> list[Buffer]:
    """The scratch tensors that the launches of a kernel mention."""
    found: dict[Buffer, None] = {}
    for launch in kernel.launches:
        for s in walk_stmt(launch.body):
            for b in buffers_of(s):
                if storage(b).workspace:
                    found.setdefault(storage(b))
    return list(found)


def _size(b: Buffer) -> Expr:
    out: Expr = Const(b.dtype.bytes, INT64)
    for extent in b.shape if b.strides is None else (b.shape[0], b.strides[0]):
        n = cast(extent, INT64)
        known = isinstance(out, Const) and isinstance(n, Const)
        out = Const(int(out.value) * int(n.value), INT64) if known else Binary("mul", out, n, INT64)  # type: ignore[union-attr]
    return out


def _rounded(size: Expr) -> Expr:
    """`size` rounded up to the alignment."""
    if isinstance(size, Const):
        return Const(-(-int(size.value) // ALIGNMENT) * ALIGNMENT, INT64)
    unit = Const(ALIGNMENT, INT64)
    raised = Binary("add", size, Const(ALIGNMENT - 1, INT64), INT64)
    return Binary("mul", Binary("floordiv", raised, unit, INT64), unit, INT64)


def _total(a: Expr, b: Expr) -> Expr:
    return Const(int(a.value) + int(b.value), INT64) if isinstance(a, Const) and isinstance(b, Const) else add(a, b)
