"""Fresh random arguments for a kernel.

    random_inputs(kernel, {"M": 130, "N": 70, "K": 45}, seed=1) -> {"A": ..., "B": ..., "C": poisoned}
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilec.ir.dtypes import DType, Kind, int_range
from tilec.ir.expr import Buffer, Expr, Load, Scope, Var
from tilec.ir.kernel import Kernel
from tilec.ir.tile import Alloc, Atomic, For, If, Parallel, Stmt, Store, While
from tilec.ir.visit import regions, stmt_exprs, storage, walk_expr, walk_stmt
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
    read: set[Buffer] = set()
    written: set[Buffer] = set()
    indices: set[Buffer] = set()
    for launch in kernel.launches:
        for s in walk_stmt(launch.body):
            _note(s, read, written, indices)
    tensors = {p for p in kernel.params if isinstance(p, Buffer)}
    return read | (tensors - written), indices


def _note(s: Stmt, read: set[Buffer], written: set[Buffer], indices: set[Buffer]) -> None:
    sources, targets = regions(s)
    read.update(storage(r.buffer) for r in sources)
    written.update(storage(r.buffer) for r in targets)
    if isinstance(s, Store | Atomic):
        written.add(storage(s.buffer))
    if isinstance(s, Atomic):
        read.add(storage(s.buffer))
    for e in stmt_exprs(s):
        loads = [x for x in walk_expr(e) if isinstance(x, Load)]
        read.update(storage(x.buffer) for x in loads)
        for x in loads:
            indices.update(_integer_loads(x.indices))
    indices.update(_integer_loads(_index_expressions(s)))


def _index_expressions(s: Stmt) -> tuple[Expr, ...]:
    """The expressions of a statement that choose elements or counts."""
    if isinstance(s, Store | Atomic):
        return s.indices
    if isinstance(s, For):
        return (s.start, s.stop, s.step)
    if isinstance(s, Parallel):
        return s.extents
    if isinstance(s, While | If | Alloc):
        return ()
    sources, targets = regions(s)
    return tuple(e for r in (*sources, *targets) for e in (*r.starts, *r.extents))


def _integer_loads(exprs: tuple[Expr, ...]) -> set[Buffer]:
    return {
        storage(x.buffer)
        for e in exprs for x in walk_expr(e)
        if isinstance(x, Load) and x.dtype.is_int and storage(x.buffer).scope is Scope.GLOBAL
    }  # fmt: skip
