"""Clusters: their blocks live at once, reach into each other's shared memory, and are found out where nothing orders that."""

from typing import Any

import numpy as np
import pytest

from tests.emulator.kernels import kernel_file, tensor
from tests.toolchain import needs_gxx, needs_nvcc, nvcc_compile
from tilec import emulator

pytestmark = needs_gxx

NEEDS = ("shared_tile", "cluster_rank", "cluster_sync", "cluster_arrive_relaxed", "cluster_peer", "mbarrier_init", "mbarrier_init_fence",
         "mbarrier_arrive_at", "mbarrier_expect", "mbarrier_wait", "bulk_copy_at", "fence_proxy_async", "block_sync")  # fmt: skip
HEAD = """  int* const tile = shared_tile<int, 64>(0);
  int* const inbox = shared_tile<int, 64>(256);
  unsigned long long* const bar = shared_tile<unsigned long long, 1>(512);
  const int t = threadIdx.x, rank = cluster_rank(), next = (rank + 1) % 4, before = (rank + 3) % 4, base = blockIdx.x * 64;
"""
MODES = [emulator.Mode(a, s, n) for n, (a, s) in enumerate((("lazy", "apart"), ("eager", "real"), ("random", "apart"), ("random", "real")))]
BLOCKS = 8


def text(body: str, blocks: int = BLOCKS) -> str:
    """A kernel of clusters of 4 blocks of 64 threads."""
    params = [tensor("A", "int32", ["512"]), tensor("C", "int32", ["512"], "out")]
    return kernel_file(HEAD + body, params, block=64, grid=str(blocks), shared=520, needs=NEEDS, cluster=4)


def run(body: str, mode: emulator.Mode = MODES[0], blocks: int = BLOCKS) -> tuple[emulator.Outcome, Any, Any]:
    """The outcome, A and C."""
    a, c = np.random.default_rng().integers(-(2**31), 2**31, 512, dtype=np.int32), np.zeros(512, np.int32)
    return emulator.build(text(body, blocks)).run("k", {"A": a, "C": c}, mode), a, c


PULL = "  tile[t] = A[base + t];\n  cluster_sync();\n  C[base + t] = *cluster_peer(tile + 63 - t, next);\n  cluster_sync();"
PUSH = "  cluster_sync();\n  *cluster_peer(inbox + 63 - t, before) = A[base + t];\n  cluster_sync();\n  C[base + t] = inbox[t];"
COPY = """  if (t == 0) {
    mbarrier_init(bar, 1);
    mbarrier_init_fence();
    mbarrier_expect(bar, 256);
  }
  tile[63 - t] = A[base + t];
  fence_proxy_async();
  cluster_sync();
  if (t == 0) bulk_copy_at(inbox, tile, 256, bar, before);
  mbarrier_wait(bar, 0);
  C[base + t] = inbox[t];
  cluster_sync();"""
SIGNAL = """  if (t == 0) {
    mbarrier_init(bar, 64);
    mbarrier_init_fence();
  }
  tile[t] = A[base + t];
  cluster_sync();
  C[base + t] = *cluster_peer(tile + 63 - t, next);
  mbarrier_arrive_at(bar, next);
  mbarrier_wait(bar, 0);"""
SPLIT = """  tile[t] = A[base + t];
  cluster_arrive();
  cluster_wait();
  C[base + t] = *cluster_peer(tile + 63 - t, next);
  cluster_arrive_relaxed();
  cluster_wait();"""


def expected(a: Any) -> Any:
    """Each block has the reversed part of the next one of its cluster."""
    return np.roll(a.reshape(2, 4, 64)[:, :, ::-1], -1, axis=1).reshape(-1)


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("body", (PULL, PUSH, COPY, SIGNAL, SPLIT), ids=("pull", "push", "copy", "signal", "split"))
def test_blocks_of_a_cluster_exchange(body: str, mode: emulator.Mode) -> None:
    outcome, a, c = run(body, mode)
    assert outcome.ok, outcome.message
    assert (c == expected(a)).all()


FAULTS = {
    "no barrier at the start": (PULL.replace("  cluster_sync();\n", "  block_sync();\n", 1), "no cluster barrier in front of this"),
    "no barrier at the end": (PULL[: PULL.rindex("  cluster_sync")], "block"),
    "arrives but does not wait at the end": (PULL[: PULL.rindex("  cluster_sync")] + "  cluster_arrive();", "block"),
    "one block leaves early": (PULL[: PULL.rindex("  cluster_sync")] + "  if (rank != 2) cluster_sync();", "block"),
    "a block too far": (PULL.replace("63 - t, next", "63 - t, next + 1"), "block 4 of a cluster of 4"),
    "a barrier entered twice": (PULL.replace("  cluster_sync();", "  cluster_arrive();", 1).replace("tile + 63 - t, next", "tile + t, rank"),
                                "again without having waited"),
    "a wait without an arrival": ("  cluster_wait();", "has not come"),
    "half a warp": (PULL.replace("  cluster_sync();", "  if (t < 48) cluster_sync();", 1), ""),
    "a warp less": (PULL.replace("  cluster_sync();", "  if (t < 32) cluster_sync();", 1), ""),
    "a copy without its fence": (COPY.replace("  fence_proxy_async();\n", ""), None),
    "a copy to a barrier not there": (COPY.replace("    mbarrier_init(bar, 1);", "    if (rank != 1) mbarrier_init(bar, 1);"), "not initialised"),
    "too few bytes expected": (COPY.replace("expect(bar, 256)", "expect(bar, 128)"), "wait for an mbarrier"),
    "an odd number of bytes": (COPY.replace("tile, 256, bar", "tile, 100, bar"), "no multiple of 16"),
    "past the end of the tile": (COPY.replace("tile, 256, bar", "tile + 112, 256, bar"), "past the end of"),
    "the source leaves at once": (
        COPY.replace("  mbarrier_wait(bar, 0);", "  if (rank % 2 == 0) return;\n  mbarrier_wait(bar, 0);"), "",
    ),
    "a signal too few": (SIGNAL.replace("init(bar, 64)", "init(bar, 65)"), "wait for an mbarrier"),
    "a peer's array": (PULL.replace("tile + 63 - t, next", "const_cast<int*>(A), next"), "not in this block's shared memory"),
}  # fmt: skip


@pytest.mark.parametrize("fault", [f for f in FAULTS if FAULTS[f][1] is not None])
def test_faults_are_found_in_every_order(fault: str) -> None:
    body, message = FAULTS[fault]
    for mode in (MODES[0], MODES[3]):
        outcome = run(body, mode)[0]
        assert not outcome.ok and (message or "") in outcome.message, outcome.message


def test_data_that_nothing_orders_comes_out_wrong() -> None:
    """Pushed values read without a barrier between: some order shows it."""
    body = PUSH.replace("  cluster_sync();\n  C[", "  C[") + "\n  cluster_sync();"
    for seed in range(12):
        outcome, a, c = run(body, emulator.Mode("random", "apart", seed))
        if not outcome.ok or (c != expected(a)).any():
            return
    raise AssertionError("every order hid it")


def test_grids_that_clusters_do_not_fill() -> None:
    outcome = run(PULL, blocks=6)[0]
    assert outcome.status == "launch error 9"


def test_reports_name_the_block() -> None:
    outcome = run(PULL.replace("  cluster_sync();", "  if (rank < 3) cluster_sync();", 1))[0]
    assert outcome.status == "deadlock" or "no cluster barrier" in outcome.message
    assert "of block (" in outcome.message or "in block (" in outcome.message


@needs_nvcc
def test_the_files_are_cuda(tmp_path: Any) -> None:
    nvcc_compile(text("\n".join(f"  {{\n{body}\n  }}" for body in (PULL, PUSH, COPY, SPLIT))), "sm_90", tmp_path)


RACY = {
    "pushed, then read": PUSH.replace("  cluster_sync();\n  C[", "  C[") + "\n  cluster_sync();",
    "read, then pushed": "  cluster_sync();\n  C[base + t] = inbox[t];\n  *cluster_peer(inbox + t, next) = 5;\n  cluster_sync();",
    "pulled while written": "  cluster_sync();\n  tile[t] = A[base + t];\n  C[base + t] = *cluster_peer(tile + t, next);\n  cluster_sync();",
    "an arrival without a wait": PUSH.replace("  cluster_sync();\n  C[", "  cluster_arrive();\n  C[") + "\n  cluster_wait();\n  cluster_sync();",
    "an arrival that makes nothing visible": PUSH.replace("  cluster_sync();\n  C[", "  cluster_arrive_relaxed();\n  cluster_wait();\n  C[") + "\n  cluster_sync();",
    "two blocks push": "  cluster_sync();\n  if (rank != 2) *cluster_peer(inbox + t, 2) = rank;\n  cluster_sync();\n  C[base + t] = inbox[t];",
    "a signal nobody waits for": SIGNAL.replace("  mbarrier_wait(bar, 0);", "  tile[t] = 0;\n  mbarrier_wait(bar, 0);"),
}  # fmt: skip


@pytest.mark.parametrize("case", RACY)
def test_races_between_blocks_are_found_in_every_order(case: str) -> None:
    for seed in range(3):
        outcome = run(RACY[case], emulator.Mode("lazy", "apart", seed, races=True))[0]
        assert outcome.status == "race" and "in a cluster: block" in outcome.message, outcome


@pytest.mark.parametrize("body", (PULL, PUSH, COPY, SIGNAL, SPLIT), ids=("pull", "push", "copy", "signal", "split"))
def test_ordered_blocks_have_no_race(body: str) -> None:
    for seed in range(3):
        outcome, a, c = run(body, emulator.Mode("eager", "apart", seed, races=True))
        assert outcome.ok, outcome.message
        assert (c == expected(a)).all()
