"""Tensors of the host program as far as kernels' host code asks: their shapes and types. No element is ever known.

    A = torch.rand(m, k, dtype=torch.float16) * 2 - 1;  M, K = A.shape      ->  M is m, K is k
"""

from __future__ import annotations

from math import prod
from typing import Any

from tilec.ir.dtypes import FLOAT32, INT64, DType
from tilec.language.access import dtype_of, host_int
from tilec.language.bind import works
from tilec.language.builder import Builder
from tilec.record import record


@record
class HostTensor:
    """A tensor that the host program makes: its extents and the type of its elements."""

    shape: tuple[int, ...]
    dtype: DType


def rand(b: Builder, *size: Any, dtype: Any = None, **options: Any) -> HostTensor:
    """A tensor of a size: torch.rand(m, k) or torch.rand((m, k))."""
    return HostTensor(_sizes(b, size), FLOAT32 if dtype is None else dtype_of(b, dtype))


def full(b: Builder, size: Any, fill_value: Any = 0, *, dtype: Any = None, **options: Any) -> HostTensor:
    """A tensor of one value."""
    kind = FLOAT32 if isinstance(fill_value, float) else INT64
    return HostTensor(_sizes(b, (size,)), kind if dtype is None else dtype_of(b, dtype))


def randint(b: Builder, low: Any, high: Any = None, size: Any = None, *, dtype: Any = None, **options: Any) -> HostTensor:
    """A tensor of whole numbers: torch.randint(low, high, size), or without `low`."""
    return HostTensor(_sizes(b, (high if size is None else size,)), INT64 if dtype is None else dtype_of(b, dtype))


def like(b: Builder, input: Any, *rest: Any, dtype: Any = None, **options: Any) -> HostTensor:
    """A tensor of the size and type of another."""
    if not isinstance(input, HostTensor):
        raise b.error("TL0206", "a tensor is needed")
    return HostTensor(input.shape, input.dtype if dtype is None else dtype_of(b, dtype))


def _sizes(b: Builder, size: tuple[Any, ...]) -> tuple[int, ...]:
    items = size[0] if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    return tuple(host_int(b, n, "an extent") for n in items)


def combined(a: Any, c: Any) -> HostTensor | None:
    """The tensor that an operation on tensors and numbers makes; None where the sizes do not fit, or an operand is neither."""
    first, second = (x if isinstance(x, HostTensor) else HostTensor((), FLOAT32) if isinstance(x, (int, float)) else None for x in (a, c))
    if first is None or second is None:
        return None
    longer, shorter = sorted((first.shape, second.shape), key=len, reverse=True)
    pairs = list(zip(longer, (1,) * (len(longer) - len(shorter)) + shorter, strict=True))
    if any(x != y and 1 not in (x, y) for x, y in pairs):
        return None
    return HostTensor(tuple(max(x, y) for x, y in pairs), first.dtype if isinstance(a, HostTensor) else second.dtype)


_SAME = frozenset("contiguous cuda cpu clone detach requires_grad_ abs neg normal_ uniform_ zero_ random_ fill_ clamp round".split())
_CASTS = {"half": "float16", "bfloat16": "bfloat16", "float": "float32", "double": "float64", "int": "int32", "long": "int64"}
METHODS = _SAME | _CASTS.keys() | {"size", "dim", "numel", "nelement", "to", "type", "t", "transpose", "view", "reshape", "element_size"}
"""Methods whose result has a size that is known."""


def attribute(t: HostTensor, name: str) -> Any:
    """`t.name`, where it is known."""
    match name:
        case "shape":
            return t.shape
        case "dtype":
            return t.dtype
        case "ndim":
            return len(t.shape)
        case "T" if len(t.shape) <= 2:
            return HostTensor(t.shape[::-1], t.dtype)
        case _:
            return None


def call(b: Builder, t: HostTensor, name: str, args: tuple[Any, ...]) -> Any:
    """`t.name(*args)` for a name of METHODS."""
    rank = len(t.shape)
    match name:
        case "size":
            return t.shape[host_int(b, args[0], "a dimension") % rank] if args else t.shape
        case "dim":
            return rank
        case "numel" | "nelement":
            return prod(t.shape)
        case "element_size":
            return t.dtype.bytes
        case "t":
            return HostTensor(t.shape[::-1], t.dtype)
        case "transpose" if len(args) == 2:
            shape, (i, k) = list(t.shape), (host_int(b, a, "a dimension") % rank for a in args)
            shape[i], shape[k] = shape[k], shape[i]
            return HostTensor(tuple(shape), t.dtype)
        case "view" | "reshape":
            return HostTensor(_reshaped(b, t, _sizes(b, args)), t.dtype)
        case _:
            kinds = [a for a in args if isinstance(a, DType)] if name in ("to", "type") else []
            return HostTensor(t.shape, dtype_of(b, _CASTS[name]) if name in _CASTS else kinds[0] if kinds else t.dtype)


def _reshaped(b: Builder, t: HostTensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    known = prod(n for n in shape if n != -1)
    found = tuple(prod(t.shape) // known if n == -1 and known else n for n in shape)
    if prod(found) != prod(t.shape):
        raise b.error("TL0301", f"{prod(t.shape)} elements do not make a tensor of {' x '.join(map(str, found))}")
    return found


TORCH: dict[str, Any] = {
    e.name: e.primitive()
    for group in (
        works(rand, "randn", "zeros", "ones", "empty", host=True), works(full, host=True), works(randint, host=True),
        works(like, "rand_like", "randn_like", "zeros_like", "ones_like", "empty_like", "full_like", host=True),
    )
    for e in group if e.name != "like"
}  # fmt: skip
"""Functions of torch that make tensors of a size that is known."""
