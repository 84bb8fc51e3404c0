"""Fresh random arguments for a kernel.

    random_inputs(kernel, {"M": 130, "N": 70, "K": 45}, seed=1) -> {"A": ..., "B": ..., "C": poisoned}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tilec.ir.dtypes import DType, Kind, int_range
from tilec.ir.expr import Buffer, Expr, Load, Var
from tilec.ir.kernel import Kernel
from tilec.ir.tile import Atomic, For, Let, Parallel, Stmt, Store
from tilec.ir.visit import pointers, regions, stmt_exprs, storage, walk_expr, walk_stmt
from tilec.reference.errors import InputError
from tilec.reference.extents import evaluate_extent
from tilec.reference.values import Array, cast, np_dtype, poison

_INDEX_LIMIT = 4


def poisoned(dtype: DType, shape: tuple[int, ...]) -> Array:
    """An output before the kernel runs: NaN, bytes 0xA5 for integers."""
    return poison(shape, dtype)


def random_inputs(kernel: Kernel, extents: Mapping[str, int], seed: int) -> dict[str, Array]:
    """One array per tensor parameter: N(0, 1) floats; whole ranges of 8-bit integers, wider ones within 1000; tensors whose
    elements serve as indices or bounds hold 0 to 3; tensors that the kernel only writes are poisoned. Dense row-major.

    An array of floats never counts as indices, an integer one also when its elements go through variables or tiles first.

    `extents` also has the scalar parameters that occur in shapes. Raises InputError when a shape stays unknown.
    """
    rng = np.random.default_rng(seed)
    names = [*kernel.extents, *(p for p in kernel.params if isinstance(p, Var))]
    known = {v: int(extents[v.name]) for v in names if v.name in extents}
    read, indices = _uses(kernel)
    made = {}
    for p in kernel.params:
        if isinstance(p, Buffer):
            shape = tuple(_extent(e, known, p) for e in p.shape)
            made[p.name] = _random(rng, p.dtype, shape, p in indices) if p in read else poisoned(p.dtype, shape)
    return made


def _extent(e: Expr, known: Mapping[Var, int], buffer: Buffer) -> int:
    found = evaluate_extent(e, known)
    if found is None:
        raise InputError(f"the shape of `{buffer.name}` is not known; pass its extents")
    return found


def _random(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], index: bool) -> Array:
    if dtype.is_float:
        return np.asarray(cast(rng.standard_normal(shape), dtype))
    if dtype.kind is Kind.BOOL:
        return np.asarray(rng.integers(0, 2, shape) != 0)
    low, high = (0, _INDEX_LIMIT - 1) if index else int_range(dtype)
    low, high = max(low, -1000), min(high, 1000)
    return rng.integers(low, high + 1, shape).astype(np_dtype(dtype))


def _uses(kernel: Kernel) -> tuple[set[Buffer], set[Buffer]]:
    """Global tensors that the kernel reads, and those whose elements reach an index, an extent or a bound.

    A tensor that is neither read nor written counts as read.
    """
    flow = _Flow()
    for launch in kernel.launches:
        for s in walk_stmt(launch.body):
            flow.statement(s)
    tensors = {p for p in kernel.params if isinstance(p, Buffer)}
    return flow.read | (tensors - flow.written), {b for b in flow.reach() if isinstance(b, Buffer)}


@dataclass(slots=True)
class _Flow:
    """Where integers go: `into[x]` are the variables and buffers whose values x may hold, `index` those used as indices."""

    read: set[Buffer] = field(default_factory=set)
    written: set[Buffer] = field(default_factory=set)
    index: set[Var | Buffer] = field(default_factory=set)
    into: dict[Var | Buffer, set[Var | Buffer]] = field(default_factory=dict)

    def statement(self, s: Stmt) -> None:
        """Adds what one statement reads, writes and moves."""
        sources, targets = regions(s)
        self.read.update(storage(r.buffer) for r in sources)
        self.written.update(storage(r.buffer) for r in targets)
        for r in targets:
            self.move({storage(x.buffer) for x in sources}, storage(r.buffer))
        for e in stmt_exprs(s):
            self.written.update(storage(b) for b, mode in pointers(e) if "w" in mode)
            for x in walk_expr(e):
                if isinstance(x, Load):
                    self.read.add(storage(x.buffer))
                    self.index |= _integers(*x.indices)
        self.index |= _integers(*_index_expressions(s))
        match s:
            case Let(var, value):
                self.move(_integers(value), var)
            case For(var, start, stop, step):
                self.move(_integers(start, stop, step), var)
            case Store(buffer, _, value):
                self.written.add(storage(buffer))
                self.move(_integers(value), storage(buffer))
            case Atomic(_, buffer, _, operands, _, result):
                self.written.add(storage(buffer))
                self.read.add(storage(buffer))
                self.move(_integers(*operands), storage(buffer))
                if result is not None:
                    self.move({storage(buffer)}, result)
            case _:
                pass

    def move(self, sources: set[Var | Buffer], target: Var | Buffer) -> None:
        """Values of `sources` may end up in `target`."""
        self.into.setdefault(target, set()).update(sources)

    def reach(self) -> set[Var | Buffer]:
        """Everything whose value may become an index."""
        found: set[Var | Buffer] = set()
        todo = list(self.index)
        while todo:
            x = todo.pop()
            if x not in found:
                found.add(x)
                todo += self.into.get(x, ())
        return found


def _index_expressions(s: Stmt) -> tuple[Expr, ...]:
    """The expressions of a statement that choose elements or counts."""
    match s:
        case Store(_, indices) | Atomic(_, _, indices):
            return indices
        case For(_, start, stop, step):
            return (start, stop, step)
        case Parallel(_, extents):
            return extents
        case _:
            sources, targets = regions(s)
            return tuple(e for r in (*sources, *targets) for e in (*r.starts, *r.extents))


def _integers(*exprs: Expr) -> set[Var | Buffer]:
    """The variables and the buffers of integers in some expressions."""
    found: set[Var | Buffer] = set()
    for e in exprs:
        for x in walk_expr(e):
            if isinstance(x, Var):
                found.add(x)
            elif isinstance(x, Load) and x.dtype.is_int:
                found.add(storage(x.buffer))
    return found
