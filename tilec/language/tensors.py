"""Tensors, sizes and views: T.Tensor, T.StridedTensor, T.empty, T.const, T.dynamic, T.reshape, T.view.

T.Tensor((M, 128), "float16")  ->  TensorSpec((M, 128), FLOAT16);  T.view(b, (32, 64), "uint32")  ->  Buffer(view_of=b)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tilec.ir.dtypes import HANDLE, INT32, INT64, DType, lookup, vector_of
from tilec.ir.expr import Buffer, Const, Expr, Scope
from tilec.ir.tile import Stmt
from tilec.language.access import as_expr, buffer_label, dtype_of, is_device, is_number, literal
from tilec.language.arith import binary
from tilec.language.bind import Entry, works
from tilec.language.builder import Builder
from tilec.language.constants import fits
from tilec.language.context import buffer_of, in_kernel, shape_items
from tilec.language.extents import constant, equal
from tilec.language.show import describe, shape_text
from tilec.language.values import ConstSpec, DynamicSpec, EmptySpec, Ref, TensorSpec


def Tensor(b: Builder, shape: Any, dtype: Any = "float32", data: Any = None, strides: Any = None, scope: Any = None) -> Any:
    """A tensor in device memory, row-major without `strides`. Given another buffer as data, a reshaped view of it."""
    if data is not None:
        return view(b, data, shape, dtype)
    kind = dtype_of(b, dtype, vectors=True)
    if kind is HANDLE:
        kind = INT64  # a tensor of pointers holds addresses
    sizes = dims(b, shape, "a tensor's extent")
    return TensorSpec(sizes, kind, None if strides is None else _strides(b, strides, len(sizes)), b.span)


def StridedTensor(b: Builder, shape: Any, strides: Any, dtype: Any = "float32", scope: Any = "global", *, data: Any = None) -> Any:
    """A tensor in device memory with a stride, in elements, for each dimension."""
    if data is not None:
        return view(b, data, shape, dtype, strides)
    spec = Tensor(b, shape, dtype, strides=strides)
    assert isinstance(spec, TensorSpec)
    return spec


def empty(b: Builder, *shape: Any, dtype: Any = "float32") -> EmptySpec:
    """An output tensor of an eager kernel, allocated by the caller's side; T.empty((M, N), dtype) or T.empty(M, N, dtype=...)."""
    items: Any = shape
    if len(items) > 1 and isinstance(items[-1], (DType, str)):
        items, dtype = items[:-1], items[-1]
    if len(items) == 1:
        items = items[0]
    return EmptySpec(dims(b, items, "a tensor's extent"), dtype_of(b, dtype, vectors=True), b.span)


def dims(b: Builder, shape: Any, what: str) -> tuple[Any, ...]:
    """The extents of a tensor: non-negative ints or integer expressions."""
    return tuple(_dim(b, item, what) for item in shape_items(b, shape))


def _dim(b: Builder, value: Any, what: str) -> Any:
    if isinstance(value, Const) and value.dtype.is_int:
        value = int(value.value)
    if is_number(value) and not isinstance(value, (bool, float)):
        if value < 0:
            raise b.error("TL0310", f"{what} must not be negative, got {value}")
        if value >= 1 << 63:
            raise b.error("TL0310", f"{what} must fit a 64-bit integer, got {value}")
        return value
    if not is_device(value):
        raise b.error("TL0206", f"{what} must be an integer, got {describe(value)}")
    e = as_expr(b, value)
    if not e.dtype.is_int:
        raise b.error("TL0206", f"{what} must be an integer, got {e.dtype}")
    return e


def _strides(b: Builder, strides: Any, rank: int) -> tuple[Any, ...]:
    found = dims(b, strides, "a stride")
    if len(found) != rank:
        raise b.error("TL0310", f"{len(found)} strides for {rank} dimensions")
    return found


def const(b: Builder, names: Any, *more: Any, dtype: Any = "int32") -> ConstSpec:
    """Compile-time sizes by name, bound from tensors or -D: T.const("M, N")."""
    if len(more) == 1 and (isinstance(more[0], DType) or lookup(str(more[0])) is not None):
        more = ()  # a type: T.const("M", "int32")
    found = _names(b, "const", (names, *more))
    return ConstSpec(found, len(found) == 1, b.span)


def dynamic(b: Builder, names: Any, dtype: Any = "int32") -> DynamicSpec:
    """Run-time sizes by name: T.dynamic("m, n")."""
    kind = dtype_of(b, dtype)
    if kind not in (INT32, INT64):
        raise b.error("TL0302", f"a run-time size must be int32 or int64, got {kind}")
    found = _names(b, "dynamic", (names,))
    return DynamicSpec(found, len(found) == 1, kind, b.span)


def _names(b: Builder, what: str, given: tuple[Any, ...]) -> tuple[str, ...]:
    """Names from strings separated by commas or spaces."""
    if not all(isinstance(g, str) for g in given):
        raise b.error("TL0206", f'T.{what} takes names, as in T.{what}("M, N")')
    found = tuple(n for g in given for n in g.replace(",", " ").split())
    bad = next((n for n in found if not n.isidentifier()), None)
    if bad is not None or not found:
        raise b.error("TL0206", f"T.{what} needs names that are identifiers, got {', '.join(map(repr, given))}")
    return found


def lane_count(dtype: DType) -> int:
    """What `Buffer.lanes` of a buffer of such elements is."""
    return dtype.lanes if dtype.lanes > 1 else 0


def lane_extent(dtype: DType) -> tuple[Const, ...]:
    """The dimension that a buffer has for the lanes of its elements; none without."""
    return (Const(dtype.lanes, INT32),) if dtype.lanes > 1 else ()


def dtype(b: Builder, value: Any, *args: Any) -> DType:
    """An element type from its name."""
    return dtype_of(b, value, vectors=True)


def reshape(b: Builder, src: Any, shape: Any) -> Buffer:
    """The same elements under another shape; one extent may be -1."""
    return view(b, src, shape, None)


def view(b: Builder, src: Any, shape: Any = None, dtype: Any = None, strides: Any = None) -> Buffer:
    """The same bytes under another shape and element type."""
    if strides is not None and shape is not None:
        _check_dense(b, shape, strides)
    source = buffer_of(src)
    if source is None or isinstance(src, Ref):
        raise b.error("TL0206", f"a view needs a whole buffer, got {describe(src)}")
    in_kernel(b, "view")
    wanted = vector_of(source.dtype, max(1, source.lanes)) if dtype is None else dtype_of(b, dtype, vectors=True)
    kind = wanted.lane
    if source.strides is not None:
        raise b.error("TL0342", f"`{source.name}` has strides and cannot be viewed under another shape", *buffer_label(source))
    if source.scope is Scope.VAR or kind is HANDLE:
        raise b.error("TL0342", f"`{source.name}` cannot be viewed as {kind}")
    extents = source.shape[: source.rank - (source.lanes > 0)] if shape is None else _view_shape(b, source, wanted, shape)
    extents += lane_extent(wanted)
    _same_bytes(b, source, kind, extents)
    name = b.hint or f"{source.name}_view"
    if source.address is not None:
        return Buffer(name, kind, extents, source.scope, address=source.address, span=b.span, lanes=lane_count(wanted))
    return Buffer(name, kind, extents, source.scope, view_of=source, workspace=source.workspace, span=b.span, lanes=lane_count(wanted))


def _check_dense(b: Builder, shape: Any, strides: Any) -> None:
    """Refuses strides other than those of a row-major buffer."""
    step: Any = 1
    given = shape_items(b, strides)
    if len(given) != len(shape_items(b, shape)):
        raise b.error("TL0310", f"{len(given)} strides for {len(shape_items(b, shape))} dimensions")
    for extent, stride in zip(reversed(shape_items(b, shape)), reversed(given), strict=True):
        if extent != 1 and not (stride == step or equal(as_expr(b, stride), as_expr(b, step))):
            hint = "index the source in T.Parallel, or declare the parameter as T.StridedTensor"
            raise b.error("TL0342", "a view lies as its source does, row by row; other strides are not supported", help=hint)
        step = step * extent if isinstance(step, int) and isinstance(extent, int) else binary(b, "mul", extent, step)


def _view_shape(b: Builder, source: Buffer, kind: DType, shape: Any) -> tuple[Expr, ...]:
    items = list(shape_items(b, shape))
    open_at = [d for d, v in enumerate(items) if isinstance(v, int) and v == -1]
    total = constant(_count(b, source.shape))
    if len(open_at) == 1 and total is not None:
        rest = _count(b, tuple(_extent(b, v) for d, v in enumerate(items) if d != open_at[0]))
        known = constant(rest)
        if known:
            items[open_at[0]] = total * _bits(source.dtype) // _bits(kind) // known
    return tuple(_extent(b, v) for v in items)


def _extent(b: Builder, value: Any) -> Expr:
    size = _dim(b, value, "an extent of a view")
    return size if isinstance(size, Expr) else Const(size, INT32 if fits(size, INT32) else INT64)


def _count(b: Builder, extents: tuple[Expr, ...]) -> Expr:
    total: Expr = Const(1, INT64)
    for e in extents:
        total = binary(b, "mul", total, e)
    return total


def _same_bytes(b: Builder, source: Buffer, kind: DType, extents: tuple[Expr, ...]) -> None:
    """Both shapes must hold the same number of bytes; run-time shapes are trusted when they cannot be compared."""
    old = binary(b, "mul", _count(b, source.shape), _bits(source.dtype))
    new = binary(b, "mul", _count(b, extents), _bits(kind))
    if constant(old) is not None and constant(new) is not None and not equal(old, new):
        bytes_ = [(constant(e) or 0) // 8 for e in (old, new)]
        text = f"`{source.name}` has {bytes_[0]} bytes, a view of {shape_text(extents)} {kind} has {bytes_[1]}"
        raise b.error("TL0342", text, *buffer_label(source), help="the sizes must be equal")


def _bits(dtype: DType) -> int:
    """Bits that an element takes in memory."""
    return dtype.bits * dtype.lanes if dtype.bits == 4 else 8 * dtype.bytes


def annotate_safe_value(b: Builder, values: Any) -> None:
    """What reads of a tensor out of its range give instead of 0: {A: -1.0}."""
    in_kernel(b, "annotate_safe_value")
    if not isinstance(values, Mapping):
        raise b.error("TL0206", f"T.annotate_safe_value takes a dictionary of tensors, got {describe(values)}")
    for buffer, value in values.items():
        if not isinstance(buffer, Buffer) or buffer.scope is not Scope.GLOBAL:
            raise b.error("TL0206", f"T.annotate_safe_value is for tensors in global memory, got {describe(buffer)}")
        found = literal(b, value, buffer.dtype) if is_number(value) else as_expr(b, value, buffer.dtype)
        if not isinstance(found, Const):
            raise b.error("TL0206", f"the safe value of `{buffer.name}` must be known while compiling")
        b.safe_values[buffer] = found


def apply_safe_values(b: Builder, body: Stmt) -> tuple[Stmt, dict[Buffer, Buffer]]:
    """`body` with every annotated tensor replaced by one that has its safe value, and the table of replacements."""
    from tilec.ir.visit import replace_buffers

    table = {old: replace(old, safe_value=value) for old, value in b.safe_values.items()}
    return (replace_buffers(body, table) if table else body), table


ENTRIES: tuple[Entry, ...] = (
    works(Tensor, "Buffer", host=True)
    + works(StridedTensor, host=True)
    + works(empty, host=True)
    + works(const, host=True)
    + works(dynamic, "symbolic", host=True)
    + works(dtype, "DataType", host=True)
    + works(reshape)
    + works(view)
    + works(annotate_safe_value)
)
