"""First right, then fast: how the result of a kernel is checked before it is timed, at the size that is timed.

1. A recognised problem is computed in float64 on the GPU.
2. Else the reference, the executable meaning of the Tile IR, as long as it takes no longer than allowed.
3. Else an expression of the user's (`--against torch:EXPR`). What cannot be checked is not timed.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tilec.record import record
from tilec.ir.expr import Buffer, Var
from tilec.reference.compare import kernel_tolerance
from tilec.runtime import report
from tilec.runtime.bench.machine import Contender, Machine
from tilec.runtime.bench.problems import Attention, Problem, recognise
from tilec.runtime.bind import Array, Bound
from tilec.runtime.request import RunError

if TYPE_CHECKING:
    from tilec.plan.plan import Plan

ATTENTION_FACTOR = 2.0
"""float64 does not round the probabilities to the type of V as every fast kernel does."""


class TooSlow(Exception):
    """The reference did not end in the time that it was given."""


@record
class Checked:
    """The problem that the kernel has been shown to solve (None if it is not one with peers) and a line about the check."""

    problem: Problem | None
    text: str


def written(plan: Plan) -> list[str]:
    """The names of the tensors that the kernel writes, in order."""
    return [p.name for p in plan.kernel.params if isinstance(p, Buffer) and p in plan.written]


def limit(plan: Plan, bound: Bound, name: str) -> float:
    """The relative error that an output may have."""
    known: dict[Var, int] = {v: bound.integers[v.name] for v in plan.kernel.extents}
    buffer = next(p for p in plan.kernel.params if p.name == name)
    return kernel_tolerance(plan.kernel, buffer.dtype, known)


def check(machine: Machine, plan: Plan, ours: Contender, bound: Bound, seconds: float, fallback: Contender | None) -> Checked:
    """Raises RunError if the kernel is wrong, or if nothing can tell whether it is right."""
    guess = recognise(plan.kernel, {n: a.shape for n, a in bound.arrays.items()})
    doubt = ""
    if guess is not None:
        name = guess.o if isinstance(guess, Attention) else guess.c
        allowed = limit(plan, bound, name) * (ATTENTION_FACTOR if isinstance(guess, Attention) else 1.0)
        verdict = machine.settle(guess, ours, bound, allowed)
        if not verdict.fault:
            return Checked(verdict.problem, f"right: {name} has a relative error of {verdict.error:.1e}, allowed {allowed:.1e} (float64)")
        doubt = f"; taken for {verdict.problem}, {verdict.fault}"
    try:
        with deadline(seconds):
            want = report.reference(plan.kernel, bound)
    except TooSlow:
        if fallback is None:
            raise RunError(
                f"{plan.symbol} cannot be checked at this size: the reference takes more than {seconds:.0f} s; give --against torch:EXPR, "
                f"a smaller size, or --check-seconds{doubt}"
            ) from None
        return _by_peer(machine, plan, ours, bound, fallback)
    return _by_reference(machine, plan, ours, bound, want)


def _by_reference(machine: Machine, plan: Plan, ours: Contender, bound: Bound, want: dict[str, Array]) -> Checked:
    lines, faults = report.comparison(plan, bound, machine.fetch(ours, bound), want)
    if faults:
        raise RunError(f"not timed, because it is wrong: {'; '.join(faults)}")
    return Checked(None, f"right: {'; '.join(' '.join(line.split()) for line in lines)} (the reference)")


def _by_peer(machine: Machine, plan: Plan, ours: Contender, bound: Bound, peer: Contender) -> Checked:
    error = machine.apart(peer, ours, bound, written(plan))
    allowed = 2 * max(limit(plan, bound, n) for n in written(plan))
    if not error <= allowed:
        raise RunError(f"not timed, because it is wrong: a relative error of {error:.1e} against the peer; {allowed:.1e} is allowed")
    return Checked(None, f"right: differs from the peer by {error:.1e}, allowed {allowed:.1e}")


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raises TooSlow inside, after some seconds, where the system has interval timers and this is the main thread."""

    def stop(*_: Any) -> None:
        raise TooSlow

    try:
        before = signal.signal(signal.SIGALRM, stop)
    except (AttributeError, ValueError):  # Windows, or not the main thread
        yield
        return
    left = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *left)
        signal.signal(signal.SIGALRM, before)
