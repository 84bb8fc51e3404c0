"""How close a result must be to float64, and what is wrong when it is not.

    compare(got, want64, FLOAT16, k=4096) -> None, or a Mismatch that prints where and by how much

The measure is the relative error in the Frobenius norm; a single element may be off by at most 100 times the tolerance,
measured against its own size or the root mean square of the whole, so that one wrong element in a large result shows too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tilec.record import record
from tilec.ir import dtypes as dt
from tilec.ir.dtypes import DType
from tilec.ir.expr import Const, Expr, Var
from tilec.ir.kernel import Kernel
from tilec.ir.tile import For, Gemm, Stmt
from tilec.ir.visit import stmt_children
from tilec.reference.extents import evaluate_extent
from tilec.reference.memory import DEFAULT_THREADS
from tilec.reference.tiles import keeps_float32
from tilec.reference.values import Array

_OUTPUT = {dt.FLOAT16: 1e-3, dt.BFLOAT16: 4e-3, dt.FLOAT8_E4M3: 4e-2, dt.FLOAT8_E5M2: 8e-2, dt.FLOAT64: 1e-12}
_ELEMENT = 100.0


@record
class Mismatch:
    """`error` against `limit`; `index` is the worst element with what it is and what it should be; `wrong` counts elements."""

    error: float
    limit: float
    index: tuple[int, ...]
    got: float
    want: float
    wrong: int
    total: int

    def __str__(self) -> str:
        place = ", ".join(map(str, self.index))
        return (
            f"relative error {self.error:.3g} (allowed {self.limit:.3g}); worst at [{place}]: {self.got!r} instead of {self.want!r}; "
            f"{self.wrong} of {self.total} elements differ"
        )


def tolerance(dtype: DType, k: int = 32, operand: DType | None = None, acc: DType | None = None, ieee: bool = False) -> float:
    """The allowed relative error of an output of type `dtype`: 0 for integers.

    `k` is the length of the sums; `operand` and `acc` are the types of the matrix products behind it, if any; `ieee` says that
    float32 products are not done in tf32.
    """
    if not dtype.is_float:
        return 0.0
    limit = _OUTPUT.get(dtype, 1e-5 * math.sqrt(max(k, 32) / 32))
    if operand == dt.TFLOAT32 or (operand == dt.FLOAT32 and not ieee):
        limit = max(limit, 1e-3)
    if acc == dt.FLOAT16:
        limit = max(limit, 1e-3 * math.sqrt(max(k, 16) / 16))
    if acc == dt.BFLOAT16:
        limit = max(limit, 8e-3 * math.sqrt(max(k, 16) / 16))
    return limit


def kernel_tolerance(kernel: Kernel, dtype: DType, extents: Mapping[Var, int] | None = None) -> float:
    """The tolerance for an output of type `dtype` of this kernel, from the products it contains and their length."""
    known = extents or {}
    found = [tolerance(dtype)]
    for launch in kernel.launches:
        threads = math.prod(launch.threads or DEFAULT_THREADS)
        for gemm, trips in _gemms(launch.body, 1, known):
            m, n, k = (evaluate_extent(e, known) or 1 for e in (*gemm.c.extents[-2:], gemm.a.extents[-2 if gemm.trans_a else -1]))
            operand, acc = gemm.a.buffer.dtype, gemm.c.buffer.dtype
            ieee = keeps_float32(operand, acc, m, n, k, threads, kernel.flags)
            found.append(tolerance(dtype, trips * k, operand, acc, ieee))
    return max(found)


def _gemms(s: Stmt, trips: int, extents: Mapping[Var, int]) -> list[tuple[Gemm, int]]:
    """The products below `s`, each with how often the loops around it turn as far as that is known."""
    if isinstance(s, Gemm):
        return [(s, trips)]
    if isinstance(s, For):
        start, stop, step = (_known(e, extents) for e in (s.start, s.stop, s.step))
        if start is not None and stop is not None and step:
            trips *= max(1, len(range(start, stop, step)))
    return [found for child in stmt_children(s) for found in _gemms(child, trips, extents)]


def _known(e: Expr, extents: Mapping[Var, int]) -> int | None:
    return int(e.value) if isinstance(e, Const) else evaluate_extent(e, extents)


def compare(
    got: Array, want: Array, dtype: DType, k: int = 32, operand: DType | None = None, acc: DType | None = None,
    limit: float | None = None,
) -> Mismatch | None:  # fmt: skip
    """None when `got` is as close to `want` (float64, or exact integers) as `limit` or else `tolerance` asks, else what is wrong.

    NaN must meet NaN and infinities must meet their equals; arrays of different shapes raise ValueError.
    """
    if got.shape != want.shape:
        raise ValueError(f"shape {got.shape} instead of {want.shape}")
    if not got.size:
        return None
    limit = tolerance(dtype, k, operand, acc) if limit is None else limit
    if not dtype.is_float:
        wrong = np.asarray(got != want.astype(got.dtype))
        return _report(wrong.astype(np.float64), got, want, 1.0, limit, wrong) if wrong.any() else None
    return _compare_floats(got.astype(np.float64), want.astype(np.float64), limit)


def _compare_floats(got: Array, want: Array, limit: float) -> Mismatch | None:
    with np.errstate(all="ignore"):
        finite = np.isfinite(got) & np.isfinite(want)
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        special = ~finite & ~same
        difference = np.where(finite, np.abs(got - want), 0.0)
        size = np.where(finite, np.abs(want), 0.0)
    rms = math.sqrt(float(np.mean(size**2)))
    norm = math.sqrt(float(np.sum(size**2)))
    error = math.sqrt(float(np.sum(difference**2))) / norm if norm else float(difference.max())
    outliers = difference > _ELEMENT * limit * np.maximum(size, rms)
    if special.any():
        return _report(special.astype(np.float64), got, want, math.inf, limit, special | outliers)
    if error > limit or outliers.any():
        return _report(difference, got, want, error, limit, difference > limit * np.maximum(size, rms))
    return None


def _report(badness: Array, got: Array, want: Array, error: float, limit: float, wrong: Array) -> Mismatch:
    where = np.unravel_index(int(np.argmax(badness)), badness.shape)
    index = tuple(int(i) for i in where)
    return Mismatch(error, limit, index, got[where].item(), want[where].item(), int(np.count_nonzero(wrong)), got.size)
