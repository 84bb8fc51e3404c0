"""The GPU side of `tilec bench` with a stand-in for CuPy: arrays of NumPy, a GEMM by NumPy, a clock that ticks a microsecond a launch."""

from __future__ import annotations

import io
import itertools
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bench.test_bench import GEMM, compiler
from tilec.runtime.bench.gpu import Gpu, sets_for
from tilec.runtime.bench.request import BenchRequest
from tilec.runtime.bench.run import run
from tilec.runtime.bind import bind
from tilec.runtime.progress import Progress
from tilec.runtime.request import RunError, RunRequest
from tilec.runtime.tune.job import Job
from tilec.runtime.tune.job import run as answer
from tilec.driver import Options
from tilec.targets.sm80 import SM80

SIZES = {"M": 64, "N": 96, "K": 32}


class DeviceArray(np.ndarray):
    """An array with CuPy's `data.ptr`."""

    @property
    def data(self) -> Any:
        return types.SimpleNamespace(ptr=self.ctypes.data)


def device(array: Any) -> Any:
    return np.array(array).view(DeviceArray)


class Function:
    """The article's kernel: C = A @ B, with `fault` added."""

    name, num_regs, local_size_bytes, shared_size_bytes, max_dynamic_shared_size_bytes = "article_gemm", 100, 0, 16, 0
    kernel = types.SimpleNamespace(ptr=1)

    def __init__(self, clock: list[float], fault: float) -> None:
        self.clock, self.fault = clock, fault

    def __call__(self, grid: Any, block: Any, args: Any, shared_mem: int, stream: Any) -> None:
        self.clock[0] += 1e-6
        a, b, c = (x.view(np.float16) for x in args[:3])
        m, n, k = SIZES["M"], SIZES["N"], SIZES["K"]
        c[: m * n] = (a[: m * k].reshape(m, k).astype(float) @ b[: k * n].reshape(k, n).astype(float)).reshape(-1) + self.fault


class Event:
    """Reads the clock."""

    def __init__(self, clock: list[float]) -> None:
        self.clock, self.at = clock, 0.0

    def record(self) -> None:
        self.at = self.clock[0]

    def synchronize(self) -> None:
        return


@pytest.fixture
def fault() -> float:
    return 0.0


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch, fault: float) -> Any:
    clock, ticks = [0.0], itertools.count()
    properties = {"name": b"NVIDIA H200", "major": 9, "minor": 0, "multiProcessorCount": 132, "maxThreadsPerMultiProcessor": 2048}
    runtime = types.SimpleNamespace(
        getDeviceCount=lambda: 1, getDevice=lambda: 0, deviceSynchronize=lambda: None, CUDARuntimeError=ArithmeticError,
        getDeviceProperties=lambda d: properties,
    )  # fmt: skip
    cuda = types.SimpleNamespace(
        runtime=runtime, Event=lambda: Event(clock), get_elapsed_time=lambda a, b: (b.at - a.at) * 1000,
        Device=lambda *_: types.SimpleNamespace(attributes={"ClockRate": 1980000}, pci_bus_id="0:0:0", compute_capability="90"),
        driver=types.SimpleNamespace(occupancyMaxActiveBlocksPerMultiprocessor=lambda f, threads, shared: 2),
    )  # fmt: skip
    module = types.ModuleType("cupy")
    for name in ("isfinite", "isnan", "where", "abs", "maximum", "moveaxis", "arange", "exp", "uint8", "zeros", "int32"):
        setattr(module, name, getattr(np, name))
    module.asarray = module.array = device  # type: ignore[attr-defined]
    module.asnumpy = lambda x: np.array(x)  # type: ignore[attr-defined]
    module.empty = lambda n, t: device(np.zeros(min(n, 16), t))  # type: ignore[attr-defined]
    module.cuda = cuda  # type: ignore[attr-defined]
    module.RawModule = lambda **_: types.SimpleNamespace(get_function=lambda n: Function(clock, fault))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setattr("tilec.runtime.loader.cubin_file", lambda text, arch, options: "made")
    monkeypatch.setattr("time.monotonic", lambda: next(ticks) * 0.05)
    monkeypatch.setattr("tilec.runtime.bench.clocks.source", lambda bus: lambda: None)
    return module


def bench(**more: Any) -> str:
    request = BenchRequest(seconds=0.2, against=("none",), **more)
    return "\n".join(run(request, compiler(GEMM, **SIZES), Gpu(), Progress(io.StringIO())).lines)


@pytest.mark.parametrize("mode", ["flush", "rotate"])
def test_a_gemm_is_checked_and_timed(cupy: Any, mode: str) -> None:
    text = bench(mode=mode)
    assert "(float64)" in text and "100 registers, 0 bytes spilled" in text and "2 blocks of" in text
    line = next(line for line in text.splitlines() if line.startswith("  tilec")).split()
    assert float(line[1]) == pytest.approx(1.0) and float(line[3]) == pytest.approx(2 * 64 * 96 * 32 / 1e-6 / 1e12, abs=0.06)


@pytest.mark.parametrize("fault", [0.5])
def test_a_wrong_gemm_is_not_timed(cupy: Any) -> None:
    with pytest.raises(RunError, match="not timed"):
        bench()


def test_another_cu_as_peer(cupy: Any, tmp_path: Path) -> None:
    compiled, _ = compiler(GEMM, **SIZES)({}, "")
    (tmp_path / "other.cu").write_text(compiled.cu)
    request = BenchRequest(seconds=0.2, against=(str(tmp_path / "other.cu"),))
    lines = run(request, compiler(GEMM, **SIZES), Gpu(), Progress(io.StringIO())).lines
    assert any("other.cu" in line and line.endswith("1.000") for line in lines)
    (tmp_path / "other.cu").write_text("__global__ void k() {}")
    with pytest.raises(RunError, match="manifest"):
        run(request, compiler(GEMM, **SIZES), Gpu(), Progress(io.StringIO()))


def test_a_candidate_on_a_gpu(cupy: Any) -> None:
    job = Job(Options(str(GEMM), GEMM.read_bytes(), SM80, defines=SIZES), {}, "measure", "gpu", seconds=0.1)
    found = answer(job, {})
    assert found.status == "measured" and found.median == pytest.approx(1e-6) and found.facts["registers"] == 100


def test_how_many_sets_of_buffers(cupy: Any) -> None:
    compiled, defines = compiler(GEMM, M=1024, N=1024, K=1024)({}, "")
    bound = bind(compiled.plans[0].kernel, RunRequest(defines=defines))
    assert sets_for(bound, "flush") == 1 and sets_for(bound, "rotate") == 16
