"""Kernels as Python functions on a GPU: right, without leaks, safe for many processes, and quick to launch.

    python benchmarks/python_callable.py [right] [leaks] [processes] [overhead] [--rounds 1000] [--json FILE]
    python benchmarks/python_callable.py --write DIR      elsewhere: compiles the kernels, for a machine without libcst
    python benchmarks/python_callable.py --from DIR ...   there

Needs a GPU, a driver, and CuPy or torch (with both, more is checked); NVRTC or nvcc; NumPy, and a checkout of tilec around this file.
Prints a line a step and ends with 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tilec  # noqa: E402

GEMM = """import tilelang
import tilelang.language as T

@tilelang.jit(out_idx=[-1])
def gemm(dtype="float16"):
    M, N, K = T.dynamic("M"), T.dynamic("N"), T.dynamic("K")

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, 128), T.ceildiv(M, 128), threads=128) as (bx, by):
            A_s = T.alloc_shared((128, 64), dtype)
            B_s = T.alloc_shared((64, 128), dtype)
            acc = T.alloc_fragment((128, 128), "float32")
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(K, 64), num_stages=3):
                T.copy(A[by * 128, ko * 64], A_s)
                T.copy(B[ko * 64, bx * 128], B_s)
                T.gemm(A_s, B_s, acc)
            T.copy(acc, C[by * 128, bx * 128])
    return main
"""

SCALE = """import tilelang.language as T
n = T.dynamic("n")

@T.prim_func
def scale(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32"), factor: T.float32):
    with T.Kernel(T.ceildiv(n, 1024), threads=128) as bx:
        for i in T.Parallel(1024):
            Y[bx * 1024 + i] = factor * X[bx * 1024 + i]
"""

SLOW = """import tilelang.language as T

@T.prim_func
def slow(X: T.Tensor((1024,), "float32"), Y: T.Tensor((1024,), "float32")):
    with T.Kernel(1, threads=128) as bx:
        x = T.alloc_fragment((1024,), "float32")
        T.copy(X, x)
        for step in T.serial(2000000):
            for i in T.Parallel(1024):
                x[i] = x[i] * 0.5 + 1.0
        T.copy(x, Y)
"""


SCALARS = """import tilelang.language as T

@T.prim_func
def scalars(Y: T.Tensor((16,), "float64"), W: T.Tensor((4,), "int64"), a: T.float64, b: T.float32, c: T.float16, d: T.int8, e: T.uint16,
            f: T.int32, g: T.uint32, h: T.int64, flag: T.bool):
    with T.Kernel(1, threads=32) as bx:
        if T.get_thread_binding() == 0:
            Y[0] = a
            Y[1] = T.cast(b, "float64")
            Y[2] = T.cast(c, "float64")
            W[0] = h
            W[1] = T.cast(g, "int64") + T.cast(f, "int64")
            W[2] = T.cast(d, "int64") * 65536 + T.cast(e, "int64")
            W[3] = T.if_then_else(flag, T.int64(1), T.int64(0))
"""


KERNELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemm": (GEMM, {}), "gemm_bf16": (GEMM, {"dtype": "bfloat16"}), "scale": (SCALE, {}), "slow": (SLOW, {}),
    "scalars": (SCALARS, {}), "split_sum": ((ROOT / "benchmarks/launchers/split_sum.py").read_text(), {}),
    "gemm_sm90a": (GEMM, {"arch": "sm_90a"}),
}  # fmt: skip


def build(folder: Path, name: str, outputs: list[str] | None = None) -> Any:
    """A kernel of the table: from a .cu that is there, else compiled and written there."""
    cu = folder / f"{name}.cu"
    if not cu.exists():
        text, defines = KERNELS[name]
        (folder / f"{name}.py").write_text(text)
        cu.write_text(tilec.compile(folder / f"{name}.py", **defines).source)
    return tilec.load(cu, outputs=outputs)


def libraries() -> dict[str, Any]:
    """CuPy and torch, as far as they are here and see the GPU."""
    found = {}
    with contextlib.suppress(ImportError):
        import cupy

        found["cupy"] = cupy
    with contextlib.suppress(ImportError):
        import torch

        if torch.cuda.is_available():
            found["torch"] = torch
    return found


def close(got: Any, want: Any, limit: float = 1e-3) -> bool:
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    return bool(np.linalg.norm(got - want) <= limit * np.linalg.norm(want))


class Interface:
    """A CuPy array that shows only `__cuda_array_interface__`."""

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def __cuda_array_interface__(self) -> Any:
        return self.array.__cuda_array_interface__


class Exporter:
    """A CuPy array that shows only DLPack."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)


# ---- right


def right(folder: Path, results: dict[str, Any]) -> bool:
    """Each library, each protocol, streams, graphs, threads, subnormal numbers, and a kernel whose function is dropped while it runs."""
    found = libraries()
    steps: list[tuple[str, Callable[[], bool]]] = [("loading alone", lambda: build(folder, "gemm").prepare() is not None)]
    if "cupy" in found:
        steps += [(name, lambda f=f: f(folder, found["cupy"])) for name, f in _CUPY_STEPS.items()]
    if "torch" in found:
        steps += [(name, lambda f=f: f(folder, found["torch"])) for name, f in _TORCH_STEPS.items()]
    fine = True
    for name, step in steps:
        try:
            ok, why = step(), ""
        except Exception as fault:
            ok, why = False, f" {type(fault).__name__}: {fault}"
        print(f"right: {name}: {'yes' if ok else 'NO'}{why}")
        fine &= ok
    results["right"] = fine
    return fine


def _operands(m: int, n: int, k: int) -> tuple[Any, Any]:
    rng = np.random.default_rng()
    return rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)


def _cupy_gemm(folder: Path, cp: Any) -> bool:
    gemm = build(folder, "gemm")
    ok = True
    for m, n, k in ((256, 384, 128), (130, 72, 40), (1, 1, 1), (300, 129, 77)):
        a, b = _operands(m, n, k)
        ok &= close(cp.asnumpy(gemm(cp.asarray(a), cp.asarray(b))), a.astype(np.float64) @ b.astype(np.float64))
    return ok


def _cupy_protocols(folder: Path, cp: Any) -> bool:
    scale = build(folder, "scale")
    x = cp.random.standard_normal(5000, cp.float32)
    ok = True
    for wrap in (Interface, Exporter):
        y = cp.full(5000, cp.nan, cp.float32)
        scale(wrap(x), wrap(y), 2.5)
        ok &= bool((y == x * cp.float32(2.5)).all())
    return ok


def _subnormals(folder: Path, cp: Any) -> bool:
    scale = build(folder, "scale")
    x = np.array([1e-40, -3e-42, 1e-45, 1e-38] * 100, np.float32)
    y = cp.empty(400, cp.float32)
    scale(cp.asarray(x), y, 0.5)
    return bool(np.array_equal(cp.asnumpy(y).view(np.uint32), (x * np.float32(0.5)).view(np.uint32)))


def _cupy_streams(folder: Path, cp: Any) -> bool:
    """The current stream, a given one, and one that is being captured."""
    scale = build(folder, "scale")
    x = cp.ones(1 << 20, cp.float32)
    y, stream = cp.zeros_like(x), cp.cuda.Stream(non_blocking=True)
    scale(x, y, 3.0, stream=stream)
    stream.synchronize()
    ok = bool((y == 3).all())
    cp.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        scale(x, y, 7.0)
        scale(y, x, 2.0)
        graph = stream.end_capture()
        graph.launch()
    stream.synchronize()
    return ok and bool((y == 7).all()) and bool((x == 14).all())


def _threads(folder: Path, cp: Any) -> bool:
    scale = build(folder, "scale")
    wrong: list[int] = []

    def work(number: int) -> None:
        with cp.cuda.Stream(non_blocking=True) as stream:
            x, y = cp.ones(4096, cp.float32), cp.zeros(4096, cp.float32)
            for i in range(200):
                scale(x, y, float(number * 1000 + i))
                stream.synchronize()
                if not bool((y == number * 1000 + i).all()):
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return not wrong


def _scalars(folder: Path, cp: Any) -> bool:
    """Every number arrives as it was given, rounded once where the type is narrower; what does not fit is refused."""
    scalars = build(folder, "scalars")
    y, w = cp.zeros(16, cp.float64), cp.zeros(4, cp.int64)
    scalars(y, w, 0.1, 2**60 + 2**36 + 1, np.float64(1) / 3, -128, 65535, -(2**31), 2**32 - 1, 2**63 - 1, True)
    want = [0.1, float(2**60 + 2**37), float(np.float16(1 / 3)), 2**63 - 1, 2**31 - 1, -128 * 65536 + 65535, 1]
    got = [*cp.asnumpy(y)[:3].tolist(), *cp.asnumpy(w).tolist()]
    for changed in ({"d": 128}, {"e": -1}, {"f": 1.5}, {"c": 1e6}, {"h": 2**63}, {"g": "7"}):
        values: dict[str, Any] = {"a": 0.0, "b": 0.0, "c": 0.0, "d": 0, "e": 0, "f": 0, "g": 0, "h": 0, "flag": False}
        try:
            scalars(y, w, **{**values, **changed})
        except ValueError as fault:
            if f"`{next(iter(changed))}`" in str(fault):
                continue
        return False
    return got == want


def _scratch(folder: Path, cp: Any) -> bool:
    """Two launches with scratch memory between them, which the call makes; then into an output of the caller's on a stream of hers."""
    sums = build(folder, "split_sum", ["C"])
    a = cp.random.standard_normal((300, 777), cp.float32)
    stream, c = cp.cuda.Stream(non_blocking=True), cp.full(300, cp.nan, cp.float32)
    cp.cuda.Device().synchronize()
    sums(a, C=c, stream=stream)
    stream.synchronize()
    want = cp.asnumpy(a).astype(np.float64).sum(1)
    return close(cp.asnumpy(sums(a)), want) and close(cp.asnumpy(c), want)


def _tensor_maps(folder: Path, cp: Any) -> bool:
    """A kernel for Hopper, whose arguments include maps of the tensors, at several addresses and sizes."""
    if cp.cuda.Device().compute_capability != "90":
        return True
    gemm = build(folder, "gemm_sm90a")
    ok = True
    for m, n, k in ((256, 384, 128), (136, 264, 512), (130, 72, 40), (256, 384, 128)):
        a, b = _operands(m, n, k)
        ok &= close(cp.asnumpy(gemm(cp.asarray(a), cp.asarray(b))), a.astype(np.float64) @ b.astype(np.float64))
    return ok


def _refusals(folder: Path, cp: Any) -> bool:
    """Arguments that do not fit are refused by name, and the next call works."""
    gemm, scale = build(folder, "gemm"), build(folder, "scale")
    a, b = cp.zeros((64, 32), cp.float16), cp.zeros((32, 64), cp.float16)
    x = cp.zeros(65, cp.float32)
    odd = cp.ndarray(64, cp.float32, cp.cuda.MemoryPointer(x.data.mem, 2))
    tried: list[tuple[Callable[[], Any], str]] = [
        (lambda: gemm(a, b.astype(cp.float32)), "`B`"), (lambda: gemm(a[:, ::2], b), "`A`"), (lambda: gemm(a.T, b), "`A`"),
        (lambda: gemm(a[0], b), "`A`"), (lambda: gemm(a, cp.asnumpy(b)), "`B`"), (lambda: gemm(a, b, C=cp.zeros(4, cp.float32)), "`C`"),
        (lambda: scale(odd, x[:64], 1.0), "`X`"), (lambda: gemm(a), "`B`"), (lambda: gemm(a, b, D=1), "`D`"), (lambda: gemm(a, 3), "`B`"),
    ]  # fmt: skip
    ok = True
    for call, name in tried:
        try:
            call()
            said = "nothing"
        except ValueError as fault:
            said = str(fault)
        if name not in said:
            print(f"       {name}: {said}")
            ok = False
    return ok and bool((gemm(a, b) == 0).all())


def _devices(folder: Path, cp: Any) -> bool:
    """One function on every GPU, whichever is current; arrays of two GPUs in one call are refused."""
    scale = build(folder, "scale")
    count = cp.cuda.runtime.getDeviceCount()
    ok, arrays = True, []
    for i in range(count):
        with cp.cuda.Device(i):
            arrays.append((cp.ones(1000, cp.float32), cp.zeros(1000, cp.float32)))
    for turn in range(3):
        for i, (x, y) in enumerate(arrays):
            scale(x, y, float(10 * turn + i))
            cp.cuda.Device(i).synchronize()
            ok &= bool((cp.asnumpy(y) == 10 * turn + i).all())
    if count > 1:
        try:
            scale(arrays[0][0], arrays[1][1], 1.0)
            ok = False
        except ValueError as fault:
            ok &= "`Y`" in str(fault) or "`X`" in str(fault)
    return ok


def _dropped(folder: Path, cp: Any) -> bool:
    x, y = cp.zeros(1024, cp.float32), cp.full(1024, cp.nan, cp.float32)
    start = time.perf_counter()
    build(folder, "slow")(x, y)
    gc.collect()
    print(f"       the function was dropped after {time.perf_counter() - start:.3f} s", end="")
    cp.cuda.Device().synchronize()
    print(f", its kernel ended after {time.perf_counter() - start:.3f} s")
    return bool((y == 2).all())


def _torch_gemm(folder: Path, torch: Any) -> bool:
    gemm = build(folder, "gemm_bf16")
    a = torch.randn(200, 96, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(96, 136, device="cuda", dtype=torch.bfloat16)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        c = gemm(a, b)
    given = gemm(a, b, C=torch.full((200, 136), float("nan"), device="cuda"))
    stream.synchronize()
    torch.cuda.synchronize()
    want = a.double() @ b.double()
    return close(c.cpu(), want.cpu()) and close(given.cpu(), want.cpu())


def _torch_refusals(folder: Path, torch: Any) -> bool:
    gemm = build(folder, "gemm")
    a, b = torch.zeros(64, 32, device="cuda", dtype=torch.float16), torch.zeros(32, 64, device="cuda", dtype=torch.float16)
    for wrong, words in (((a.cpu(), b), "host"), ((a.float(), b), "float16"), ((a, b.t()), "`B`"), ((a[:, :16], b), "`A`")):
        try:
            gemm(*wrong)
        except ValueError as fault:
            if words not in str(fault):
                print(f"       {fault}")
                return False
        else:
            return False
    return True


def _torch_graph(folder: Path, torch: Any) -> bool:
    scale = build(folder, "scale")
    x, y = torch.ones(5000, device="cuda"), torch.zeros(5000, device="cuda")
    scale(x, y, 1.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        scale(x, y, 4.0)
    graph.replay()
    torch.cuda.synchronize()
    return bool((y == 4).all())


_CUPY_STEPS: dict[str, Callable[[Path, Any], bool]] = {
    "CuPy arrays, outputs made": _cupy_gemm, "DLPack and the array interface": _cupy_protocols, "subnormal numbers are kept": _subnormals,
    "streams and graphs of CuPy": _cupy_streams, "eight threads": _threads, "scalars of every type": _scalars,
    "scratch memory, two launches": _scratch, "tensor maps": _tensor_maps, "CuPy arrays that do not fit": _refusals, "every GPU": _devices,
    "a function dropped while its kernel runs": _dropped,
}  # fmt: skip
_TORCH_STEPS: dict[str, Callable[[Path, Any], bool]] = {
    "torch tensors, outputs made": _torch_gemm, "torch tensors that do not fit": _torch_refusals, "graphs of torch": _torch_graph,
}  # fmt: skip


# ---- leaks


def leaks(folder: Path, results: dict[str, Any], rounds: int) -> bool:
    """Rounds of loading, launching and dropping: memory of the process and of the device must not grow after the first hundred."""
    cp = libraries().get("cupy")
    if cp is None:
        print("leaks: skipped, no CuPy")
        return True
    build(folder, "scale")
    file = folder / "scale.cu"
    x, y = cp.ones(4096, cp.float32), cp.zeros(4096, cp.float32)
    marks = []
    for i in range(rounds + 100):
        if i in (100, rounds + 99):
            cp.cuda.Device().synchronize()
            gc.collect()
            marks.append((_resident(), cp.cuda.runtime.memGetInfo()[0], len(list(Path("/proc/self/fd").iterdir()))))
        tilec.load(file)(x, y, float(i))
    cp.cuda.Device().synchronize()
    host, device, files = marks[1][0] - marks[0][0], marks[0][1] - marks[1][1], marks[1][2] - marks[0][2]
    fine = host < 4 << 20 and device <= 0 and files <= 0 and bool((y == rounds + 99).all())
    grown = f"host {host / 1024:.0f} KiB, device {device / 1024:.0f} KiB, files {files}"
    print(f"leaks: {rounds} rounds: {grown}: {'none' if fine else 'LEAKS'}")
    results["leaks"] = {"rounds": rounds, "host_bytes": host, "device_bytes": device, "files": files}
    return fine


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# ---- processes

WORKER = """
import sys
sys.path.insert(0, sys.argv[1])
import tilec
kernel = tilec.compile(sys.argv[2]) if sys.argv[2].endswith(".py") else tilec.load(sys.argv[2])
try:
    import cupy as cp
    x, y = cp.ones(4096, cp.float32), cp.zeros(4096, cp.float32)
    kernel(x, y, 5.0)
    assert bool((y == 5).all())
except ImportError:
    kernel.prepare()
print("fine")
"""


def processes(folder: Path, results: dict[str, Any], count: int = 32) -> bool:
    """Processes that compile and load the same kernel at once with an empty cache; then again while some of them are killed."""
    build(folder, "scale")
    file = folder / ("scale.py" if (folder / "scale.py").exists() else "scale.cu")
    fine = True
    for killed in (0, count // 4):
        env = {**os.environ, "TILEC_CACHE_DIR": str(folder / f"cache{killed}")}
        start = time.perf_counter()
        command, pipe = [sys.executable, "-c", WORKER, str(ROOT), str(file)], subprocess.PIPE
        running = [subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True) for _ in range(count)]
        if killed:
            time.sleep(1.5)
            for p in running[:killed]:
                p.kill()
        said = [p.communicate() for p in running]
        good = sum("fine" in out for out, _ in said[killed:])
        fine &= good == count - killed
        for _, err in [e for e in said[killed:] if "fine" not in e[0]][:2]:
            print(err[-500:])
        again = "fine" in subprocess.run(command, env=env, capture_output=True, text=True, check=False).stdout
        fine &= again
        one_more, seconds = "fine" if again else "NOT", time.perf_counter() - start
        print(f"processes: {good} of {count - killed} fine, {killed} killed, and one more {one_more}, {seconds:.1f} s")
    results["processes"] = fine
    return fine


# ---- overhead


def overhead(folder: Path, results: dict[str, Any]) -> bool:
    """Time to queue a launch of an almost empty kernel: ours with CuPy arrays and torch tensors beside CuPy's RawKernel, in turns."""
    found = libraries()
    if "cupy" not in found:
        print("overhead: skipped, no CuPy")
        return True
    calls = _overhead_calls(folder, found)
    times: dict[str, list[float]] = {name: [] for name in calls}
    cp = found["cupy"]
    for _ in range(60):
        for name, call in calls.items():
            call()
            cp.cuda.Device().synchronize()
            start = time.perf_counter()
            for _ in range(200):
                call()
            times[name].append((time.perf_counter() - start) / 200 * 1e6)
            cp.cuda.Device().synchronize()
    medians = {name: statistics.median(t) for name, t in times.items()}
    base = medians["RawKernel"]
    for name, median in medians.items():
        print(f"overhead: {name:34} {median:6.2f} us  {median - base:+6.2f} us")
    results["overhead_us"] = medians
    return all(medians[name] - base < 10 for name in medians if not name.endswith("made"))


def _overhead_calls(folder: Path, found: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    cp = found["cupy"]
    scale = build(folder, "scale")
    out = build(folder, "scale", ["Y"])
    raw = cp.RawKernel('extern "C" __global__ void k(const float* x, float* y, float f, int n) { if (n < 0) y[0] = f * x[0]; }', "k")
    x, y = cp.ones(64, cp.float32), cp.zeros(64, cp.float32)
    factor, size = np.float32(2.0), np.int32(64)
    calls: dict[str, Callable[[], Any]] = {
        "RawKernel": lambda: raw((1,), (128,), (x, y, factor, size)),
        "CuPy arrays": lambda: scale(x, y, 2.0),
        "CuPy arrays, by name": lambda: scale(X=x, Y=y, factor=2.0),
        "CuPy arrays, output made": lambda: out(x, factor=2.0),
    }
    if "torch" in found:
        torch = found["torch"]
        tx, ty = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")
        calls["torch tensors"] = lambda: scale(tx, ty, 2.0)
        calls["torch tensors, output made"] = lambda: out(tx, factor=2.0)
    return calls


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", help="right, leaks, processes, overhead; all by default")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", type=Path, metavar="DIR")
    parser.add_argument("--from", dest="source", type=Path, metavar="DIR")
    options = parser.parse_args()
    if options.write:
        options.write.mkdir(parents=True, exist_ok=True)
        for name in KERNELS:
            build(options.write, name)
        return 0
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.source:
            for cu in options.source.glob("*.cu"):
                shutil.copy(cu, folder)
        os.environ["TILEC_CACHE_DIR"] = str(folder / "cache")
        steps: dict[str, Callable[[], bool]] = {
            "right": lambda: right(folder, results), "leaks": lambda: leaks(folder, results, options.rounds),
            "processes": lambda: processes(folder, results), "overhead": lambda: overhead(folder, results),
        }  # fmt: skip
        fine = [step() for key, step in steps.items() if not options.steps or key in options.steps]
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    print("all fine" if all(fine) else "NOT all fine")
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
