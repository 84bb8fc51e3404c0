"""The arithmetic of tile statements on whole arrays: matrix products, reductions, scans.

    multiply(a, b, c, FLOAT16, FLOAT16, FLOAT32, ieee=False)      c + a @ b, as a tensor core accumulates it

Order of additions, which is part of the meaning:

- float32 operands lose their 13 low mantissa bits wherever the tensor cores can do the product (`keeps_float32`);
- a product accumulates in steps of 16 along K (8 for tf32 and float32): the products of a step are exact and summed in
  float32, the sum is added to the accumulator in float32 and, for a narrower accumulator, rounded to it after every step;
- integers are exact and wrap once; float64 is one float64 product;
- a reduction halves its extent again and again (x[i] op x[i + n/2], an odd last element is carried along), each operation
  rounded to the type of the destination;
- a scan goes element by element.
"""

from __future__ import annotations

import numpy as np

from tilec.ir import dtypes as dt
from tilec.ir.dtypes import DType, Kind
from tilec.reference.values import Array, Value, binary, cast, constant, np_dtype

_REDUCE_OPS = {
    "sum": "add", "abssum": "add", "max": "max", "absmax": "max", "min": "min", "any": "or", "all": "and",
    "bitand": "and", "bitor": "or", "bitxor": "xor",
}  # fmt: skip


def multiply(a: Array, b: Array, c: Array, operand: DType, acc: DType, ieee: bool) -> Array:
    """`c + a @ b` for M x K and K x N operands of type `operand`; `ieee` keeps float32 operands whole."""
    if acc.is_int:
        exact = _exact_product(a, b, operand)
        return (exact + c.astype(np.int64)).astype(np_dtype(acc))
    if acc == dt.FLOAT64 or operand == dt.FLOAT64:
        return np.asarray(cast(c.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64), acc))
    tf32 = operand == dt.TFLOAT32 or (operand == dt.FLOAT32 and not ieee)
    left, right = (_truncate(x) if tf32 else x.astype(np.float32) for x in (a, b))
    step = 8 if operand.bits == 32 else 16
    total = c
    for k in range(0, a.shape[1], step):
        partial = left[:, k : k + step] @ right[k : k + step]
        total = np.asarray(cast(total.astype(np.float32) + partial, acc))
    return total


def spread(kept: Array, marks: Array, bits: int) -> Array:
    """The dense operand of M x K whose kept elements (M x K / 2) lie where the marks say: 4 bits for each four of a row."""
    m, half = kept.shape
    words = marks.astype(np.int64) & ((1 << bits) - 1)
    codes = (words[:, :, None] >> (4 * np.arange(bits // 4)) & 15).reshape(m, half // 2)
    dense = np.zeros((m, half // 2, 4), kept.dtype)
    pairs = kept.reshape(m, half // 2, 2)
    for n in (1, 0):
        np.put_along_axis(dense, (codes >> 2 * n & 3)[:, :, None], pairs[:, :, n : n + 1], 2)
    return dense.reshape(m, 2 * half)


def keeps_float32(operand: DType, acc: DType, m: int, n: int, k: int, threads: int, flags: tuple[str, ...]) -> bool:
    """True when float32 operands are multiplied whole: when the kernel asks for it, or when the product does not fit the tensor
    cores' 16 x 8 x 8 steps with whole warps and a float32 accumulator."""
    fits = m % 16 == 0 and n % 8 == 0 and k % 8 == 0 and threads % 32 == 0 and acc == dt.FLOAT32
    return operand == dt.FLOAT32 and ("fp32_gemm_ieee" in flags or not fits)


def _exact_product(a: Array, b: Array, operand: DType) -> Array:
    """The integer product in int64 (wrapping there); through float64 where that is exact, because it is faster."""
    if operand.bits <= 8 and a.shape[1] < 1 << 36:
        return np.asarray((a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64))
    return np.asarray(a.astype(np.int64) @ b.astype(np.int64))


def _truncate(x: Array) -> Array:
    """float32 with the 13 low mantissa bits cleared: what a tf32 tensor core reads. NaN stays NaN."""
    bits = x.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
    return np.where(np.isnan(x), x, bits.view(np.float32))


def identity(op: str, dtype: DType) -> Value:
    """The neutral element of a reduction in `dtype`."""
    if op in ("max", "min"):
        if dtype.is_float:
            infinity = np.float64(np.inf if op == "min" else -np.inf)
            return cast(infinity, dtype)
        low, high = dt.int_range(dtype)
        return constant(high if op == "min" else low, dtype)
    if op == "all":
        return constant(1, dtype)
    return constant(-1 if dtype.kind is Kind.INT else dt.int_range(dtype)[1], dtype) if op == "bitand" else constant(0, dtype)


def combine(op: str, a: Value, b: Value, dtype: DType, nan_propagate: bool = False) -> Value:
    """One step of a reduction or scan, rounded to `dtype`."""
    if op in ("any", "all"):
        truth = np.logical_or if op == "any" else np.logical_and
        return cast(truth(cast(a, dt.BOOL), cast(b, dt.BOOL)), dtype)
    result = binary(_REDUCE_OPS[op], a, b, dtype)
    if nan_propagate and dtype.is_float and op in ("max", "min", "absmax"):
        nan = np.isnan(np.asarray(a).astype(np.float32)) | np.isnan(np.asarray(b).astype(np.float32))
        return np.asarray(np.where(nan, cast(np.float64(np.nan), dtype), result)).astype(np_dtype(dtype))
    return result


def reduce(op: str, x: Array, axis: int, dtype: DType, nan_propagate: bool) -> Array:
    """`x` without `axis`, reduced in `dtype`."""
    x = np.moveaxis(np.asarray(cast(x, dt.BOOL if op in ("any", "all") else dtype)), axis, 0)
    if op.startswith("abs") and dtype.kind is not Kind.UINT:
        x = np.abs(x)
    x = np.asarray(cast(x, dtype))
    while x.shape[0] > 1:
        half = x.shape[0] // 2
        folded = np.asarray(combine(op, x[:half], x[half : 2 * half], dtype, nan_propagate))
        x = np.concatenate([folded, x[2 * half :]])
    start: Array = np.full(x.shape[1:], identity(op, dtype), np_dtype(dtype))
    return np.asarray(combine(op, start, x[0], dtype, nan_propagate)) if x.shape[0] else start


def scan(op: str, x: Array, axis: int, reverse: bool, dtype: DType) -> Array:
    """Inclusive scan along `axis` in `dtype`."""
    x = np.moveaxis(np.asarray(cast(x, dtype)), axis, 0).copy()
    order = range(x.shape[0] - 1, -1, -1) if reverse else range(x.shape[0])
    before: Value = np.full(x.shape[1:], identity(op, dtype), np_dtype(dtype))
    for k in order:
        before = x[k] = combine(op, before, x[k], dtype)
    return np.moveaxis(x, 0, axis)
