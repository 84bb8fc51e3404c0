"""Copies that an author leaves in flight: T.cp_async_barrier_noinc tells of them, nobody waits before, and warp groups see them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import compile_text, run_emulated, run_reference
from tests.toolchain import needs_gxx
from tilec import emulator


KERNEL = """
import tilelang.language as T
@T.prim_func
def chained(A: T.Tensor((64, 256), "float16"), B: T.Tensor((256, 64), "float16"), C: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=256):
        a = T.alloc_shared((2, 64, 64), "float16")
        b = T.alloc_shared((2, 64, 64), "float16")
        acc = T.alloc_fragment((64, 64), "float32")
        ready = T.alloc_barrier([128] * 2)
        free = T.alloc_barrier([128] * 2)
        tx = T.get_thread_binding()
        if tx < 128:
            T.clear(acc)
            for k in T.serial(4):
                T.barrier_wait(ready[k % 2], k // 2 % 2)
                T.gemm(a[k % 2, :, :], b[k % 2, :, :], acc)
                T.barrier_arrive(free[k % 2])
            T.copy(acc, C)
        else:
            for k in T.serial(4):
                T.barrier_wait(free[k % 2], k // 2 % 2 ^ 1)
                for r in T.serial(4):
                    row = r * 16 + (tx - 128) // 8
                    T.ptx_cp_async(T.access_ptr(a[k % 2, row, tx % 8 * 8], "w", 8), T.access_ptr(A[row, k * 64 + tx % 8 * 8], "r", 8), 8)
                    T.ptx_cp_async(T.access_ptr(b[k % 2, row, tx % 8 * 8], "w", 8), T.access_ptr(B[k * 64 + row, tx % 8 * 8], "r", 8), 8)
                MORE
                T.cp_async_barrier_noinc(ready[k % 2])
"""


def values() -> dict[str, np.ndarray]:
    rng = np.random.default_rng()
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((64, 256), (256, 64)))
    return {"A": a, "B": b, "C": np.full((64, 64), np.nan, np.float32)}


@needs_gxx
@pytest.mark.parametrize("more", ["", "T.sync_threads(3, 128)"])
def test_whoever_waits_at_the_barrier_sees_what_the_copies_brought(more: str) -> None:
    compiled = compile_text(KERNEL.replace("MORE", more), None, "sm_90a")
    assert ("mbarrier_arrive_copies(ready" in compiled.cu and "cp_async_16(a" in compiled.cu) is not bool(more)
    given = values()
    want = given["A"].astype(np.float64) @ given["B"].astype(np.float64)
    for got in (run_reference(compiled, given), *(run_emulated(compiled, given, m) for m in ("lazy", "eager"))):
        assert np.linalg.norm(got["C"] - want) <= 1e-5 * np.linalg.norm(want)
    mode = emulator.Mode(asynchrony="random", shared="apart", seed=3, races=True)
    outcome = emulator.build(compiled.cu).run("chained_launch", given, mode, 60)
    assert outcome.ok, outcome.message


@needs_gxx
def test_copies_that_no_instruction_does_are_waited_for() -> None:
    odd = 'T.ptx_cp_async(T.access_ptr(a[k % 2, 0, 61], "w", 3), T.access_ptr(A[0, k * 64 + 61], "r", 3), 3)'
    compiled = compile_text(KERNEL.replace("MORE", odd), None, "sm_90a")
    assert "cp_async_wait<0>()" in compiled.cu and "mbarrier_arrive_copies" not in compiled.cu
    given = values()
    want = given["A"].astype(np.float64) @ given["B"].astype(np.float64)
    for mode in ("lazy", "eager"):
        assert np.linalg.norm(run_emulated(compiled, given, mode)["C"] - want) <= 1e-5 * np.linalg.norm(want)


@needs_gxx
@pytest.mark.parametrize(
    "broken, said", [("fence_proxy_async();", "without fence_proxy_async"), ("mbarrier_wait(ready + k_1 % 2, k_1 / 2);", "nothing orders")]
)
def test_the_emulator_finds_what_is_missing(broken: str, said: str) -> None:
    compiled = compile_text(KERNEL.replace("MORE", ""), None, "sm_90a")
    before, kernel, rest = compiled.cu.partition('extern "C" __global__ void')
    assert rest.count(broken) == 1
    program = emulator.build(before + kernel + rest.replace(broken, ""))
    mode = emulator.Mode(asynchrony="eager", shared="apart", seed=1, races=True)
    outcome = program.run(compiled.plans[0].symbol + "_launch", values(), mode, 60)
    assert not outcome.ok and said in outcome.message, outcome.message
