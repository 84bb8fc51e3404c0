"""Arrivals of one thread for its group: in a portable body each thread arrives for itself, where that is the same."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.compiling import compile_text, run_emulated, run_reference
from tests.toolchain import needs_gxx
from tilec import emulator

RING = """
import tilelang.language as T
@T.prim_func
def ring(A: T.Tensor((6, 256), "int32"), B: T.Tensor((6, 256), "int32"), n: T.int32):
    with T.Kernel(1, threads=384):
        s = T.alloc_shared((2, 256), "int32")
        full = T.alloc_barrier([1] * 2)
        empty = T.alloc_barrier([2] * 2)
        tx = T.get_thread_binding()
        with T.ws(2):
            for k in T.serial(6):
                T.barrier_wait(empty[k % 2], (k // 2 + 1) % 2)
                for i in T.Parallel(256):
                    s[k % 2, i] = A[k, i] + 1
                T.sync_threads(1, 128)
                if T.shuffle_elect(128):
                    T.barrier_arrive(full[k % 2])
        with T.ws(0, 1):
            for k in T.serial(6):
                T.barrier_wait(full[k % 2], k // 2 % 2)
                for i in T.Parallel(256):
                    B[k, i] = s[k % 2, 255 - i] * 3
                T.sync_threads(2, 256)
                if ARRIVES:
                    T.barrier_arrive(empty[k % 2])
"""


def counts(cu: str, name: str) -> set[int]:
    """What the barriers of this name count."""
    return {int(n) for n in re.findall(rf"mbarrier_init\({name}(?: \+ \d+)?, (\d+)\)", cu)}


@needs_gxx
@pytest.mark.parametrize("arrives", ["T.shuffle_elect(128)", "k < 9 and tx % 128 == 0 and n > 0", "tx % 128 == 77"])
def test_all_arrive_where_one_did(arrives: str) -> None:
    compiled = compile_text(RING.replace("ARRIVES", arrives))
    assert counts(compiled.cu, "full") == {128} and counts(compiled.cu, "empty") == {256}
    assert not re.search(r"if \([^)]*% 128 == ", compiled.cu)
    a = np.random.default_rng().integers(-1000, 1000, (6, 256)).astype(np.int32)
    values = {"A": a, "B": np.full_like(a, -1), "n": 5}
    want = (a[:, ::-1] + 1) * 3
    assert np.array_equal(run_reference(compiled, values)["B"], want)
    for mode in ("lazy", "eager"):
        assert np.array_equal(run_emulated(compiled, values, mode)["B"], want)
    assert emulator.build(compiled.cu).run("ring_launch", dict(values), emulator.Mode("random", "real", 3, races=True)).ok


@needs_gxx
def test_it_orders_what_the_author_left_to_one_thread() -> None:
    """Without the author's own barrier of the readers, every reader's arrival still comes behind its reads."""
    text = RING.replace("ARRIVES", "T.shuffle_elect(128)").replace("                T.sync_threads(2, 256)\n", "")
    a = np.random.default_rng().integers(-1000, 1000, (6, 256)).astype(np.int32)
    values = {"A": a, "B": np.full_like(a, -1), "n": 5}
    compiled = compile_text(text)
    outcome = emulator.build(compiled.cu).run("ring_launch", values, emulator.Mode("random", "real", 3, races=True))
    assert outcome.ok and np.array_equal(values["B"], (a[:, ::-1] + 1) * 3), outcome.message
    elected = compiled.cu.replace("mbarrier_init(empty, 256)", "mbarrier_init(empty, 2)").replace("empty + 1, 256", "empty + 1, 2")
    elected = re.sub(r"(mbarrier_arrive_portable\(empty)", r"if (threadIdx.x % 128 == 0) \1", elected)
    outcome = emulator.build(elected).run("ring_launch", values, emulator.Mode("random", "real", 3, races=True))
    assert outcome.status == "race", outcome


@pytest.mark.parametrize(
    ("arrives", "kept"),
    [
        ("tx % 128 < 1 + tx // 128", 3),  # one thread of the first group, two of the second
        ("T.shuffle_elect(128) and A[0, k] > 0", 2),  # what a thread reads, another may read later
        ("T.shuffle_elect(128) and (k + tx // 128) % 2 < 2", 2),  # some of the threads
    ],
)
def test_other_branches_stay(arrives: str, kept: int) -> None:
    compiled = compile_text(RING.replace("ARRIVES", arrives).replace("[2] * 2", f"[{kept}] * 2"))
    assert counts(compiled.cu, "empty") == {kept} and counts(compiled.cu, "full") == {128}


def test_a_barrier_with_another_arrival_stays() -> None:
    text = RING.replace("ARRIVES", "T.shuffle_elect(128)").replace("[2] * 2", "[130] * 2")
    waits = "                T.barrier_wait(empty"
    compiled = compile_text(text.replace(waits, f"                T.barrier_arrive(empty[k % 2])\n{waits}", 1))
    assert counts(compiled.cu, "empty") == {130} and counts(compiled.cu, "full") == {128}


def test_hoppers_own_body_keeps_the_authors_arrivals() -> None:
    """There the engine does the work that one thread tells of."""
    cu = compile_text(RING.replace("ARRIVES", "T.shuffle_elect(128)"), arch="sm_90a").cu.split('extern "C" __global__')[1]
    assert counts(cu, "full") == {1} and counts(cu, "empty") == {2}
