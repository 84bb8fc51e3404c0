"""The blocks of a cluster: each in a thread of its own, one of them running at a time, until it waits for the others.

    run_cluster([(0,), (1,)], lambda block, member: ...)
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilec.diagnostics import Span
from tilec.reference.errors import MeaningError
from tilec.reference.memory import Memory

Place = tuple[int, ...]


class _Abandoned(Exception):
    """Another block of the cluster has failed."""


@dataclass(slots=True)
class _Cluster:
    """What its blocks share. Who holds `turn` runs."""

    size: int
    turn: threading.Condition = field(default_factory=threading.Condition)
    memories: dict[int, Memory] = field(default_factory=dict)
    arrivals: list[int] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)
    failure: BaseException | None = None

    def met(self, count: int) -> bool:
        """Whether all blocks that have not ended came `count` times, or nobody waits any more."""
        return self.failure is not None or all(n >= count or r in self.ended for r, n in enumerate(self.arrivals))


@dataclass(slots=True)
class Member:
    """One block of a running cluster, by its rank."""

    cluster: _Cluster
    rank: int
    waits: int = 0

    def join(self, memory: Memory) -> Callable[[int, Span], Memory]:
        """Makes the block's memory known; gives that of the others."""
        self.cluster.memories[self.rank] = memory
        return self._peer

    def _peer(self, rank: int, span: Span) -> Memory:
        if not 0 <= rank < self.cluster.size:
            raise MeaningError(f"there is no block {rank} in a cluster of {self.cluster.size}", span)
        if rank in self.cluster.ended:
            raise MeaningError(f"block {rank} of the cluster has ended: a cluster barrier is missing", span)
        if rank not in self.cluster.memories:
            raise MeaningError(f"block {rank} of the cluster has not begun: a cluster barrier is missing", span)
        return self.cluster.memories[rank]

    def barrier(self, kind: str, span: Span) -> None:
        """An arrival at the cluster's barrier, the wait behind one, or both."""
        c = self.cluster
        if kind != "cluster_wait":
            if c.arrivals[self.rank] > self.waits:
                raise MeaningError("this block comes at the cluster's barrier again without having waited there", span)
            c.arrivals[self.rank] += 1
            c.turn.notify_all()
        if kind not in ("cluster", "cluster_wait"):
            return
        if c.arrivals[self.rank] == self.waits:
            raise MeaningError("this block waits at the cluster's barrier without having come there", span)
        self.waits += 1
        c.turn.wait_for(lambda: c.met(self.waits))
        if c.failure is not None:
            raise _Abandoned


def cluster_places(grid: Sequence[int], cluster: tuple[int, int, int], span: Span) -> Iterator[list[Place]]:
    """For each cluster of a grid the indices of its blocks, by rank. MeaningError for a grid that is not whole clusters."""
    sizes = cluster[: len(grid)]
    if any(n % c for n, c in zip(grid, sizes, strict=True)) or math.prod(cluster) != math.prod(sizes):
        raise MeaningError(f"a grid of {'x'.join(map(str, grid))} blocks is not a whole number of clusters", span)
    counts = [n // c for n, c in zip(grid, sizes, strict=True)]
    for n in range(math.prod(counts)):
        first = _digits(n, counts)
        yield [tuple(f * c + i for f, c, i in zip(first, sizes, _digits(r, sizes), strict=True)) for r in range(math.prod(sizes))]


def _digits(n: int, sizes: Sequence[int]) -> Place:
    """A running number as indices, x fastest."""
    out = []
    for size in sizes:
        out.append(n % size)
        n //= size
    return tuple(out)


def run_cluster(blocks: Sequence[Place], run: Callable[[Place, Member], None]) -> None:
    """Runs the blocks of one cluster to their ends; raises what the first of them that failed raised."""
    cluster = _Cluster(len(blocks), arrivals=[0] * len(blocks))

    def work(rank: int) -> None:
        with cluster.turn, np.errstate(all="ignore"):
            try:
                if cluster.failure is None:
                    run(blocks[rank], Member(cluster, rank))
            except _Abandoned:
                pass
            except BaseException as failure:
                cluster.failure = cluster.failure or failure
            cluster.ended.add(rank)
            cluster.turn.notify_all()

    workers = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(len(blocks))]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    if cluster.failure is not None:
        raise cluster.failure
