"""From values of the author's Python to expressions: literals, elements of buffers, casts.

as_expr(b, 3) -> Const(3, INT32);  as_expr(b, Ref(A, (i,))) -> Load(A, (i,))
as_expr(b, 0.1, FLOAT16) -> Const(0.0999755859375, FLOAT16)
"""

from __future__ import annotations

import math
from typing import Any

from tilec.diagnostics import Label, Span
from tilec.ir.dtypes import ALL, BOOL, HANDLE, INT32, INT64, DType, lookup
from tilec.ir.expr import Buffer, Cast, Const, Expr, Load, Scope, Var, VarKind
from tilec.ir.visit import walk_expr
from tilec.language.builder import Builder
from tilec.language.constants import convert, fits, literal_dtype
from tilec.language.fold import fold_cast
from tilec.language.show import describe, shape_text, size_text
from tilec.language.values import Primitive, Ref, Slice, Vec

LATER_DTYPES = (
    "int1", "uint1", "float8_e3m4", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz", "float6_e2m3fn", "float6_e3m2fn",
    "float4_e2m1_unpacked",
)  # fmt: skip
"""Types of the language that these GPUs have no instructions for."""


def is_number(value: Any) -> bool:
    """True for a host number: int, float or bool."""
    return isinstance(value, (int, float))


def is_device(value: Any) -> bool:
    """True for anything whose value the device computes: expressions, vectors of them, buffers, references."""
    return isinstance(value, (Expr, Buffer, Ref, Vec))


def dtype_of(b: Builder, value: Any, vectors: bool = False) -> DType:
    """The element type that an argument names, a DType or its name; one of several lanes only with `vectors`."""
    found = _named(b, value)
    if found.lanes > 1 and not vectors:
        text = f"`{found}` is a vector of {found.lanes} {found.lane}, which cannot be used here"
        raise b.error("TL0302", text, help=f"use {found.lane}; tensors, tiles, variables, T.cast and T.reinterpret take vectors")
    return found


def _named(b: Builder, value: Any) -> DType:
    if isinstance(value, DType):
        return value
    if isinstance(value, Primitive) and value.name.split("x")[0] in LATER_DTYPES:
        value = value.name
    if not isinstance(value, str):
        raise b.error("TL0302", f"expected an element type, got {describe(value)}", help='write it as `T.float16` or "float16"')
    name = value.removeprefix("torch.")
    found = HANDLE if name == "handle" else lookup(name)
    if found is None:
        if name in LATER_DTYPES or name.rpartition("x")[0] in LATER_DTYPES:
            raise b.error("TL0204", f"the element type `{name}` is not supported", help=f"use one of {', '.join(map(str, ALL))}")
        raise b.error("TL0302", f"unknown element type `{value}`", help=_dtype_help(name))
    return found


def _dtype_help(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, [d.name for d in ALL], 1)
    return f"did you mean `{near[0]}`?" if near else f"use one of {', '.join(map(str, ALL))}"


def literal(b: Builder, value: int | float, dtype: DType) -> Const:
    """A literal as the author wrote it, in `dtype`. An integer that the type cannot hold is an error, a float becomes inf."""
    if isinstance(value, int) and not isinstance(value, bool) and dtype.is_int and not fits(value, dtype):
        hint = f'T.cast({value}, "{dtype}") wraps it to {convert(value, dtype)}'
        raise b.error("TL0303", f"{value} is outside the range of {dtype}", help=hint)
    result = convert(value, dtype)
    if isinstance(result, float) and math.isinf(result) and not (isinstance(value, float) and math.isinf(value)):
        b.note("TL0303", f"{value} is beyond the largest {dtype}; it becomes {result}")
    return Const(result, dtype)


def cast_expr(e: Expr, dtype: DType) -> Expr:
    """`e` converted to `dtype`; literals are converted at once."""
    if e.dtype is dtype or e.dtype == dtype:
        return e
    return fold_cast(e, dtype) if isinstance(e, Const) else Cast(e, dtype)


def as_expr(b: Builder, value: Any, dtype: DType | None = None) -> Expr:
    """`value` as an expression, of type `dtype` if one is given: reads a reference, makes a literal of a host number."""
    if is_number(value):
        found = dtype or literal_dtype(value)
        if found is None:
            raise b.error("TL0303", f"no integer type holds {value}")
        return literal(b, value, found)
    if isinstance(value, Ref):
        value = read(b, value)
    elif isinstance(value, Buffer):
        value = _scalar(b, value)
    if isinstance(value, Vec):
        text = f"expected a number, got a vector of {len(value.lanes)} {value.lanes[0].dtype}"
        raise b.error("TL0301", text, help="T.extract_lane(x, 0) gives its first lane")
    if not isinstance(value, Expr):
        raise b.error("TL0301", f"expected a number or an element, got {describe(value)}")
    return value if dtype is None else cast_expr(value, dtype)


def _scalar(b: Builder, buffer: Buffer) -> Load:
    if buffer.rank:
        text = f"`{buffer.name}` is a whole {buffer.scope.value} tile of shape {shape_text(buffer.shape)}, not a number"
        indices = ", ".join("ijklmn"[: buffer.rank])
        hint = f"index it (`{buffer.name}[{indices}]`), inside T.Parallel for all elements"
        raise b.error("TL0301", text, *buffer_label(buffer), help=hint)
    return Load(buffer, ())


def buffer_label(buffer: Buffer) -> tuple[Label, ...]:
    """Where a buffer was declared and its shape, as a label; none when the place is not known."""
    verb = "has" if buffer.rank == 1 else "is"
    return (Label(buffer.span, f"{buffer.name} {verb} {size_text(buffer.shape)}"),) if buffer.span.line else ()


def read(b: Builder, ref: Ref) -> Load:
    """The element that a reference names; checks the number of indices and constant ones against the shape."""
    return Load(ref.buffer, element(b, ref))


def element(b: Builder, ref: Ref) -> tuple[Expr, ...]:
    """The indices of a reference that must name one element."""
    items = expand(b, ref)
    if ref.buffer.lanes and len(ref.items) < len(items):
        text = f"an element of `{ref.buffer.name}` is a vector of {ref.buffer.lanes} {ref.buffer.dtype}, not a number"
        raise b.error("TL0301", text, *buffer_label(ref.buffer), span=where(b, ref), help="T.extract_lane(x, 0) gives its first lane")
    if any(isinstance(i, Slice) for i in items):
        raise b.error(
            "TL0301", f"a slice of `{ref.buffer.name}` is a region, not an element", span=where(b, ref),
            help="use T.copy, T.fill or T.clear for regions, or index every dimension",
        )  # fmt: skip
    return tuple(index(b, ref, d, item) for d, item in enumerate(items))


def where(b: Builder, ref: Ref) -> Span:
    """The span of a reference, or where the builder stands when it has none."""
    return ref.span if ref.span.line else b.span


def expand(b: Builder, ref: Ref) -> tuple[Any, ...]:
    """The items of a reference, one a dimension: an Ellipsis becomes full slices, any other number of items is an error."""
    items, rank = ref.items, ref.buffer.rank
    if any(i is Ellipsis for i in items):
        at = next(k for k, i in enumerate(items) if i is Ellipsis)
        missing = max(0, rank - (len(items) - 1))
        items = items[:at] + (Slice(None, None),) * missing + items[at + 1 :]
    if ref.buffer.scope is Scope.VAR and items in ((0,), (Slice(None, None),)):
        return ()  # a scalar variable may be written as an array of one
    if ref.buffer.lanes and len(items) == rank - 1:
        return (*items, Slice(None, None))  # all lanes
    if len(items) != rank:
        given = f"{len(items)} {'index was' if len(items) == 1 else 'indices were'} given"
        dims = f"{rank} {'dimension' if rank == 1 else 'dimensions'}"
        hint = f"write one index or slice a dimension, as in `{ref.buffer.name}[{', '.join('ijklmnpq'[:rank])}]`" if rank <= 8 else ""
        raise b.error("TL0304", f"`{ref.buffer.name}` has {dims}, {given}", *buffer_label(ref.buffer), span=where(b, ref), help=hint)
    return items


def index(b: Builder, ref: Ref, dim: int, item: Any) -> Expr:
    """One scalar index as an integer expression. A negative literal counts from the end; a tile's must lie inside it."""
    if isinstance(item, float) or not (is_number(item) or is_device(item)):
        raise b.error("TL0306", f"an index of `{ref.buffer.name}` must be an integer, got {describe(item)}", span=where(b, ref))
    e = Const(item, INT64) if isinstance(item, int) and not fits(int(item), INT32) and fits(item, INT64) else as_expr(b, item)
    if not e.dtype.is_int and e.dtype is not BOOL:
        hint = 'write `//` for whole quotients, or T.cast(x, "int32")'
        raise b.error("TL0306", f"an index of `{ref.buffer.name}` must be an integer, `{e.dtype}` was given", span=where(b, ref), help=hint)
    e = cast_expr(e, INT32) if e.dtype is BOOL else e
    return _check_index(b, ref, dim, e) if isinstance(e, Const) else e


def _check_index(b: Builder, ref: Ref, dim: int, e: Const) -> Expr:
    extent, value = ref.buffer.shape[dim], int(e.value)
    if not isinstance(extent, Const):
        return e
    size = int(extent.value)
    if -size <= value < 0:
        return Const(value + size, e.dtype)
    if not 0 <= value < size and ref.buffer.scope is not Scope.GLOBAL:
        text = f"index {value} is outside dimension {dim} of `{ref.buffer.name}`, whose extent is {size}"
        hint = f"indices go from 0 to {size - 1}; negative ones count from the end"
        raise b.error("TL0305", text, *buffer_label(ref.buffer), span=where(b, ref), help=hint)
    return e


def host_int(b: Builder, value: Any, what: str) -> int:
    """An integer that must be known while compiling; `what` names the argument in the error."""
    if isinstance(value, Const) and value.dtype.is_int:
        return int(value.value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    hint = unknown_sizes(value) if isinstance(value, Expr) else ""
    raise b.error("TL0206", f"{what} must be an integer known while compiling, got {describe(value)}", help=hint)


def unknown_sizes(e: Expr) -> str:
    """Which -D options would make an expression a compile-time value, as one line of help."""
    names = dict.fromkeys(v.name for v in walk_expr(e) if isinstance(v, Var) and v.kind in (VarKind.EXTENT, VarKind.PARAM))
    return "give " + " ".join(f"-D {n}=VALUE" for n in names) if names else "use a compile-time size"
