"""How candidates are measured: the small interface between the tuner and a machine.

    find("gpu").load(compiled, job).seconds(0.2) -> [1.91e-4, 1.92e-4, ...]

`gpu` times on the current GPU as `tilec bench` does. `cpu` runs the emulator, whose times say nothing about a GPU: it tries a
search out. `MODULE:FACTORY` names any other, such as one with a clock of its own in tests.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tilec.reference.errors import MeaningError
from tilec.runtime import report
from tilec.runtime.bench.checking import ATTENTION_FACTOR, TooSlow, deadline, limit
from tilec.runtime.bench.oracle import settle
from tilec.runtime.bench.problems import Attention, Problem, recognise
from tilec.runtime.bind import Array, Bound, bind
from tilec.runtime.request import RunError, RunRequest

if TYPE_CHECKING:
    from tilec.driver import Compiled
    from tilec.plan.plan import Plan
    from tilec.runtime.bench.gpu import Gpu
    from tilec.runtime.bench.machine import Contender
    from tilec.runtime.tune.job import Job


class Trial(Protocol):
    """One candidate, loaded."""

    def wrong(self) -> str:
        """Why its result is wrong; empty if it is right. Raises RunError if it cannot run."""

    def seconds(self, budget: float) -> Sequence[float]:
        """Seconds of every launch, measured for about `budget` seconds, a few launches at least."""

    def facts(self) -> Mapping[str, Any]:
        """Registers, occupancy and the like, as far as they are known."""


class Meter(Protocol):
    """A machine that candidates can be loaded on."""

    def load(self, compiled: Compiled, job: Job) -> Trial:
        """The candidate with its arguments. Raises RunError if it refuses them."""


def find(name: str) -> Meter:
    """The meter of this name. Raises MissingError without a GPU."""
    match name:
        case "gpu":
            return GpuMeter()
        case "cpu":
            return EmulatorMeter()
        case _:
            module, _, factory = name.partition(":")
            found: Meter = getattr(import_module(module), factory)()
            return found


@dataclass(slots=True)
class Inputs:
    """The arguments and what they must give, kept from one candidate to the next: block sizes change neither."""

    _bound: Bound | None = None
    _want: dict[str, Array] | None = None
    _made_for: tuple[object, ...] = ()

    def bound(self, plan: Plan, job: Job) -> Bound:
        """The arguments for this candidate."""
        shape = tuple((p.name, p.dtype, getattr(p, "rank", 0)) for p in plan.kernel.params)
        key = (shape, repr(sorted(job.options.defines.items())), job.options.args, job.seed)
        if self._bound is None or self._made_for != key:
            defines = job.compiled_options.defines
            self._bound = bind(plan.kernel, RunRequest(defines=defines, args=job.options.args, seed=job.seed))
            self._want, self._made_for = None, key
        return self._bound

    def want(self, plan: Plan, job: Job) -> dict[str, Array]:
        """What the reference gives, computed for the first candidate that asks."""
        if self._want is None:
            try:
                with deadline(job.check_seconds):
                    self._want = report.reference(plan.kernel, self.bound(plan, job))
            except TooSlow:
                raise RunError(f"cannot be checked: the reference takes more than {job.check_seconds:.0f} s at this size") from None
        return self._want

    def judged(self, plan: Plan, job: Job, got: dict[str, Array], doubt: str | None) -> str:
        """Why results are not what the reference gives; empty if they are. Where there is no reference, the `doubt` counts: how they
        differ from what the kernel was taken for. Raises MeaningError or RunError where there is neither."""
        try:
            want = self.want(plan, job)
        except (MeaningError, RunError):
            if doubt:
                return doubt
            raise
        return "; ".join(report.comparison(plan, self.bound(plan, job), got, want)[1])


def guess(plan: Plan, bound: Bound) -> tuple[Problem, float] | None:
    """The problem that float64 can check, and the relative error that is allowed."""
    problem = recognise(plan.kernel, {n: a.shape for n, a in bound.arrays.items()})
    if problem is None:
        return None
    if isinstance(problem, Attention):
        return problem, ATTENTION_FACTOR * limit(plan, bound, problem.o)
    return problem, limit(plan, bound, problem.c)


@dataclass(slots=True)
class GpuMeter:
    """The current GPU."""

    gpu: Gpu = field(default_factory=lambda: _gpu())
    inputs: Inputs = field(default_factory=Inputs)

    def load(self, compiled: Compiled, job: Job) -> Trial:
        """See Meter."""
        plan = compiled.plans[0]
        bound = self.inputs.bound(plan, job)
        return GpuTrial(self, plan, job, bound, self.gpu.load(compiled, bound, 1))


def _gpu() -> Gpu:
    from tilec.runtime.bench.gpu import Gpu

    return Gpu()


@dataclass(slots=True)
class GpuTrial:
    """A candidate on a GPU."""

    meter: GpuMeter
    plan: Plan
    job: Job
    bound: Bound
    contender: Contender

    def wrong(self) -> str:
        """Against float64 on the GPU, or the reference."""
        gpu, found = self.meter.gpu, guess(self.plan, self.bound)
        doubt = gpu.settle(found[0], self.contender, self.bound, found[1]).fault if found else None
        if doubt == "":
            return ""
        got = gpu.fetch(self.contender, self.bound)
        return self.meter.inputs.judged(self.plan, self.job, got, doubt)

    def seconds(self, budget: float) -> Sequence[float]:
        """The L2 cache is flushed before every launch."""
        return self.meter.gpu.race({"tilec": self.contender}, budget, "flush")["tilec"]

    def facts(self) -> Mapping[str, Any]:
        """Of the first launch."""
        found = self.contender.resources
        return {n: v for n, v in found[0].data().items() if n != "symbol"} if found else {}


@dataclass(slots=True)
class EmulatorMeter:
    """The emulator."""

    inputs: Inputs = field(default_factory=Inputs)

    def load(self, compiled: Compiled, job: Job) -> Trial:
        """See Meter."""
        plan = compiled.plans[0]
        return EmulatorTrial(self, compiled, job, self.inputs.bound(plan, job))


@dataclass(slots=True)
class EmulatorTrial:
    """A candidate on the emulator."""

    meter: EmulatorMeter
    compiled: Compiled
    job: Job
    bound: Bound
    taken: float = 0.0

    def wrong(self) -> str:
        """Against float64, or the reference."""
        plan, result, start = self.compiled.plans[0], self.bound.copy(), time.perf_counter()
        self._run(result)
        self.taken = time.perf_counter() - start
        found, doubt = guess(plan, self.bound), None
        if found is not None:
            read = {n: a.astype(np.float64) for n, a in result.arrays.items()}.__getitem__
            doubt = settle(np, found[0], read, found[1]).fault
            if not doubt:
                return ""
        return self.meter.inputs.judged(plan, self.job, result.arrays, doubt)

    def _run(self, result: Bound) -> None:
        from tilec.emulator import Mode, build

        values = {**result.arrays, **result.scalars, **result.extents}
        outcome = build(self.compiled.cu).run(self.compiled.plans[0].symbol, values, Mode("lazy", "real", self.job.seed))
        if not outcome.ok:
            raise RunError(f"on the CPU: {outcome.status}: {outcome.message}")

    def seconds(self, budget: float) -> Sequence[float]:
        """The one run that `wrong` has made."""
        return [self.taken]

    def facts(self) -> Mapping[str, Any]:
        """None."""
        return {}
