"""A machine for tests of `tilec bench`: kernels run by the reference, peers by NumPy, time by a clock that a test winds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilec.driver import Compiled
from tilec.reference import run as run_reference
from tilec.runtime.bench.clocks import Reading, Source
from tilec.runtime.bench.device import Device, Resources, peaks
from tilec.runtime.bench.machine import Contender
from tilec.runtime.bench.oracle import Verdict, settle
from tilec.runtime.bench.problems import Problem, Product
from tilec.runtime.bind import Array, Bound
from tilec.runtime.request import MissingError, RunError


class FakeMachine:
    """`wrong` is added to every result; `seconds` gives a contender's time by name; `mhz` are the clocks in turn."""

    def __init__(self, wrong: float = 0.0, seconds: Mapping[str, float] | None = None, mhz: Sequence[float] = (1980,)) -> None:
        self.wrong, self.seconds, self.mhz = wrong, dict(seconds or {}), list(mhz)
        self.device = Device("NVIDIA H200", 90, 132, 2048, peaks("NVIDIA H200", 90, 132, 1980, 4800))
        self.raced: list[tuple[str, ...]] = []

    def clocks(self) -> Source:
        return lambda: Reading(self.mhz.pop(0), 300, 50, 4) if self.mhz else None

    def load(self, compiled: Compiled, bound: Bound, sets: int) -> Contender:
        mine, plan = bound.copy(), compiled.plans[0]

        def call() -> None:
            run_reference(plan.kernel, mine.arrays, mine.scalars, mine.extents)
            for p in plan.written:
                mine.arrays[p.name] += np.asarray(self.wrong, mine.arrays[p.name].dtype)

        return Contender([call] * sets, [mine.arrays] * sets, (Resources(plan.symbol, 168, 0, 1024, 128, 2, 0.125),))

    def settle(self, problem: Problem, contender: Contender, bound: Bound, limit: float) -> Verdict:
        contender.calls[0]()
        return settle(np, problem, lambda n: contender.arrays[n].astype(np.float64), limit)

    def fetch(self, contender: Contender, bound: Bound) -> dict[str, Array]:
        for name, a in bound.arrays.items():
            contender.arrays[name][...] = a
        contender.calls[0]()
        return dict(contender.arrays)

    def peer(self, name: str, problem: Problem | None, ours: Contender, compiled: Compiled, bound: Bound) -> Contender:
        if name == "cublas":
            if not isinstance(problem, Product):
                raise RunError("no product")
            return Contender([lambda: ours.arrays[problem.a].astype(np.float64) @ ours.arrays[problem.b].astype(np.float64)])
        if name.startswith("torch:"):
            return Contender([lambda: eval(name[6:], {"np": np, **ours.arrays})])
        raise MissingError(f"no {name} here")

    def apart(self, peer: Contender, ours: Contender, bound: Bound, written: Sequence[str]) -> float:
        ours.calls[0]()
        want: Any = peer.calls[0]()
        if want is None:
            return float("nan")
        got = ours.arrays[written[0]].astype(np.float64)
        return float(np.linalg.norm(got - want) / np.linalg.norm(want))

    def race(self, contenders: Mapping[str, Contender], seconds: float, mode: str) -> dict[str, list[float]]:
        self.raced.append(tuple(contenders))
        return {n: [t * (1 + 0.01 * i) for i in range(5)] for n in contenders for t in [self.seconds.get(n, 1e-4)]}
