"""T.reduce_sum and its kin, T.cumsum and T.cummax.

T.reduce_max(S, m, dim=1, clear=False)  ->  Reduce("max", S, m, dim=1, clear=False)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilec.ir.dtypes import BOOL
from tilec.ir.expr import Buffer, Expr, Scope
from tilec.ir.tile import Reduce, Region, Scan
from tilec.language.access import buffer_label, host_int
from tilec.language.bind import Entry, works
from tilec.language.builder import Builder
from tilec.language.context import host_flag, scope_error, tile_statement
from tilec.language.extents import constant, equal
from tilec.language.regions import is_element, region, sliced_dims
from tilec.language.show import describe, shape_text, size_text
from tilec.language.values import Ref

_TILES = (Scope.SHARED, Scope.FRAGMENT)
_BITWISE = ("bitand", "bitor", "bitxor")
OPS = ("sum", "max", "min", "abssum", "absmax", "any", "all", *_BITWISE)


def reduce_sum(b: Builder, buffer: Any, out: Any, dim: Any = -1, clear: Any = True, batch: Any = 1, annotations: Any = None) -> None:
    """out = sum over `dim`; with clear=False it is added to what `out` holds. Accumulates in out's type."""
    _reduce(b, "sum", buffer, out, dim, clear)


def reduce_max(
    b: Builder, buffer: Any, out: Any, dim: Any = -1, clear: Any = True, batch: Any = 1, nan_propagate: Any = False, annotations: Any = None
) -> None:
    """out = maximum over `dim`; NaN is dropped unless nan_propagate; clear=False keeps out's value in the running."""
    _reduce(b, "max", buffer, out, dim, clear, nan_propagate)


def reduce_min(
    b: Builder, buffer: Any, out: Any, dim: Any = -1, clear: Any = True, batch: Any = 1, nan_propagate: Any = False, annotations: Any = None
) -> None:
    """out = minimum over `dim`; NaN is dropped unless nan_propagate; clear=False keeps out's value in the running."""
    _reduce(b, "min", buffer, out, dim, clear, nan_propagate)


def reduce_absmax(
    b: Builder, buffer: Any, out: Any, dim: Any = -1, clear: Any = True, batch: Any = 1, nan_propagate: Any = False, annotations: Any = None
) -> None:
    """out = maximum of absolute values over `dim`."""
    _reduce(b, "absmax", buffer, out, dim, clear, nan_propagate)


def reduce_abssum(b: Builder, buffer: Any, out: Any, dim: Any = -1, clear: Any = True, batch: Any = 1, annotations: Any = None) -> None:
    """out = sum of absolute values over `dim`."""
    _reduce(b, "abssum", buffer, out, dim, clear)


def reduce_any(b: Builder, buffer: Any, out: Any, dim: Any = -1, clear: Any = True, batch: Any = 1, annotations: Any = None) -> None:
    """out = whether any element over `dim` is not zero."""
    _reduce(b, "any", buffer, out, dim, clear)


def reduce_all(b: Builder, buffer: Any, out: Any, dim: Any = -1, clear: Any = True, batch: Any = 1, annotations: Any = None) -> None:
    """out = whether all elements over `dim` are not zero."""
    _reduce(b, "all", buffer, out, dim, clear)


def reduce_bitand(b: Builder, buffer: Any, out: Any, dim: Any = -1, clear: Any = True, batch: Any = 1, annotations: Any = None) -> None:
    """out = bitwise and over `dim`."""
    _reduce(b, "bitand", buffer, out, dim, clear)


def reduce_bitor(b: Builder, buffer: Any, out: Any, dim: Any = -1, clear: Any = True, batch: Any = 1, annotations: Any = None) -> None:
    """out = bitwise or over `dim`."""
    _reduce(b, "bitor", buffer, out, dim, clear)


def reduce_bitxor(b: Builder, buffer: Any, out: Any, dim: Any = -1, clear: Any = True, batch: Any = 1, annotations: Any = None) -> None:
    """out = bitwise exclusive or over `dim`."""
    _reduce(b, "bitxor", buffer, out, dim, clear)


def reduce(
    b: Builder, buffer: Any, out: Any, reduce_type: str, dim: Any = -1, clear: Any = True, batch: Any = 1, nan_propagate: Any = False
) -> None:
    """T.reduce_sum and its kin with the operation given by name."""
    if reduce_type not in OPS:
        raise b.error("TL0331", f"unknown reduction {describe(reduce_type)}", help=f"use one of {', '.join(OPS)}")
    _reduce(b, reduce_type, buffer, out, dim, clear, nan_propagate)


def cumsum(b: Builder, src: Any, dst: Any = None, dim: Any = 0, reverse: Any = False) -> None:
    """Inclusive running sum along `dim`, from the end when reverse; in place without `dst`."""
    _scan(b, "sum", src, dst, dim, reverse)


def cummax(b: Builder, src: Any, dst: Any = None, dim: Any = 0, reverse: Any = False) -> None:
    """Inclusive running maximum along `dim`, from the end when reverse; in place without `dst`."""
    _scan(b, "max", src, dst, dim, reverse)


def _reduce(b: Builder, op: str, buffer: Any, out: Any, dim: Any, clear: Any, nan_propagate: Any = False) -> None:
    name = f"reduce_{op}"
    tile_statement(b, name)
    src, dst = _tile(b, buffer, f"the source of T.{name}"), _tile(b, out, f"the destination of T.{name}")
    _check_types(b, op, src, dst)
    axis = _axis(b, name, buffer, src, dim)
    _check_result(b, name, src, dst, axis)
    b.emit(Reduce(op, src, dst, axis, host_flag(b, clear, "clear"), host_flag(b, nan_propagate, "nan_propagate"), b.span))


def _tile(b: Builder, value: Any, what: str) -> Region:
    """A shared or fragment operand as a region; an element of one stands for a region of extent 1."""
    if is_element(value) and isinstance(value, Ref):
        value = region(b, value, what)
    r = region(b, value, what)
    scope_error(b, r.buffer, what, _TILES, "T.copy between global memory and a tile around it")
    return r


def _check_types(b: Builder, op: str, src: Region, dst: Region) -> None:
    for r in (src, dst):
        dtype = r.buffer.dtype
        if (op in _BITWISE and not (dtype.is_int or dtype is BOOL)) or (dtype is BOOL and op not in ("any", "all", *_BITWISE)):
            raise b.error("TL0331", f"T.reduce_{op} is not defined for {dtype} (`{r.buffer.name}`)", *buffer_label(r.buffer))


def _axis(b: Builder, name: str, value: Buffer | Ref | Region, src: Region, dim: Any) -> int:
    """The dimension of the region that `dim` names; dimensions indexed by a scalar do not count, as in NumPy."""
    dims = sliced_dims(b, value) or tuple(range(len(src.extents)))
    given, rank = host_int(b, dim, f"dim of T.{name}"), len(dims)
    if not -rank <= given < rank:
        text = f"dim={given} is outside the {rank} dimension{'s' if rank != 1 else ''} of `{src.buffer.name}`"
        raise b.error("TL0330", text, *buffer_label(src.buffer), help=f"use a dim from {-rank} to {rank - 1}")
    return dims[given]


def _check_result(b: Builder, name: str, src: Region, dst: Region, axis: int) -> None:
    """dst must have src's extents without the reduced one, extents of 1 apart."""
    rest = src.extents[:axis] + src.extents[axis + 1 :]
    left = [e for e in rest if constant(e) != 1]
    right = [e for e in dst.extents if constant(e) != 1]
    if _same_shape(left, right):
        return
    wanted, given = size_text(rest) if rest else "1 element", size_text(dst.extents)
    text = f"T.{name} over dimension {axis} of {shape_text(src.extents)} gives {wanted}, `{dst.buffer.name}` has {given}"
    raise b.error("TL0330", text, *buffer_label(src.buffer), *buffer_label(dst.buffer), help=f"the destination must have {wanted}")


def _same_shape(left: Sequence[Expr], right: Sequence[Expr]) -> bool:
    return len(left) == len(right) and all(equal(x, y) for x, y in zip(left, right, strict=True))


def _scan(b: Builder, op: str, src: Any, dst: Any, dim: Any, reverse: Any) -> None:
    name = f"cum{op}"
    tile_statement(b, name)
    source = _tile(b, src, f"the source of T.{name}")
    target = source if dst is None else _tile(b, dst, f"the destination of T.{name}")
    if source.buffer.dtype is BOOL or target.buffer.dtype is BOOL:
        raise b.error("TL0331", f"T.{name} is not defined for bool")
    axis = _axis(b, name, src, source, dim)
    if not _same_shape(source.extents, target.extents):
        shapes = f"`{source.buffer.name}` is {shape_text(source.extents)}, `{target.buffer.name}` is {shape_text(target.extents)}"
        text = f"T.{name} needs equal shapes: {shapes}"
        raise b.error("TL0330", text, *buffer_label(source.buffer), *buffer_label(target.buffer))
    b.emit(Scan(op, source, target, axis, host_flag(b, reverse, "reverse"), b.span))


_REDUCTIONS = (
    reduce_sum, reduce_max, reduce_min, reduce_absmax, reduce_abssum, reduce_any, reduce_all, reduce_bitand, reduce_bitor, reduce_bitxor,
)  # fmt: skip
ENTRIES: tuple[Entry, ...] = (
    tuple(e for fn in (*_REDUCTIONS, reduce, cumsum, cummax) for e in works(fn))
)
