"""Kernels as Python functions, on a stand-in for the driver that logs launches with the bits of every argument."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tilec
from tests.runtime.gpu_stand_in import CupyArray, Exporter, Interface, StandIn, Tensor, fake_cupy, fake_torch
from tests.toolchain import needs_gxx, needs_nvrtc
from tilec.runtime import cubin, driver_api
from tilec.runtime.callable import Kernel, of_text
from tilec.runtime.numbers import ArgumentError
from tilec.runtime.request import MissingError

pytestmark = needs_gxx
HERE = Path(__file__).parent

SCALE = """import tilelang.language as T
N = T.dynamic("N")

@T.prim_func
def scale(X: T.Tensor((N, 64), "bfloat16"), Y: T.Tensor((N, 64), "float32"), factor: T.float32, shift: T.int64, on: T.bool):
    with T.Kernel(T.ceildiv(N, 4), threads=128) as bx:
        for i, j in T.Parallel(4, 64):
            Y[bx * 4 + i, j] = factor * T.cast(X[bx * 4 + i, j], "float32") + T.cast(shift, "float32") * T.if_then_else(on, 1.0, 2.0)
"""

MATMUL = """import tilelang
import tilelang.language as T

@tilelang.jit(out_idx=[-1])
def matmul(N, K):
    M = T.dynamic("M")

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, 128), T.ceildiv(M, 128), threads=128) as (bx, by):
            A_s = T.alloc_shared((128, 64), "float16")
            B_s = T.alloc_shared((64, 128), "float16")
            acc = T.alloc_fragment((128, 128), "float32")
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(K, 64), num_stages=3):
                T.copy(A[by * 128, ko * 64], A_s)
                T.copy(B[ko * 64, bx * 128], B_s)
                T.gemm(A_s, B_s, acc)
            T.copy(acc, C[by * 128, bx * 128])
    return main
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("driver") / "libfakecuda.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-std=c++17", "-O1", "-o", str(out), str(HERE / "fake_cuda.cpp")], check=True)
    return str(out)


@pytest.fixture
def gpu(library: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> StandIn:
    """A machine with two GPUs, an empty cache, and a compiler that is not asked in earnest."""
    monkeypatch.setenv("TILEC_LIBCUDA", library)
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cubin, "compile_cubin", lambda text, arch, options: b"\x7fELF" + arch.encode())
    driver_api.driver.cache_clear()
    found = StandIn(library)
    found.library.fake_current(0)
    found.arguments(0)
    found.log()
    yield found
    driver_api.driver.cache_clear()


def compiled(tmp_path: Path, text: str, **options: object) -> Kernel:
    file = tmp_path / "k.py"
    file.write_text(text)
    return tilec.compile(file, **options)


def words(line: str) -> list[str]:
    return line.partition(":")[2].split()


def test_a_call_launches_with_the_exact_bits_of_every_argument(gpu: StandIn, tmp_path: Path) -> None:
    kernel = compiled(tmp_path, SCALE)
    gpu.arguments(6)
    assert kernel(Interface(0x1000, (10, 64), "<u2"), Interface(0x2000, (10, 64), "<f4"), 0.1, -3, True) is None
    (line,) = gpu.log()
    assert line.startswith("launch scale device 0 grid 3 1 1 block 128 1 1 shared 0 stream 0:")
    bits = int(np.float32(0.1).view(np.uint32))
    assert words(line) == ["1000", "2000", f"{bits:x}", f"{(1 << 64) - 3:x}", "1", "a"]


def test_later_calls_use_the_plan_with_new_addresses_and_numbers(gpu: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy())
    kernel = compiled(tmp_path, SCALE)
    gpu.arguments(6)
    for round in range(3):
        x, y = (CupyArray(0x1000 * (2 * round + i), (10, 64), t) for i, t in ((1, "uint16"), (2, "float32")))
        kernel(x, y, float(round), 5, False, stream=77)
    lines = gpu.log()
    assert [words(line)[:3] for line in lines] == [[f"{0x1000 * (2 * r + 1):x}", f"{0x1000 * (2 * r + 2):x}", f"{int(np.float32(r).view(np.uint32)):x}"] for r in range(3)]
    assert all("stream 77:" in line for line in lines) and len(kernel._plans) == 1


def test_outputs_are_made_by_the_library_of_the_inputs(gpu: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch, cupy = fake_torch(stream=5), fake_cupy(stream=6)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    kernel = compiled(tmp_path, MATMUL, N=256, K=128)
    assert kernel.signature == "matmul(A: float16[M, 128], B: float16[128, 256]) -> C: float32[M, 256]"
    gpu.arguments(4)
    c = kernel(Tensor(0x1000, (200, 128), "float16", 1), Tensor(0x2000, (128, 256), "float16", 1))
    assert isinstance(c, Tensor) and torch.made == [((200, 256), "float32", 1)]
    attribute, line = gpu.log()
    assert attribute.startswith("attribute matmul 8 98304")
    assert line.startswith("launch matmul device 1 grid 2 2 1 block 128 1 1 shared 98304 stream 5:")
    assert words(line) == ["1000", "2000", f"{c.address:x}", "c8"]
    other = kernel(CupyArray(0x1000, (8, 128), "float16"), B=CupyArray(0x2000, (128, 256), "float16"))
    assert isinstance(other, CupyArray) and cupy.made == [((8, 256), "float32")]
    mine = CupyArray(0x9000, (8, 256), "float32")
    assert kernel(CupyArray(0x1000, (8, 128), "float16"), CupyArray(0x2000, (128, 256), "float16"), C=mine) is mine
    assert "stream 6:" in gpu.log()[-1]


def test_outputs_belong_to_the_stream_that_is_given(gpu: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fake_torch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    kernel = compiled(tmp_path, MATMUL, N=256, K=128)
    a, b = Tensor(0x1000, (200, 128), "float16"), Tensor(0x2000, (128, 256), "float16")
    for stream in (9, 0):
        kernel(a, b, stream=stream)
    assert [entry[3] for entry in torch.made] == ["stream 9", "default"]
    assert [line.partition("stream ")[2] for line in gpu.log() if line.startswith("launch")] == ["9:", "0:"]


def test_the_variant_follows_the_alignment_of_every_call(gpu: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy())
    kernel = compiled(tmp_path, MATMUL.replace("def matmul(N, K):", 'def matmul(N):\n    K = T.dynamic("K")'), N=256)
    out = CupyArray(0x9000, (300, 256), "float32")
    for address in (0x1000, 0x1002, 0x1000, 0x1010):
        kernel(CupyArray(address, (300, 128), "float16"), CupyArray(0x2000, (128, 256), "float16"), C=out, stream=0)
    launched = [line.split()[1] for line in gpu.log() if line.startswith("launch")]
    assert len(set(launched)) == 2 and launched[0] == launched[2] == launched[3] != launched[1]


@pytest.mark.parametrize("versioned", [False, True])
def test_dlpack(gpu: StandIn, tmp_path: Path, versioned: bool) -> None:
    kernel = compiled(tmp_path, SCALE)
    gpu.arguments(2)
    x, y = np.zeros((6, 64), np.uint16), np.zeros((6, 64), np.float32)
    exported = Exporter(x, versioned=versioned)
    kernel(exported, Exporter(y, versioned=versioned), 1.0, 0, False)
    assert words(gpu.log()[0]) == [f"{x.ctypes.data:x}", f"{y.ctypes.data:x}"]
    assert set(exported.streams) == {1}, "the default stream has the number 1 in DLPack"
    with pytest.raises(ArgumentError, match="`Y` must be row-major"):
        kernel(exported, Exporter(np.zeros((6, 128), np.float32)[:, ::2], versioned=versioned), 1.0, 0, False)
    if versioned:
        y.flags.writeable = False
        with pytest.raises(ArgumentError, match="`Y` is written, and this array may only be read"):
            kernel(exported, Exporter(y), 1.0, 0, False)


def test_a_producer_on_another_stream_is_waited_for(gpu: StandIn, tmp_path: Path) -> None:
    kernel = compiled(tmp_path, SCALE)
    y = Interface(0x2000, (4, 64), "<f4")
    kernel(Interface(0x1000, (4, 64), "<u2", stream=9), y, 1.0, 0, False, stream=9)
    assert [line.split()[0] for line in gpu.log()] == ["launch"]
    kernel(Interface(0x1000, (4, 64), "<u2", stream=9), y, 1.0, 0, False, stream=8)
    assert [line.split()[0] for line in gpu.log()][-1] == "launch" and gpu.log() == []


GOOD = {"X": Interface(0x1000, (4, 64), "<u2"), "Y": Interface(0x2000, (4, 64), "<f4"), "factor": 1.0, "shift": 0, "on": False}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"X": Interface(0x1000, (4, 64), "<f2")}, "`X` must be bfloat16, not float16"),
        ({"X": Interface(0x1000, (4, 64), "<c8")}, "`X` must be bfloat16, not <c8"),
        ({"X": Interface(0x1000, (4, 32), "<u2")}, "`X` is 4x32: dimension 1 must be 64, not 32"),
        ({"X": Interface(0x1000, (64,), "<u2")}, "`X` must have 2 dimensions, not 1"),
        ({"Y": Interface(0x2000, (5, 64), "<f4")}, "`Y` is 5x64: dimension 0 must be 4 (N = 4), not 5"),
        ({"X": Interface(0x1001, (4, 64), "<u2")}, "`X` must lie at a multiple of 2 bytes"),
        ({"X": Interface(0x1000, (4, 64), "<u2", (256, 2))}, "`X` must be row-major without gaps, strides (64, 1), not (128, 1)"),
        ({"Y": Interface(0x2000, (4, 64), "<f4", read_only=True)}, "`Y` is written, and this array may only be read"),
        ({"Y": Interface(0x200002000, (4, 64), "<f4")}, "`Y` lies on GPU 1 and `X` on GPU 0"),
        ({"X": np.zeros((4, 64), np.uint16)}, "`X` lies in host memory (numpy.ndarray)"),
        ({"X": Tensor(0x1000, (4, 64), "bfloat16", -1)}, "`X` lies in host memory"),
        ({"X": [1, 2]}, "`X` is a tensor on the GPU; a list was given"),
        ({"factor": "a"}, "`factor` is a scalar of type float32; a str was given"),
        ({"factor": 1e300}, "`factor` = 1e+300 does not fit float32"),
        ({"shift": 1.5}, "`shift` is a scalar of type int64; 1.5 is no integer"),
        ({"shift": 1 << 63}, "`shift` = 9223372036854775808 does not fit int64"),
        ({"on": 2}, "`on` = 2 does not fit bool"),
        ({"more": 2}, "scale has no parameter `more`"),
        ({"N": 8}, "dimension 0 must be 8 (N = 8), not 4"),
        ({"stream": "s"}, "`stream` is a CUDA stream; a str was given"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(
    gpu: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, object], words: str
) -> None:  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    kernel = compiled(tmp_path, SCALE)
    with pytest.raises(ArgumentError) as caught:
        kernel(**{**GOOD, **changed})
    assert words in str(caught.value) and gpu.log() == []


@pytest.mark.parametrize("missing", ["X", "factor", "shift"])
def test_what_is_missing_is_named(gpu: StandIn, tmp_path: Path, missing: str) -> None:
    kernel = compiled(tmp_path, SCALE)
    with pytest.raises(ArgumentError, match=f"`{missing}`"):
        kernel(**{n: v for n, v in GOOD.items() if n != missing})
    with pytest.raises(ArgumentError, match="takes 5 arguments, 6 were given"):
        kernel(1, 2, 3, 4, 5, 6)
    with pytest.raises(ArgumentError, match="`X` is given twice"):
        kernel(GOOD["X"], X=GOOD["X"])


def test_an_alignment_that_no_variant_takes_is_told(gpu: StandIn, tmp_path: Path) -> None:
    kernel = compiled(tmp_path, MATMUL.replace('T.dynamic("M")', "300"), N=256, K=128)
    with pytest.raises(ArgumentError, match="A % 16 == 0"):
        kernel(Interface(0x1002, (300, 128), "<f2"), Interface(0x2000, (128, 256), "<f2"), C=Interface(0x9000, (300, 256), "<f4"))


TOGETHER = """import tilelang.language as T

@T.prim_func
def together(X: T.Tensor((256,), "float32"), Y: T.Tensor((256,), "float32")):
    with T.Kernel(4, threads=64) as bx:
        partial = T.alloc_global((256,), "float32")
        for i in T.Parallel(64):
            partial[bx * 64 + i] = X[bx * 64 + i]
        T.sync_grid()
        for i in T.Parallel(64):
            Y[bx * 64 + i] = partial[255 - (bx * 64 + i)]
"""


def test_blocks_that_wait_for_each_other_are_launched_together(gpu: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = fake_cupy(stream=3)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    kernel = compiled(tmp_path, TOGETHER)
    gpu.arguments(3)
    kernel(CupyArray(0x1000, (256,), "float32"), CupyArray(0x2000, (256,), "float32"))
    ((size,), dtype), clear, together, launch = *cupy.made, *gpu.log()
    assert size >= 4 * 256 and dtype == "uint8"
    assert clear.split()[:3] == ["clear", "100000", "0"] and together == "together"
    assert words(launch) == ["1000", "2000", "100000"] and "stream 3:" in launch


def test_sizes_that_are_parameters_follow_from_the_arrays(gpu: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy())
    kernel = tilec.compile(HERE.parents[1] / "samples" / "article_gemm.py", outputs=["C"])
    gpu.arguments(6)
    a, b = CupyArray(0x1000, (300, 40), "float16"), CupyArray(0x2000, (40, 520), "float16")
    c = kernel(a, b)
    assert c.shape == (300, 520) and c.dtype == np.float16
    assert kernel(a, b, 300, 520, 40, C=c) is c
    first, second = (words(line) for line in gpu.log() if line.startswith("launch"))
    assert first == second == ["1000", "2000", f"{c.data.ptr:x}", f"{300:x}", f"{520:x}", f"{40:x}"]
    with pytest.raises(ArgumentError, match="`B` is 40x520"):
        kernel(a, b, 300, 521, 40)
    with pytest.raises(ArgumentError, match="no tensor `D` to make"):
        tilec.compile(HERE.parents[1] / "samples" / "article_gemm.py", outputs=["D"])
    with pytest.raises(ArgumentError, match="no compile-time parameter `bock_M`"):
        tilec.compile(HERE.parents[1] / "samples" / "article_gemm.py", bock_M=64)


def test_empty_arrays_launch_nothing(gpu: StandIn, tmp_path: Path) -> None:
    compiled(tmp_path, SCALE)(Interface(0, (0, 64), "<u2"), Interface(0, (0, 64), "<f4"), 1.0, 0, False)
    assert gpu.log() == []


def test_a_grid_known_to_have_no_blocks_launches_nothing(gpu: StandIn, tmp_path: Path) -> None:
    text = """import tilelang
import tilelang.language as T
@tilelang.jit
def f(N):
    @T.prim_func
    def k(A: T.Tensor((N, 64), "float32")):
        with T.Kernel(N, threads=64) as bx:
            for i in T.Parallel(64):
                A[bx, i] = 1
    return k
"""
    compiled(tmp_path, text, N=0)(Interface(0, (0, 64), "<f4"))
    assert gpu.log() == []
    compiled(tmp_path, text, N=2)(Interface(0x1000, (2, 64), "<f4"))
    assert len(gpu.log()) == 1


def test_rounds_of_loading_and_launching_leave_nothing_loaded(gpu: StandIn, tmp_path: Path) -> None:
    before = gpu.loaded
    source = compiled(tmp_path, SCALE).source
    (tmp_path / "k.cu").write_text(source)
    for _ in range(50):
        tilec.load(tmp_path / "k.cu")(**GOOD)
    gc.collect()
    assert gpu.loaded == before and len(gpu.log()) == 50
    with tilec.load(tmp_path / "k.cu") as kernel:
        kernel.prepare()
        assert gpu.loaded == before + 1
    assert gpu.loaded == before
    with pytest.raises(ArgumentError, match="closed"):
        kernel(**GOOD)


def test_a_damaged_entry_of_the_cache_is_compiled_anew(gpu: StandIn, tmp_path: Path) -> None:
    kernel = compiled(tmp_path, SCALE)
    entry = cubin.entry_of(kernel.source, "sm_80")
    cubin.store(entry, b"rubbish")
    kernel(**GOOD)
    assert entry.read_bytes() == b"\x7fELFsm_80"
    gpu.library.fake_bad_images(1)  # looks like machine code and is none
    of_text(kernel.source, "k")(**GOOD)
    assert [line.split()[0] for line in gpu.log()] == ["launch"] * 2


def test_threads_that_call_at_once_keep_their_arguments_apart(gpu: StandIn, tmp_path: Path) -> None:
    kernel = compiled(tmp_path, SCALE)
    gpu.arguments(6)
    y = Interface(0x2000, (4, 64), "<f4")

    def work(thread: int) -> None:
        for i in range(100):
            kernel(Interface(0x1000 * (1 + thread), (4, 64), "<u2"), y, float(thread), thread, False, stream=1000 * thread + i)

    threads = [threading.Thread(target=work, args=(t,)) for t in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    lines = gpu.log()
    assert len(lines) == 800
    for line in lines:
        thread = int(line.partition("stream ")[2].partition(":")[0]) // 1000
        assert words(line)[0] == f"{0x1000 * (1 + thread):x}" and int(words(line)[3], 16) == thread


def test_a_thread_without_a_context_and_a_second_gpu(gpu: StandIn, tmp_path: Path) -> None:
    kernel = compiled(tmp_path, SCALE)
    on_second = {**GOOD, "X": Interface(0x200001000, (4, 64), "<u2"), "Y": Interface(0x200002000, (4, 64), "<f4")}
    thread = threading.Thread(target=lambda: [kernel(**GOOD), kernel(**on_second)])
    thread.start()
    thread.join()
    kernel(**on_second)
    assert [line.split()[3] for line in gpu.log()] == ["0", "1", "1"]


def test_no_driver_and_no_gpu_are_told(gpu: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = compiled(tmp_path, SCALE)
    driver_api.driver.cache_clear()
    monkeypatch.setenv("FAKE_GPUS", "0")
    with pytest.raises(MissingError, match="no GPU"):
        kernel(**GOOD)
    monkeypatch.setenv("TILEC_LIBCUDA", "libnothing.so.1")
    with pytest.raises(MissingError, match="no NVIDIA driver"):
        kernel(**GOOD)


def test_a_file_that_is_not_ours_and_one_with_several_kernels(gpu: StandIn, tmp_path: Path) -> None:
    (tmp_path / "other.cu").write_text("int main() {}\n")
    with pytest.raises(ValueError, match="no file of tilec's"):
        tilec.load(tmp_path / "other.cu")
    two = SCALE + SCALE[SCALE.index("@T") :].replace("def scale", "def other")
    with pytest.raises(ArgumentError, match="scale, other: say which"):
        compiled(tmp_path, two)
    assert compiled(tmp_path, two, kernel="other").symbol == "other"


def test_importing_tilec_imports_no_array_library() -> None:
    script = "import sys, tilec; tilec.load; assert not {'numpy', 'cupy', 'torch', 'libcst', 'jinja2'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=HERE.parents[1])


PROCESS = """
import sys, tilec
from tests.runtime.gpu_stand_in import Interface
kernel = tilec.load(sys.argv[1])
kernel(Interface(0x1000, (4, 64), "<u2"), Interface(0x2000, (4, 64), "<f4"), 1.0, 0, False)
print("fine")
"""


@needs_nvrtc
def test_processes_that_compile_the_same_kernel_at_once_all_succeed(gpu: StandIn, library: str, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(compiled(tmp_path, SCALE).source)
    env = {**os.environ, "TILEC_LIBCUDA": library, "TILEC_CACHE_DIR": str(tmp_path / "shared")}
    command = [sys.executable, "-c", PROCESS, str(tmp_path / "k.cu")]
    running = [subprocess.Popen(command, env=env, cwd=HERE.parents[1], stdout=subprocess.PIPE, text=True) for _ in range(6)]
    assert [p.communicate()[0].strip() for p in running] == ["fine"] * 6
    entries = list((tmp_path / "shared" / "cubins").iterdir())
    assert [e.suffix for e in entries] == [".cubin"] and entries[0].read_bytes().startswith(b"\x7fELF")


def test_tensor_maps_are_made_for_every_address_and_kept(gpu: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file for two architectures: Hopper's body with maps on an H200, the portable one on an older GPU."""
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy())
    monkeypatch.setenv("FAKE_CAPABILITY", "90")
    kernel = compiled(tmp_path, MATMUL, N=1024, K=512, arch="sm_80,sm_90a")
    variants = kernel.entry["launches"][0]["variants"]
    assert next(v["arch"] for v in variants) == "sm_90a" and variants[0]["tensor_maps"]
    out = CupyArray(0x90000, (1024, 1024), "float32")
    for address in (0x10000, 0x20000, 0x10000):
        kernel(CupyArray(address, (1024, 512), "float16"), CupyArray(0x50000, (512, 1024), "float16"), C=out)
    log = gpu.log()
    assert [line.split()[1] for line in log if line.startswith("launch")] == [variants[0]["symbol"]] * 3
    made = [line.split()[1] for line in log if line.startswith("map")]
    assert made.count("0x10000") == made.count("0x20000") == 1 and made.count("0x50000") == 1
    (entry,) = (tmp_path / "cache" / "cubins").iterdir()
    assert entry.read_bytes() == b"\x7fELFsm_90a"
    monkeypatch.setenv("FAKE_CAPABILITY", "86")
    older = of_text(kernel.source, "k")
    older(CupyArray(0x10000, (1024, 512), "float16"), CupyArray(0x50000, (512, 1024), "float16"), C=out)
    portable = {v["symbol"] for v in variants if not v["tensor_maps"]}
    assert portable and gpu.log()[-1].split()[1] in portable


def test_bytes_that_other_libraries_have_types_for(gpu: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    kernel = compiled(tmp_path, """import tilelang.language as T

@T.prim_func
def widen(Q: T.Tensor((64, 64), "float4_e2m1fn"), S: T.Tensor((64,), "float8_e8m0fnu"), Y: T.Tensor((64, 64), "float16")):
    with T.Kernel(64, threads=64) as b:
        for j in T.Parallel(64):
            Y[b, j] = T.cast(Q[b, j], "float16") * T.cast(S[b], "float16")
""")
    y = Tensor(0x3000, (64, 64), "float16")
    gpu.arguments(3)
    for q, s in (("uint8", "uint8"), ("float4_e2m1fn_x2", "float8_e8m0fnu")):
        kernel(Tensor(0x1000, (64, 32), q), Tensor(0x2000, (64,), s), y)
        assert words(next(line for line in gpu.log() if line.startswith("launch"))) == ["1000", "2000", "3000"]
    with pytest.raises(ArgumentError, match="`S` must be uint8, not float8_e5m2"):
        kernel(Tensor(0x1000, (64, 32), "uint8"), Tensor(0x2000, (64,), "float8_e5m2"), y)


def test_commands_that_use_the_gpu_write_for_it(gpu: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilec.cli import _own_arch

    for capability, arch in (("90", "sm_90a"), ("86", "sm_86"), ("120", "sm_90")):
        monkeypatch.setenv("FAKE_CAPABILITY", capability)
        assert _own_arch({"device": "cuda"}) == arch
        assert {_own_arch(given) for given in ({}, {"device": "cpu"}, {"device": "cuda", "dask": "tcp://x:1"})} == {"sm_80"}
