"""Kernels and modules of the Tile IR. Data only."""

from __future__ import annotations

from dataclasses import field
from typing import TypeAlias

from tilec.diagnostics import NOWHERE, Diagnostic, Span
from tilec.ir.expr import Buffer, Expr, Var
from tilec.ir.tile import Stmt
from tilec.record import record

Param: TypeAlias = Buffer | Var
"""A tensor (a GLOBAL buffer) or a scalar (a PARAM variable)."""


@record
class Launch:
    """One `with T.Kernel(...)`: a grid of blocks that run `body`.

    `block_vars` and `grid` have 1 to 3 entries (x, y, z). `threads` is the author's count along x, y, z, or None when the
    plan may choose. `panel` is the author's T.use_swizzle panel size, 0 for none; `panel_order` is row or column. `cluster` blocks
    along x, y, z run at once and may reach into each other's shared memory. `min_blocks` of them should fit one multiprocessor; 0
    leaves that to CUDA's compiler. A launch that `waits` may begin while those in front of it end, and waits for them itself; one that
    `releases` lets the next such launch begin before its own end.
    """

    block_vars: tuple[Var, ...]
    grid: tuple[Expr, ...]
    threads: tuple[int, int, int] | None
    thread_vars: tuple[Var, ...]
    body: Stmt
    panel: int = 0
    panel_order: str = "row"
    span: Span = NOWHERE
    cluster: tuple[int, int, int] = (1, 1, 1)
    min_blocks: int = 0
    waits: bool = False
    releases: bool = False


@record
class Kernel:
    """A function the author wrote, with everything host-side folded away.

    `params` are in the declared order. `extents` are run-time extents and strides that are not parameters themselves, in
    order of first appearance in the annotations (dynamic strides last). `outputs` names tensors that the Python callable
    allocates (out_idx, T.empty). `bindings` are the compile-time values the kernel was specialised with, for the banner.
    `implicit` marks the form without T.Kernel. `configs` are the dictionaries of an autotune decorator. `sources` is CUDA of
    the author's own that the file gets in front of the kernels.
    """

    symbol: str
    params: tuple[Param, ...]
    extents: tuple[Var, ...]
    launches: tuple[Launch, ...]
    outputs: tuple[str, ...] = ()
    bindings: tuple[tuple[str, str], ...] = ()
    flags: tuple[str, ...] = ()  # e.g. "fast_math", "no_auto_sync"
    configs: tuple[tuple[tuple[str, str], ...], ...] = ()
    implicit: bool = False
    sources: tuple[str, ...] = ()
    span: Span = NOWHERE


@record
class Module:
    """All kernels of a compilation in source order, with the notes and warnings that reading them gave."""

    kernels: tuple[Kernel, ...]
    notes: tuple[Diagnostic, ...] = ()
    sources: tuple[str, ...] = field(default=())  # every file read, the main one first: for depfiles
