"""`tilec bench`: a GEMM beside cuBLAS on one GPU, measured as one should.

Fresh N(0, 1) inputs, the L2 flushed before every launch, CUDA events around the launch alone, ours and cuBLAS's in turns, and
medians of all; what a burst on a cool chip gives is not what a sustained run gives, so both are timed in one loop.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilec.emit.hosteval import evaluate
from tilec.emit.manifest import find_kernel, parse
from tilec.ir import dtypes as dt
from tilec.ir.dtypes import DType
from tilec.ir.expr import Buffer
from tilec.ir.kernel import Kernel
from tilec.ir.tile import Gemm
from tilec.ir.visit import walk_stmt
from tilec.runtime.bind import Bound, bind
from tilec.runtime.cuda import arguments_of, upload
from tilec.runtime.gpu import need_gpu
from tilec.runtime.loader import Module
from tilec.runtime.report import Report
from tilec.runtime.request import RunError, RunRequest

if TYPE_CHECKING:
    from tilec.driver import Compiled

FLUSH_BYTES = 256 << 20
_CUDA_TYPE = {dt.FLOAT16: 2, dt.BFLOAT16: 14, dt.FLOAT32: 0, dt.FLOAT64: 1, dt.INT8: 3, dt.INT32: 10}
_COMPUTE = {dt.FLOAT16: 64, dt.FLOAT32: 68, dt.INT32: 72, dt.FLOAT64: 70}
_COMPUTE_TF32 = 77


@dataclass(frozen=True, slots=True)
class Problem:
    """C[m, n] = op(A) @ op(B): which tensors, whether they lie transposed, and the accumulator's type."""

    a: str
    b: str
    c: str
    m: int
    n: int
    k: int
    trans_a: bool
    trans_b: bool
    operand: DType
    result: DType
    accumulator: DType


def run(compiled: Compiled, request: RunRequest, seconds: float, as_json: bool) -> Report:
    """Times the one kernel of `compiled`. Raises RunError if it is no plain GEMM, MissingError without CuPy or a GPU."""
    cupy = need_gpu()
    plan = compiled.plans[0]
    bound = bind(plan.kernel, request)
    problem = recognise(plan.kernel, bound)
    arrays = {name: upload(cupy, a) for name, a in bound.arrays.items()}
    manifest = parse(compiled.cu)
    launches = Module(compiled.cu, manifest).kernel(plan.symbol).prepare(arrays, arguments_of(bound))

    def ours() -> None:
        for launch in launches:
            launch()

    times = interleaved(cupy, {"tilec": ours, "cublas": cublas_call(cupy, problem, arrays)}, seconds)
    entry = find_kernel(manifest, plan.symbol)
    figures = _figures(times, bound, str(entry["flop"]), str(entry["bytes"]), problem)
    return Report([json.dumps(figures)] if as_json else _table(plan.symbol, figures), [], True)


def recognise(kernel: Kernel, bound: Bound) -> Problem:
    """The matrix product that `kernel` computes: one T.gemm, two tensors read, one written. Raises RunError otherwise."""
    gemms = [s for launch in kernel.launches for s in walk_stmt(launch.body) if isinstance(s, Gemm)]
    matrices = [p for p in kernel.params if isinstance(p, Buffer) and p.rank == 2]
    if len(gemms) != 1 or len(matrices) != 3:
        raise RunError(f"{kernel.symbol} is no plain GEMM (one T.gemm over three matrices): there is nothing of cuBLAS to time it beside")
    gemm, (a, b, c) = gemms[0], matrices
    (m, n), shape = bound.arrays[c.name].shape, bound.arrays[a.name].shape
    k = shape[0] if gemm.trans_a else shape[1]
    if a.dtype not in _CUDA_TYPE or c.dtype not in _CUDA_TYPE or gemm.c.buffer.dtype not in _COMPUTE:
        raise RunError(f"cuBLAS is not called for {a.dtype} here")
    return Problem(a.name, b.name, c.name, m, n, k, gemm.trans_a, gemm.trans_b, a.dtype, c.dtype, gemm.c.buffer.dtype)


def cublas_call(cupy: Any, p: Problem, arrays: dict[str, Any]) -> Callable[[], None]:
    """A function that queues cuBLAS's GEMM for `p` on the current stream, into memory of its own."""
    import numpy as np
    from cupy.cuda import cublas, device

    handle = device.get_cublas_handle()
    out = cupy.empty_like(arrays[p.c])
    tf32 = p.operand == dt.FLOAT32
    one_type = {dt.FLOAT16: np.float16, dt.INT32: np.int32, dt.FLOAT64: np.float64}.get(p.accumulator, np.float32)
    one, zero = np.ones(1, one_type), np.zeros(1, one_type)
    compute = _COMPUTE_TF32 if tf32 else _COMPUTE[p.accumulator]
    op_a, op_b = int(p.trans_a), int(p.trans_b)
    lda, ldb = (p.m if p.trans_a else p.k), (p.k if p.trans_b else p.n)

    def call() -> None:
        # Row-major C = A B is column-major C' = B' A'.
        cublas.setStream(handle, cupy.cuda.get_current_stream().ptr)
        cublas.gemmEx(
            handle, op_b, op_a, p.n, p.m, p.k, one.ctypes.data, arrays[p.b].data.ptr, _CUDA_TYPE[p.operand], ldb,
            arrays[p.a].data.ptr, _CUDA_TYPE[p.operand], lda, zero.ctypes.data, out.data.ptr, _CUDA_TYPE[p.result], p.n, compute, -1,
        )  # fmt: skip

    return call


def interleaved(cupy: Any, calls: dict[str, Callable[[], None]], seconds: float) -> dict[str, list[float]]:
    """Seconds of every launch, the calls in turns, each after a flush of the L2 cache."""
    flush = cupy.empty(FLUSH_BYTES, cupy.uint8)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    cupy.cuda.runtime.deviceSynchronize()
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(next(iter(times.values()))) < 5:
        pending = []
        for name, call in calls.items():
            flush.fill(0)
            start, stop = cupy.cuda.Event(), cupy.cuda.Event()
            start.record()
            call()
            stop.record()
            pending.append((name, start, stop))
        for name, start, stop in pending:
            stop.synchronize()
            times[name].append(cupy.cuda.get_elapsed_time(start, stop) / 1000)
    return times


def _figures(times: dict[str, list[float]], bound: Bound, flop: str, size: str, p: Problem) -> dict[str, Any]:
    env = bound.integers
    work, traffic = evaluate(flop, env) or 2 * p.m * p.n * p.k, evaluate(size, env)
    out: dict[str, Any] = {"m": p.m, "n": p.n, "k": p.k, "dtype": str(p.operand), "accumulator": str(p.accumulator)}
    for name, seconds in times.items():
        median = statistics.median(seconds)
        out[name] = {
            "median_us": median * 1e6,
            "tflops": work / median / 1e12,
            "gb_per_s": traffic / median / 1e9,
            "launches": len(seconds),
        }
    out["ratio"] = out["tilec"]["tflops"] / out["cublas"]["tflops"]
    return out


def _table(symbol: str, figures: dict[str, Any]) -> list[str]:
    lines = [f"{symbol}  {figures['m']} x {figures['n']} x {figures['k']}  {figures['dtype']}, {figures['accumulator']} accumulators"]
    for name in ("tilec", "cublas"):
        f = figures[name]
        speed = f"{f['tflops']:7.1f} TFLOP/s  {f['gb_per_s']:7.0f} GB/s"
        lines.append(f"  {name:7} {f['median_us']:9.1f} us  {speed}  median of {f['launches']}")
    return [*lines, f"  ratio   {figures['ratio']:.3f}"]
