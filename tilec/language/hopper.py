"""Hopper by hand: barriers in shared memory, the copy engine, products that are only queued, registers of warp groups.

full = T.alloc_barrier([128] * 2)                        ->  alloc full: uint64[2]; mbarrier init full[0] by 128; ...
T.tma_copy(A[by * 64, k * 64], A_s, barrier=full[k % 2]) ->  bulk_copy A[...] -> A_s at full[k % 2]
T.wgmma_gemm(A_s, B_s, acc); T.wait_wgmma(0)             ->  gemm acc += A_s @ B_s queued; control products_wait 0
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilec.ir.dtypes import BOOL, INT32, UINT64
from tilec.ir.expr import Buffer, Cast, Const, Expr, Scope
from tilec.ir.tile import Alloc, BulkCopy, Control, Mbarrier, Seq, Stmt
from tilec.ir.visit import map_stmt, walk_stmt
from tilec.language.access import as_expr, buffer_label
from tilec.language.barriers import barrier_of
from tilec.language.bind import Entry, ignored, works
from tilec.language.builder import Builder
from tilec.language.clusters import mask_of, of_block, shared_by_mask
from tilec.language.context import host_flag, host_int, in_kernel, tile_statement
from tilec.language.extents import constant
from tilec.language.gemm import queued_gemm
from tilec.language.regions import pair
from tilec.language.show import describe
from tilec.language.values import Ref

MOST_ARRIVALS = (1 << 20) - 1


def alloc_barrier(b: Builder, arrive_count: Any) -> Buffer:
    """Barriers in shared memory, one for a number, as many as a list has; a phase ends after so many arrivals and all announced bytes."""
    launch = in_kernel(b, "alloc_barrier")
    _outside_parallel(b, "alloc_barrier")
    listed = list(arrive_count) if isinstance(arrive_count, (tuple, list)) else [arrive_count]
    counts = tuple(host_int(b, n, "an arrival count") for n in listed)
    if not counts:
        raise b.error("TL0206", "T.alloc_barrier needs at least one arrival count")
    for n in counts:
        if not 1 <= n <= MOST_ARRIVALS:
            raise b.error("TL0206", f"a barrier counts 1 to {MOST_ARRIVALS} arrivals, got {n}")
    buffer = Buffer(b.hint or "barrier", UINT64, (Const(len(counts), INT32),), Scope.SHARED, span=b.span)
    launch.barriers[buffer] = counts
    b.emit(Alloc(buffer, b.span))
    for n, count in enumerate(counts):
        b.emit(Mbarrier("init", buffer, Const(n, INT32), Const(count, INT32), b.span))
    return buffer


def alloc_cluster_barrier(b: Builder, arrive_count: Any) -> Buffer:
    """T.alloc_barrier, at which the other blocks of the cluster may arrive too: by T.barrier_arrive(bar, block) and T.copy_cluster."""
    return alloc_barrier(b, arrive_count)


def create_list_of_mbarrier(b: Builder, *counts: Any) -> None:
    """T.alloc_barrier of all counts, for T.get_mbarrier."""
    launch = in_kernel(b, "create_list_of_mbarrier")
    listed = counts[0] if len(counts) == 1 and isinstance(counts[0], (tuple, list)) else counts
    b.hint = "mbarriers"
    launch.listed = alloc_barrier(b, tuple(listed))


def get_mbarrier(b: Builder, index: Any) -> Ref:
    """A barrier of T.create_list_of_mbarrier."""
    launch = in_kernel(b, "get_mbarrier")
    if launch.listed is None:
        raise b.error("TL0205", "T.get_mbarrier needs T.create_list_of_mbarrier before it", help="or use T.alloc_barrier")
    return Ref(launch.listed, (index,), b.span)


def barrier_arrive(b: Builder, mbarrier: Any, cta_id: Any = None) -> None:
    """One arrival of each thread that comes here, at the barrier of the block `cta_id` of the cluster where one is given."""
    if cta_id is None:
        _signal(b, "barrier_arrive", "arrive", mbarrier)
        return
    _outside_parallel(b, "barrier_arrive")
    buffer, index = barrier_of(b, "barrier_arrive", mbarrier)
    b.emit(Mbarrier("arrive", of_block(b, buffer, cta_id), index, None, b.span))


def barrier_wait(b: Builder, mbarrier: Any, parity: Any) -> None:
    """Waits until the phase of this parity is over. A new barrier is in phase 0: waiting for parity 1 returns at once."""
    _signal(b, "barrier_wait", "wait", mbarrier, _parity(b, parity))


def mbarrier_expect_tx(b: Builder, mbarrier: Any, tx: Any) -> None:
    """Announces bytes that the copy engine delivers in this phase, in addition to those that T.tma_copy announces itself."""
    _signal(b, "mbarrier_expect_tx", "expect", mbarrier, _bytes(b, tx))


def mbarrier_arrive_expect_tx(b: Builder, mbarrier: Any, tx: Any) -> None:
    """T.mbarrier_expect_tx and an arrival in one."""
    _signal(b, "mbarrier_arrive_expect_tx", "arrive_expect", mbarrier, _bytes(b, tx))


def cp_async_barrier_noinc(b: Builder, mbarrier: Any) -> None:
    """An arrival of each thread once its earlier T.ptx_cp_async are complete."""
    _signal(b, "cp_async_barrier_noinc", "arrive_copies", mbarrier)


def _signal(b: Builder, name: str, kind: str, barrier: Any, value: Expr | None = None) -> None:
    in_kernel(b, name)
    _outside_parallel(b, name)
    buffer, index = barrier_of(b, name, barrier)
    b.emit(Mbarrier(kind, buffer, index, value, b.span))


def _parity(b: Builder, value: Any) -> Expr:
    e = as_expr(b, value)
    if e.dtype == BOOL:
        e = Const(int(e.value), INT32) if isinstance(e, Const) else Cast(e, INT32)
    if not e.dtype.is_int:
        raise b.error("TL0206", f"the parity of a phase is an integer, got {e.dtype}", help="count the phases, and take `n % 2`")
    if isinstance(e, Const) and e.value not in (0, 1):
        raise b.error("TL0206", f"the parity of a phase is 0 or 1, got {e.value}", help="take `% 2` of the number of the phase")
    return e


def _bytes(b: Builder, value: Any) -> Expr:
    e = as_expr(b, value, INT32)
    if isinstance(e, Const) and not 0 <= int(e.value) < 1 << 20:
        raise b.error("TL0206", f"a phase takes at most {(1 << 20) - 1} bytes, got {e.value}")
    return e


def tma_copy(
    b: Builder, src: Any, dst: Any, *, barrier: Any = None, leader_scope_threads: Any = None, eviction_policy: Any = None,
    annotations: Any = None, cluster_mask: Any = None,
) -> None:  # fmt: skip
    """dst = src by the copy engine. A load announces its bytes at `barrier` and returns: T.barrier_arrive and T.barrier_wait do the
    rest. A store returns too: T.tma_store_arrive and T.tma_store_wait do the rest. Without a copy engine, an ordinary copy.

    With `cluster_mask`, the blocks of the cluster whose bits are set come here together and get what the lowest of them would load,
    by one multicast; each waits at its own barrier.
    """
    tile_statement(b, "tma_copy")
    for side, name in ((src, "source"), (dst, "destination")):
        if not isinstance(side, (Buffer, Ref)):
            raise b.error("TL0206", f"the {name} of T.tma_copy must be a buffer or a region of one, got {describe(side)}")
    source, target = pair(b, "copy", src, dst)
    sides = (source.buffer.scope, target.buffer.scope)
    if sides not in ((Scope.GLOBAL, Scope.SHARED), (Scope.SHARED, Scope.GLOBAL)):
        text = f"T.tma_copy moves between global and shared memory, not from {sides[0].value} to {sides[1].value}"
        raise b.error("TL0322", text, *buffer_label(source.buffer), *buffer_label(target.buffer), help="use T.copy")
    if source.buffer.dtype != target.buffer.dtype:
        kinds = f"`{source.buffer.name}` is {source.buffer.dtype}, `{target.buffer.name}` {target.buffer.dtype}"
        text = f"the copy engine casts nothing: {kinds}"
        raise b.error("TL0302", text, *buffer_label(source.buffer), *buffer_label(target.buffer), help="use T.copy")
    tile = target if target.buffer.scope is Scope.SHARED else source
    if any(constant(e) is None for e in tile.extents):
        raise b.error("TL0309", f"the extents of a box must be known while compiling, those of `{tile.buffer.name}` are not")
    if target.buffer.scope is Scope.GLOBAL:
        if barrier is not None:
            raise b.error("TL0202", "a store of T.tma_copy has no barrier", help="T.tma_store_arrive and T.tma_store_wait order stores")
        b.emit(BulkCopy(source, target, span=b.span))
        return
    if barrier is None:
        raise b.error("TL0203", "a load of T.tma_copy needs a barrier", help="T.tma_copy(A[...], A_s, barrier=ready)")
    buffer, index = barrier_of(b, "tma_copy", barrier)
    if cluster_mask is None:
        b.emit(BulkCopy(source, target, buffer, index, b.span))
        return
    mask = mask_of(b, cluster_mask)
    shared_by_mask(b, source, mask, lambda region, own: BulkCopy(region, target, buffer, index, b.span, 0 if own else mask))


def tma_store_arrive(b: Builder) -> None:
    """Closes the group of the stores that T.tma_copy has queued."""
    _control(b, "tma_store_arrive", "stores_commit")


def tma_store_wait(b: Builder, count: Any = 0, read: Any = True) -> None:
    """Waits until all but the newest `count` groups of stores have read their tiles."""
    host_flag(b, read, "read")
    _control(b, "tma_store_wait", "stores_wait", _groups(b, count))


def wgmma_gemm(
    b: Builder, A: Any, B: Any, C: Any, transpose_A: Any = False, transpose_B: Any = False, policy: Any = "square",
    clear_accum: Any = False, annotations: Any = None,
) -> None:  # fmt: skip
    """As T.gemm, but only queued: C, and A in registers, may be touched again behind T.wait_wgmma. B is a shared tile."""
    queued_gemm(b, A, B, C, transpose_A, transpose_B, policy, clear_accum)


def wait_wgmma(b: Builder, id: Any = 0) -> None:
    """Waits until all but the newest `id` groups of products are done. A T.wgmma_gemm is a group."""
    _control(b, "wait_wgmma", "products_wait", _groups(b, id))


def warpgroup_wait(b: Builder, num_mma: Any = 0) -> None:
    """T.wait_wgmma."""
    _control(b, "warpgroup_wait", "products_wait", _groups(b, num_mma))


def warpgroup_arrive(b: Builder) -> None:
    """Orders accesses to accumulators before products; T.wgmma_gemm does it itself."""
    _control(b, "warpgroup_arrive", "products_fence")


def warpgroup_commit_batch(b: Builder) -> None:
    """Closes a group of products; T.wgmma_gemm does it itself, so that this one is a group without any."""
    _control(b, "warpgroup_commit_batch", "products_commit")


def warpgroup_fence_operand(b: Builder, *args: Any, **kwargs: Any) -> None:
    """Keeps uses of registers behind a wait; the compiler places these fences."""


def fence_proxy_async(b: Builder) -> None:
    """Makes what this thread has written to shared memory visible to the copy engine and to queued products. In a kernel without
    barriers of its own it is ignored; behind writes to tiles that need it, the compiler adds one."""
    _control(b, "fence_proxy_async", "fence")


def set_max_nreg(b: Builder, reg_count: Any, is_inc: Any) -> None:
    """Gives the threads of a warp group `reg_count` registers: more (`is_inc` 1) or fewer (0). Ignored in kernels without barriers."""
    taken = host_int(b, is_inc, "is_inc")
    if taken not in (0, 1):
        raise b.error("TL0206", f"is_inc is 1 or 0, got {taken}")
    _registers(b, "set_max_nreg", "registers_take" if taken else "registers_give", reg_count)


def inc_max_nreg(b: Builder, reg_count: Any) -> None:
    """T.set_max_nreg(reg_count, 1)."""
    _registers(b, "inc_max_nreg", "registers_take", reg_count)


def dec_max_nreg(b: Builder, reg_count: Any) -> None:
    """T.set_max_nreg(reg_count, 0)."""
    _registers(b, "dec_max_nreg", "registers_give", reg_count)


def _registers(b: Builder, name: str, kind: str, count: Any) -> None:
    n = host_int(b, count, "the number of registers")
    if not 24 <= n <= 256 or n % 8:
        raise b.error("TL0206", f"a thread has 24 to 256 registers, a multiple of 8, got {n}")
    _control(b, name, kind, n)


def _groups(b: Builder, count: Any) -> int:
    n = host_int(b, count, "the number of groups")
    if not 0 <= n <= 7:
        raise b.error("TL0206", f"0 to 7 groups may stay in flight, got {n}")
    return n


def _control(b: Builder, name: str, kind: str, value: int = 0) -> None:
    in_kernel(b, name)
    _outside_parallel(b, name)
    b.emit(Control(kind, value, b.span))


def _outside_parallel(b: Builder, name: str) -> None:
    if b.in_parallel:
        text = f"`T.{name}` cannot be used inside T.Parallel"
        raise b.error("TL0205", text, help="its iterations belong to no thread in particular; move it out of the loop")


def without_controls(body: Stmt) -> Stmt:
    """`body` of a kernel without barriers of its own: what only orders hand-written work is left out."""

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Seq):
            return replace(s, body=tuple(visit(c) for c in s.body if not isinstance(c, Control)))
        return Seq((), s.span) if isinstance(s, Control) else map_stmt(s, lambda e: e, visit)

    return visit(body) if any(isinstance(s, Control) for s in walk_stmt(body)) else body


ENTRIES: tuple[Entry, ...] = (
    works(alloc_barrier)
    + works(alloc_cluster_barrier)
    + works(create_list_of_mbarrier)
    + works(get_mbarrier)
    + works(barrier_arrive, "mbarrier_arrive", "ptx_arrive_cluster_barrier")
    + works(barrier_wait, "mbarrier_wait_parity")
    + works(mbarrier_expect_tx)
    + works(mbarrier_arrive_expect_tx)
    + works(cp_async_barrier_noinc)
    + works(tma_copy)
    + works(tma_store_arrive)
    + works(tma_store_wait)
    + works(wgmma_gemm, "wgmma_mma")
    + works(wait_wgmma)
    + works(warpgroup_wait)
    + works(warpgroup_arrive)
    + works(warpgroup_commit_batch)
    + ignored(warpgroup_fence_operand)
    + works(fence_proxy_async)
    + works(set_max_nreg)
    + works(inc_max_nreg)
    + works(dec_max_nreg)
)
