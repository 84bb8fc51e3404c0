"""How a GEMM is timed beside cuBLAS. Needs CuPy and NumPy only: a bundle for another machine carries this file as it is.

    interleaved(cupy, {"tilec": ours, "cublas": cublas_call(cupy, problem, a, b, c)}, seconds=2.0)["tilec"] -> seconds of each launch
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilec.record import record

FLUSH_BYTES = 256 << 20
LEAST_ROUNDS = 5
CUDA_TYPES = {"float16": 2, "bfloat16": 14, "float32": 0, "float64": 1, "int8": 3, "int32": 10}
_COMPUTE = {"float16": 64, "float32": 68, "int32": 72, "float64": 70}
_COMPUTE_TF32 = 77
_SCALARS = {"float16": np.float16, "int32": np.int32, "float64": np.float64}


@record
class Problem:
    """C[m, n] = op(A) @ op(B): sizes, whether operands lie transposed, and the types by name."""

    m: int
    n: int
    k: int
    trans_a: bool
    trans_b: bool
    operand: str
    result: str
    accumulator: str

    @property
    def known_to_cublas(self) -> bool:
        """Whether `cublas_call` has a call for these types."""
        return self.operand in CUDA_TYPES and self.result in CUDA_TYPES and self.accumulator in _COMPUTE


def cublas_call(cupy: Any, p: Problem, a: Any, b: Any, c: Any) -> Callable[[], None]:
    """A function that queues cuBLAS's GEMM for `p` on the current stream: a, b and c are CuPy arrays that hold the bytes."""
    from cupy.cuda import cublas, device

    handle = device.get_cublas_handle()
    scalar = _SCALARS.get(p.accumulator, np.float32)
    one, zero = np.ones(1, scalar), np.zeros(1, scalar)
    compute = _COMPUTE_TF32 if p.operand == "float32" else _COMPUTE[p.accumulator]
    operand, result = CUDA_TYPES[p.operand], CUDA_TYPES[p.result]
    lda, ldb = (p.m if p.trans_a else p.k), (p.k if p.trans_b else p.n)

    def call() -> None:
        # Row-major C = A B is column-major C' = B' A'.
        cublas.setStream(handle, cupy.cuda.get_current_stream().ptr)
        cublas.gemmEx(
            handle, int(p.trans_b), int(p.trans_a), p.n, p.m, p.k, one.ctypes.data, b.data.ptr, operand, ldb, a.data.ptr, operand, lda,
            zero.ctypes.data, c.data.ptr, result, p.n, compute, -1,
        )  # fmt: skip

    return call


def interleaved(cupy: Any, calls: Mapping[str, Callable[[], None]], seconds: float) -> dict[str, list[float]]:
    """Seconds of every launch, the calls in turns, each after a flush of the L2 cache, for about `seconds` in all."""
    flush = cupy.empty(FLUSH_BYTES, cupy.uint8)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    cupy.cuda.runtime.deviceSynchronize()
    end, rounds = time.monotonic() + seconds, 0
    while time.monotonic() < end or rounds < LEAST_ROUNDS:
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
        rounds += 1
    return times
