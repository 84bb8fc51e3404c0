"""Exchanges between the threads of a block: shuffles and votes of warps, votes of the block.

    exchange("shfl_xor", [mask, values, 1, 32], INT32, 128, True) -> for each thread the value of its neighbour
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilec.ir.dtypes import DType
from tilec.reference.masks import Mask
from tilec.reference.values import Array, Value, np_dtype

WARP = 32


class Absent(ValueError):
    """A thread wants something of another that does not take part."""


def exchange(name: str, args: Sequence[Value], dtype: DType, threads: int, active: Mask) -> Value:
    """The value of an exchange for every thread of a block; threads outside of `active` get something unspecified.

    Raises Absent when a thread that an active one names, by its lane mask or as a source, is not active.
    """
    here = np.broadcast_to(active, (threads,))
    if name.startswith("sync_"):
        votes = np.broadcast_to(args[0], (threads,)).astype(bool)
        if not here.all():
            raise Absent("only some threads of the block come to this barrier")
        found = {"sync_and": votes.all(), "sync_or": votes.any(), "sync_count": votes.sum()}[name]
        return np.asarray(found).astype(np_dtype(dtype))[()]
    if name == "activemask":
        return _bits(here, here, threads)
    wanted = _members(args[0], threads)
    _all_here(wanted, here)
    if name.startswith("shfl_"):
        return _shuffle(name, args, here)
    values = np.broadcast_to(args[1], (threads,))
    if name == "match_any":
        return _same(values, wanted, here)
    votes = values.astype(bool)
    counted = _bits(votes & here, here, threads) & np.broadcast_to(args[0], (threads,)).astype(np.uint32)
    if name == "ballot":
        return counted
    if name == "any_sync":
        return counted != 0
    return counted == np.broadcast_to(args[0], (threads,)).astype(np.uint32) & _bits(np.ones(threads, bool), here, threads)


def _members(mask: Value, threads: int) -> Array:
    """For each thread (row) the threads of its warp that its mask names (columns, by lane)."""
    rows = np.broadcast_to(mask, (threads,)).astype(np.uint32)
    return np.asarray((rows[:, None] >> np.arange(WARP, dtype=np.uint32)) & 1 == 1)


def _all_here(wanted: Array, here: Array) -> None:
    threads = here.size
    warps = -(-threads // WARP)
    present = np.ones(warps * WARP, bool)  # lanes beyond the block count as come: they never run
    present[:threads] = here
    by_warp = np.repeat(present.reshape(warps, WARP), WARP, axis=0)[:threads]
    if (here[:, None] & wanted & ~by_warp).any():
        raise Absent("a lane that the mask names does not come to this exchange")
    if (here & ~wanted[np.arange(threads), np.arange(threads) % WARP]).any():
        raise Absent("a lane that the mask leaves out comes to this exchange")


def _shuffle(name: str, args: Sequence[Value], here: Array) -> Value:
    threads = here.size
    values = np.broadcast_to(args[1], (threads,))
    delta = np.broadcast_to(args[2], (threads,)).astype(np.int64)
    width = int(np.asarray(args[3]).reshape(-1)[0])
    thread = np.arange(threads)
    lane, first = thread % WARP, thread - thread % WARP
    group = lane // width * width
    match name:
        case "shfl_xor":
            source = lane ^ delta
            source = np.where(source < group + width, source, lane)
        case "shfl_up":
            source = np.where(lane - delta >= group, lane - delta, lane)
        case "shfl_down":
            source = np.where(lane + delta < group + width, lane + delta, lane)
        case _:
            source = group + delta % width
    source = first + source
    ok = (source >= 0) & (source < threads)
    ok[ok] = here[source[ok]]
    if (here & ~ok).any():
        raise Absent("the lane whose value is asked for does not come to this exchange")
    return values[np.where(ok, source, 0)]


def _bits(votes: Array, here: Array, threads: int) -> Array:
    """The votes of each thread's warp as a word."""
    warps = -(-threads // WARP)
    padded = np.zeros(warps * WARP, np.uint32)
    padded[:threads] = votes
    words = (padded.reshape(warps, WARP) << np.arange(WARP, dtype=np.uint32)).sum(1, dtype=np.uint32)
    return np.repeat(words, WARP)[:threads]


def _same(values: Any, wanted: Array, here: Array) -> Array:
    threads = here.size
    out = np.zeros(threads, np.uint32)
    for lane in range(WARP):
        other = np.arange(threads) // WARP * WARP + lane
        ok = (other < threads) & wanted[:, lane]
        ok[ok] = here[other[ok]]
        equal = ok & (values == values[np.where(ok, other, 0)])
        out |= np.where(equal, np.uint32(1 << lane), np.uint32(0))
    return out
