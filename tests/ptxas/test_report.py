"""Reading what ptxas says: real reports, made here by nvcc."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hopper.kernels import Gemm
from tests.toolchain import needs_nvcc
from tilec import ptxas

PAIR = """
extern "C" __global__ void __launch_bounds__(1024) many(float* x) {
  float v[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) v[i] = x[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 96; ++i) x[i * 1024 + threadIdx.x] = v[95 - i] * v[i] + v[(i * 7) % 96];
}
extern "C" __global__ void few(float* x) { x[threadIdx.x] *= 2; }
"""


@pytest.fixture(autouse=True)
def _fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))


@needs_nvcc
def test_spills_and_registers_of_each_kernel() -> None:
    report = ptxas.hear(PAIR, ("sm_80",))
    assert isinstance(report, ptxas.Report)
    many, few = report.bodies["many"], report.bodies["few"]
    assert few.clean and 0 < few.registers < 32
    assert many.registers == 64 and many.stores >= 4 * (96 - 64) and many.loads and many.stack and not many.clean
    assert many.cost >= many.stores and f"{many.stores} bytes spilled" in str(many)


@needs_nvcc
def test_the_worse_of_two_architectures_counts() -> None:
    one, two = ptxas.hear(PAIR, ("sm_80",)), ptxas.hear(PAIR, ("sm_80", "sm_90a"))
    assert isinstance(one, ptxas.Report) and isinstance(two, ptxas.Report)
    assert set(two.bodies) == {"many", "few"} and two.bodies["many"].cost >= one.bodies["many"].cost


@needs_nvcc
def test_serialised_products_are_told_of_the_kernel_that_has_them() -> None:
    text = Gemm(bn=64, trans_b=True).compiled().cu
    start = text.index("\ngemm(")
    end = text.index("\n}\n", start)
    spoiled = text[:start] + text[start:end].replace("wgmma_wait<1>();", "acc[0] += 1;\nwgmma_wait<1>();") + text[end:]
    assert spoiled != text
    before, after = ptxas.hear(text, ("sm_90a",)), ptxas.hear(spoiled, ("sm_90a",))
    assert isinstance(before, ptxas.Report) and isinstance(after, ptxas.Report)
    assert all(b.clean for b in before.bodies.values())
    assert after.bodies["gemm"].losses and after.bodies["gemm"].cost > 1 << 19
    assert after.bodies["gemm__pairs"].clean and after.bodies["gemm__general"].clean


def test_a_message_that_names_no_kernel_is_about_all() -> None:
    entry = "ptxas info    : Compiling entry function '{}' for 'sm_90a'"
    lines = [entry, "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"]
    said = "\n".join([lines[0].format("one"), lines[1], lines[0].format("two"), lines[1], "(C7508) Performance Loss: 'setmaxnreg' ignored"])
    assert {s: b.losses for s, b in ptxas.parse(said).items()} == {"one": ("7508",), "two": ("7508",)}


@needs_nvcc
def test_a_file_that_nvcc_refuses_gives_no_answer() -> None:
    answer = ptxas.hear("this is no CUDA", ("sm_80",))
    assert isinstance(answer, ptxas.Silence) and "error" in answer.reason
