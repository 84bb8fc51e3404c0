"""`tilec run --device cuda` from end to end, with a stand-in for CuPy whose one kernel is computed by NumPy."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest

from tilec import cli
from tilec.runtime import loader
from tilec.runtime.cuda import download, upload

KERNEL = """import tilelang.language as T
N = T.dynamic("N")

@T.prim_func
def scale(X: T.Tensor((N,), "bfloat16"), Y: T.Tensor((N,), "float32"), factor: T.float32):
    with T.Kernel(T.ceildiv(N, 256), threads=128) as bx:
        for i in T.Parallel(256):
            Y[bx * 256 + i] = factor * T.cast(X[bx * 256 + i], "float32")
"""


class Raw:
    """A device array: bytes with an address."""

    def __init__(self, host: np.ndarray) -> None:
        self.host = host.copy()
        self.data = types.SimpleNamespace(ptr=self.host.ctypes.data)


class CUDARuntimeError(RuntimeError):
    """What CuPy raises for a failed launch."""


def fake_cupy(monkeypatch: pytest.MonkeyPatch, fault: str = "") -> list[tuple[object, ...]]:
    """Installs the stand-in; the result collects the launches. `fault` is wrong, fails or nothing."""
    launches: list[tuple[object, ...]] = []

    def scale(grid, block, args, shared_mem, stream) -> None:
        launches.append((grid, block, shared_mem))
        x, y, factor, n = args
        assert type(factor) is np.float32 and type(n) is np.int32
        if fault == "fails":
            raise CUDARuntimeError("cudaErrorIllegalAddress")
        values = (x.host.view(np.uint16).astype(np.uint32) << 16).view(np.float32)[: int(n)]
        y.host.view(np.float32)[: int(n)] = values * factor + (fault == "wrong")

    runtime = types.SimpleNamespace(
        getDeviceCount=lambda: 1, deviceSynchronize=lambda: None, getDevice=lambda: 0, getDeviceProperties=lambda d: {"name": b"Stand-in"},
        CUDARuntimeError=CUDARuntimeError,
    )  # fmt: skip
    fake = types.SimpleNamespace(
        cuda=types.SimpleNamespace(runtime=runtime, Device=lambda: types.SimpleNamespace(compute_capability="80")), asarray=Raw, asnumpy=lambda raw: raw.host.copy(), uint8=np.uint8,
        RawModule=lambda path: types.SimpleNamespace(get_function=lambda name: scale),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "cupy", fake)  # type: ignore[arg-type]
    monkeypatch.setattr(loader, "cubin_file", lambda text, arch, options: "made")
    return launches


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    (tmp_path / "k.py").write_text(KERNEL)
    monkeypatch.chdir(tmp_path)
    return cli.run(["run", "k.py", "--device", "cuda", "-D", "factor=2.5", *args])


def test_a_run_that_agrees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    launches = fake_cupy(monkeypatch)
    x = np.random.default_rng().integers(-9, 9, 600).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    assert run(tmp_path, monkeypatch, "--in", "X=x.npy", "--out", "Y=y.npy") == 0
    assert launches == [((3, 1, 1), (128, 1, 1), 0)]
    assert np.array_equal(np.load(tmp_path / "y.npy"), x * np.float32(2.5))
    assert "Stand-in" in capsys.readouterr().out


@pytest.mark.parametrize(("fault", "words"), [("wrong", "Y differs from the reference"), ("fails", "cudaErrorIllegalAddress")])
def test_a_run_that_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fault: str, words: str) -> None:
    fake_cupy(monkeypatch, fault)
    assert run(tmp_path, monkeypatch, "--arg", "X=bfloat16[300]") == 1
    assert words in capsys.readouterr().err


def test_strided_arrays_survive_the_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cupy(monkeypatch)
    cupy = sys.modules["cupy"]
    for array in (np.arange(12, dtype=np.int16).reshape(3, 4), np.arange(40, dtype=np.float32).reshape(4, 10)[:, :7], np.zeros((0, 3), np.int8),
                  np.float32(3).reshape(())):  # fmt: skip
        raw = upload(cupy, array)
        assert raw.host.dtype == np.uint8
        back = download(cupy, raw, array)
        assert np.array_equal(back, array) and back.strides == array.strides and back.dtype == array.dtype
