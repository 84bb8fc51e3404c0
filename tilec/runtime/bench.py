"""`tilec bench`: a GEMM beside cuBLAS on one GPU, measured as one should.

Fresh N(0, 1) inputs, the L2 flushed before every launch, CUDA events around the launch alone, ours and cuBLAS's in turns, and
medians of all; what a burst on a cool chip gives is not what a sustained run gives, so both are timed in one loop.
"""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any

from tilec.emit.hosteval import evaluate
from tilec.emit.manifest import find_kernel, parse
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
from tilec.runtime.timing import Problem, cublas_call, interleaved

if TYPE_CHECKING:
    from tilec.driver import Compiled

def run(compiled: Compiled, request: RunRequest, seconds: float, as_json: bool) -> Report:
    """Times the one kernel of `compiled`. Raises RunError if it is no plain GEMM, MissingError without CuPy or a GPU."""
    cupy = need_gpu()
    plan = compiled.plans[0]
    bound = bind(plan.kernel, request)
    problem, (a, b, c) = recognise(plan.kernel, bound)
    arrays = {name: upload(cupy, a) for name, a in bound.arrays.items()}
    manifest = parse(compiled.cu)
    launches = Module(compiled.cu, manifest).kernel(plan.symbol).prepare(arrays, arguments_of(bound))

    def ours() -> None:
        for launch in launches:
            launch()

    peer = cublas_call(cupy, problem, arrays[a], arrays[b], cupy.empty_like(arrays[c]))
    times = interleaved(cupy, {"tilec": ours, "cublas": peer}, seconds)
    entry = find_kernel(manifest, plan.symbol)
    figures = _figures(times, bound, str(entry["flop"]), str(entry["bytes"]), problem)
    return Report([json.dumps(figures)] if as_json else _table(plan.symbol, figures), [], True)


def recognise(kernel: Kernel, bound: Bound) -> tuple[Problem, tuple[str, str, str]]:
    """The matrix product that `kernel` computes and the names of A, B and C: one T.gemm, two matrices read, one written.

    Raises RunError for anything else.
    """
    gemms = [s for launch in kernel.launches for s in walk_stmt(launch.body) if isinstance(s, Gemm)]
    matrices = [p for p in kernel.params if isinstance(p, Buffer) and p.rank == 2]
    if len(gemms) != 1 or len(matrices) != 3:
        raise RunError(f"{kernel.symbol} is no plain GEMM (one T.gemm over three matrices): there is nothing of cuBLAS to time it beside")
    gemm, (a, b, c) = gemms[0], matrices
    (m, n), shape = bound.arrays[c.name].shape, bound.arrays[a.name].shape
    k = shape[0] if gemm.trans_a else shape[1]
    problem = Problem(m, n, k, gemm.trans_a, gemm.trans_b, a.dtype.name, c.dtype.name, gemm.c.buffer.dtype.name)
    if not problem.known_to_cublas:
        raise RunError(f"cuBLAS is not called for {a.dtype} operands and {gemm.c.buffer.dtype} accumulators here")
    return problem, (a.name, b.name, c.name)


def _figures(times: dict[str, list[float]], bound: Bound, flop: str, size: str, p: Problem) -> dict[str, Any]:
    env = bound.integers
    work, traffic = evaluate(flop, env) or 2 * p.m * p.n * p.k, evaluate(size, env)
    out: dict[str, Any] = {"m": p.m, "n": p.n, "k": p.k, "dtype": p.operand, "accumulator": p.accumulator}
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
