"""What the GPU benchmarks share: generated files as libraries, launches on torch's stream, and contenders that take turns.

    said = shared_library(folder / "gemm.cu", folder / "gemm.so")
    go = launcher(folder / "gemm.so", "gemm", [a, b, c], [m, n, k])
    race({"cuBLAS": [matmul(a, b, c)], "tilec": [go]}, 16, 10) -> {"cuBLAS": 0.61, "tilec": 0.58} milliseconds

Needs nvcc and torch, nothing of tilec. Clocks are CUDA events; results are medians.
"""

from __future__ import annotations

import ctypes
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Call = Callable[[], Any]
"""Queues work on torch's current stream."""

HOPPER = ("-gencode", "arch=compute_90a,code=sm_90a")


def shared_library(source: Path, library: Path, flags: Sequence[str] = HOPPER) -> str:
    """Compiles a generated file with nvcc; what ptxas said about it. Ends the program with nvcc's words where that fails."""
    command = ["nvcc", "-std=c++17", "-shared", "-cudart", "shared", "-Xcompiler", "-fPIC", "-Xptxas", "-v", *flags]
    done = subprocess.run([*command, "-o", str(library), str(source)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{source}\n{done.stderr}")
    return done.stderr


def complaints(said: str, *kernels: str) -> list[str]:
    """What ptxas has against these kernels: serialised products and memory for what does not fit registers."""
    bad = [line for line in said.splitlines() if "C75" in line or "C76" in line]
    for kernel in kernels:
        stack = said[said.find(f"properties for {kernel}\n") :].splitlines()[1].strip()
        bad += [] if stack.startswith("0 bytes stack") else [f"{kernel}: {stack}"]
    return bad


def launcher(library: Path, symbol: str, tensors: Sequence[Any], sizes: Sequence[int] = ()) -> Call:
    """A call of a kernel's launcher with these tensors and extents, and with the workspace that it asks for."""
    import torch

    loaded = ctypes.CDLL(str(library.resolve()))
    extents = [ctypes.c_int(n) for n in sizes]
    args = [*(ctypes.c_void_p(t.data_ptr()) for t in tensors), *extents]
    go, scratch = getattr(loaded, f"{symbol}_launch"), None
    if hasattr(loaded, f"{symbol}_workspace"):
        size_of = getattr(loaded, f"{symbol}_workspace")
        size_of.restype = ctypes.c_size_t
        if need := size_of(*extents):
            scratch = torch.empty(need, dtype=torch.uint8, device="cuda")
        args.append(ctypes.c_void_p(0 if scratch is None else scratch.data_ptr()))

    def launch(scratch: Any = scratch) -> None:  # which it keeps alive
        error = go(*args, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        assert error == 0, f"{library.stem}: cudaError {error}"

    return launch


def matmul(a: Any, b: Any, out: Any) -> Call:
    """torch's product into a given tensor."""
    import torch

    return lambda: torch.matmul(a, b, out=out)


def relative_error(got: Any, want: Any) -> float:
    """In the Frobenius norm; infinite when something is not finite."""
    return float((got.double() - want).norm() / want.norm().clamp(min=1e-30)) if got.isfinite().all() else float("inf")


def sets_past_the_cache(bytes_of_a_set: int) -> int:
    """How many sets of buffers, used in turn, are more than the L2 cache holds; at least two."""
    return max(2, -(-200_000_000 // bytes_of_a_set))


def between_events(call: Call) -> tuple[Any, Any]:
    """The events before and after what a call queues."""
    import torch

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    return start, end


def rotating(names: Sequence[str], rounds: int) -> Iterator[Sequence[str]]:
    """The order of each round: every name leads in its turn."""
    for n in range(rounds):
        at = n % len(names)
        yield [*names[at:], *names[:at]]


def race(contenders: Mapping[str, Sequence[Call]], launches: int, rounds: int, pause: float = 0.0) -> dict[str, float]:
    """Milliseconds of one launch by contender: CUDA graphs of `launches`, which go through a contender's sets of buffers, in turns.

    The host's time does not count. With a pause (seconds) before each graph the GPU is cool.
    """
    import torch

    graphs = {}
    for name, calls in contenders.items():
        calls[0]()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(launches):
                calls[i % len(calls)]()
        graphs[name] = graph
    for graph in graphs.values():
        graph.replay()
    events: dict[str, list[tuple[Any, Any]]] = {name: [] for name in graphs}
    for order in rotating(list(graphs), rounds):
        for name in order:
            if pause:
                torch.cuda.synchronize()
                time.sleep(pause)
            events[name].append(between_events(graphs[name].replay))
    torch.cuda.synchronize()
    return {name: statistics.median(a.elapsed_time(b) / launches for a, b in pairs) for name, pairs in events.items()}


def in_turns(contenders: Mapping[str, Sequence[Call]], rounds: int) -> dict[str, float]:
    """Milliseconds of a call by contender, without graphs: each round makes all calls of each, after two rounds that do not count."""
    import torch

    times: dict[str, list[float]] = {name: [] for name in contenders}
    for n, order in enumerate(rotating(list(contenders), rounds + 2)):
        for name in order:
            calls = contenders[name]
            start, end = between_events(lambda calls=calls: [call() for call in calls])  # type: ignore[misc]
            torch.cuda.synchronize()
            if n >= 2:
                times[name].append(start.elapsed_time(end) / len(calls))
    return {name: statistics.median(t) for name, t in times.items()}


def alternating(calls: Sequence[Call], seconds: float, pause: float = 0.1) -> list[list[float]]:
    """Milliseconds of every launch of calls that alternate for so long, back to back, after a pause."""
    few = _launches(calls, 5)
    once = sum(statistics.median(times[2:]) for times in few)
    time.sleep(pause)
    return _launches(calls, max(16, int(1000 * seconds / once)))


def _launches(calls: Sequence[Call], count: int) -> list[list[float]]:
    import torch

    events = [[between_events(call) for call in calls] for _ in range(count)]
    torch.cuda.synchronize()
    return [[a.elapsed_time(b) for a, b in pairs] for pairs in zip(*events, strict=True)]


def settled(times: Sequence[float]) -> float:
    """The median of the second half, when the card has come to its power limit."""
    return statistics.median(times[len(times) // 2 :])
