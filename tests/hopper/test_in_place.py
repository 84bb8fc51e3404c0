"""Products of portable bodies that warp groups do in place: right in every order of threads, and what they need is missed when gone."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from tests.clean import assert_clean
from tests.compiling import compile_text
from tests.hopper.by_hand import difference, emulate
from tests.hopper.in_place import Weighted, decode_text, decode_wanted
from tests.toolchain import needs_gxx, needs_nvcc
from tilec import emulator
from tilec.driver import Compiled
from tilec.plan.plan import PGemm
from tilec.plan.walk import walk_plan

LAZY, EAGER = emulator.Mode("lazy", "apart", 1), emulator.Mode("eager", "real", 2)
RACES = emulator.Mode("random", "real", 3, races=True)
KERNELS = {
    "both transposed": Weighted(trans_a=True, trans_b=True), "four groups, rows first": Weighted(m=128, n=128, bm=128, bn=128, threads=512, bk=32, k=64),
    "two parts a group": Weighted(m=192, bm=192, bn=32, n=32, k=128), "two instructions, half sums": Weighted(m=64, n=320, bn=320, bk=32, k=64, acc="float16"),
    "columns first, in registers": Weighted(m=128, bm=128, bn=128, k=128, threads=256, policy="FullCol", held=True, dtype="bfloat16"),
    "columns in halves of a panel": Weighted(m=64, n=64, bn=64, threads=256), "int8": Weighted(m=64, n=64, dtype="int8", acc="int32", trans_b=True),
    "fp8 in registers": Weighted(m=64, n=64, dtype="float8_e4m3", trans_b=True, held=True, bk=32, k=96), "written by threads": Weighted(m=64, written=True, stages=1),
    "tf32 in registers": Weighted(m=64, n=64, dtype="float32", trans_b=True, bk=16, held=True, k=64), "rows of 96": Weighted(m=64, n=64, bk=48, k=192),
}  # fmt: skip
OTHERS = {
    "rows no multiple of 64": (Weighted(m=96, bm=96), "do not share 96 x 64"),
    "8 bits along m": (Weighted(dtype="int8", acc="int32", trans_a=True, trans_b=True), "must run along K"),
    "no whole warp group": (Weighted(threads=96), "96 threads are no whole number"),
    "rows off 32 bytes": (Weighted(bn=72, n=144), "no multiples of 32 bytes"),
}


def products(compiled: Compiled) -> list[PGemm]:
    return [s for s in walk_plan(compiled.plans[0].launches[0].variants[0].body) if isinstance(s, PGemm)]


@needs_gxx
@pytest.mark.parametrize("name", KERNELS)
def test_products_in_place(name: str) -> None:
    kernel = KERNELS[name]
    compiled, values = kernel.compiled(), kernel.inputs()
    assert [g.plan.kind for g in products(compiled)] == ["wgmma"]
    for mode in (LAZY, EAGER):
        outcome, got = emulate(compiled.cu, "weighted", values, mode)
        assert outcome.ok, f"{mode}: {outcome.message}"
        assert difference(got["C"], kernel.wanted(values)) == 0.0


@pytest.mark.parametrize("name", OTHERS)
def test_what_they_cannot_do_says_why(name: str) -> None:
    kernel, why = OTHERS[name]
    (g,) = products(kernel.compiled())
    assert g.plan.kind == "mma" and why in g.plan.reason


DECODES = {"side by side": (512, 256, "FullCol", True), "kept in registers": (128, 128, "Square", False), "two groups, square": (256, 256, "Square", True)}


@needs_gxx
@pytest.mark.parametrize("name", DECODES)
def test_two_products_of_one_tile(name: str) -> None:
    dim, threads, policy, shared = DECODES[name]
    compiled = compile_text(decode_text(dim, 128, threads, policy, shared), arch="sm_90a")
    assert [(g.plan.kind, g.plan.load_a == "register") for g in products(compiled)] == [("wgmma", False), ("wgmma", not shared)]
    rng = np.random.default_rng()
    q, kv = ((rng.standard_normal(s) / 4).astype(np.float16) for s in ((64, dim), (128, dim)))
    values = {"Q": q, "KV": kv, "O": np.full((64, dim), np.nan, np.float32)}
    for mode in (LAZY, RACES):
        outcome, got = emulate(compiled.cu, "decode", values, mode)
        assert outcome.ok, f"{mode}: {outcome.message}"
        assert difference(got["O"], decode_wanted(q, kv)) < 2e-3


BROUGHT = Weighted(m=64, bn=128, threads=256, k=320, stages=3)  # by the copy engine
COPIED = Weighted(m=64, bn=128, threads=256, k=192, times=2)  # by the threads
FAULTS = {
    "the copy engine is not waited for": (BROUGHT, "mbarrier_wait(full + stage, phase);", "", ""),
    "the phase stays": (BROUGHT, "phase ^= stage == 3;", "", ""),
    "too few bytes expected": (BROUGHT, "mbarrier_expect(full + stage, 24576)", "mbarrier_expect(full + stage, 24560)", ""),
    "another version": (BROUGHT, "wgmma_descriptor(A_s + stage * 4096", "wgmma_descriptor(A_s + (stage + 1) % 3 * 4096", ""),
    "a version is filled while it is read": (BROUGHT, "__syncthreads();  // for every thread; and", "// for every thread; and", ""),
    "the product is not waited for": (BROUGHT, "wgmma_wait<0>();", "", ""), "no fence before the product": (BROUGHT, "wgmma_fence();", "", "without a wgmma_fence"),
    "both groups take the same columns": (BROUGHT, " + warp_group * ", " + 0 * ", ""),
    "nobody tells of what was copied": (COPIED, "fence_proxy_async();  // warp groups read it", "", "without fence_proxy_async"),
    "told before it has arrived": (COPIED, "cp_async_wait<0>();", "cp_async_wait<1>();", ""),
    "no barrier between copies and products": (COPIED, "__syncthreads();", "", ""),
}  # fmt: skip


@functools.cache
def text(kernel: Weighted) -> str:
    return kernel.compiled().cu


@needs_gxx
@pytest.mark.parametrize("kernel", [BROUGHT, COPIED], ids=["brought", "copied"])
def test_without_a_fault_there_is_no_race(kernel: Weighted) -> None:
    assert ("mbarrier_wait(full + stage, phase);" in text(kernel)) is (kernel is BROUGHT)
    values = kernel.inputs()
    outcome, got = emulate(text(kernel), "weighted", values, RACES)
    assert outcome.ok and difference(got["C"], kernel.wanted(values)) == 0.0, outcome.message


@needs_gxx
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found(fault: str) -> None:
    kernel, old, new, told = FAULTS[fault]
    assert old in text(kernel)
    values = kernel.inputs()
    outcome, got = emulate(text(kernel).replace(old, new), "weighted", values, RACES)
    assert not outcome.ok or difference(got["C"], kernel.wanted(values)) > 0
    assert told in outcome.message


def test_rows_that_the_engine_cannot_reach_have_a_body_of_their_own() -> None:
    """Run-time extents: the first body asks for whole 16 bytes, the other takes any."""
    source = Weighted().source().replace("M, N, K, BM, BN, BK = 128, 128, 256,", "BM, BN, BK =").replace("(A: T.Tensor(", "(M: T.int32, N: T.int32, K: T.int32, A: T.Tensor(")
    first, second = compile_text(source, arch="sm_90a").plans[0].launches[0].variants
    assert first.tensor_maps and not second.tensor_maps and first.when is not None and second.when is None


@needs_gxx
def test_what_threads_write_must_be_told_of() -> None:
    kernel = KERNELS["written by threads"]
    cu, values = kernel.compiled().cu, kernel.inputs()
    assert emulate(cu, "weighted", values, RACES)[0].ok
    outcome, _ = emulate(cu.replace("fence_proxy_async();", ""), "weighted", values, RACES)
    assert "without fence_proxy_async" in outcome.message


@needs_nvcc
@pytest.mark.parametrize("name", ["two instructions, half sums", "fp8 in registers"])
def test_ptxas_has_nothing_to_complain_about(name: str) -> None:
    assert_clean(KERNELS[name].compiled(), "sm_90a")
