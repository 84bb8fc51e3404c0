"""What the copy engine can reach, and how it exchanges chunks on the way.

    unreachable(A, facts) -> "rows of A do not start on multiples of 16 bytes";  span_swizzle(128) -> Swizzle(7, 3)
"""

from __future__ import annotations

from tilec.analysis.facts import Facts
from tilec.analysis.ranges import divisor
from tilec.ir.expr import Buffer
from tilec.layout.shared import CHUNK, SharedLayout, Swizzle
from tilec.plan.access import row_strides
from tilec.plan.domains import static, static_shape


ELEMENT_TYPES = {
    "bool": 0, "uint8": 0, "int8": 0, "float8_e4m3fn": 0, "float8_e5m2": 0, "uint16": 1, "int16": 1, "uint32": 2, "int32": 3, "uint64": 4,
    "int64": 5, "float16": 6, "float32": 7, "tfloat32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip
"""The driver's numbers of element types (CUtensorMapDataType)."""


def unreachable(tensor: Buffer, facts: Facts, anywhere: bool = False) -> str:
    """Why no tensor map can describe a tensor; empty when one can, for aligned addresses and divisible extents. With `anywhere`, why
    threads cannot bring its rows in its place, which may start anywhere."""
    strides, item = row_strides(tensor), tensor.dtype.bytes
    if tensor.dtype.name not in ELEMENT_TYPES:
        return f"the copy engine knows no elements of type {tensor.dtype}"
    if static(strides[-1]) != 1:
        return f"elements of {tensor.name} do not lie side by side"
    if any(static(e) == 0 for e in tensor.shape):
        return f"{tensor.name} is empty"
    if not anywhere and any(divisor(s, facts) * item % CHUNK for s in strides[:-1]):
        return f"rows of {tensor.name} do not start on multiples of 16 bytes"
    return ""


SPANS = (128, 64, 32)
"""Bytes over which the hardware exchanges the chunks of rows, the widest first."""


def widest_span(row: int) -> int:
    """The most bytes over which rows of `row` bytes can be exchanged; 0 for rows that are no multiple of any."""
    return next((w for w in SPANS if row % w == 0), 0)


def panelled(b: Buffer, span: int) -> SharedLayout:
    """A tile in rows of `span` bytes as the hardware exchanges them; wider rows are cut into panels one behind the other."""
    shape, item = static_shape(b), b.dtype.bytes
    return SharedLayout(shape, item, span // item, span_swizzle(span), span // item if shape[-1] * item > span else 0)


def span_swizzle(span: int) -> Swizzle:
    """The exchange of chunks that the copy engine does over `span` bytes."""
    return Swizzle(span // CHUNK - 1, 3)
