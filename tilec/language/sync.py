"""Barriers, assertions and printing.

T.sync_threads()  ->  Barrier("block");  T.device_assert(i < n, "i")  ->  Trap(i < n, "i")
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from tilec.ir.dtypes import INT32, INT64, UINT32
from tilec.ir.expr import Buffer, Call, Const, Expr, Load, Scope, Var, VarKind
from tilec.ir.tile import Alloc, Barrier, Control, Copy, Evaluate, For, Print, Seq, Stmt, Trap
from tilec.language.access import as_expr
from tilec.language.arith import truth
from tilec.language.bind import Entry, ignored, works
from tilec.language.builder import Builder
from tilec.language.context import in_kernel, tile_statement
from tilec.language.regions import region
from tilec.language.show import describe, expr_text
from tilec.language.values import Ref


def sync_threads(b: Builder, barrier_id: Any = None, arrive_count: Any = None) -> None:
    """Waits for all threads of the block, or at a numbered barrier for `arrive_count` threads."""
    _outside_parallel(b, "sync_threads")
    if barrier_id is None:
        if arrive_count is not None:
            raise b.error("TL0203", "T.sync_threads needs a barrier id with the count")
        b.emit(Barrier("block", span=b.span))
        return
    _named(b, "named", barrier_id, arrive_count)


def tvm_storage_sync(b: Builder, scope: Any) -> None:
    """T.sync_threads for "shared", T.sync_warp for "warp"."""
    if scope not in ("shared", "shared.dyn", "warp"):
        raise b.error("TL0206", f'the scope of T.tvm_storage_sync is "shared" or "warp", got {describe(scope)}')
    _outside_parallel(b, "tvm_storage_sync")
    b.emit(Barrier("warp" if scope == "warp" else "block", span=b.span))


def named_barrier_arrive(b: Builder, barrier_id: Any, thread_count: Any) -> None:
    """Counts as come at a numbered barrier without waiting there."""
    _outside_parallel(b, "named_barrier_arrive")
    _named(b, "arrive", barrier_id, thread_count)


def _named(b: Builder, kind: str, barrier_id: Any, count: Any) -> None:
    """A barrier by number, 0 to 15, for a whole number of warps; without a count for all threads of the block."""
    number = as_expr(b, barrier_id, INT32)
    if isinstance(number, Const) and not 0 <= int(number.value) <= 15:
        raise b.error("TL0206", f"a block has barriers 0 to 15, got {number.value}")
    threads = prod(in_kernel(b, "sync_threads").threads or (128, 1, 1))
    whole = as_expr(b, threads if count is None else count, INT32)
    if isinstance(whole, Const) and not (0 < int(whole.value) <= 1024 and int(whole.value) % 32 == 0):
        raise b.error("TL0206", f"a numbered barrier counts whole warps, up to 1024 threads, got {whole.value}")
    b.emit(Barrier(kind, number, whole, b.span))


def sync_grid(b: Builder) -> None:
    """Waits for all threads of all blocks: the launch is cooperative, so all of its blocks must fit on the device at once."""
    _outside_parallel(b, "sync_grid")
    b.emit(Barrier("grid", span=b.span))


def sync_warp(b: Builder, mask: Any = None) -> None:
    """Waits for the threads of the warp, those of `mask` where one is given."""
    _outside_parallel(b, "sync_warp")
    lanes = None if mask is None or (isinstance(mask, int) and mask % (1 << 32) == 0xFFFFFFFF) else as_expr(b, mask, UINT32)
    b.emit(Barrier("warp", lanes, span=b.span))


def _outside_parallel(b: Builder, name: str) -> None:
    in_kernel(b, name)
    if b.in_parallel:
        text = f"`T.{name}` cannot be used inside T.Parallel"
        raise b.error("TL0205", text, help="its iterations are independent; move it out of the loop")


LEAVE = "leave"
"""The kind of the Control that T.thread_return leaves behind until the launch is complete."""


def thread_return(b: Builder) -> None:
    """The thread is done with the launch; statements of the whole block may follow only where all threads agree."""
    _outside_parallel(b, "thread_return")
    b.emit(Control(LEAVE, span=b.span))


def device_assert(b: Builder, condition: Any, msg: Any = "") -> None:
    """Stops the kernel with a message when the condition is false."""
    in_kernel(b, "device_assert")
    met = truth(b, condition)
    if met is False:
        raise b.error("TL0206", f"this assertion is never true{': ' + str(msg) if msg else ''}")
    if not isinstance(met, bool):
        b.emit(Trap(met, str(msg), b.span))


def assume(b: Builder, condition: Any) -> None:
    """A promise that the condition holds."""
    truth(b, condition)


def print_(b: Builder, obj: Any = "", msg: Any = "", warp_group_id: Any = 0, warp_id: Any = 0) -> None:
    """Prints a value from every thread, or the elements of a buffer once a block."""
    in_kernel(b, "print")
    if isinstance(obj, str):
        b.emit(Print(" ".join(t for t in (str(msg), obj) if t), (), span=b.span))
        return
    if isinstance(obj, Buffer) and obj.rank:
        b.emit(_print_buffer(b, obj, str(msg)))
        return
    value = as_expr(b, obj)
    b.emit(Print(str(msg) or (expr_text(value) if not isinstance(value, Const) else ""), (value,), span=b.span))


def _print_buffer(b: Builder, buffer: Buffer, msg: str) -> Stmt:
    """Serial loops over all elements; each prints its indices and its value."""
    if buffer.scope is Scope.FRAGMENT:  # spread over the threads: one of them prints a copy
        tile_statement(b, "print")
        tile = replace(buffer, name=f"{buffer.name}_printed", scope=Scope.SHARED)
        b.emit(Alloc(tile, b.span))
        b.emit(Copy(region(b, buffer), region(b, tile), b.span))
        return _print_buffer(b, tile, msg or buffer.name)
    variables = tuple(Var("ijklmn"[d] if d < 6 else f"i{d}", INT32, VarKind.LOOP, span=b.span) for d in range(buffer.rank))
    body: Stmt = Print(msg or buffer.name, (*variables, Load(buffer, variables)), buffer.scope is not Scope.LOCAL, b.span)
    for v, extent in zip(reversed(variables), reversed(buffer.shape), strict=True):
        dtype = INT64 if extent.dtype.bits == 64 else INT32
        body = For(v, Const(0, dtype), extent, Const(1, dtype), "serial", Seq((body,), b.span), span=b.span)
    return body


def evaluate(b: Builder, value: Any) -> None:
    """An expression as a statement; only calls have effects."""
    if isinstance(value, (Ref, Buffer)) or value is None:
        return
    e: Expr = as_expr(b, value)
    if isinstance(e, Call):
        b.emit(Evaluate(e, b.span))


ENTRIES: tuple[Entry, ...] = (
    works(sync_threads, "syncthreads")
    + works(sync_warp, "syncwarp")
    + works(named_barrier_arrive)
    + works(tvm_storage_sync)
    + works(thread_return)
    + works(device_assert)
    + ignored(assume, host=True)
    + works(print_)
    + works(evaluate)
    + works(sync_grid, "sync_global")
)
