"""Shared tiles that are allocated in every step of a pipelined loop, allocated once in front of it.

    for k in T.Pipelined(n, num_stages=2): A_s = T.alloc_shared(...); T.copy(A[...], A_s); ...
    ->  A_s = T.alloc_shared(...)
        for k in T.Pipelined(n, num_stages=2): T.copy(A[...], A_s); ...

A new tile holds nothing that can be relied on, so that an old one does as well; and its copies may then run ahead.
"""

from __future__ import annotations

from dataclasses import replace

from tilec.ir.expr import Scope
from tilec.ir.kernel import Kernel
from tilec.ir.tile import Alloc, For, Seq, Stmt
from tilec.ir.visit import flat, map_stmt, walk_stmt


def steady(kernel: Kernel) -> Kernel:
    """The kernel with such tiles in front of their loops; itself where there are none."""
    if not any(_tiles(s) for launch in kernel.launches for s in walk_stmt(launch.body)):
        return kernel
    return replace(kernel, launches=tuple(replace(launch, body=_steady(launch.body)) for launch in kernel.launches))


def _tiles(s: Stmt) -> list[Stmt]:
    """The allocations of tiles in the steps of a pipelined loop."""
    if not isinstance(s, For) or s.kind != "pipelined":
        return []
    return [x for x in flat(s.body) if isinstance(x, Alloc) and x.buffer.scope is Scope.SHARED and x.buffer.view_of is None]


def _steady(s: Stmt) -> Stmt:
    s = map_stmt(s, lambda e: e, _steady)
    tiles = _tiles(s)
    if not tiles or not isinstance(s, For):
        return s
    rest = tuple(x for x in flat(s.body) if x not in tiles)
    return Seq((*tiles, replace(s, body=Seq(rest, s.span))), s.span)
