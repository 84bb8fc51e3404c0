"""The race check: it finds what no order of this run made visible, and accepts everything that orders threads."""

import re
from typing import Any

import numpy as np
import pytest

from tests.emulator.kernels import kernel_file, tensor
from tests.emulator.test_gemm import FAULTS, MODES, gemm_text
from tests.emulator.test_gemm import run as run_gemm
from tests.toolchain import needs_gxx
from tilec import emulator

pytestmark = needs_gxx

NEEDS = ("shared_tile", "shfl_xor", "barrier_sync", "barrier_arrive", "cp_async_4", "cp_async_commit", "cp_async_wait", "load_vec",
         "store_vec", "atomic_add", "ldmatrix_x1")  # fmt: skip


def check(body: str, **mode: Any) -> emulator.Outcome:
    """Runs a body with a shared tile of 128 ints, in a block of 64 threads; A holds 0 to 63."""
    text = kernel_file(
        "  int* const tile = shared_tile<int, 128>(0);\n  const int t = threadIdx.x;\n" + body,
        [tensor("A", "int32", ["64"]), tensor("C", "int32", ["64"], "out")], block=64, shared=512, needs=NEEDS,
    )  # fmt: skip
    return emulator.build(text).run("k", {"A": np.arange(64, dtype=np.int32), "C": np.zeros(64, np.int32)}, emulator.Mode(races=True, **mode))


ORDERED = {
    "block barrier": "  tile[t] = A[t];\n  __syncthreads();\n  C[t] = tile[63 - t];\n  __syncthreads();\n  tile[t] = 0;",
    "warp barrier": "  tile[t] = A[t];\n  __syncwarp();\n  C[t] = tile[t ^ 1];\n  __syncwarp();\n  tile[t] = 0;",
    "own elements": "  tile[t] = A[t];\n  C[t] = tile[t];\n  tile[t] = 1;",
    "named barrier, both wait": "  tile[t] = A[t];\n  barrier_sync<1>(64);\n  C[t] = tile[63 - t];",
    "named barrier, one arrives": (
        "  if (t < 32) {\n    tile[t] = A[t];\n    barrier_arrive<1>(64);\n  } else {\n    barrier_sync<1>(64);\n    C[t] = tile[63 - t];\n  }"
    ),
    "two barriers in a chain": (
        "  if (t < 32) { tile[t] = A[t]; __syncwarp(); if (t == 0) C[0] = tile[5]; barrier_arrive<1>(64); }\n"
        "  else { barrier_sync<1>(64); __syncwarp(); C[t] = tile[t - 32]; }"
    ),
    "readers only": "  tile[t] = A[t];\n  __syncthreads();\n  C[t] = tile[0] + tile[1];",
    "the same value twice": "  tile[5] = 7;\n  __syncthreads();\n  C[t] = tile[5];",
    "atomics": "  if (t == 0) tile[0] = 0;\n  __syncthreads();\n  atomic_add(tile, 1);\n  __syncthreads();\n  C[t] = tile[0];",
    "copy, wait, own element": "  cp_async_4(tile + t, A + t);\n  cp_async_commit();\n  cp_async_wait<0>();\n  C[t] = tile[t];",
    "copy, wait, barrier": "  cp_async_4(tile + t, A + t);\n  cp_async_commit();\n  cp_async_wait<0>();\n  __syncthreads();\n  C[t] = tile[63 - t];",
    "vectors": "  if (t < 16) store_vec(tile + 4 * t, load_vec<4>(A + 4 * t));\n  __syncthreads();\n  C[t] = load_vec<2>(tile + (t ^ 1) / 2 * 2).v[0];",
}


@pytest.mark.parametrize("case", ORDERED)
@pytest.mark.parametrize("asynchrony", ("lazy", "eager"))
def test_ordered_accesses_pass(case: str, asynchrony: str) -> None:
    for seed in range(2):
        outcome = check(ORDERED[case], asynchrony=asynchrony, seed=seed)
        assert outcome.ok, outcome.message


RACES = {
    "write, then read": "  tile[t] = A[t];\n  C[t] = tile[63 - t];",
    "read, then write": "  tile[t] = A[t];\n  __syncthreads();\n  C[t] = tile[63 - t];\n  tile[t] = 0;",
    "two values": "  tile[5] = t;",
    "a shuffle orders nothing": "  tile[t] = A[t];\n  shfl_xor(t, 1);\n  C[t] = tile[t ^ 1];",
    "a warp barrier orders one warp only": "  tile[t] = A[t];\n  __syncwarp();\n  C[t] = tile[t ^ 32];",
    "a named barrier that the writer does not reach": (
        "  if (t < 32) { barrier_arrive<1>(64); tile[t] = A[t]; }\n  else { barrier_sync<1>(64); C[t] = tile[t - 32]; }"
    ),
    "copy, no wait": "  cp_async_4(tile + t, A + t);\n  cp_async_commit();\n  C[t] = tile[t];",
    "copy, wait for too little": "  cp_async_4(tile + t, A + t);\n  cp_async_commit();\n  cp_async_wait<1>();\n  C[t] = tile[t];",
    "copy, wait, no barrier": "  cp_async_4(tile + t, A + t);\n  cp_async_commit();\n  cp_async_wait<0>();\n  C[t] = tile[63 - t];",
    "copy over what others read": "  tile[t] = A[t];\n  __syncthreads();\n  C[t] = tile[63 - t];\n  cp_async_4(tile + t, A + t);",
    "ldmatrix of what another thread writes": (
        "  unsigned r[1];\n  tile[t] = A[t];\n  __syncwarp();\n  ldmatrix_x1(r, tile + (t % 8) * 4 + (t < 32 ? 32 : 0));\n  C[t] = r[0];"
    ),
    "vectors": "  store_vec(tile + 2 * t, vec<int, 2>{{t, t}});\n  C[t] = load_vec<2>(tile + 2 * (63 - t)).v[0];",
    "vectors of two values": "  store_vec(tile, vec<int, 2>{{t, t}});",
}


@pytest.mark.parametrize("case", RACES)
@pytest.mark.parametrize("asynchrony", ("lazy", "eager"))
def test_races_are_found_in_every_order(case: str, asynchrony: str) -> None:
    for seed in range(2):
        outcome = check(RACES[case], asynchrony=asynchrony, seed=seed)
        assert outcome.status == "race", outcome


def test_report_names_both_threads_and_lines() -> None:
    outcome = check("  tile[t] = A[t];  // the write\n  if (t == 40)\n    C[t] = tile[3];  // the read")
    assert re.search(r"byte \d+ of tile \(512 bytes of shared memory\)", outcome.message), outcome.message
    for expected in (r"thread \(3, 0, 0\) writes", r"thread \(40, 0, 0\) reads", r"// the write", r"// the read", r"in block \(0, 0, 0\)"):
        assert re.search(expected, outcome.message), outcome.message
    assert outcome.line > 0


def test_reuse_of_memory_without_a_barrier() -> None:
    body = """  int* const other = shared_tile<int, 64>(256);
  tile[64 + t] = A[t];
  __syncthreads();
  C[t] = tile[127 - t];
  other[t] = t;"""
    assert check(body, shared="apart").ok
    assert check(body, shared="real").status == "race"
    assert check(body.replace("  other[t]", "  __syncthreads();\n  other[t]"), shared="real").ok


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: f"{mode.asynchrony}-{mode.shared}-{mode.seed}")
def test_gemm_has_no_race(mode: emulator.Mode) -> None:
    outcome, error = run_gemm(gemm_text(), emulator.Mode(mode.asynchrony, mode.shared, mode.seed, races=True), (100, 72, 136))
    assert outcome.ok, outcome.message
    assert error < 1e-6


@pytest.mark.parametrize(
    "fault", ["missing wait", "off-by-one wait", "missing barrier after the wait", "missing barrier before the overwrite", "missing commit"]
)
@pytest.mark.parametrize("asynchrony", ("lazy", "eager", "random"))
def test_each_missing_synchronisation_is_found_in_one_run(fault: str, asynchrony: Any) -> None:
    seed = int(np.random.default_rng().integers(2**31))
    outcome, _ = run_gemm(gemm_text().replace(*FAULTS[fault]), emulator.Mode(asynchrony, seed=seed, races=True), (100, 72, 136))
    assert outcome.status == "race", f"seed {seed}: {outcome}"
