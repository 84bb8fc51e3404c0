"""Expressions: the value each lane computes.

    evaluate(Binary("add", i, Const(1, INT32), INT32), state, True) -> one value per lane (a scalar when all agree)

Only active lanes count: a Select arm, or the right side of a Logical, is evaluated under the mask of the lanes that take it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilec.diagnostics import NOWHERE, Span
from tilec.ir.expr import (
    BLOCK_CALLS,
    POINTER_CALLS,
    WARP_CALLS,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logical,
    Reinterpret,
    Select,
    Unary,
    Var,
)  # fmt: skip
from tilec.reference.crews import Crew
from tilec.reference.errors import MeaningError
from tilec.reference.intrinsics import intrinsic
from tilec.reference.lanes import Absent, exchange
from tilec.reference.masks import Mask, as_mask, mask_and, mask_any, mask_not
from tilec.reference.memory import Memory
from tilec.reference.values import Array, Value, binary, cast, compare_values, constant, reinterpret, settle, unary


@dataclass(slots=True)
class Frame:
    """A loop being executed: lanes that left this iteration (`gone`) and those that left the loop (`broken`)."""

    gone: Mask = False
    broken: Mask = False


@dataclass(slots=True)
class Settings:
    """What holds for a whole run: the kernel's flags, where prints go, how many blocks and loop iterations are allowed in
    all (`max_steps`) and in one While (`max_turns`)."""

    flags: tuple[str, ...]
    printed: Callable[[str], None]
    max_steps: int
    max_turns: int
    pointed: Mapping[int, Array] = field(default_factory=dict)
    steps: int = 0
    grid_barrier: Callable[[], None] | None = None


@dataclass(slots=True)
class State:
    """One block in execution. `env` holds the values of variables, `span` the statement being executed, `cluster_barrier` is what
    happens at a barrier of its cluster, by kind."""

    memory: Memory
    env: dict[Var, Value]
    settings: Settings
    frames: list[Frame] = field(default_factory=list)
    span: Span = NOWHERE
    cluster_barrier: Callable[[str, Span], None] | None = None
    crew: Crew | None = None  # where threads go separate ways


def evaluate(e: Expr, st: State, mask: Mask) -> Value:
    """The value of `e` for the lanes in `mask` (unspecified for the others)."""
    return _RULES[type(e)](e, st, mask)


def evaluate_int(e: Expr, st: State, mask: Mask, what: str) -> int:
    """The value of an integer expression on which all lanes must agree."""
    value = evaluate(e, st, mask)
    if isinstance(value, np.ndarray):
        shape = np.broadcast_shapes(value.shape, np.shape(mask))
        active = np.broadcast_to(value, shape)[np.broadcast_to(mask, shape)]
        if active.size == 0 or not bool((active == active.reshape(-1)[0]).all()):
            raise MeaningError(f"{what} differs between threads", st.span)
        value = active.reshape(-1)[0]
    return int(value)


def _const(e: Const, st: State, mask: Mask) -> Value:
    return constant(e.value, e.dtype)


def _var(e: Var, st: State, mask: Mask) -> Value:
    if e not in st.env:
        raise MeaningError(f"`{e.name}` has no value here", st.span)
    value = st.env[e]
    if value is None:
        raise MeaningError(f"`{e.name}` differs between threads, and which thread runs an iteration is not defined", st.span)
    return value


def _load(e: Load, st: State, mask: Mask) -> Value:
    index = tuple(evaluate(i, st, mask) for i in e.indices)
    return st.memory.load(e.buffer, index, mask, safe_value(e.buffer.safe_value, e, st, mask), st.span)


def safe_value(safe: Expr | None, like: Any, st: State, mask: Mask) -> Value:
    """What a read out of range of a global tensor gives, in the type of `like`."""
    return constant(0, like.dtype) if safe is None else cast(evaluate(safe, st, mask), like.dtype)


def _unary(e: Unary, st: State, mask: Mask) -> Value:
    return unary(e.op, evaluate(e.a, st, mask), e.dtype)


def _binary(e: Binary, st: State, mask: Mask) -> Value:
    return binary(e.op, evaluate(e.a, st, mask), evaluate(e.b, st, mask), e.dtype)


def _compare(e: Compare, st: State, mask: Mask) -> Value:
    return compare_values(e.op, evaluate(e.a, st, mask), evaluate(e.b, st, mask), e.a.dtype)


def _logical(e: Logical, st: State, mask: Mask) -> Value:
    a = as_mask(evaluate(e.a, st, mask))
    need = mask_and(mask, a if e.op == "and" else mask_not(a))
    if not mask_any(need):
        return np.bool_(e.op == "or") if isinstance(a, bool) else a
    b = evaluate(e.b, st, need)
    return settle(np.logical_and(a, b) if e.op == "and" else np.logical_or(a, b))


def _select(e: Select, st: State, mask: Mask) -> Value:
    cond = as_mask(evaluate(e.cond, st, mask))
    yes, no = mask_and(mask, cond), mask_and(mask, mask_not(cond))
    if not mask_any(no):
        return evaluate(e.a, st, yes) if mask_any(yes) else constant(0, e.dtype)
    if not mask_any(yes):
        return evaluate(e.b, st, no)
    return np.where(cond, evaluate(e.a, st, yes), evaluate(e.b, st, no))


def _cast(e: Cast, st: State, mask: Mask) -> Value:
    return cast(evaluate(e.a, st, mask), e.dtype)


def _reinterpret(e: Reinterpret, st: State, mask: Mask) -> Value:
    return reinterpret(evaluate(e.a, st, mask), e.dtype)


def _call(e: Call, st: State, mask: Mask) -> Value:
    args = [evaluate(a, st, mask) for a in e.args]
    if e.name in WARP_CALLS or e.name in BLOCK_CALLS:
        return _exchange(e, args, st, mask)
    if e.foreign or e.name in POINTER_CALLS:
        raise MeaningError(f"`{e.name}` is the author's own CUDA, which only a compiled kernel can run", st.span)
    try:
        return intrinsic(e.name, args, e.dtype)
    except (KeyError, TypeError):
        raise MeaningError(f"`{e.name}` of {', '.join(str(a.dtype) for a in e.args) or 'nothing'} has no known meaning", st.span) from None


def _exchange(e: Call, args: list[Value], st: State, mask: Mask) -> Value:
    """What threads get from each other; only the threads of a block can, not the iterations of a Parallel."""
    if len(st.memory.lanes) != 1:
        raise MeaningError(f"`{e.name}` inside a parallel loop, whose iterations belong to no thread in particular", st.span)
    try:
        return settle(exchange(e.name, args, e.dtype, st.memory.lanes[0], mask))
    except Absent as fault:
        raise MeaningError(f"{e.name}: {fault}", st.span) from None


_RULES: dict[type, Callable[[Any, State, Mask], Value]] = {
    Const: _const, Var: _var, Load: _load, Unary: _unary, Binary: _binary, Compare: _compare, Logical: _logical, Select: _select,
    Cast: _cast, Reinterpret: _reinterpret, Call: _call,
}  # fmt: skip
