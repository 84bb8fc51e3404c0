"""Atomic updates: one lane after another, in the order of the lanes.

    Atomic("add", C, (i,), (Const(1, INT32),)) under 128 lanes with i = 0 adds 128
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec.ir.expr import Scope
from tilec.ir.tile import Atomic
from tilec.reference.errors import MeaningError
from tilec.reference.evaluate import State, evaluate
from tilec.reference.masks import Mask
from tilec.reference.memory import PRIVATE
from tilec.reference.values import Array, Value, binary, np_dtype

_UPDATES = ("add", "max", "min", "and", "or", "xor")


def atomic(s: Atomic, st: State, mask: Mask) -> None:
    """Executes an Atomic once for each active lane; binds `result` to the old values."""
    if s.buffer.scope in PRIVATE:
        raise MeaningError(f"an atomic on the private `{s.buffer.name}`", st.span)
    lanes = st.memory.lanes
    index = [np.broadcast_to(evaluate(i, st, mask), lanes) for i in s.indices]
    operands = [np.broadcast_to(evaluate(o, st, mask), lanes) for o in s.operands]
    data = st.memory.array(s.buffer, st.span)
    if not index:  # a scalar is an array of one
        data, index = data.reshape(1), [np.zeros(lanes, np.int64)]
    inside = np.ones(lanes, np.bool_)
    for i, n in zip(index, data.shape, strict=True):
        inside &= (i >= 0) & (i < n)
    active = np.broadcast_to(mask, lanes)
    if s.buffer.scope is not Scope.GLOBAL and bool((active & ~inside).any()):
        raise MeaningError(f"an atomic on `{s.buffer.name}` is out of its range", st.span)
    chosen = active & inside
    old = np.zeros(lanes, data.dtype)
    old[chosen] = _apply(s, data, tuple(i[chosen] for i in index), [o[chosen] for o in operands])
    if s.result is not None:
        st.env[s.result] = old


def _apply(s: Atomic, data: Array, index: tuple[Array, ...], operands: list[Array]) -> Array:
    """Updates `data`; lanes that meet in one element take turns. Returns the old values."""
    count = index[0].size
    old = np.empty(count, data.dtype)
    if count == 0:
        return old
    if s.result is None and s.op == "add" and data.dtype.kind in "iu" + ("f" if data.dtype.itemsize >= 4 else ""):
        np.add.at(data, index, operands[0])
        return old
    for turn in _turns(data, index):
        at = tuple(i[turn] for i in index)
        old[turn] = data[at]
        data[at] = _updated(s, old[turn], [o[turn] for o in operands])
    return old


def _turns(data: Array, index: tuple[Array, ...]) -> list[Any]:
    """Groups of lanes such that no two of a group meet and each element sees its lanes in order."""
    flat = np.ravel_multi_index(index, data.shape)
    order = np.argsort(flat, kind="stable")
    ordered = flat[order]
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    position = np.arange(flat.size)
    turn_of = position - np.maximum.accumulate(np.where(first, position, 0))
    by_turn = np.argsort(turn_of, kind="stable")
    bounds = np.searchsorted(turn_of[by_turn], np.arange(1, int(turn_of.max()) + 1))
    return [order[group] for group in np.split(by_turn, bounds)]


def _updated(s: Atomic, old: Value, operands: list[Value]) -> Value:
    if s.op in _UPDATES:
        return binary(s.op, old, operands[0], s.buffer.dtype)
    match s.op:
        case "load":
            return old
        case "cas":
            raw = f"u{np_dtype(s.buffer.dtype).itemsize}"
            same = np.asarray(old).view(raw) == np.asarray(operands[0]).view(raw)
            return np.asarray(np.where(same, operands[1], old)).astype(np_dtype(s.buffer.dtype))
        case _:
            return operands[0]
