"""What a tile statement iterates over and how each buffer is indexed by it.

`T.copy(A[by * 128, 0], A_s)` and `for i, j in T.Parallel(128, 32): A_s[i, j] = A[by * 128 + i, j]` are the same thing here:
a domain of 128 x 32 points in which A_s is indexed by (0, 1), the first and the second variable.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from tilec.record import record
from tilec.ir.dtypes import DType
from tilec.ir.expr import Binary, Buffer, Cast, Const, Expr, Load, Scope, Var, VarKind
from tilec.ir.tile import Alloc, Atomic, Copy, Parallel, Region, Stmt, Store
from tilec.ir.visit import stmt_exprs, walk_expr, walk_stmt
from tilec.plan.ways import Way, short_loops, way_of

Dims: TypeAlias = tuple[int | None, ...]
"""Per dimension of a buffer: the number of the domain variable that indexes it, or None where the index is always 0."""


@record
class Access:
    """One element access inside a domain. `dims` is None when some index is neither a variable of the domain nor 0; `way` then tells
    how a read follows the domain all the same, None where it does not."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    dims: Dims | None
    writes: bool
    way: Way | None = None


def static(e: Expr) -> int | None:
    """The value of an integer literal, None for anything else."""
    return int(e.value) if isinstance(e, Const) else None


def static_shape(buffer: Buffer) -> tuple[int, ...]:
    """The shape of an on-chip buffer; the frontend has made sure that it is static."""
    return tuple(int(e.value) if isinstance(e, Const) else 1 for e in buffer.shape)


def domain_fits(access: Access, extents: tuple[Expr, ...]) -> bool:
    """True when the domain walks the whole fragment, index by index."""
    if access.dims is None:
        return False
    shape = static_shape(access.buffer)
    return all(n == (1 if d is None else static(extents[d])) for n, d in zip(shape, access.dims, strict=True))


def dims_of(indices: tuple[Expr, ...], variables: tuple[Var, ...]) -> Dims | None:
    """How `indices` follow the variables of a domain, None if in another way than plainly."""
    out: list[int | None] = []
    for e in indices:
        if isinstance(e, Var) and e in variables and variables.index(e) not in out:
            out.append(variables.index(e))
        elif isinstance(e, Const) and e.value == 0:
            out.append(None)
        else:
            return None
    return tuple(out)


def accesses(body: Stmt, variables: tuple[Var, ...]) -> Iterator[Access]:
    """Every element access in the scalar statements of `body`, reads before the write of the same statement."""
    inner = short_loops(body)
    for s in walk_stmt(body):
        for root in stmt_exprs(s):
            for e in walk_expr(root):
                if isinstance(e, Load):
                    dims = dims_of(e.indices, variables)
                    follows = dims is None and e.buffer.scope is Scope.FRAGMENT
                    yield Access(e.buffer, e.indices, dims, False, way_of(e.indices, variables, inner) if follows else None)
        if isinstance(s, Store | Atomic):
            yield Access(s.buffer, s.indices, dims_of(s.indices, variables), True)


def allocated(body: Stmt) -> frozenset[Buffer]:
    """Buffers brought into being inside `body`."""
    return frozenset(s.buffer for s in walk_stmt(body) if isinstance(s, Alloc))


def paired(region: Region) -> tuple[int, ...]:
    """The dimensions of a region that a copy walks: those whose extent is not the literal 1."""
    return tuple(d for d, e in enumerate(region.extents) if static(e) != 1)


def add(a: Expr, b: Expr) -> Expr:
    """a + b with zeros dropped; both of one integer type, or brought to the wider one."""
    if isinstance(a, Const) and a.value == 0:
        return b
    if isinstance(b, Const) and b.value == 0:
        return a
    dtype = a.dtype if a.dtype.bits >= b.dtype.bits else b.dtype
    return Binary("add", cast(a, dtype), cast(b, dtype), dtype)


def cast(e: Expr, dtype: DType) -> Expr:
    """`e` as `dtype`, without a node when it is that already."""
    if e.dtype == dtype:
        return e
    if isinstance(e, Const) and dtype.is_int and e.dtype.is_int:
        return Const(e.value, dtype)
    return Cast(e, dtype)


def copy_as_parallel(copy: Copy) -> Parallel:
    """The element-wise loop that a copy means: one variable a walked dimension, named i, j, k, ... in order."""
    src_dims, dst_dims = paired(copy.src), paired(copy.dst)
    by = copy.dst if len(dst_dims) >= len(src_dims) else copy.src
    walked = dst_dims if by is copy.dst else src_dims
    names = "ijklmnpq"
    variables = tuple(Var(names[n % len(names)], kind=VarKind.LOOP, span=copy.span) for n in range(len(walked)))

    def index(region: Region, dims: tuple[int, ...]) -> tuple[Expr, ...]:
        steps: dict[int, Var] = dict(zip(dims, variables, strict=True))
        return tuple(add(start, steps[d]) if d in steps else start for d, start in enumerate(region.starts))

    value: Expr = Load(copy.src.buffer, index(copy.src, src_dims))
    store = Store(copy.dst.buffer, index(copy.dst, dst_dims), cast(value, copy.dst.buffer.dtype), copy.span)
    return Parallel(variables, tuple(by.extents[d] for d in walked), store, copy.span)


def whole(region: Region) -> bool:
    """True when the region is its whole buffer."""
    return all(static(s) == 0 for s in region.starts) and all(
        static(e) is not None and static(e) == static(n) for e, n in zip(region.extents, region.buffer.shape, strict=True)
    )
