"""Tensors made from pointers: a pointer parameter is a tensor parameter, an address read from memory a tensor at that place.

a: T.ptr; A = T.make_tensor(a, (M, K), "float16")     ->  the parameter a is a tensor of this shape
A = T.make_tensor(table[i], (M, K), "float16")        ->  let address = table[i]; a tensor that begins there
"""

from __future__ import annotations

from typing import Any

from tilec.ir.dtypes import HANDLE, INT64
from tilec.ir.expr import Buffer, Cast, Const, Expr, Load, Reinterpret, Scope, Var, VarKind
from tilec.ir.visit import walk_expr
from tilec.language.access import as_expr, dtype_of
from tilec.language.bind import Entry, works
from tilec.language.builder import Builder
from tilec.language.extents import equal
from tilec.language.show import describe
from tilec.language.tensors import dims, view
from tilec.language.values import Ref
from tilec.language.warp import held


def make_tensor(
    b: Builder, ptr: Any, shape: Any, dtype: Any = "float32", strides: Any = None, storage_scope: Any = "global"
) -> Buffer:
    """A tensor at a pointer: that of a `T.ptr` parameter, or an address that a tensor of pointers holds."""
    kind = dtype_of(b, dtype)
    if kind == HANDLE:
        kind = INT64
    extents = tuple(as_expr(b, e) for e in dims(b, shape, "a tensor's extent"))
    steps = None if strides is None else tuple(as_expr(b, e) for e in dims(b, strides, "a stride"))
    if steps is not None and len(steps) != len(extents):
        raise b.error("TL0310", f"{len(steps)} strides for {len(extents)} dimensions")
    name = b.hint or "tensor"
    if isinstance(ptr, Var) and ptr.dtype == HANDLE and ptr.kind is VarKind.PARAM:
        return _parameter(b, ptr, Buffer(ptr.name, kind, extents, Scope.GLOBAL, steps, span=b.span))
    address = ptr if isinstance(ptr, int) and not isinstance(ptr, bool) else as_expr(b, ptr)
    if isinstance(address, int) or not (address.dtype.bits == 64 and (address.dtype.is_int or address.dtype == HANDLE)):
        raise b.error("TL0206", f"T.make_tensor takes a pointer, got {describe(ptr)}", help="a parameter `a: T.ptr`, or an element of one")
    if b.launch is None:
        raise b.error("TL0205", "an address is read from memory inside a kernel", help="make the tensor under `with T.Kernel(...)`")
    place = Reinterpret(address, INT64) if address.dtype == HANDLE else address if address.dtype == INT64 else Cast(address, INT64)
    where = held(b, place, f"{name}_address")
    return Buffer(name, kind, extents, Scope.GLOBAL, steps, address=where, span=b.span)


def match_buffer(
    b: Builder, param: Any, shape: Any = None, dtype: Any = "float32", data: Any = None, strides: Any = None, scope: Any = "global"
) -> Buffer:
    """T.make_tensor; of a buffer or a region of one, the elements from its start on under another shape."""
    if isinstance(param, (Buffer, Ref)):
        source = param if isinstance(param, Buffer) else param.buffer
        if isinstance(param, Ref) or source.rank == 0:
            raise b.error("TL0206", f"T.match_buffer takes a whole buffer or a pointer, got {describe(param)}", help="use T.view")
        return view(b, source, source.shape if shape is None else shape, dtype)
    return make_tensor(b, param, shape, dtype, strides)


def _parameter(b: Builder, ptr: Var, tensor: Buffer) -> Buffer:
    """The tensor that a pointer parameter is; a second shape of it is a view."""
    for e in (*tensor.shape, *(tensor.strides or ())):
        if not all(_on_host(x) for x in walk_expr(e)):
            text = f"the shape of the tensor at `{ptr.name}` must be known before the launch"
            raise b.error("TL0309", text, help="use sizes of the tensors and scalar parameters")
    known: Buffer | None = b.pointers.get(ptr)
    if known is None:
        b.pointers[ptr] = tensor
        return tensor
    same = len(known.shape) == len(tensor.shape) and all(equal(x, y) for x, y in zip(known.shape, tensor.shape, strict=True))
    if same and known.dtype == tensor.dtype and known.strides == tensor.strides:
        return known
    return view(b, known, tensor.shape, tensor.dtype)


def _on_host(e: Expr) -> bool:
    if isinstance(e, Var):
        return e.kind in (VarKind.EXTENT, VarKind.PARAM)
    return not isinstance(e, Load) or isinstance(e, Const)


ENTRIES: tuple[Entry, ...] = works(make_tensor, "make_tensor_from_addr", host=True) + works(match_buffer, host=True)
