"""T.alloc_shared, alloc_fragment, alloc_local and alloc_var: tiles and private memory.

A_s = T.alloc_shared((128, 32), "float16")  ->  Alloc(Buffer("A_s", FLOAT16, (128, 32), SHARED))
"""

from __future__ import annotations

from typing import Any

from tilec.ir.dtypes import HANDLE, INT32
from tilec.ir.expr import Buffer, Const, Expr, Load, Scope, Var, VarKind
from tilec.ir.tile import Alloc, Seq, Stmt
from tilec.ir.visit import buffers_of, storage, walk_expr, walk_stmt
from tilec.language.access import as_expr, dtype_of, unknown_sizes
from tilec.language.bind import Entry, works
from tilec.language.builder import Builder
from tilec.language.context import host_int, in_kernel, shape_items
from tilec.language.regions import write
from tilec.language.show import describe, expr_text
from tilec.language.tensors import dims, lane_count, lane_extent

_MOST_ELEMENTS = 1 << 31


def alloc_shared(b: Builder, shape: Any, dtype: Any, scope: str = "shared.dyn") -> Buffer:
    """A tile in shared memory, visible to the whole block; uninitialised."""
    return _alloc(b, "alloc_shared", shape, dtype, Scope.SHARED, scope, ("shared", "shared.dyn"))


def alloc_fragment(b: Builder, shape: Any, dtype: Any, scope: str = "local.fragment") -> Buffer:
    """A tile in registers, spread over the threads of the block; uninitialised. With scope="local", a private array of each thread."""
    if scope == "local":
        return alloc_local(b, shape, dtype)
    return _alloc(b, "alloc_fragment", shape, dtype, Scope.FRAGMENT, scope, ("local.fragment",))


def alloc_local(b: Builder, shape: Any, dtype: Any, scope: str = "local") -> Buffer:
    """A private array of each thread; uninitialised."""
    return _alloc(b, "alloc_local", shape, dtype, Scope.LOCAL, scope, ("local",))


def alloc_var(b: Builder, dtype: Any, init: Any = None, scope: str = "local.var") -> Buffer:
    """A private mutable scalar of each thread, zero or `init` at this point; assigning to its name stores."""
    in_kernel(b, "alloc_var")
    if isinstance(init, str):
        init, scope = None, init
    if scope != "local.var":
        raise b.error("TL0206", f'the scope of T.alloc_var is "local.var", got {describe(scope)}')
    kind = dtype_of(b, dtype, vectors=True)
    if kind.lanes > 1:
        buffer = Buffer(b.hint or "var", kind.lane, (Const(kind.lanes, INT32),), Scope.LOCAL, span=b.span, lanes=kind.lanes)
        init = 0 if init is None else init
    else:
        buffer = Buffer(b.hint or "var", kind, (), Scope.VAR, span=b.span)
    b.emit(Alloc(buffer, b.span))
    if init is not None:
        write(b, buffer, init)
    return buffer


def alloc_global(b: Builder, shape: Any, dtype: Any, scope: str = "global") -> Buffer:
    """A scratch tensor in device memory that all launches of the function share: part of the caller's workspace; uninitialised."""
    if scope != "global":
        raise b.error("TL0206", f'the scope of T.alloc_global is "global", got {describe(scope)}')
    element = dtype_of(b, dtype, vectors=True)
    if element is HANDLE:
        raise b.error("TL0302", "`T.alloc_global` cannot hold pointers")
    extents = tuple(as_expr(b, e) for e in dims(b, shape, "an extent of `T.alloc_global`"))
    known = (VarKind.EXTENT, VarKind.PARAM)
    for e in extents:
        if any(isinstance(x, Load) or (isinstance(x, Var) and x.kind not in known) for x in walk_expr(e)):
            text = f"the shape of a scratch tensor must be known before the launch, `{expr_text(e)}` is not"
            raise b.error("TL0309", text, help="use sizes of the tensors and scalar parameters")
    extents += lane_extent(element)
    return Buffer(b.hint or "scratch", element.lane, extents, Scope.GLOBAL, workspace=True, span=b.span, lanes=lane_count(element))


def alloc_buffer(b: Builder, shape: Any, dtype: Any = "float32", scope: str = "shared.dyn") -> Buffer:
    """A tile, private array or scratch tensor, as `scope` says: shared, local.fragment, local or global."""
    match scope:
        case "shared" | "shared.dyn":
            return alloc_shared(b, shape, dtype)
        case "local.fragment":
            return alloc_fragment(b, shape, dtype)
        case "local":
            return alloc_local(b, shape, dtype)
        case "global":
            return alloc_global(b, shape, dtype)
        case _:
            raise b.error("TL0206", f"`T.alloc_buffer` has no scope {describe(scope)}", help="use shared, local.fragment, local or global")


def _alloc(b: Builder, name: str, shape: Any, dtype: Any, scope: Scope, given: str, known: tuple[str, ...]) -> Buffer:
    if not b.in_function:
        in_kernel(b, name)
    if b.in_parallel and scope is not Scope.LOCAL:
        raise b.error(
            "TL0205", f"`T.{name}` belongs to the whole block and cannot be used inside T.Parallel", help="move it out of the loop"
        )
    if isinstance(dtype, int):
        raise b.error("TL0206", f"`T.{name}` takes its shape as one tuple", help=f'write T.{name}(({describe(shape)}, {dtype}), "float16")')
    if given not in known:
        raise b.error("TL0206", f"`T.{name}` has no scope {describe(given)}", help=f"use one of {', '.join(known)}")
    element = dtype_of(b, dtype, vectors=True)
    if element is HANDLE:
        raise b.error("TL0302", f"`T.{name}` cannot hold pointers")
    sizes = tuple(_size(b, name, item) for item in shape_items(b, shape))
    if not sizes:
        raise b.error("TL0310", f"`T.{name}` needs at least one dimension", help="use T.alloc_var for a scalar")
    count = element.lanes
    for size in sizes:
        count *= size
    if count >= _MOST_ELEMENTS:
        raise b.error("TL0310", f"a tile of {count} elements is too large", help="tiles hold fewer than 2^31 elements")
    extents = tuple(Const(s, INT32) for s in sizes) + lane_extent(element)
    buffer = Buffer(b.hint or "tile", element.lane, extents, scope, span=b.span, lanes=lane_count(element))
    if b.launch is not None:
        b.emit(Alloc(buffer, b.span))
    return buffer


def with_early(body: Stmt) -> Stmt:
    """The body of a launch, in front of it the tiles that it uses and that were allocated before the launch."""
    used: dict[Buffer, None] = {}
    known: set[Buffer] = set()
    for s in walk_stmt(body):
        if isinstance(s, Alloc):
            known.add(s.buffer)
        else:
            used |= dict.fromkeys(storage(x) for x in buffers_of(s))
    early = [x for x in used if x not in known and x.scope in (Scope.SHARED, Scope.FRAGMENT, Scope.LOCAL)]
    return Seq((*(Alloc(x, x.span) for x in early), body), body.span) if early else body


def _size(b: Builder, name: str, value: Any) -> int:
    """One extent of a tile: a positive integer known while compiling."""
    if isinstance(value, Expr) and not isinstance(value, Const):
        text = f"the shape of a tile must be known while compiling, `{expr_text(value)}` is not"
        raise b.error("TL0309", text, help=unknown_sizes(value))
    size = host_int(b, value, f"an extent of `T.{name}`")
    if size <= 0:
        raise b.error("TL0310", f"an extent of a tile must be positive, got {size}")
    return size


ENTRIES: tuple[Entry, ...] = (
    works(alloc_shared, host=True)
    + works(alloc_fragment, host=True)
    + works(alloc_local, host=True)
    + works(alloc_var)
    + works(alloc_global, host=True)
    + works(alloc_buffer, host=True)
)
