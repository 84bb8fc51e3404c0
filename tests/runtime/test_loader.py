"""The Python loader does what the launcher does: checked against a stand-in for CuPy that records launches."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.emit.fixtures_plan import gemm_plan, odd_plan
from tilec.emit.manifest import manifest
from tilec.runtime import loader
from tilec.runtime.loader import Module, Refused, as_bits, scalar


@dataclass
class Memory:
    ptr: int


@dataclass
class FakeArray:
    data: Memory


@dataclass
class Function:
    name: str
    log: list[tuple[object, ...]]
    max_dynamic_shared_size_bytes: int = 0

    def __call__(self, grid, block, args, shared_mem, stream) -> None:
        self.log.append((self.name, grid, block, args, shared_mem, self.max_dynamic_shared_size_bytes))


@dataclass
class Cupy:
    log: list[tuple[object, ...]] = field(default_factory=list)
    uint8 = np.uint8

    cuda = types.SimpleNamespace(Device=lambda: types.SimpleNamespace(compute_capability="80"))

    def RawModule(self, path: str):
        assert path == "made for sm_80"
        return types.SimpleNamespace(get_function=lambda name: Function(name, self.log))

    def zeros(self, size: int, dtype: object) -> FakeArray:
        return FakeArray(Memory(size))


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Cupy:
    fake = Cupy()
    monkeypatch.setitem(sys.modules, "cupy", fake)  # type: ignore[arg-type]
    monkeypatch.setattr(loader, "cubin_file", lambda text, arch, options: f"made for {arch}")
    return fake


def arrays(**addresses: int) -> dict[str, FakeArray]:
    return {name: FakeArray(Memory(ptr)) for name, ptr in addresses.items()}


@pytest.mark.parametrize(("b", "k", "symbol", "shared"), [(512, 40, "matmul", 65536), (520, 40, "matmul__general", 16384), (512, 36, "matmul__general", 16384)])
def test_the_variant_follows_alignment(cupy: Cupy, b: int, k: int, symbol: str, shared: int) -> None:
    kernel = Module("", manifest([gemm_plan()])).kernel("matmul")
    kernel(arrays(A=256, B=b, C=768), {"M": 130, "N": 136, "K": k})
    (name, grid, block, args, got_shared, raised), *more = cupy.log
    assert (name, grid, block, got_shared, more) == (symbol, (2, 3, 1), (128, 1, 1), shared, [])
    assert raised == (shared if shared > 48 * 1024 else 0)
    assert [type(a) for a in args[3:]] == [np.int32] * 3 and [int(a) for a in args[3:]] == [130, 136, k]


@pytest.mark.parametrize(("sizes", "words"), [((-1, 8, 8), "negative"), ((8, 8, 4097), "4096"), ((1 << 30, 8, 8), "grid")])
def test_what_the_launcher_refuses_is_refused(cupy: Cupy, sizes: tuple[int, int, int], words: str) -> None:
    kernel = Module("", manifest([gemm_plan()])).kernel("matmul")
    with pytest.raises(Refused, match=words):
        kernel(arrays(A=256, B=512, C=768), dict(zip("MNK", sizes, strict=True)))
    assert cupy.log == []


def test_empty_grids_launch_nothing(cupy: Cupy) -> None:
    Module("", manifest([gemm_plan()])).kernel("matmul")(arrays(A=0, B=0, C=0), {"M": 0, "N": 8, "K": 8})
    assert cupy.log == []


def test_scalars_have_their_declared_types_and_the_workspace_its_size(cupy: Cupy) -> None:
    kernel = Module("", manifest([odd_plan()])).kernel("double_kernel")
    kernel(arrays(float=256), {"new": True, "h": 0.5, "n": 2, "M": 9})
    assert [entry[0] for entry in cupy.log] == ["double_kernel", "double_kernel__1"]
    new, _, h, n, m, workspace = cupy.log[0][3]
    assert (type(new), type(h), type(n), type(m)) == (np.bool_, np.float16, np.int64, np.int32)
    assert workspace.data.ptr == 36


def test_an_unknown_kernel(cupy: Cupy) -> None:
    with pytest.raises(KeyError):
        Module("", manifest([gemm_plan()])).kernel("nope")


def test_types_without_a_numpy_name_travel_as_bits() -> None:
    assert scalar(1.0, "bfloat16") == np.uint16(0x3F80) and scalar(1.0, "float8_e4m3fn") == np.uint8(0x38)
    assert scalar(2.0, "tfloat32").dtype == np.float32
    import ml_dtypes

    assert as_bits(np.ones(2, ml_dtypes.bfloat16)).dtype == np.uint16 and as_bits(np.ones(2, np.float16)).dtype == np.float16


@pytest.mark.parametrize(("size", "launches"), [((1000, 1000, 1000), 1), ((1024, 1024, 1024), 1), ((1025, 1027, 1029), 3)], ids=str)
def test_launches_for_other_sizes_are_passed_over(cupy: Cupy, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int, int], launches: int) -> None:
    from tests.hopper.kernels import Gemm
    from tilec.emit.manifest import parse
    from tilec.runtime import tensor_maps

    addresses: list[int] = []

    def tensor_map(entry: dict[str, object], address: int, env: dict[str, int]) -> str:
        addresses.append(address)
        return str(entry["name"])

    monkeypatch.setattr(tensor_maps, "tensor_map", tensor_map)
    runtime = types.SimpleNamespace(getDevice=lambda: 0, getDeviceProperties=lambda device: {"multiProcessorCount": 132})
    monkeypatch.setattr(Cupy, "cuda", types.SimpleNamespace(Device=lambda: types.SimpleNamespace(compute_capability="90"), runtime=runtime))
    monkeypatch.setattr(Cupy, "RawModule", lambda self, path: types.SimpleNamespace(get_function=lambda name: Function(name, self.log)))
    entry = parse(Gemm(trans_b=True).compiled(opt_level=3).cu)
    kernel = Module("", entry).kernel("gemm")
    kernel(arrays(A=1 << 20, B=1 << 21, C=1 << 22), dict(zip("MNK", size, strict=True)))
    assert len(cupy.log) == launches
    if launches == 3:  # the stand-in's memory begins at its size
        first, second = (-(-2 * rows * 1088 // 256) * 256 for rows in (1025, 1027))
        assert addresses == [first + second, 2 * first + second]
    else:
        assert addresses[:2] == [1 << 20, 1 << 21]
