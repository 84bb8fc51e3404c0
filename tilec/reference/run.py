"""Runs a kernel: every launch in order, every block of its grid, one after another; those that wait for each other together.

    run(kernel, {"A": a, "B": b, "C": c}, scalars={"alpha": 2.0})      writes into c
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from tilec.analysis.teams import by_hand
from tilec.ir.expr import Buffer, Var
from tilec.ir.kernel import Kernel, Launch
from tilec.ir.tile import Barrier
from tilec.ir.visit import walk_stmt
from tilec.reference.clusters import Member, cluster_places, run_cluster
from tilec.reference.crews import Crew, run_crews
from tilec.reference.errors import InputError, MeaningError
from tilec.reference.evaluate import Settings, State, evaluate
from tilec.reference.execute import count_step, execute
from tilec.reference.extents import infer_extents
from tilec.reference.memory import DEFAULT_THREADS, Memory
from tilec.reference.values import Array, Value, constant, np_dtype

_MAX_TOGETHER = 4096
_STACK_DEPTH = 12_000


def _silent(text: str) -> None:
    """Drops what a kernel prints."""


@contextmanager
def _deep_stack() -> Iterator[None]:
    """Raises the interpreter's recursion limit: evaluation follows the nesting of expressions."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _STACK_DEPTH))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def run(
    kernel: Kernel,
    arrays: Mapping[str, Array],
    scalars: Mapping[str, int | float] | None = None,
    extents: Mapping[str, int] | None = None,
    *,
    pointed: Mapping[int, Array] | None = None,
    printed: Callable[[str], None] = _silent,
    max_steps: int = 10_000_000,
    max_turns: int = 50_000,
) -> None:
    """Executes `kernel` on `arrays` (one per tensor parameter, of its NumPy type and shape), which it changes in place.

    `scalars` has the scalar parameters; extents that are not given follow from the arrays. `pointed` are arrays that tensors of
    pointers name, by address (dense). `printed` gets each line that the kernel prints. A launch of more than `max_steps` blocks
    and loop iterations is taken for endless, and so is a While of more than `max_turns` iterations. Raises InputError for
    arguments that do not fit, MeaningError for what has no meaning, TrapError for a trap.
    """
    given = {**(scalars or {}), **(extents or {})}
    _check_arrays(kernel, arrays)
    env: dict[Var, Value] = {v: constant(n, v.dtype) for v, n in infer_extents(kernel, arrays, given).items()}
    for p in kernel.params:
        if isinstance(p, Var) and p not in env:
            if p.name not in given:
                raise InputError(f"no value for the parameter `{p.name}`")
            env[p] = constant(given[p.name], p.dtype)
    tensors = {p: arrays[p.name] for p in kernel.params if isinstance(p, Buffer)}
    with _deep_stack(), np.errstate(all="ignore"):
        for launch in kernel.launches:
            settings = Settings(kernel.flags, printed, max_steps, max_turns, pointed or {})
            _launch(launch, tensors, env, settings)


def _check_arrays(kernel: Kernel, arrays: Mapping[str, Array]) -> None:
    for p in kernel.params:
        if isinstance(p, Buffer):
            if p.name not in arrays:
                raise InputError(f"no array for the parameter `{p.name}`")
            if arrays[p.name].dtype != np_dtype(p.dtype):
                raise InputError(f"`{p.name}` is {p.dtype}, the array is {arrays[p.name].dtype}")


def _launch(launch: Launch, tensors: dict[Buffer, Array], env: dict[Var, Value], settings: Settings) -> None:
    outer = State(Memory((), tensors, {}, lambda e: 0), env, settings, span=launch.span)
    grid = [int(evaluate(g, outer, True)) for g in launch.grid]
    if any(n <= 0 for n in grid):
        return
    count = math.prod(grid)
    if any(isinstance(s, Barrier) and s.kind == "grid" for s in walk_stmt(launch.body)):
        if count > _MAX_TOGETHER:
            raise MeaningError(f"{count} blocks that wait for each other are more than a GPU holds at once", launch.span)
        _together(launch, [_place(n, grid) for n in range(count)], tensors, env, settings)
        return
    if launch.cluster != (1, 1, 1):
        for blocks in cluster_places(grid, launch.cluster, launch.span):
            if by_hand(launch.body):
                _crews(launch, blocks, tensors, env, settings)
                continue
            run_cluster(blocks, lambda block, member: _block(launch, block, tensors, env, settings, member))
        return
    for n in range(count):
        _block(launch, _place(n, grid), tensors, env, settings)


def _place(n: int, grid: list[int]) -> tuple[int, ...]:
    """The indices (x, y, z) of the n-th block; x runs fastest."""
    place = []
    for extent in grid:
        place.append(n % extent)
        n //= extent
    return tuple(place)


def _block(
    launch: Launch, block: tuple[int, ...], tensors: dict[Buffer, Array], env: dict[Var, Value], settings: Settings,
    member: Member | None = None,
) -> None:  # fmt: skip
    """One block from its first statement to its last; `member` is its place in a cluster."""
    if by_hand(launch.body):
        _crews(launch, [block], tensors, env, settings)
        return
    state = _state(launch, block, tensors, env, settings)
    if member is not None:
        state.memory.peer, state.cluster_barrier = member.join(state.memory), member.barrier
    count_step(state)
    execute(launch.body, state, True)


def _state(launch: Launch, block: tuple[int, ...], tensors: dict[Buffer, Array], env: dict[Var, Value], settings: Settings) -> State:
    """A block that has not begun: its indices, and no tiles yet."""
    threads = launch.threads or DEFAULT_THREADS
    local = dict(env)
    for var, at in zip(launch.block_vars, block, strict=True):
        local[var] = constant(at, var.dtype)
    linear = np.arange(math.prod(threads))
    places = (linear % threads[0], linear // threads[0] % threads[1], linear // (threads[0] * threads[1]))
    for var in launch.thread_vars:
        local[var] = places[var.axis].astype(np_dtype(var.dtype))
    memory = Memory((linear.size,), tensors, {}, lambda e: 0, pointed=settings.pointed)
    state = State(memory, local, settings, span=launch.span)
    _own_extents(state)
    return state


def _own_extents(state: State) -> None:
    state.memory.extent = lambda e: int(evaluate(e, state, True))


def _crews(
    launch: Launch, places: list[tuple[int, ...]], tensors: dict[Buffer, Array], env: dict[Var, Value], settings: Settings
) -> None:
    """Blocks whose threads go separate ways, those of one cluster together."""
    blocks = [_state(launch, place, tensors, env, settings) for place in places]

    def maker(block: State) -> Callable[[Crew], State]:
        def group(crew: Crew) -> State:
            memory = replace(block.memory, peer=lambda rank, span: blocks[crew.peer(rank, span).rank].memory)
            state = State(memory, dict(block.env), settings, span=launch.span, crew=crew)
            _own_extents(state)
            return state

        return group

    for block in blocks:
        count_step(block)
    run_crews(launch, [maker(b) for b in blocks], lambda st, mask: execute(launch.body, st, mask))


def _together(
    launch: Launch, blocks: list[tuple[int, ...]], tensors: dict[Buffer, Array], env: dict[Var, Value], settings: Settings
) -> None:
    """Blocks that wait for each other: each in a thread of its own, one of them running at a time."""
    turn, meeting = threading.Lock(), threading.Barrier(len(blocks))
    failures: list[BaseException] = []

    def wait() -> None:
        turn.release()
        try:
            meeting.wait()
        finally:
            turn.acquire()

    def work(block: tuple[int, ...]) -> None:
        with turn, np.errstate(all="ignore"):
            try:
                _block(launch, block, tensors, env, settings)
            except threading.BrokenBarrierError:
                pass
            except BaseException as failure:
                failures.append(failure)
                meeting.abort()

    settings.grid_barrier = wait
    workers = [threading.Thread(target=work, args=(b,), daemon=True) for b in blocks]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    if failures:
        raise failures[0]
