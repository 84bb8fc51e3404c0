"""Kernels without T.Kernel whose grid and threads T.launch_thread declares, axis by axis.

    bx = T.launch_thread("blockIdx.x", 8)          ->  one launch of (8,) blocks of (128, 1, 1) threads: the whole body
    tx = T.launch_thread("threadIdx.x", 128)

The body is recorded twice: how many threads there are must be known from its first statement on, and only its end tells.
"""

from __future__ import annotations

from collections.abc import Callable

from tilec.diagnostics import CompileError, Span
from tilec.frontend.launches import record_launch
from tilec.frontend.machine import Flow, Machine
from tilec.frontend.values import Fatal
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Const, Var, VarKind
from tilec.language.axes import grid_of, threads_of
from tilec.record import record


@record
class Axes:
    """What a first recording has found: how many axes the grid has, and the threads along x, y, z."""

    blocks: int
    threads: tuple[int, int, int]


def record_axes(m: Machine, known: Axes | None, body: Callable[[], Flow], span: Span) -> tuple[Flow, Axes | None]:
    """Records a body whose axes are `known`; else records it to find them, which it returns, for the caller to start again."""
    flow: list[Flow] = [None]
    found: list[Axes] = []

    def run() -> Flow:
        try:
            flow[0] = body()
        except Fatal:
            raise
        except CompileError as fault:
            if known is not None:
                raise
            m.keep(fault)
        state = m.b.launch
        assert state is not None
        found.append(Axes(len(grid_of(state)), threads_of(m.b, state)))
        return None

    count, counts = (known.blocks, known.threads) if known is not None else (3, None)
    blocks = tuple(Var(f"b{'xyz'[k]}", INT32, VarKind.BLOCK, k, span) for k in range(count))
    threads = tuple(Var(f"t{'xyz'[k]}", INT32, VarKind.THREAD, k, span) for k in range(3))
    try:
        record_launch(m, blocks, (Const(1, INT32),) * count, threads, counts, run, span, axes=True)
    except Fatal:
        raise
    except CompileError:
        if known is not None or not found:
            raise
    return flow[0], found[0] if known is None else None
