"""The machine that counts: one NVIDIA GPU through CuPy, timed by CUDA events.

    Gpu().race({"tilec": ours}, seconds=2.0, mode="flush")

`flush` empties the L2 cache before every launch. `rotate` queues launches back to back on buffers in rotation, more of them than
the cache holds, behind enough work that the host is never waited for: what a kernel gives inside a larger program.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.emit.manifest import parse
from tilec.runtime.bench import clocks, peers
from tilec.runtime.bench.device import Device, Resources, peaks
from tilec.runtime.bench.machine import Contender
from tilec.runtime.bench.oracle import Verdict, settle
from tilec.runtime.bench.problems import Problem
from tilec.runtime.bind import Array, Bound
from tilec.runtime.cuda import arguments_of, download, upload
from tilec.runtime.gpu import need_gpu
from tilec.runtime.loader import Module, PreparedLaunch, Refused
from tilec.runtime.request import RunError
from tilec.runtime.timing import FLUSH_BYTES, LEAST_ROUNDS, interleaved

if TYPE_CHECKING:
    from tilec.driver import Compiled

ROTATED_BYTES = 200 << 20
MOST_SETS = 16
_ROTATED_SECONDS, _MOST_QUEUED, _HOST_SECONDS = 0.01, 64, 20e-6


class Gpu:
    """The current device. Raises MissingError without CuPy or a GPU."""

    def __init__(self) -> None:
        self.cupy = need_gpu()
        self.index = int(self.cupy.cuda.runtime.getDevice())
        self.device = describe(self.cupy, self.index)
        places = (("runtime", "CUDARuntimeError"), ("driver", "CUDADriverError"), ("compiler", "CompileException"))
        found = (getattr(getattr(self.cupy.cuda, module, None), name, None) for module, name in places)
        self._faults: tuple[type[Exception], ...] = tuple(f for f in found if f is not None)

    def clocks(self) -> clocks.Source:
        """NVML or nvidia-smi."""
        return clocks.source(str(self.cupy.cuda.Device(self.index).pci_bus_id))

    def load(self, compiled: Compiled, bound: Bound, sets: int) -> Contender:
        """See Machine."""
        symbol = compiled.plans[0].symbol
        try:
            kernel = Module(compiled.cu, parse(compiled.cu)).kernel(symbol)
            copies = [{name: upload(self.cupy, a) for name, a in bound.arrays.items()} for _ in range(sets)]
            launches = [kernel.prepare(arrays, arguments_of(bound)) for arrays in copies]
            return Contender([partial(peers.queue, found) for found in launches], copies, tuple(map(self._resources, launches[0])))
        except Refused as fault:
            raise RunError(f"{symbol} refused the call: {fault}") from None
        except self._faults as fault:
            raise RunError(f"{symbol} cannot be loaded: {str(fault)[:300]}") from None

    def _resources(self, launch: PreparedLaunch) -> Resources:
        f, threads = launch.function, int(np.prod(launch.block))
        occupancy = getattr(self.cupy.cuda.driver, "occupancyMaxActiveBlocksPerMultiprocessor", None)
        blocks = int(occupancy(f.kernel.ptr, threads, launch.shared_bytes)) if occupancy else 0
        shared = launch.shared_bytes + int(f.shared_size_bytes)
        part = blocks * threads / self.device.threads_per_sm
        return Resources(str(f.name), int(f.num_regs), int(f.local_size_bytes), shared, threads, blocks, part)

    def settle(self, problem: Problem, contender: Contender, bound: Bound, limit: float) -> Verdict:
        """See Machine; the comparison runs on the GPU."""
        self._run(contender)

        def read(name: str) -> Any:
            return peers.as_double(self.cupy, contender.arrays[name], bound.arrays[name])

        return settle(self.cupy, problem, read, limit)

    def fetch(self, contender: Contender, bound: Bound) -> dict[str, Array]:
        """See Machine."""
        self._reset(contender, bound)
        self._run(contender)
        return {name: download(self.cupy, contender.arrays[name], array) for name, array in bound.arrays.items()}

    def _reset(self, contender: Contender, bound: Bound) -> None:
        for name, array in bound.arrays.items():
            contender.arrays[name][...] = upload(self.cupy, array)

    def _run(self, contender: Contender) -> None:
        try:
            contender.calls[0]()
            self.cupy.cuda.runtime.deviceSynchronize()
        except self._faults as fault:
            raise RunError(f"the kernel failed on the GPU: {fault}") from None

    def peer(self, name: str, problem: Problem | None, ours: Contender, compiled: Compiled, bound: Bound) -> Contender:
        """See Machine."""
        return peers.find(self.cupy, name, problem, ours, compiled.plans[0], bound)

    def apart(self, peer: Contender, ours: Contender, bound: Bound, written: Sequence[str]) -> float:
        """See Machine."""
        self._reset(ours, bound)  # a kernel that adds to its output starts from the same numbers as the peer
        results = peers.results(self.cupy, peer, bound, written)
        self._run(ours)
        squares = norm = 0.0
        for name, theirs in results.items():
            mine = peers.as_double(self.cupy, ours.arrays[name], bound.arrays[name])
            if theirs.size != mine.size:
                return math.inf
            squares += float(((mine.reshape(-1) - theirs.reshape(-1)) ** 2).sum())
            norm += float((theirs**2).sum())
        return math.sqrt(squares / norm) if norm else math.nan if not results else math.sqrt(squares)

    def race(self, contenders: Mapping[str, Contender], seconds: float, mode: str) -> dict[str, list[float]]:
        """See Machine."""
        if mode == "flush":
            return interleaved(self.cupy, {n: _discard(c.calls[0]) for n, c in contenders.items()}, seconds)
        return self._rotate(contenders, seconds)

    def _rotate(self, contenders: Mapping[str, Contender], seconds: float) -> dict[str, list[float]]:
        cupy = self.cupy
        flush = cupy.empty(FLUSH_BYTES, cupy.uint8)
        first = interleaved(cupy, {n: _discard(c.calls[0]) for n, c in contenders.items()}, 0.05)
        once = {n: sorted(t)[len(t) // 2] for n, t in first.items()}
        counts = {n: max(1, min(_MOST_QUEUED, int(_ROTATED_SECONDS / s))) for n, s in once.items()}
        times: dict[str, list[float]] = {n: [] for n in contenders}
        end, rounds, order = time.monotonic() + seconds, 0, list(contenders)
        while time.monotonic() < end or rounds < LEAST_ROUNDS:
            turn = rounds % len(order)
            for name in order[turn:] + order[:turn]:
                calls, count = contenders[name].calls, counts[name]
                for _ in range(1 + int(count * _HOST_SECONDS / (FLUSH_BYTES / 3e12))):
                    flush.fill(0)
                start, stop = cupy.cuda.Event(), cupy.cuda.Event()
                start.record()
                for i in range(count):
                    calls[i % len(calls)]()
                stop.record()
                stop.synchronize()
                times[name].append(cupy.cuda.get_elapsed_time(start, stop) / 1000 / count)
            rounds += 1
        return times


def _discard(call: Any) -> Any:
    def run() -> None:
        call()

    return run


def sets_for(bound: Bound, mode: str) -> int:
    """How many copies of the arguments `mode` needs."""
    if mode == "flush":
        return 1
    size = sum(a.nbytes for a in bound.arrays.values())
    return max(2, min(MOST_SETS, -(-ROTATED_BYTES // max(1, size))))


def describe(cupy: Any, index: int) -> Device:
    """What is to be known about a device."""
    properties = cupy.cuda.runtime.getDeviceProperties(index)
    name = properties["name"].decode() if isinstance(properties["name"], bytes) else str(properties["name"])
    attributes = cupy.cuda.Device(index).attributes
    capability = int(properties["major"]) * 10 + int(properties["minor"])
    count = int(properties["multiProcessorCount"])
    clock = attributes.get("ClockRate", 0) / 1000
    bandwidth = 2 * attributes.get("MemoryClockRate", 0) * 1e3 * attributes.get("GlobalMemoryBusWidth", 0) / 8 / 1e9
    threads = int(properties["maxThreadsPerMultiProcessor"])
    return Device(name, capability, count, threads, peaks(name, capability, count, clock, bandwidth))
