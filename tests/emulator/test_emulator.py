"""How a run ends and what its report says: deadlocks, overruns, undefined behaviour, timeouts, launch limits, arguments."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.kernels import kernel_file, scalar, tensor
from tests.toolchain import needs_gxx
from tilec import emulator
from tilec.emulator import toolchain

pytestmark = needs_gxx

IN = tensor("A", "float32", ["n"])
OUT = tensor("C", "float32", ["n"], "inout")


def run(
    body: str, n: int = 32, mode: emulator.Mode | None = None, timeout_s: int = 20, **options: Any
) -> tuple[emulator.Outcome, Any, Any]:
    """Runs a body with `A` and `C` of n floats; A holds 0, 1, 2 and so on, C holds -1."""
    a, c = np.arange(n, dtype=np.float32), np.full(n, -1, np.float32)
    program = emulator.build(kernel_file(body, [IN, OUT], extents=["n"], **options))
    return program.run("k", {"A": a, "C": c}, mode or emulator.Mode(), timeout_s), a, c


def test_plain_kernel() -> None:
    outcome, a, c = run("  const int i = blockIdx.x * 32 + threadIdx.x;\n  if (i < n) C[i] = 2 * A[i];", 100, grid="(n + 31) / 32")
    assert outcome == emulator.Outcome("ok")
    assert np.array_equal(c, 2 * a)


@pytest.mark.parametrize("seed", range(5))
def test_every_block_and_thread_runs_once(seed: int) -> None:
    body = "  C[((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x] += 1;"
    outcome, _, c = run(body, 3 * 4 * 5 * 48, emulator.Mode(seed=seed), grid="3, 4, 5", block=48)
    assert outcome.ok
    assert np.all(c == 0)


FAULTS = {
    "read past the end": (
        "  C[threadIdx.x] = A[threadIdx.x + 1];",
        "overrun",
        r"a read of 1 byte, 0 past the end of A \(float32\[32\]\)",
    ),
    "read far past the end": ("  C[threadIdx.x] = A[threadIdx.x + 1000000];", "overrun", r"past the end of A \(float32\[32\]\)"),
    "write past the end": ("  C[threadIdx.x + 4] = 1;", "overrun", r"a write of 1 byte, \d+ past the end of C \(float32\[32\]\)"),
    "write before the start": ("  C[static_cast<int>(threadIdx.x) - 1] = 1;", "overrun", "wrote 1 byte, 4 before the start of C"),
    "write to an input": (
        "  const_cast<float*>(A)[threadIdx.x] = 1;",
        "fault",
        r"a write of 1 byte at byte \d+ of A .*, an input, which is read-only",
    ),
    "null pointer": ("  float* volatile p = nullptr;\n  *p = 1;", "fault", "an access to 'float' through a null pointer"),
    "misaligned vector": (
        "  C[0] = load_vec<4>(A + 1).v[0];",
        "fault",
        "load_vec reads 16 bytes at byte 4 of A .*, which is not aligned to 16 bytes",
    ),
    "vector past the end": ("  C[0] = load_vec<4>(A + n).v[0];", "overrun", "load_vec reads 16 bytes, 0 past the end of A"),
    "misaligned access": (
        "  C[0] = *reinterpret_cast<const float*>(reinterpret_cast<const char*>(A) + 2);",
        "fault",
        "an access to 'const float' at .* not aligned to 4",
    ),
    "array index": (
        "  float x[4] = {};\n  volatile int i = 4;\n  C[0] = x[i];",
        "fault",
        r"index 4 is out of range for 'float \[4\]'",
    ),
    "signed overflow": ("  volatile int i = 2147483647;\n  C[0] = i + n;", "fault", "a signed addition overflows"),
    "shift": ("  volatile int i = 32;\n  C[0] = 1 << i;", "fault", "a shift by more than the type's bits"),
    "division by zero": ("  volatile int i = 0;\n  C[0] = n / i;", "fault", "an integer division by zero"),
    "too much stack": (
        "  volatile float x[100000];\n  x[threadIdx.x] = 1;\n  C[0] = x[0];",
        "fault",
        "local variables take more than its stack",
    ),
    "trap": ("  if (threadIdx.x == 7) __trap();", "fault", r"__trap\(\), in block \(0, 0, 0\), thread \(7, 0, 0\)"),
    "shared tile past the launch's bytes": (
        "  float* const tile = shared_tile<float, 32>(64);\n  tile[0] = 1;",
        "overrun",
        "tile takes bytes 64 to 192 of shared memory, but .* 128",
    ),
    "shared write past a tile": (
        "  float* const tile = shared_tile<float, 16>(0);\n  tile[threadIdx.x] = 1;",
        "overrun",
        r"wrote 1 byte, 0 past the end of tile \(64 bytes",
    ),
    "barrier left with arrivals": ("  barrier_arrive<3>(64);", "fault", "barrier 3 was left with 32 arrivals"),
    "barriers that disagree": (
        "  if (threadIdx.x < 16) barrier_sync<1>(32);\n  else barrier_sync<1>(64);",
        "fault",
        "barrier 1 expects (32|64) threads here and (64|32) in line",
    ),
    "copy from shared memory": (
        "  float* const tile = shared_tile<float, 32>(0);\n  cp_async_4(tile, tile + 1);",
        "fault",
        "cp_async reads 4 bytes at byte 4 of tile .*, not in global",
    ),
    "copy to global memory": ("  cp_async_4(C, A);", "fault", "cp_async writes 4 bytes at byte 0 of C .*, not in shared memory"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_reported(fault: str) -> None:
    body, status, pattern = FAULTS[fault]
    needs = ("load_vec", "shared_tile", "barrier_sync", "barrier_arrive", "cp_async_4")
    outcome, _, c = run(body, shared=128, needs=needs)
    assert outcome.status == status, outcome
    assert re.search(pattern, outcome.message), outcome.message
    assert np.all(c == -1), "a run that failed leaves the caller's arrays alone"


def test_report_names_thread_and_line() -> None:
    body = "  if (blockIdx.x == 1 && threadIdx.x == 5)\n    C[n] = 1;  // here"
    outcome, _, _ = run(body, grid="2")
    assert "in block (1, 0, 0), thread (5, 0, 0)" in outcome.message
    assert "C[n] = 1;  // here" in outcome.message


def test_deadlock_names_who_waits_for_what() -> None:
    body = "  if (threadIdx.x < 32) barrier_sync<1>(64);\n  else if (threadIdx.x < 80) __syncthreads();\n  else __syncwarp();"
    outcome, _, _ = run(body, block=96, needs=["barrier_sync"])
    assert outcome.status == "deadlock"
    for expected in (
        r"threads 0-31 wait at barrier_sync<1> in line \d+",
        r"threads 32-79 wait at __syncthreads\(\) in line \d+",
        r"threads 80-95 wait for the other lanes at __syncwarp\(\) in line \d+",
        r"in block \(0, 0, 0\)",
    ):
        assert re.search(expected, outcome.message), outcome.message


def test_exited_threads_do_not_hold_up_a_barrier() -> None:
    body = """  float* const tile = shared_tile<float, 64>(0);
  if (threadIdx.x >= 40) return;
  tile[threadIdx.x] = A[threadIdx.x];
  __syncthreads();
  C[threadIdx.x] = tile[39 - threadIdx.x];"""
    for seed in range(4):
        outcome, a, c = run(body, 40, emulator.Mode(seed=seed), block=64, shared=256, needs=["shared_tile"])
        assert outcome.ok, outcome
        assert np.array_equal(c, a[::-1])


def test_lanes_of_a_short_warp_exchange() -> None:
    outcome, a, c = run("  C[threadIdx.x] = shfl_xor(A[threadIdx.x], 1);", 40, block=40, needs=["shfl_xor"])
    assert outcome.ok
    assert np.array_equal(c, a.reshape(-1, 2)[:, ::-1].reshape(-1))


def test_shared_memory_starts_as_nan_in_every_block() -> None:
    body = """  float* const tile = shared_tile<float, 32>(0);
  C[blockIdx.x * 32 + threadIdx.x] = tile[threadIdx.x];
  tile[threadIdx.x] = 1;"""
    for shared in ("apart", "real"):
        outcome, _, c = run(body, 64, emulator.Mode(shared=shared), grid="2", shared=128, needs=["shared_tile"])
        assert outcome.ok
        assert np.all(np.isnan(c))


def test_variables_start_with_a_pattern() -> None:
    outcome, _, c = run("  float x[4];\n  volatile int i = 2;\n  C[threadIdx.x] = x[i];")
    assert outcome.ok
    assert np.all(np.abs(c) > 1e30)


def test_reused_memory_shows_at_the_plans_offsets_only() -> None:
    body = """  float* const first = shared_tile<float, 32>(0);
  float* const second = shared_tile<float, 32>(64);
  first[threadIdx.x] = A[threadIdx.x];
  __syncthreads();
  second[threadIdx.x] = 0;
  __syncthreads();
  C[threadIdx.x] = first[threadIdx.x];"""
    outcome, a, c = run(body, mode=emulator.Mode(shared="apart"), shared=192, needs=["shared_tile"])
    assert outcome.ok and np.array_equal(c, a)
    outcome, a, c = run(body, mode=emulator.Mode(shared="real"), shared=192, needs=["shared_tile"])
    assert outcome.ok and np.array_equal(c, np.where(np.arange(32) < 16, a, 0))


def test_timeout() -> None:
    outcome, _, _ = run("  const volatile float* p = A;\n  while (*p != 1) {}\n  C[0] = 1;", timeout_s=1)
    assert outcome.status == "timeout"
    assert "in block (0, 0, 0), thread" in outcome.message
    assert "while (*p != 1)" in outcome.message


@pytest.mark.parametrize("seed", range(4))
def test_polling_lets_others_run(seed: int) -> None:
    body = """  int* const flag = reinterpret_cast<int*>(C);
  if (threadIdx.x == 0) {
    while (atomic_load(flag + 1) != 63) {}
    flag[0] = 1;
  }
  if (threadIdx.x == 63) atomic_store(flag + 1, 63);"""
    outcome, _, c = run(body, 64, emulator.Mode(seed=seed), block=64, needs=["atomic_load", "atomic_store"], timeout_s=5)
    assert outcome.ok, outcome
    assert c.view(np.int32)[:2].tolist() == [1, 63]


LIMITS = {
    "grid y": ({"grid": "1, 65536"}, 9),
    "grid of nothing": ({"grid": "0"}, 9),
    "threads": ({"block": 1056}, 9),
    "shared memory above 48 KB that no one asked for": ({"shared": 49153}, 1),
    "shared memory above the device's limit": (
        {"before_launch": "  if (const auto e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 166913)) return e;"}, 1
    ),
    "the launcher's own error": ({"before_launch": "  return cudaErrorMisalignedAddress;"}, 716),
}  # fmt: skip


@pytest.mark.parametrize("limit", LIMITS)
def test_launch_limits(limit: str) -> None:
    options, number = LIMITS[limit]
    outcome, _, c = run("  C[threadIdx.x % n] = 1;", **options)
    assert outcome.status == f"launch error {number}"
    assert np.all(c == -1)


def test_shared_memory_up_to_the_limit_is_granted() -> None:
    allow = "  if (const auto e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 166912)) return e;"
    outcome, _, _ = run("  shared_tile<char, 166912>(0)[threadIdx.x] = 1;", shared=166912, before_launch=allow, needs=["shared_tile"])
    assert outcome.ok, outcome


def test_printf_is_kept() -> None:
    outcome, _, _ = run('  if (threadIdx.x == 3) printf("n is %d\\n", n);')
    assert outcome.output == "n is 32\n"


SCALARS = {
    "bool": True, "int8": -3, "uint8": 200, "int16": -300, "uint16": 60000, "int32": -70000, "uint32": 4000000000, "int64": -(2**40),
    "uint64": 2**63, "float32": 1.5, "float64": -2.25,
}  # fmt: skip


@pytest.mark.parametrize("dtype", SCALARS)
def test_scalars_arrive_in_their_type(dtype: str) -> None:
    out = tensor("C", "float64", ["1"], "out")
    text = kernel_file("  if (threadIdx.x == 0) C[0] = static_cast<double>(s);", [scalar("s", dtype), out])
    c = np.zeros(1)
    assert emulator.build(text).run("k", {"s": SCALARS[dtype], "C": c}).ok
    assert c[0] == float(SCALARS[dtype])


@pytest.mark.parametrize("dtype, kind", [("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)])
def test_half_scalars_travel_as_bits(dtype: str, kind: Any) -> None:
    text = kernel_file("  C[0] = s;", [scalar("s", dtype), tensor("C", dtype, ["1"], "out")], needs=["half_t", "bfloat16_t"])
    c = np.zeros(1, kind)
    assert emulator.build(text).run("k", {"s": -1.75, "C": c}).ok
    assert c[0] == -1.75


def test_workspace_is_an_expression_of_the_extents() -> None:
    body = "  float* const w = static_cast<float*>(workspace);\n  w[threadIdx.x] = A[threadIdx.x];\n  C[threadIdx.x] = w[threadIdx.x];"
    outcome, a, c = run(body, workspace="4 * ceildiv(n, 8) * 8")
    assert outcome.ok and np.array_equal(c, a)
    outcome, _, _ = run(body, workspace="4 * (n - 1)")
    assert outcome.status == "overrun" and "the workspace (124 bytes)" in outcome.message


def test_strided_tensors() -> None:
    params = [
        tensor("A", "int32", ["2", "3"], strides=["ld", "1"]),
        tensor("C", "int32", ["2", "3"], "out", strides=["5", "1"]),
        scalar("ld", "int32"),
    ]
    body = "  const int row = threadIdx.x / 3, col = threadIdx.x % 3;\n  C[row * 5 + col] = A[row * ld + col];"
    a, c = np.arange(6, dtype=np.int32).reshape(2, 3), np.zeros((2, 3), np.int32)
    outcome = emulator.build(kernel_file(body, params, block=6)).run("k", {"A": a, "C": c, "ld": 7})
    assert outcome.ok, outcome
    assert np.array_equal(a, c)


@pytest.mark.parametrize("alignment", (4, 16, 256))
def test_alignment_of_arrays(alignment: int) -> None:
    body = "  C[threadIdx.x] = static_cast<float>(reinterpret_cast<unsigned long long>(A) % 4096);"
    outcome, _, c = run(body, 33, emulator.Mode(alignment=alignment))
    assert outcome.ok
    assert c[0] == 4096 - -(-132 // alignment) * alignment


BAD_VALUES: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"A": np.zeros(4, np.float32)}, "no value for the parameter C"),
    "unknown": ({"A": np.zeros(4, np.float32), "C": np.zeros(4, np.float32), "B": 1}, "no parameter B"),
    "type": ({"A": np.zeros(4, np.float64), "C": np.zeros(4, np.float32)}, "A is float32, 4 bytes"),
    "shape": ({"A": np.zeros(4, np.float32), "C": np.zeros(5, np.float32)}, r"C has the shape \(4,\), but the array \(5,\)"),
    "number for a tensor": ({"A": 1, "C": np.zeros(4, np.float32)}, "A is a tensor"),
}


@pytest.mark.parametrize("case", BAD_VALUES)
def test_values_that_do_not_fit(case: str) -> None:
    values, pattern = BAD_VALUES[case]
    program = emulator.build(kernel_file("", [IN, OUT], extents=["n"]))
    with pytest.raises(ValueError, match=pattern):
        program.run("k", values)


@pytest.mark.parametrize("dtype, value", [("int8", 128), ("int8", -129), ("uint16", -1), ("bool", 2), ("int32", 2**31), ("int64", 1.5)])
def test_scalars_out_of_range(dtype: str, value: float) -> None:
    program = emulator.build(kernel_file("", [scalar("s", dtype)]))
    with pytest.raises(ValueError, match=f"s = {value} is no {dtype}"):
        program.run("k", {"s": value})


def test_unknown_launcher() -> None:
    with pytest.raises(KeyError, match="no launcher 'nope'"):
        emulator.build(kernel_file("", [IN, OUT], extents=["n"])).run("nope", {})


def test_launcher_that_disagrees_with_its_manifest() -> None:
    text = kernel_file("", [IN, OUT], extents=["n"]).replace("const void* A, void* C, int n,", "const void* A, void* C, long long n,")
    outcome = emulator.build(text).run("k", {"A": np.zeros(4, np.float32), "C": np.zeros(4, np.float32)})
    assert outcome.status == "fault"
    assert "argument 2 of k_launch has 8 bytes, but by its manifest 4" in outcome.message


def test_files_that_do_not_build() -> None:
    text = kernel_file("  C[0] = nonsense;", [IN, OUT], extents=["n"])
    with pytest.raises(emulator.BuildError, match="nonsense"):
        emulator.build(text)
    with pytest.raises(ValueError, match="tilec-manifest-begin"):
        emulator.build("int x;")
    with pytest.raises(ValueError, match="---- prelude"):
        emulator.build(text.replace("---- prelude", "---- overture"))


def test_missing_compiler_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("TILEC_CXX", raising=False)
    with pytest.raises(emulator.ToolMissing, match=r"install g\+\+"):
        toolchain.find_compiler()


def test_cache_lies_where_it_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TILEC_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert toolchain.cache_dir() == tmp_path / "tilec"
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "own"))
    assert toolchain.cache_dir() == tmp_path / "own"


def test_parallel_builds_share_one_cache(tmp_path: Path) -> None:
    """Several processes that start with an empty cache all end with the same two files."""
    text = kernel_file("  C[threadIdx.x] = A[threadIdx.x];", [IN, OUT], extents=["n"])
    (tmp_path / "k.cu").write_text(text, encoding="utf-8")
    script = "import sys; from tilec import emulator; print(emulator.build(open(sys.argv[1]).read()).library)"
    environment = {**os.environ, "TILEC_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", script, str(tmp_path / "k.cu")]
    processes = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = {process.communicate()[0] for process in processes}
    assert all(process.returncode == 0 for process in processes)
    assert len(said) == 1
    assert len(list((tmp_path / "cache" / "programs").iterdir())) == 1
    assert len([p for p in (tmp_path / "cache" / "emulator").iterdir() if p.is_dir()]) == 1
