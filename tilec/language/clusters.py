"""Clusters: blocks of a launch that run at once, wait for each other and reach into each other's shared memory.

T.block_rank_in_cluster()                  ->  bx % 4, in clusters of 4 blocks along x
T.copy_cluster(A_s, B_s, dst_block=peer)   ->  Copy(A_s, the B_s of block `peer` of the cluster)
T.copy_cluster(A[by * 64, k], A_s, cluster_mask=0b11)   ->  blocks 0 and 1 get what block 0 would copy
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

from tilec.ir.dtypes import INT32
from tilec.ir.expr import Binary, Buffer, Compare, Const, Expr, Load, Scope, Var, VarKind
from tilec.ir.tile import Barrier, BulkCopy, Copy, If, Region, Seq, Stmt
from tilec.ir.visit import buffers_of, flat, map_expr, walk_stmt
from tilec.language.access import as_expr, buffer_label, host_int
from tilec.language.arith import binary
from tilec.language.barriers import barrier_of
from tilec.language.bind import Entry, works
from tilec.language.builder import Builder, LaunchState
from tilec.language.context import in_kernel, scope_error, tile_statement
from tilec.language.regions import pair
from tilec.language.show import describe
from tilec.language.values import Ref
from tilec.language.warp import held


def cluster_sync(b: Builder) -> None:
    """Waits for all threads of all blocks of the cluster."""
    _barrier(b, "cluster_sync", "cluster")


def cluster_arrive(b: Builder) -> None:
    """Counts as come at the cluster's barrier; what was written before is visible to the others behind T.cluster_wait."""
    _barrier(b, "cluster_arrive", "cluster_arrive")


def cluster_arrive_relaxed(b: Builder) -> None:
    """T.cluster_arrive that makes nothing visible."""
    _barrier(b, "cluster_arrive_relaxed", "cluster_arrive_relaxed")


def cluster_wait(b: Builder) -> None:
    """Waits until all threads of the cluster have come at its barrier."""
    _barrier(b, "cluster_wait", "cluster_wait")


def _barrier(b: Builder, name: str, kind: str) -> None:
    alone = prod(in_kernel(b, name).cluster) == 1
    if b.in_parallel:
        text = f"`T.{name}` cannot be used inside T.Parallel"
        raise b.error("TL0205", text, help="its iterations are independent; move it out of the loop")
    if not alone:
        b.emit(Barrier(kind, span=b.span))
    elif kind in ("cluster", "cluster_wait"):
        b.emit(Barrier("block", span=b.span))


def block_rank_in_cluster(b: Builder) -> Any:
    """The number of the block in its cluster, x fastest; 0 without clusters."""
    return _rank(b, in_kernel(b, "block_rank_in_cluster"))


def _rank(b: Builder, launch: LaunchState) -> Any:
    rank: Any = 0
    place = 1
    for var, count in zip(launch.block_vars, launch.cluster, strict=False):
        if count > 1:
            along = binary(b, "mul", binary(b, "mod", var, count), place)
            rank = along if rank == 0 else binary(b, "add", rank, along)
        place *= count
    return rank


def copy_cluster(
    b: Builder, src: Any, dst: Any, dst_block: Any = None, cluster_mask: Any = None, remote_barrier: Any = None, *,
    eviction_policy: Any = None, coalesced_width: Any = None, annotations: Any = None, loop_layout: Any = None,
) -> None:  # fmt: skip
    """T.copy across blocks of a cluster: with `dst_block`, from this block's tile to the same tile of that block, visible there behind
    a cluster barrier; with `cluster_mask`, what its lowest block would copy to all blocks whose bits are set."""
    tile_statement(b, "copy_cluster")
    for side, name in ((src, "source"), (dst, "destination")):
        if not isinstance(side, (Buffer, Ref)):
            raise b.error("TL0206", f"the {name} of T.copy_cluster must be a buffer or a region of one, got {describe(side)}")
    if (dst_block is None) == (cluster_mask is None):
        raise b.error("TL0203", "T.copy_cluster takes either `dst_block` or `cluster_mask`", help="T.copy copies within the block")
    source, target = pair(b, "copy_cluster", src, dst)
    if dst_block is not None:
        _to_block(b, source, target, dst_block, remote_barrier)
        return
    if remote_barrier is not None:
        raise b.error("TL0202", "a multicast of T.copy_cluster has no `remote_barrier`", help="T.tma_copy has a barrier and a mask")
    scope_error(b, source.buffer, "the source of a multicast", (Scope.GLOBAL,), "use `dst_block` to send a tile")
    shared_by_mask(b, source, mask_of(b, cluster_mask), lambda region, _: Copy(region, target, b.span))


def _to_block(b: Builder, source: Region, target: Region, block: Any, barrier: Any) -> None:
    """A tile of this block to that of another one; with a barrier by the copy engine, which counts as an arrival there."""
    scope_error(b, target.buffer, "the destination of T.copy_cluster", (Scope.SHARED,), "allocate it with T.alloc_shared")
    scope_error(b, source.buffer, "what T.copy_cluster sends", (Scope.SHARED, Scope.FRAGMENT), "copy it to shared memory first")
    there = replace(target, buffer=of_block(b, target.buffer, block))
    if barrier is None:
        b.emit(Copy(source, there, b.span))
        return
    slot, index = barrier_of(b, "copy_cluster", barrier)
    if there.buffer is target.buffer:
        raise b.error("TL0407", "a launch without clusters has no remote barrier", help="T.Kernel(..., cluster_dims=...)")
    if source.buffer.scope is not Scope.SHARED or source.buffer.dtype != target.buffer.dtype:
        kind = f"{source.buffer.dtype} in {source.buffer.scope.value} memory"
        text = f"the copy engine sends shared tiles as they are: `{source.buffer.name}` is {kind}"
        raise b.error("TL0322", text, *buffer_label(source.buffer), help="leave out `remote_barrier`, or send a shared tile of one type")
    b.emit(BulkCopy(source, there, slot, index, b.span))


def of_block(b: Builder, own: Buffer, block: Any) -> Buffer:
    """The tile, or the barriers, of another block of the cluster; the own ones in a launch without clusters."""
    size = prod(in_kernel(b, "copy_cluster").cluster)
    rank: Expr = as_expr(b, block, INT32)
    if isinstance(rank, Const) and not 0 <= int(rank.value) < size:
        raise b.error("TL0407", f"there is no block {int(rank.value)} in a cluster of {size}", help="T.Kernel(..., cluster_dims=...)")
    if size == 1:
        return own
    if not isinstance(rank, Const | Var):
        rank = held(b, rank, "peer")
    return Buffer(f"{own.name}_there", own.dtype, own.shape, own.scope, view_of=own, span=own.span, peer=rank)


def mask_of(b: Builder, value: Any) -> int:
    """A mask of blocks of the cluster."""
    mask, size = host_int(b, value, "cluster_mask"), prod(in_kernel(b, "copy_cluster").cluster)
    if not 0 < mask < 1 << size:
        raise b.error("TL0407", f"the mask {mask:#x} names blocks that a cluster of {size} does not have")
    return mask


def shared_by_mask(b: Builder, source: Region, mask: int, make: Callable[[Region, bool], Stmt]) -> None:
    """What the lowest block of a mask would copy, for each block of the mask; the others copy for themselves. `make` makes the copy of
    a region, and is told whether it is a block's own."""
    launch = in_kernel(b, "copy_cluster")
    size = prod(launch.cluster)
    first = (mask & -mask).bit_length() - 1
    table = _places(launch, first)
    starts = tuple(_seen_from(b, e, table, source.buffer) for e in source.starts)
    shared = make(replace(source, starts=starts), False)
    if mask == (1 << size) - 1:
        b.emit(shared)
        return
    bit = Binary("and", Binary("shr", Const(mask, INT32), as_expr(b, _rank(b, launch)), INT32), Const(1, INT32), INT32)
    there, own = Seq((shared,), b.span), Seq((make(source, True),), b.span)
    b.emit(If(Compare("ne", bit, Const(0, INT32)), there, own, b.span))


def _places(launch: LaunchState, rank: int) -> dict[Var, Expr]:
    """The block indices of the block `rank` of a cluster, over those of any of its blocks."""
    out: dict[Var, Expr] = {}
    for var, count in zip(launch.block_vars, launch.cluster, strict=False):
        if count > 1:
            size = Const(count, INT32)
            first = Binary("sub", var, Binary("mod", var, size, INT32), INT32)
            out[var] = Binary("add", first, Const(rank % count, INT32), INT32)
        rank //= count
    return out


def _seen_from(b: Builder, e: Expr, table: dict[Var, Expr], source: Buffer) -> Expr:
    """A start index as another block of the cluster computes it."""
    match e:
        case Var() if e in table:
            return table[e]
        case Var(kind=VarKind.LET) if (value := b.definition(e)) is not None:
            moved = _seen_from(b, value, table, source)
            return e if moved == value else moved
        case Var(kind=VarKind.LET | VarKind.THREAD) | Load(buffer=Buffer(scope=Scope.SHARED | Scope.FRAGMENT | Scope.LOCAL | Scope.VAR)):
            text = f"the place in `{source.name}` that a multicast reads must follow from block indices, loop variables and tensors"
            raise b.error("TL0407", text, *buffer_label(source), help="compute the index from the block indices, or use T.copy")
        case _:
            return map_expr(e, lambda x: _seen_from(b, x, table, source))


def meet_around_peers(body: Stmt) -> Stmt:
    """The body of a launch with the cluster barriers in front of the first and behind the last access to another block that the
    author left out: a block must have begun before others reach into its memory, and must not end before they are done."""
    stmts = flat(body)
    reaching = [n for n, s in enumerate(stmts) if _reaches(s)]
    if not reaching:
        return body
    meets = [n for n, s in enumerate(stmts) if isinstance(s, Barrier) and s.kind in ("cluster", "cluster_wait")]
    first, last = reaching[0], reaching[-1]
    if not any(n > last for n in meets):
        stmts.append(Barrier("cluster"))
    if not any(n < first for n in meets):
        stmts.insert(first, Barrier("cluster"))
    return Seq(tuple(stmts), body.span)


def _reaches(s: Stmt) -> bool:
    """True when a statement touches the memory of another block."""
    inside = tuple(walk_stmt(s))
    return any(isinstance(x, BulkCopy) and x.mask for x in inside) or any(b.peer is not None for x in inside for b in buffers_of(x))


ENTRIES: tuple[Entry, ...] = (
    works(cluster_sync) + works(cluster_arrive) + works(cluster_arrive_relaxed) + works(cluster_wait) + works(block_rank_in_cluster)
    + works(copy_cluster)
)  # fmt: skip
