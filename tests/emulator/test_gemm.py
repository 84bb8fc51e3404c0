"""A double-buffered GEMM in the form of a generated file: right in every mode, and every seeded fault in it is found.

A fault counts as found if some mode reports it, or gives a wrong result: what a test that compares results would see.
"""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.toolchain import needs_gxx, needs_nvcc, nvcc_compile
from tilec import emulator
from tilec.emit import prelude

pytestmark = needs_gxx


def gemm_text() -> str:
    text = (Path(__file__).parent / "gemm.cu").read_text(encoding="utf-8")
    return re.sub(r"@PRELUDE (.*?)@", lambda match: prelude.select(match[1].split()), text)


def run(text: str, mode: emulator.Mode, shape: tuple[int, int, int]) -> tuple[emulator.Outcome, float]:
    """How the run ended, and the relative error of what it left behind (NaN where nothing was written)."""
    m, n, k = shape
    rng = np.random.default_rng()
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    c = np.full((m, n), np.nan, np.float32)
    outcome = emulator.build(text).run("gemm_launch", {"A": a, "B": b, "C": c}, mode, timeout_s=20)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    return outcome, float(np.linalg.norm(c - exact) / max(np.linalg.norm(exact), 1e-30))


MODES = [
    emulator.Mode(asynchrony, shared, seed)
    for asynchrony, shared, seed in (
        ("lazy", "apart", 0), ("eager", "apart", 1), ("lazy", "real", 2), ("eager", "real", 3), ("random", "real", 4), ("eager", "apart", 5)
    )
]  # fmt: skip


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: f"{mode.asynchrony}-{mode.shared}-{mode.seed}")
@pytest.mark.parametrize("shape", [(100, 72, 136), (64, 64, 64), (1, 8, 8), (130, 8, 40)], ids=str)
def test_right_in_every_mode(mode: emulator.Mode, shape: tuple[int, int, int]) -> None:
    outcome, error = run(gemm_text(), mode, shape)
    assert outcome.ok, outcome
    assert error < 1e-6


def test_no_steps_and_empty_outputs() -> None:
    outcome, _ = run(gemm_text(), emulator.Mode(), (64, 64, 0))
    assert outcome.ok
    outcome, _ = run(gemm_text(), emulator.Mode(), (0, 64, 32))
    assert outcome.ok


@needs_nvcc
def test_the_file_is_cuda(tmp_path: Path) -> None:
    nvcc_compile(gemm_text(), "sm_80", tmp_path)


FAULTS = {
    "missing wait": ("    cp_async_wait<1>();\n", ""),
    "off-by-one wait": ("cp_async_wait<1>()", "cp_async_wait<2>()"),
    "missing barrier after the wait": ("    cp_async_wait<1>();\n    __syncthreads();\n", "    cp_async_wait<1>();\n"),
    "missing barrier before the overwrite": ("    }\n    __syncthreads();\n  }\n", "    }\n  }\n"),
    "missing commit": (
        "    if (ko + 1 < steps) copy(ko + 1, (ko + 1) % 2);\n    cp_async_commit();",
        "    if (ko + 1 < steps) copy(ko + 1, (ko + 1) % 2);",
    ),
    "swizzle not undone": (
        "A_tile + A_shared_at(warp_row + m * 16 + lane % 16, k + lane / 16 * 8)",
        "A_tile + (warp_row + m * 16 + lane % 16) * 32 + k + lane / 16 * 8",
    ),
    "swizzle of another tile": ("B_tile + B_shared_at(k + lane % 16, warp_col", "B_tile + A_shared_at(k + lane % 16, warp_col"),
    "tile too small": ("shared_tile<half_t, 4096>(0)", "shared_tile<half_t, 3072>(0)"),
    "tiles that overlap": ("shared_tile<half_t, 4096>(8192)", "shared_tile<half_t, 4096>(4096)"),
    "too little shared memory": ("launch.dynamicSmemBytes = 16384", "launch.dynamicSmemBytes = 12288"),
    "missing zero fill": (", in_range);", ", true);"),
    "unguarded load of B": ("const bool in_range = ko * 32 + row < K && col0 + col < N;", "const bool in_range = true;"),
    "unguarded store of C": ("if (row < M && col < N) C[", "if (row < M) C["),
    "wrong row pitch": ("static_cast<long long>(ko * 32 + row) * N", "static_cast<long long>(ko * 32 + row) * K"),
    "stage not advanced": ("B_shared + ko % 2 * 2048", "B_shared"),
    "first tile not loaded": ("  if (steps > 0) copy(0, 0);\n", ""),
    "fragments exchanged": ("b[n / 2] + n % 2 * 2", "b[n / 2] + (n + 1) % 2 * 2"),
    "accumulator not cleared": ("float C_local[2][4][4] = {};", "float C_local[2][4][4];"),
    "last block of rows not launched": ("(M + 63) / 64", "M / 64"),
    "barrier that half the warps skip": ("    }\n    __syncthreads();\n  }\n", "    }\n    if (warp < 2) __syncthreads();\n  }\n"),
    "mma that half a warp skips": ("          mma_m16n8k16_f16_f32(", "          if (lane < 16) mma_m16n8k16_f16_f32("),
    "misaligned copy": ("cp_async_16_zfill(A_shared + stage", "cp_async_16_zfill(A_shared + 4 + stage"),
    "copy past the last step": (
        "const bool in_range = row0 + row < M && ko * 32 + col < K;",
        "const bool in_range = row0 + row < M;",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_seeded_fault_is_found(fault: str) -> None:
    right, wrong = FAULTS[fault]
    text = gemm_text()
    assert right in text
    text = text.replace(right, wrong)
    for mode in MODES:
        outcome, error = run(text, mode, (100, 72, 136))
        assert outcome.ok or outcome.message, "a report says what happened"
        if not outcome.ok or not error < 1e-6:
            return
    pytest.fail("no mode shows the fault")


REPORTS = {
    "tile too small": ("overrun", r"writes 16 bytes, \d+ past the end of A_shared \(6144 bytes of shared memory\), in block \(.*\), thread"),
    "too little shared memory": ("overrun", r"B_shared takes bytes 8192 to 16384 of shared memory, but the launch gives the block 12288"),
    "unguarded load of B": ("overrun", r"reads 16 bytes, .* past the end of B \(float16\[136, 72\]\)"),
    "barrier that half the warps skip": ("fault", r"divergent barrier"),
    "mma that half a warp skips": ("deadlock", r"no thread can go on: .* wait for the other lanes at mma_m16n8k16_f16_f32 in line \d+"),
    "misaligned copy": ("fault", r"A_shared .* which is not aligned to 16 bytes"),
}


@pytest.mark.parametrize("fault", REPORTS)
def test_report_names_the_place(fault: str) -> None:
    text = gemm_text().replace(*FAULTS[fault])
    outcome, _ = run(text, emulator.Mode(), (100, 72, 136))
    status, pattern = REPORTS[fault]
    assert outcome.status == status, outcome
    assert re.search(pattern, outcome.message), outcome.message
    assert outcome.line > 0
    line = text.splitlines()[outcome.line - 1]
    assert any(word in line for word in ("cp_async", "shared_tile", "__syncthreads", "mma_", "ldmatrix")), line
