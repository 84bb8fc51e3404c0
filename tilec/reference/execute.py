"""Statements: what one block does.

    execute(s, state, True)

Control flow that differs between lanes runs every branch under a mask; loops go on until no lane is left in them. That is
one of the orders that real threads may take, because lanes of one statement act in step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilec.ir.dtypes import DType
from tilec.ir.expr import Buffer, Scope
from tilec.ir.tile import (
    Alloc,
    Atomic,
    Barrier,
    Break,
    BulkCopy,
    Continue,
    Control,
    Copy,
    Evaluate,
    Fill,
    For,
    Gemm,
    If,
    Let,
    Mbarrier,
    Parallel,
    Print,
    Reduce,
    Region,
    Scan,
    Seq,
    Stmt,
    Store,
    Trap,
    While,
)  # fmt: skip
from tilec.reference import tiles
from tilec.reference.atomics import atomic
from tilec.reference.crews import signal
from tilec.reference.errors import MeaningError, TrapError
from tilec.reference.evaluate import Frame, State, evaluate, evaluate_int, safe_value
from tilec.reference.masks import Mask, as_mask, mask_all, mask_and, mask_any, mask_not, mask_or
from tilec.reference.memory import PRIVATE, enter_lanes, leave_lanes, read_box, uniform, write_box
from tilec.reference.values import Array, Value, cast, np_dtype

_MAX_LANES, _MAX_BOX = 1 << 22, 1 << 26


def execute(s: Stmt, st: State, mask: Mask) -> None:
    """Executes `s` for the lanes in `mask` (at least one)."""
    if not isinstance(s, Seq):
        st.span = s.span
    if st.crew is not None and _by_all(s):
        st.crew.together(lambda: _RULES[type(s)](s, st, mask), "for the rest of their team", s.span)
        return
    _RULES[type(s)](s, st, mask)


def _by_all(s: Stmt) -> bool:
    """True for statements that a team carries out once."""
    if isinstance(s, Alloc):
        return s.buffer.scope in (Scope.SHARED, Scope.FRAGMENT)
    return isinstance(s, Copy | Fill | Gemm | Reduce | Scan | Parallel | BulkCopy) or (isinstance(s, Barrier) and s.kind == "block")


def _seq(s: Seq, st: State, mask: Mask) -> None:
    for child in s.body:
        execute(child, st, mask)
        if st.frames and st.frames[-1].gone is not False:
            mask = mask_and(mask, mask_not(st.frames[-1].gone))
            if not mask_any(mask):
                return


def _if(s: If, st: State, mask: Mask) -> None:
    cond = as_mask(evaluate(s.cond, st, mask))
    crew = st.crew
    whole = None if crew is None else crew.team
    teams = (None if crew is None or whole is None else crew.block.teams.branches(s, whole)) or (None, None)
    for branch, chosen, team in zip((s.then, s.orelse), (mask_and(mask, cond), mask_and(mask, mask_not(cond))), teams, strict=True):
        if mask_any(chosen):
            if crew is not None and whole is not None:
                crew.team = team or whole
            execute(branch, st, chosen)
    if crew is not None and whole is not None:
        crew.team = whole


def _for(s: For, st: State, mask: Mask) -> None:
    start, stop, step = (evaluate(e, st, mask) for e in (s.start, s.stop, s.step))
    if not mask_any(mask_and(mask, as_mask(step != 0))):
        raise MeaningError("the step of a loop is zero", st.span)
    kind = np_dtype(s.var.dtype).type
    if not any(isinstance(x, np.ndarray) for x in (start, stop, step)):
        _loop(s.body, st, mask, ((True, kind(i)) for i in range(int(start), int(stop), int(step))), s)
        return
    _loop(s.body, st, mask, _lane_counts(start, stop, step, mask), s)


def _lane_counts(start: Value, stop: Value, step: Value, mask: Mask) -> Any:
    """Per iteration: the lanes still inside their own bounds, and the value of the loop variable of each."""
    now = np.asarray(start)
    end, by = (np.asarray(x).astype(np.uint64) for x in (stop, step))
    while True:
        live = np.where(step > 0, now < stop, now > stop)
        if not mask_any(mask_and(mask, live)):
            return
        yield live, now
        at = now.astype(np.uint64)
        more = np.where(step > 0, end - at > by, at - end > np.negative(by))  # else the next number would be `stop` or beyond it
        now = np.where(live & more, at + by, end).astype(now.dtype)


def _loop(body: Stmt, st: State, mask: Mask, counts: Any, s: For) -> None:
    frame = Frame()
    st.frames.append(frame)
    for live, value in counts:
        active = mask_and(mask_and(mask, as_mask(live)), mask_not(frame.broken))
        if not mask_any(active):
            break
        count_step(st)
        frame.gone = frame.broken
        st.env[s.var] = value
        execute(body, st, active)
    st.frames.pop()


def _while(s: While, st: State, mask: Mask) -> None:
    frame = Frame()
    st.frames.append(frame)
    for _ in range(st.settings.max_turns):
        mask = mask_and(mask, mask_not(frame.broken))
        st.span = s.span
        if mask_any(mask):
            mask = mask_and(mask, as_mask(evaluate(s.cond, st, mask)))
        if not mask_any(mask):
            break
        count_step(st)
        frame.gone = frame.broken
        execute(s.body, st, mask)
    else:
        raise MeaningError(f"this loop has not ended after {st.settings.max_turns} iterations", s.span)
    st.frames.pop()


def count_step(st: State) -> None:
    """Counts a block or a loop iteration; raises when there are more than the run allows."""
    st.settings.steps += 1
    if st.settings.steps > st.settings.max_steps:
        raise MeaningError(f"still going after {st.settings.max_steps} blocks and loop iterations", st.span)


def _break(s: Break, st: State, mask: Mask) -> None:
    frame = st.frames[-1]
    frame.broken = mask_or(frame.broken, mask)
    frame.gone = mask_or(frame.gone, mask)


def _continue(s: Continue, st: State, mask: Mask) -> None:
    st.frames[-1].gone = mask_or(st.frames[-1].gone, mask)


def _parallel(s: Parallel, st: State, mask: Mask) -> None:
    extents = tuple(evaluate_int(e, st, mask, "an extent of a parallel loop") for e in s.extents)
    if any(n <= 0 for n in extents):
        return
    _check_size(extents, _MAX_LANES, st)
    taken = None if st.crew is None or isinstance(mask, bool) else mask
    env = {v: uniform(x if taken is None or not isinstance(x, np.ndarray) else x[taken]) for v, x in st.env.items()}
    inner = State(enter_lanes(st.memory, extents, taken), env, st.settings, span=s.span)
    for axis, (var, n) in enumerate(zip(s.vars, extents, strict=True)):
        shape = [n if k == axis else 1 for k in range(len(extents))]
        inner.env[var] = np.arange(n, dtype=np_dtype(var.dtype)).reshape(shape)
    execute(s.body, inner, True)
    leave_lanes(st.memory, inner.memory)


def _let(s: Let, st: State, mask: Mask) -> None:
    st.env[s.var] = evaluate(s.value, st, mask)


def _store(s: Store, st: State, mask: Mask) -> None:
    index = tuple(evaluate(i, st, mask) for i in s.indices)
    value = cast(evaluate(s.value, st, mask), s.buffer.dtype)
    st.memory.store(s.buffer, index, value, mask, st.span)


def _alloc(s: Alloc, st: State, mask: Mask) -> None:
    if st.crew is not None and s.buffer.scope in PRIVATE and s.buffer in st.memory.private:
        st.memory.renew(s.buffer, mask)
    else:
        st.memory.allocate(s.buffer)


def _extents(r: Region, st: State, mask: Mask) -> tuple[int, ...]:
    extents = tuple(max(0, evaluate_int(e, st, mask, f"an extent of a region of `{r.buffer.name}`")) for e in r.extents)
    _check_size(extents, _MAX_BOX, st)
    return extents


def _check_size(extents: tuple[int, ...], limit: int, st: State) -> None:
    """Raises when there is more to do at once than the interpreter can hold."""
    if math.prod(extents) > limit:
        raise MeaningError(f"{math.prod(extents)} elements at once are more than the reference holds", st.span)


def _by_lane(starts: tuple[Value, ...], *regions: Region) -> bool:
    """True when each lane moves its own elements: private arrays or starts that differ."""
    return any(r.buffer.scope in PRIVATE for r in regions) or any(isinstance(x, np.ndarray) for x in starts)


def _box(r: Region, starts: tuple[Value, ...], extents: tuple[int, ...], st: State) -> None:
    """Raises when a box leaves an on-chip tile."""
    if r.buffer.scope is Scope.GLOBAL or 0 in extents:
        return
    shape = st.memory.array(r.buffer, st.span).shape
    if any(a < 0 or a + n > size for a, n, size in zip(starts, extents, shape, strict=True)):
        box = ", ".join(f"{int(a)} +: {n}" for a, n in zip(starts, extents, strict=True))
        raise MeaningError(f"`{r.buffer.name}[{box}]` is out of its range {'x'.join(map(str, shape))}", st.span)


def _read(r: Region, st: State, mask: Mask) -> Array:
    """A region as an array of its extents; out of range of a global tensor gives the safe value."""
    starts = tuple(evaluate_int(e, st, mask, f"the start of a region of `{r.buffer.name}`") for e in r.starts)
    extents = _extents(r, st, mask)
    if r.buffer.scope in PRIVATE:
        raise MeaningError(f"the private `{r.buffer.name}` is not a tile", st.span)
    _box(r, starts, extents, st)
    return read_box(st.memory.array(r.buffer, st.span), starts, extents, safe_value(r.buffer.safe_value, r.buffer, st, mask))


def _write(r: Region, values: Array, st: State, mask: Mask) -> None:
    """Stores an array of the region's extents (dimensions of extent 1 may differ); out of range is dropped."""
    starts = tuple(evaluate_int(e, st, mask, f"the start of a region of `{r.buffer.name}`") for e in r.starts)
    extents = _extents(r, st, mask)
    if _squeeze(values.shape) != _squeeze(extents):
        raise MeaningError(f"extents {_squeeze(values.shape)} do not fit {_squeeze(extents)} of `{r.buffer.name}`", st.span)
    _box(r, starts, extents, st)
    write_box(st.memory.array(r.buffer, st.span), starts, np.asarray(cast(values.reshape(extents), r.buffer.dtype)))


def _squeeze(extents: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in extents if n != 1)


def _copy(s: Copy, st: State, mask: Mask) -> None:
    starts = tuple(evaluate(e, st, mask) for e in (*s.src.starts, *s.dst.starts))
    if not _by_lane(starts, s.src, s.dst):
        _write(s.dst, _read(s.src, st, mask), st, mask)
        return
    box = _squeeze(_extents(s.src, st, mask))
    if box != _squeeze(_extents(s.dst, st, mask)):
        raise MeaningError(f"extents {box} do not fit {_squeeze(_extents(s.dst, st, mask))} of `{s.dst.buffer.name}`", st.span)
    lanes = _spread(mask, len(box))
    source = _element(s.src, box, st, mask)
    safe = safe_value(s.src.buffer.safe_value, s.src.buffer, st, mask)
    value = st.memory.load(s.src.buffer, source, lanes, safe, st.span)
    st.memory.store(s.dst.buffer, _element(s.dst, box, st, mask), cast(value, s.dst.buffer.dtype), lanes, st.span)


def _spread(x: Any, axes: int) -> Any:
    """A value per lane as a value per lane and element: `axes` more axes at the end."""
    return x.reshape(x.shape + (1,) * axes) if isinstance(x, np.ndarray) else x


def _element(r: Region, box: tuple[int, ...], st: State, mask: Mask) -> tuple[Value, ...]:
    """Index arrays over lanes and the elements of a box; the axes of `box` are the region's extents other than 1."""
    index, axis = [], 0
    for start, extent in zip(r.starts, _extents(r, st, mask), strict=True):
        at = _spread(evaluate(start, st, mask), len(box))
        if extent != 1:
            tail = len(box) - axis - 1
            steps = np.arange(extent, dtype=np.int64).reshape((1,) * (len(st.memory.lanes) + axis) + (extent,) + (1,) * tail)
            at = at + steps
            axis += 1
        index.append(at)
    return tuple(index)


def _fill(s: Fill, st: State, mask: Mask) -> None:
    value = cast(evaluate(s.value, st, mask), s.dst.buffer.dtype)
    starts = tuple(evaluate(e, st, mask) for e in s.dst.starts)
    if not _by_lane((*starts, value), s.dst):
        _write(s.dst, np.full(_extents(s.dst, st, mask), value), st, mask)
        return
    box = _squeeze(_extents(s.dst, st, mask))
    st.memory.store(s.dst.buffer, _element(s.dst, box, st, mask), _spread(value, len(box)), _spread(mask, len(box)), st.span)


def _matrix(r: Region, transposed: bool, st: State, mask: Mask) -> Array:
    whole = _read(r, st, mask)
    if any(n != 1 for n in whole.shape[:-2]) or whole.ndim < 2:
        raise MeaningError(f"`{r.buffer.name}` is not a matrix here", st.span)
    matrix = whole.reshape(whole.shape[-2:])
    return matrix.T if transposed else matrix


def _gemm(s: Gemm, st: State, mask: Mask) -> None:
    a, b, c = _matrix(s.a, s.trans_a, st, mask), _matrix(s.b, s.trans_b, st, mask), _matrix(s.c, False, st, mask)
    if s.marks is not None:
        a = tiles.spread(a, _matrix(s.marks, False, st, mask), s.marks.buffer.dtype.bits)
    if a.shape[1] != b.shape[0] or c.shape != (a.shape[0], b.shape[1]):
        raise MeaningError(f"cannot multiply {a.shape} by {b.shape} into {c.shape}", st.span)
    if evaluate_int(s.clear, st, mask, "`clear`"):
        c = np.zeros_like(c)
    operand, acc, threads = s.a.buffer.dtype, s.c.buffer.dtype, math.prod(st.memory.lanes)
    whole = tiles.keeps_float32(operand, acc, c.shape[0], c.shape[1], a.shape[1], threads, st.settings.flags)
    result = tiles.multiply(a, b, c, operand, acc, whole)
    _write(s.c, result.reshape(_extents(s.c, st, mask)), st, mask)


def _reduce(s: Reduce, st: State, mask: Mask) -> None:
    dtype = s.dst.buffer.dtype
    result = tiles.reduce(s.op, _read(s.src, st, mask), s.dim, dtype, s.nan_propagate)
    if not s.clear:
        old = _read(s.dst, st, mask)
        result = np.asarray(tiles.combine(s.op, old.reshape(result.shape), result, dtype, s.nan_propagate))
    _write(s.dst, result, st, mask)


def _scan(s: Scan, st: State, mask: Mask) -> None:
    _write(s.dst, tiles.scan(s.op, _read(s.src, st, mask), s.dim, s.reverse, s.dst.buffer.dtype), st, mask)


def _barrier(s: Barrier, st: State, mask: Mask) -> None:
    crew = st.crew
    alone = not mask_all(mask) if crew is None else crew.team != crew.block.teams.block
    if (s.kind in ("block", "grid") or s.kind.startswith("cluster")) and alone:
        raise MeaningError("only some threads of the block reach this barrier", st.span)
    if s.kind == "grid" and st.settings.grid_barrier is not None:
        st.settings.grid_barrier()
    if s.kind.startswith("cluster") and crew is not None:
        crew.meet_cluster(s.kind, s.span)
    elif s.kind.startswith("cluster") and st.cluster_barrier is not None:
        st.cluster_barrier(s.kind, s.span)


def _mbarrier(s: Mbarrier, st: State, mask: Mask) -> None:
    assert st.crew is not None
    index = evaluate_int(s.index, st, mask, f"the number of a barrier of `{s.buffer.name}`")
    value = 0 if s.value is None else evaluate_int(s.value, st, mask, "the operand of a barrier")
    signal(s, st.crew, index, value, np.broadcast_to(mask, st.memory.lanes), _peer(s.buffer, st, mask))


def _peer(buffer: Buffer, st: State, mask: Mask) -> int | None:
    """The block of the cluster whose tile this is; None for the own one."""
    return None if buffer.peer is None else evaluate_int(buffer.peer, st, mask, f"the block of `{buffer.name}`")


def _bulk_copy(s: BulkCopy, st: State, mask: Mask) -> None:
    crew = st.crew
    if s.barrier is not None and s.index is not None and crew is not None:
        index = evaluate_int(s.index, st, mask, f"the number of a barrier of `{s.barrier.name}`")
        rank = _peer(s.dst.buffer, st, mask)
        found = (crew.block if rank is None else crew.peer(rank, s.span)).barriers.get((s.barrier, index))
        if found is None:
            raise MeaningError(f"there is no barrier `{s.barrier.name}[{index}]`", s.span)
        _write(s.dst, _read(s.src, st, mask), st, mask)
        if rank is not None:  # a tile that is sent arrives as well
            found.arrive(1, f"`{s.barrier.name}[{index}]`", s.span)
        return
    _write(s.dst, _read(s.src, st, mask), st, mask)


def _control(s: Control, st: State, mask: Mask) -> None:
    """Nothing: what is queued happens where it stands."""


def _trap(s: Trap, st: State, mask: Mask) -> None:
    holds = as_mask(evaluate(s.cond, st, mask))
    if mask_any(mask_and(mask, mask_not(holds))):
        raise TrapError(s.message or "trap", st.span)


def _print(s: Print, st: State, mask: Mask) -> None:
    lanes = st.memory.lanes
    columns = [np.broadcast_to(evaluate(a, st, mask), lanes).reshape(-1) for a in s.args]
    active = np.flatnonzero(np.broadcast_to(mask, lanes))
    for lane in active[:1] if s.once else active:
        values = (_digits(a.dtype, c[lane]) for a, c in zip(s.args, columns, strict=True))
        st.settings.printed(" ".join([*([s.message] if s.message else []), *values]))


def _digits(dtype: DType, value: Value) -> str:
    """A number as printf's %g or %d writes it."""
    return f"{float(value):g}" if dtype.is_float else str(int(value))


def _evaluate(s: Evaluate, st: State, mask: Mask) -> None:
    evaluate(s.value, st, mask)


_RULES: dict[type, Callable[[Any, State, Mask], None]] = {
    Seq: _seq, For: _for, Parallel: _parallel, While: _while, If: _if, Break: _break, Continue: _continue, Let: _let, Store: _store,
    Alloc: _alloc, Copy: _copy, Fill: _fill, Gemm: _gemm, Reduce: _reduce, Scan: _scan, Atomic: atomic, Barrier: _barrier,
    Mbarrier: _mbarrier, BulkCopy: _bulk_copy, Control: _control,
    Trap: _trap, Print: _print, Evaluate: _evaluate,
}  # fmt: skip
