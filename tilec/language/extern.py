"""The author's own CUDA: T.import_source brings its text into the file, T.call_extern calls it, pointers give it memory.

T.import_source(text); T.call_extern("float32", "twice", A[i])    ->  let v = "twice"(A[i])
T.call_extern("handle", "fill", T.access_ptr(s[0], "w"), 8)       ->  eval "fill"(address_w(s[0]), 8)

A call happens where it stands, once for each thread that comes to it; what it does is the author's business.
"""

from __future__ import annotations

import re
from typing import Any

from tilec.ir.dtypes import HANDLE, INT32, DType
from tilec.ir.expr import POINTER_CALLS, Buffer, Call, Const, Expr, Load, Scope
from tilec.ir.tile import Evaluate
from tilec.language.access import as_expr, buffer_label, dtype_of, element, host_int
from tilec.language.arith import binary
from tilec.language.bind import Entry, refused, works
from tilec.language.builder import Builder
from tilec.language.context import in_kernel
from tilec.language.lanes import is_vector, places_of
from tilec.language.regions import is_element, region
from tilec.language.show import describe
from tilec.language.values import Ref

_NAME = re.compile(r"(::)?[A-Za-z_]\w*(::[A-Za-z_]\w*|<[\w\s:,<>*]*>)*")
_MASKS = {1: "r", 2: "w", 3: "rw"}
_MODES = {"r": "address_r", "w": "address_w", "rw": "address_rw"}


def import_source(b: Builder, source: Any = None) -> None:
    """CUDA text that the file gets in front of the kernels."""
    if source is None or source == "":
        return
    if not isinstance(source, str):
        raise b.error("TL0206", f"T.import_source takes text, got {describe(source)}")
    if source not in b.sources:
        b.sources.append(source)


def call_extern(b: Builder, *args: Any, dtype: Any = None) -> Any:
    """Calls a function of the author's CUDA: T.call_extern("float32", "name", x, y); "handle" for one that returns nothing."""
    kind, name, rest = _target(b, "call_extern", args, dtype)
    return _call(b, name, rest, kind)


def call_pure_extern(b: Builder, *args: Any, dtype: Any = None) -> Any:
    """As T.call_extern, for a function without effects."""
    kind, name, rest = _target(b, "call_pure_extern", args, dtype)
    if kind == HANDLE:
        return _call(b, name, rest, kind)
    return Call(name, tuple(_argument(b, a) for a in rest), kind, True)


def _target(b: Builder, what: str, args: tuple[Any, ...], dtype: Any) -> tuple[DType, str, tuple[Any, ...]]:
    """Result type, function name and arguments of a call, in either of the orders in use."""
    in_kernel(b, what)
    items = list(args)
    if dtype is None:
        if len(items) < 2:
            raise b.error("TL0203", f"T.{what} needs a result type and a function's name", help=f'T.{what}("float32", "name", x)')
        dtype = items.pop(0)
    if not items or not isinstance(items[0], str) or not _NAME.fullmatch(items[0]):
        raise b.error("TL0206", f"T.{what} needs the name of a function, got {describe(items[0] if items else None)}")
    kind = HANDLE if dtype in ("handle", "void", "") else dtype_of(b, dtype)
    return kind, items[0], tuple(items[1:])


def _call(b: Builder, name: str, args: tuple[Any, ...], kind: DType) -> Expr | None:
    call = Call(name, tuple(_argument(b, a) for a in args), kind, True)
    if kind == HANDLE:
        b.emit(Evaluate(call, b.span))
        return None
    return call


def _argument(b: Builder, value: Any) -> Expr:
    """An argument of a foreign function: a number, or a pointer for a whole buffer."""
    if isinstance(value, Buffer) and value.rank:
        return _pointer(b, value, (Const(0, INT32),) * value.rank, "rw")
    if isinstance(value, Ref) and not is_element(value):
        return _pointer(b, value.buffer, region(b, value).starts, "rw")
    return as_expr(b, value)


def access_ptr(
    b: Builder, base: Any, access_type: Any = "r", *extents: Any, offset: Any = 0, extent: Any = None, ignore_last_ndim: Any = 0
) -> Expr:
    """A pointer to an element, a region's first element or a buffer's, for reading ("r"), writing ("w") or both ("rw")."""
    in_kernel(b, "access_ptr")
    mode = access_type if isinstance(access_type, str) else _MASKS.get(access_type, "") if isinstance(access_type, int) else ""
    if mode not in _MODES:
        raise b.error("TL0206", f'the access of a pointer is "r", "w" or "rw", got {describe(access_type)}')
    buffer, starts = _base(b, base)
    cut = host_int(b, ignore_last_ndim, "ignore_last_ndim")
    if cut:
        starts = starts[:-cut] + (Const(0, INT32),) * min(cut, len(starts))
    if not (isinstance(offset, int) and offset == 0):
        if len(starts) != 1:
            text = f"an offset needs one dimension, `{buffer.name}` has {len(starts)}"
            raise b.error("TL0206", text, *buffer_label(buffer), help="index the element instead: `A[i, j + 1]`")
        starts = (as_expr(b, binary(b, "add", starts[0], offset)),)
    return _pointer(b, buffer, starts, mode)


def address_of(b: Builder, element: Any) -> Expr:
    """A pointer to an element, for reading and writing."""
    in_kernel(b, "address_of")
    buffer, starts = _base(b, element)
    return _pointer(b, buffer, starts, "rw")


def _base(b: Builder, base: Any) -> tuple[Buffer, tuple[Expr, ...]]:
    if is_vector(base):
        return places_of(b, base)[0]
    if isinstance(base, Ref) and is_element(base):
        return base.buffer, element(b, base)
    if isinstance(base, (Buffer, Ref)):
        whole = region(b, base, "the base of a pointer")
        return whole.buffer, whole.starts
    raise b.error("TL0206", f"a pointer needs an element or a buffer, got {describe(base)}")


def _pointer(b: Builder, buffer: Buffer, indices: tuple[Expr, ...], mode: str) -> Expr:
    if buffer.scope is Scope.FRAGMENT:
        text = f"`{buffer.name}` is spread over the registers of all threads and has no address"
        raise b.error("TL0322", text, *buffer_label(buffer), help="use T.alloc_local or a shared tile")
    return Call(_MODES[mode], (Load(buffer, indices),), HANDLE)


def pointee(b: Builder, pointer: Any, what: str) -> tuple[Buffer, tuple[Expr, ...]]:
    """The element that a pointer made by T.access_ptr points to."""
    match pointer:
        case Call(name, (Load(buffer, indices),)) if name in POINTER_CALLS:
            return buffer, indices
        case Buffer() | Ref():
            return _base(b, pointer)
        case _:
            raise b.error("TL0206", f"{what} must be a pointer, got {describe(pointer)}", help="T.access_ptr(A[i], ...)")


ENTRIES: tuple[Entry, ...] = (
    works(import_source, host=True)
    + works(call_extern, "call_intrin")
    + works(call_pure_extern)
    + works(access_ptr)
    + works(address_of)
    + refused("call a device function with T.call_extern", "call_packed", "tvm_access_ptr")
)
