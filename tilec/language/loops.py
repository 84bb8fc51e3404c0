"""What `for` runs over: T.serial, unroll, vectorized, Pipelined, Parallel, grid, Persistent. Each gives a LoopSpec.

T.Pipelined(T.ceildiv(K, 32), num_stages=3)  ->  LoopSpec("pipelined", 0, ceildiv(K, 32), 1, options={"num_stages": 3})
"""

from __future__ import annotations

from typing import Any

from tilec.ir.dtypes import BOOL, INT32, INT64, UINT64, DType, Kind
from tilec.ir.expr import Const, Expr
from tilec.language.access import as_expr, cast_expr, host_int, is_device, is_number
from tilec.language.bind import Entry, works
from tilec.language.builder import Builder
from tilec.language.promote import common
from tilec.language.show import describe
from tilec.language.values import LoopSpec

_MOST_STAGES = 32


def serial(b: Builder, start: Any, stop: Any = None, step: Any = None, annotations: Any = None) -> LoopSpec:
    """An ordinary loop over start, start + step, ... below stop (above it for a negative step)."""
    return counted(b, "serial", start, stop, step)


def unroll(
    b: Builder, start: Any, stop: Any = None, step: Any = None, *, explicit: Any = False, unroll_factor: Any = None, annotations: Any = None
) -> LoopSpec:
    """An ordinary loop that the CUDA compiler is asked to unroll, `unroll_factor` steps at a time, or as a whole."""
    factor = None if unroll_factor is None else host_int(b, unroll_factor, "unroll_factor")
    if factor is not None and factor < 1:
        raise b.error("TL0206", f"unroll_factor must be positive, got {factor}")
    return counted(b, "unroll", start, stop, step, {} if factor is None else {"unroll_factor": factor})


def vectorized(b: Builder, start: Any, stop: Any = None, annotations: Any = None) -> LoopSpec:
    """A loop of each thread whose accesses should be vectors; its meaning is a serial loop."""
    return counted(b, "vectorized", start, stop, None)


def Pipelined(
    b: Builder, start: Any, stop: Any = None, num_stages: Any = None, order: Any = None, stage: Any = None, sync: Any = None,
    group: Any = None, annotations: Any = None,
) -> LoopSpec:  # fmt: skip
    """A serial loop whose copies run ahead: `num_stages` versions of each tile; order, stage, sync and group are ignored."""
    stages = None if num_stages is None else host_int(b, num_stages, "num_stages")
    if stages is not None and not 0 <= stages <= _MOST_STAGES:
        raise b.error("TL0403", f"num_stages must be between 0 and {_MOST_STAGES}, got {stages}")
    return counted(b, "pipelined", start, stop, None, {"num_stages": stages})


def Parallel(
    b: Builder, *extents: Any, coalesced_width: Any = None, loop_layout: Any = None, prefer_async: Any = None, annotations: Any = None
) -> LoopSpec:
    """Independent iterations spread over the threads of the block, each exactly once; the options are hints."""
    return LoopSpec("parallel", extents=_extents(b, "T.Parallel", extents), span=b.span)


def grid(b: Builder, *extents: Any) -> LoopSpec:
    """Nested serial loops, one variable an extent."""
    return LoopSpec("grid", extents=_extents(b, "T.grid", extents), span=b.span)


def Persistent(b: Builder, domain: Any, wave_size: Any, index: Any, group_size: Any = 8, num_stages: Any = 0) -> LoopSpec:
    """The tiles of `domain` that fall to block `index` of `wave_size`, the last dimension in groups of `group_size`."""
    if not isinstance(domain, (tuple, list)):
        raise b.error("TL0206", f"the domain of T.Persistent must be a list of extents, got {describe(domain)}")
    group = host_int(b, group_size, "group_size")
    if group < 1:
        raise b.error("TL0206", f"group_size must be positive, got {group}")
    options = {"wave_size": _bound(b, wave_size), "index": _bound(b, index), "group_size": group}
    return LoopSpec("persistent", extents=_extents(b, "T.Persistent", tuple(domain)), options=options, span=b.span)


def counted(b: Builder, kind: str, start: Any, stop: Any, step: Any, options: dict[str, Any] | None = None) -> LoopSpec:
    """A counted loop of `kind`, with Python's reading of one, two or three arguments.

    Host bounds stay ints. With a device bound, all three are expressions of one type of at least 32 bits, the counter's.
    """
    first, last = (0, start) if stop is None else (start, stop)
    parts = [_bound(b, v) for v in (first, last, 1 if step is None else step)]
    if parts[2] == 0 or (isinstance(parts[2], Const) and parts[2].value == 0):
        raise b.error("TL0206", "the step of a loop must not be zero")
    if any(isinstance(p, Expr) for p in parts):
        dtype = UINT64 if _is_upward_uint64(*parts) else counter_dtype(*(p.dtype for p in parts if isinstance(p, Expr)))
        parts = [as_expr(b, p, dtype) if is_number(p) else cast_expr(p, dtype) for p in parts]
    return LoopSpec(kind, parts[0], parts[1], parts[2], options=options or {}, span=b.span)


def counter_dtype(*bounds: DType) -> DType:
    """The type of a loop variable with bounds of these types: signed, 32 or 64 bits."""
    result = INT32
    for d in bounds:
        result = common(result, INT64 if d.bits == 64 or (d.kind is Kind.UINT and d.bits == 32) else INT32)
    return result


def _is_upward_uint64(start: Any, stop: Any, step: Any) -> bool:
    """True for bounds that may lie beyond int64, and no number below zero among them."""
    parts = (start, stop, step)
    unsigned = all(p.dtype.kind is Kind.UINT if isinstance(p, Expr) else p >= 0 for p in parts)
    return unsigned and any(isinstance(p, Expr) and p.dtype is UINT64 for p in parts)


def _bound(b: Builder, value: Any) -> Any:
    """One bound: a host int as it is, a literal expression as an int, anything else as an integer expression."""
    if isinstance(value, float) or not (is_number(value) or is_device(value)):
        raise b.error("TL0206", f"the bounds of a loop must be integers, got {describe(value)}")
    if is_number(value):
        return int(value)
    e = as_expr(b, value)
    if not e.dtype.is_int and e.dtype is not BOOL:
        raise b.error("TL0206", f"the bounds of a loop must be integers, got {describe(e)} of type {e.dtype}")
    return int(e.value) if isinstance(e, Const) and e.dtype is INT32 else e


def _extents(b: Builder, name: str, extents: tuple[Any, ...]) -> tuple[Any, ...]:
    if not extents:
        raise b.error("TL0203", f"`{name}` needs at least one extent")
    return tuple(_bound(b, e) for e in extents)


ENTRIES: tuple[Entry, ...] = (
    works(serial, "Serial", host=True)
    + works(unroll, "Unroll", host=True)
    + works(vectorized, "Vectorized", host=True)
    + works(Pipelined, host=True)
    + works(Parallel, "parallel", host=True)
    + works(grid, host=True)
    + works(Persistent, host=True)
)
