"""Kernels written for Hopper by hand: right on both paths in every order of threads, and their faults told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compiling import compile_text, run_reference
from tests.hopper.by_hand import Hand, difference, emulate
from tests.hopper.kernels import MODES
from tests.toolchain import needs_gxx
from tilec import emulator
from tilec.plan.plan import PGemm
from tilec.plan.walk import walk_plan
from tilec.reference.errors import MeaningError

SAMPLES = Path(__file__).resolve().parents[2] / "samples" / "by_hand"
THROUGH_TILE = "T.copy(acc, C_s); T.tma_copy(C_s, C[by * BM, bx * BN]); T.tma_store_arrive(); T.tma_store_wait(0)"
KERNELS = {
    "plain": Hand(), "B as N x K": Hand(trans_b=True), "A as K x M": Hand(trans_a=True, m=256), "both": Hand(trans_a=True, trans_b=True, m=256),
    "T.gemm": Hand(queued=False), "bfloat16": Hand(dtype="bfloat16", out="bfloat16"), "one group": Hand(groups=1, bm=64, bn=256, bk=32, n=264),
    "three groups": Hand(groups=3, bm=192, bn=96, stages=2), "half sums": Hand(acc="float16"), "A in registers": Hand(held=True, bk=32),
    "A in registers, T.gemm": Hand(held=True, trans_b=True, queued=False), "int8": Hand(dtype="int8", out="int32", acc="int32", trans_b=True, k=352, bn=64),
    "fp8": Hand(dtype="float8_e4m3", out="float32", trans_b=True, k=352), "tf32": Hand(dtype="float32", out="float32", trans_b=True, bk=32),
    "bulk store": Hand(store=THROUGH_TILE), "rows off 32 bytes": Hand(queued=False, bn=72, n=144, stages=2), "one step": Hand(k=40),
    "rows off 16 bytes": Hand(n=201),
}  # fmt: skip
TOLERANCE = {"float16": 1e-3, "bfloat16": 4e-3, "float32": 2e-3, "int32": 0.0}


PORTABLE = ("plain", "A as K x M", "T.gemm", "A in registers", "int8", "bulk store", "rows off 16 bytes")


@needs_gxx
@pytest.mark.parametrize(("name", "arch"), [*((n, "sm_90a") for n in KERNELS), *((n, "sm_80") for n in PORTABLE)])
def test_warp_specialised_products(name: str, arch: str) -> None:
    kernel = KERNELS[name]
    compiled, values = kernel.compiled(arch), kernel.inputs()
    want, tolerance = kernel.wanted(values), TOLERANCE[kernel.out]
    assert difference(run_reference(compiled, values)["C"], want) <= tolerance
    for mode in MODES[:3] if arch == "sm_90a" else MODES[2:3]:
        outcome, got = emulate(compiled.cu, "gemm", values, mode)
        assert outcome.ok, f"{mode}: {outcome.message}"
        assert difference(got["C"], want) <= tolerance


def test_products_of_warp_groups_where_they_fit() -> None:
    kinds = {n: [s.plan.kind for s in walk_plan(KERNELS[n].compiled().plans[0].launches[0].variants[0].body) if isinstance(s, PGemm)] for n in KERNELS}
    assert all(k == (["mma"] if n == "rows off 32 bytes" else ["wgmma"]) for n, k in kinds.items()), kinds


@needs_gxx
def test_one_file_for_both_architectures() -> None:
    from tilec.targets import lookup

    kernel = Hand()
    hopper = lookup("sm_90a")
    assert hopper is not None
    compiled, values = kernel.compiled("sm_80", also=(hopper,)), kernel.inputs()
    assert [v.symbol for v in compiled.plans[0].launches[0].variants] == ["gemm__sm90a", "gemm"]
    for mode in MODES[:2]:
        outcome, got = emulate(compiled.cu, "gemm", values, mode)
        assert outcome.ok, outcome.message
        assert difference(got["C"], kernel.wanted(values)) < 1e-3


FAULTS = {
    "the producer's parity": ("mbarrier_wait(empty + s, (k_1 / 3 + 1) % 2)", "mbarrier_wait(empty + s, k_1 / 3 % 2)"),
    "the consumers' parity": ("mbarrier_wait(full + k_1 % 3, k_1 / 3)", "mbarrier_wait(full + k_1 % 3, 1 - k_1 / 3)"),
    "the producer does not wait": ("mbarrier_wait(empty + s, (k_1 / 3 + 1) % 2);", ""),
    "the consumers do not wait": ("mbarrier_wait(full + k_1 % 3, k_1 / 3);", ""),
    "nobody arrives at full": ("mbarrier_arrive(full + s);", ""),
    "nobody arrives at empty": ("mbarrier_arrive(empty + (k_1 + 2) % 3);", ""),
    "too few bytes of a": ("mbarrier_expect_bytes(full + s, 16384)", "mbarrier_expect_bytes(full + s, 16368)"),
    "too many bytes of b": ("mbarrier_expect_bytes(full + s, 32768)", "mbarrier_expect_bytes(full + s, 32784)"),
    "bytes not announced": ("mbarrier_expect_bytes(full + s, 32768);", ""),
    "too many arrivals wanted": ("mbarrier_init(empty + 1, 2)", "mbarrier_init(empty + 1, 3)"),
    "too few arrivals wanted": ("mbarrier_init(empty, 2)", "mbarrier_init(empty, 1)"),
    "another stage released": ("mbarrier_arrive(empty + (k_1 + 2) % 3)", "mbarrier_arrive(empty + k_1 % 3)"),
    "a wait too short": ("wgmma_wait<1>()", "wgmma_wait<2>()"),
    "no wait before the result": ("wgmma_wait<0>();", ""),
    "no fence before products": ("wgmma_fence();", ""),
    "no commit": ("wgmma_commit();", ""),
    "both groups take the same rows": (" + thread / 128 * 4096", ""),
    "the next stage's tile": ("wgmma_descriptor(B_s + k_1 % 3 * 4096", "wgmma_descriptor(B_s + (k_1 + 1) % 3 * 4096"),
    "panels of b too close": ("24576, 1024, 1)", "8192, 1024, 1)"),
    "coordinates exchanged": ("&A_map, full + s, k_1 * 64, by * 128)", "&A_map, full + s, by * 128, k_1 * 64)"),
    "a box on another one": ("B_s + s * 4096 + 12288", "B_s + s * 4096"),
    "barriers where a tile is": ("shared_tile<unsigned long long, 3>(0)", "shared_tile<unsigned long long, 3>(1024)"),
    "more registers than there are": ("registers_take<232>", "registers_take<248>"),
}  # fmt: skip


@pytest.fixture(scope="module")
def text() -> str:
    source = (SAMPLES / "gemm_warp_specialized.py").read_text(encoding="utf-8")
    return compile_text(source, {"M": 250, "N": 264, "K": 328}, "sm_90a").cu


def gemm_inputs() -> tuple[dict[str, np.ndarray], np.ndarray]:  # type: ignore[type-arg]
    rng = np.random.default_rng(np.random.SeedSequence())
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((250, 328), (328, 264)))
    return {"A": a, "B": b, "C": np.full((250, 264), np.nan, np.float16)}, a.astype(np.float64) @ b.astype(np.float64)


@needs_gxx
def test_without_a_fault_it_is_right_in_every_mode(text: str) -> None:
    values, want = gemm_inputs()
    for mode in MODES:
        outcome, got = emulate(text, "matmul", values, mode)
        assert outcome.ok, outcome.message
        assert difference(got["C"], want) < 1e-3


@needs_gxx
@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_caught(name: str, text: str) -> None:
    old, new = FAULTS[name]
    at = text.index("__launch_bounds__(384, 1)")
    assert old in text[at:], f"the kernel has no `{old}`"
    broken = text[:at] + text[at:].replace(old, new, 1)
    values, want = gemm_inputs()
    for mode in MODES:
        outcome, got = emulate(broken, "matmul", values, mode, 20)
        if not outcome.ok or not difference(got["C"], want) < 1e-3:
            return
    pytest.fail(f"`{name}` went unnoticed")


# ---- what is wrong in the source itself ------------------------------------------------------------------------------

WRONG_ORDER = {
    "parity": ("(ko // S + 1) % 2", "ko // S % 2"), "parity of full": ("T.barrier_wait(full[s], ko // S % 2)", "T.barrier_wait(full[s], (ko // S + 1) % 2)"),
    "a missing arrival": ("            T.barrier_arrive(empty[s])", "            T.barrier_arrive(empty[0])"),
    "too many arrivals wanted": ("empty = T.alloc_barrier([256] * S)", "empty = T.alloc_barrier([512] * S)"),
    "bytes that never come": ("T.barrier_arrive(full[s])", "T.mbarrier_arrive_expect_tx(full[s], 32)"),
}  # fmt: skip


@needs_gxx
@pytest.mark.parametrize("name", WRONG_ORDER)
def test_a_wrong_order_ends_in_a_report_of_its_line(name: str) -> None:
    kernel = Hand()
    source = kernel.source()
    old, new = WRONG_ORDER[name]
    assert old in source
    compiled = compile_text(source.replace(old, new, 1), None, "sm_90a")
    values = kernel.inputs()
    caught = 0
    try:
        run_reference(compiled, values)
    except MeaningError as fault:
        caught += 1
        assert fault.span.line > 0 and ("wait" in str(fault) or "arrive" in str(fault))
    for mode in MODES[:3]:
        outcome, got = emulate(compiled.cu, "gemm", values, mode, 20)
        if not outcome.ok or not difference(got["C"], kernel.wanted(values)) < 1e-3:
            caught += 1
    assert caught, "nobody noticed"


def test_the_reference_says_who_waits_where() -> None:
    kernel = Hand()
    old, new = WRONG_ORDER["too many arrivals wanted"]
    compiled = compile_text(kernel.source().replace(old, new, 1), None, "sm_90a")
    with pytest.raises(MeaningError, match=r"no thread can go on: .*at `full\[\d\]`.* in line 27; .*at `empty\[\d\]`.*misses 512 of 512 arrivals, in line 19"):
        run_reference(compiled, kernel.inputs())


@needs_gxx
def test_the_emulator_says_who_waits_where() -> None:
    kernel = Hand()
    old, new = WRONG_ORDER["too many arrivals wanted"]
    compiled = compile_text(kernel.source().replace(old, new, 1), None, "sm_90a")
    outcome, _ = emulate(compiled.cu, "gemm", kernel.inputs(), emulator.Mode("random", "real", 7), 20)
    assert not outcome.ok
    assert "no thread can go on" in outcome.message and "from kernel.py:19  T.barrier_wait(empty[s]" in outcome.message, outcome.message


@needs_gxx
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_tensors_off_16_bytes_and_sizes_at_run_time(arch: str) -> None:
    kernel = Hand()
    sizes = "M, N, K = T.dynamic('M, N, K')\nBM"
    source = kernel.source().replace("M, N, K, BM", sizes).replace("= 250, 200, 328, 128,", "= 128,")
    compiled = compile_text(source, None, arch)
    rng = np.random.default_rng(np.random.SeedSequence())
    for m, n, k, alignment in ((130, 136, 200, 16), (70, 129, 201, 16), (64, 64, 0, 16), (130, 136, 136, 2)):
        a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
        values = {"A": a, "B": b, "C": np.full((m, n), np.nan, np.float16), "M": m, "N": n, "K": k}
        mode = emulator.Mode("random", "real", 8, alignment=alignment)
        outcome = emulator.build(compiled.cu).run("gemm_launch", values, mode, 60)
        assert outcome.ok, outcome.message
        want = a.astype(np.float64) @ b.astype(np.float64)
        assert np.abs(np.asarray(values["C"], np.float64) - want).max() <= 2e-3 * max(1.0, np.abs(want).max())


@needs_gxx
def test_fixed_sizes_off_16_bytes() -> None:
    kernel = Hand()
    compiled, values = kernel.compiled(), kernel.inputs()
    outcome, got = emulate(compiled.cu, "gemm", values, emulator.Mode("random", "real", 9, alignment=2))
    assert outcome.ok, outcome.message
    assert difference(got["C"], kernel.wanted(values)) < 1e-3
