"""The race check follows what is asynchronous: bulk copies, products of warp groups and blocks of a cluster, in every order of a run."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from tests.compiling import compile_text
from tests.emulator.test_clusters import COPY, run
from tests.toolchain import needs_gxx
from tilec import emulator

pytestmark = needs_gxx

GEMM = """
import tilelang.language as T
@T.prim_func
def gemm(A: T.Tensor((M, 640), "float16"), B: T.Tensor((640, N), "float16"), C: T.Tensor((M, N), "float32")):
    with T.Kernel(N // 64, M // 64, threads=128) as (bx, by):
        A_s = T.alloc_shared((64, 64), "float16")
        B_s = T.alloc_shared((64, 64), "float16")
        acc = T.alloc_fragment((64, 64), "float32")
        T.clear(acc)
        for k in T.Pipelined(10, num_stages=3):
            T.copy(A[by * 64, k * 64], A_s)
            T.copy(B[k * 64, bx * 64], B_s)
            T.gemm(A_s, B_s, acc)
        T.copy(acc, C[by * 64, bx * 64])
"""
SIZES = {"one": (320, 64), "pairs": (128, 128)}  # more tiles than the emulator has multiprocessors; two tiles beside one another


@functools.cache
def text(kind: str) -> str:
    """A GEMM whose ring is filled more than once; in pairs, blocks make clusters and share what the copy engine brings."""
    m, n = SIZES[kind]
    return compile_text(GEMM.replace("M", str(m)).replace("N", str(n)), arch="sm_90a", pairs="on" if kind == "pairs" else "off").cu


def outcome(cu: str, mode: emulator.Mode, kind: str) -> emulator.Outcome:
    """A run with fresh operands; its result must be right where nothing else is wrong."""
    m, n = SIZES[kind]
    rng = np.random.default_rng()
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((m, 640), (640, n)))
    values = {"A": a, "B": b, "C": np.full((m, n), np.nan, np.float32)}
    done = emulator.build(cu).run("gemm", values, mode, 120)
    if done.ok:
        assert np.array_equal(values["C"], a.astype(np.float32) @ b.astype(np.float32))
    return done


MODES = [emulator.Mode("eager", "real", 1, races=True), emulator.Mode("lazy", "apart", 2, races=True), emulator.Mode("random", "real", 3, races=True)]


@pytest.mark.parametrize("mode", MODES, ids=lambda m: m.asynchrony)
@pytest.mark.parametrize("kind", SIZES)
def test_hoppers_gemm_has_no_race(kind: str, mode: emulator.Mode) -> None:
    cu = text(kind)
    assert ("__cluster_dims__(2" in cu) is (kind == "pairs")
    done = outcome(cu, mode, kind)
    assert done.ok, done.message


STORED = "            fence_proxy_async();\n            warp_group_sync(warp_group);\n"
FAULTS = {
    "the producer does not wait for an empty stage": ("mbarrier_wait(empty + stage, phase ^ 1);", "", "writes it"),
    "the consumers do not wait for a full stage": ("mbarrier_wait(full + stage, phase);", "", "not waited for, writes it"),
    "a stage is handed back before its product is over": ("wgmma_wait<1>();", "", "not waited for, reads it"),
    "the result is written while the last one is stored": ("if (thread % 128 == 0) bulk_wait_read<1>();", "", "not waited for, reads it"),
    "the result is stored before all have written it": (STORED, "            fence_proxy_async();\n", "asynchronous operation, not waited for, reads it"),
}


@pytest.mark.parametrize("mode", MODES, ids=lambda m: m.asynchrony)
@pytest.mark.parametrize("fault", FAULTS)
def test_each_missing_order_is_found(fault: str, mode: emulator.Mode) -> None:
    """Also where everything happens at once and the values come out right."""
    old, new, told = FAULTS[fault]
    assert old in text("one")
    done = outcome(text("one").replace(old, new), mode, "one")
    assert not done.ok
    if mode.asynchrony == "eager":
        assert done.status == "race" and told in done.message, done


@pytest.mark.parametrize("mode", MODES, ids=lambda m: m.asynchrony)
def test_a_stage_that_the_other_block_still_reads(mode: emulator.Mode) -> None:
    """Both arrivals at a block's own barrier: its next multicast meets products of the other block."""
    faulty = text("pairs").replace("mbarrier_arrive_at(empty + previous, thread % 128)", "mbarrier_arrive_at(empty + previous, rank)")
    assert faulty != text("pairs")
    done = outcome(faulty, mode, "pairs")
    assert not done.ok
    if mode.asynchrony == "eager":
        assert done.status == "race" and "multicast" in done.message and "asynchronous operation, not waited for" in done.message, done


COPIES = {
    "read before it is waited for": (COPY.replace("  mbarrier_wait(bar, 0);\n", ""), "writes it"),
    "the source is written before it is sent": (COPY.replace("  if (t == 0) bulk", "  tile[63 - t] = A[base + t];\n  if (t == 0) bulk"), "reads it"),
    "the source is overwritten while it is read": (COPY.replace("  mbarrier_wait(bar, 0);", "  tile[t] = 0;\n  mbarrier_wait(bar, 0);"), "reads it"),
    "own waits tell nothing of one's own copy": (COPY.replace("  C[base + t] = inbox[t];", "  tile[t] = 0;\n  C[base + t] = inbox[t];"), "reads it"),
    "over what another block reads": (COPY.replace("  cluster_sync();\n  if", "  cluster_sync();\n  C[base + t] = inbox[t];\n  if"), ""),
}  # fmt: skip


@pytest.mark.parametrize("asynchrony", ["eager", "lazy", "random"])
@pytest.mark.parametrize("case", COPIES)
def test_bulk_copies_between_blocks(case: str, asynchrony: str) -> None:
    body, told = COPIES[case]
    done = run(body, emulator.Mode(asynchrony, "apart", 5, races=True))[0]
    assert done.status == "race" and told in done.message, done


ALL_WAIT = """  if (t == 0) {
    mbarrier_init(bar, 64);
    mbarrier_init_fence();
  }
  cluster_sync();
  tile[t] = A[base + t];
  mbarrier_arrive_at(bar, rank);
  mbarrier_wait(bar, 0);
  C[base + t] = tile[63 - t];
  cluster_sync();"""


def test_a_blocks_own_barriers_order_it_in_a_cluster() -> None:
    for seed in range(2):
        done, a, c = run(ALL_WAIT, emulator.Mode("lazy", "apart", seed, races=True))
        assert done.ok, done.message
        assert np.array_equal(c, a.reshape(8, 64)[:, ::-1].reshape(-1))
        done = run(ALL_WAIT.replace("  mbarrier_wait(bar, 0);\n", ""), emulator.Mode("lazy", "apart", seed, races=True))[0]
        assert done.status == "race", done
