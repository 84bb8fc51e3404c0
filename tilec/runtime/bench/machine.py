"""The small interface between measuring and a machine: `gpu.py` is the one that counts, tests bring one of their own.

    machine.race({"tilec": ours, "cublas": theirs}, seconds=2.0, mode="flush") -> {"tilec": [seconds of every launch], ...}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tilec.record import record
from tilec.runtime.bench.clocks import Source
from tilec.runtime.bench.device import Device, Resources
from tilec.runtime.bench.oracle import Verdict
from tilec.runtime.bench.problems import Problem
from tilec.runtime.bind import Array, Bound

if TYPE_CHECKING:
    from tilec.driver import Compiled

Call = Callable[[], object]


@record
class Contender:
    """Something that can be timed: one call for each set of buffers, and the tensors of each set by name, as far as they are its own."""

    calls: Sequence[Call]
    sets: Sequence[Mapping[str, Any]] = ({},)
    resources: tuple[Resources, ...] = ()

    @property
    def arrays(self) -> Mapping[str, Any]:
        """The tensors of the first set."""
        return self.sets[0]


class Machine(Protocol):
    """Where kernels run and time passes. Everything is queued in order, as on one stream."""

    @property
    def device(self) -> Device:
        """The machine's name and peaks."""

    def clocks(self) -> Source:
        """How to read its clocks."""

    def load(self, compiled: Compiled, bound: Bound, sets: int) -> Contender:
        """The one kernel of `compiled` with `sets` copies of these arguments. Raises RunError if it refuses them or fails."""

    def settle(self, problem: Problem, contender: Contender, bound: Bound, limit: float) -> Verdict:
        """Runs the contender once and compares its result with float64."""

    def fetch(self, contender: Contender, bound: Bound) -> dict[str, Array]:
        """Runs the contender once on fresh copies of the arguments; the tensors as they then are, by name."""

    def peer(self, name: str, problem: Problem | None, ours: Contender, compiled: Compiled, bound: Bound) -> Contender:
        """The peer `name` on ours's buffers. Raises MissingError without its library, RunError if it does not fit."""

    def apart(self, peer: Contender, ours: Contender, bound: Bound, written: Sequence[str]) -> float:
        """Runs both once; the relative error between their results in float64, NaN where there is nothing to compare."""

    def race(self, contenders: Mapping[str, Contender], seconds: float, mode: str) -> dict[str, list[float]]:
        """Seconds of every launch, the contenders in turns."""
