"""The names for Hopper by hand: what they refuse, what they mean without a Hopper, and kernels that only hint with them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import compile_text, run_emulated, run_reference
from tests.toolchain import needs_gxx
from tilec import emulator
from tilec.diagnostics import CompileError

FRAME = """
import tilelang.language as T
@T.prim_func
def k(A: T.Tensor((256, 64), "float16"), B: T.Tensor((256, 64), "float16"), C: T.Tensor((256, 64), "float32")):
    with T.Kernel(2, threads=256) as bx:
        A_s = T.alloc_shared((128, 64), "float16")
        B_s = T.alloc_shared((128, 64), "float16")
        odd = T.alloc_shared((128, 24), "float16")
        left = T.alloc_fragment((128, 64), "float16")
        acc = T.alloc_fragment((128, 128), "float32")
        bar = T.alloc_barrier([256, 128])
        one = T.alloc_barrier(1)
        tx = T.get_thread_binding()
        BODY
"""
REFUSED = [
    ("T.alloc_barrier(0)", "TL0206"), ("T.alloc_barrier([])", "TL0206"), ("T.alloc_barrier(bx)", "TL0206"),
    ("T.barrier_arrive(bar)", "TL0206"), ("T.barrier_arrive(A_s)", "TL0206"), ("T.barrier_arrive(A_s[0, 0])", "TL0206"),
    ("T.barrier_arrive(bar[2])", "TL0305"), ("T.barrier_wait(bar[0], 2)", "TL0206"), ("T.barrier_wait(bar[0], 0.5)", "TL0206"),
    ("T.barrier_wait(bar[0])", "TL0203"), ("T.barrier_wait(one, bx)\n        T.barrier_wait(one, tx * 1.0)", "TL0206"),
    ("T.get_mbarrier(0)", "TL0205"), ("T.tma_copy(A[0, 0], A_s)", "TL0203"), ("T.tma_copy(A_s, A[0, 0], barrier=one)", "TL0202"),
    ("T.tma_copy(A[0:128, :], left, barrier=one)", "TL0322"), ("T.tma_copy(C[0:128, :], A_s, barrier=one)", "TL0302"),
    ("T.tma_copy(A[0:64, :], A_s, barrier=one)", "TL0312"), ("T.tma_copy(3, A_s, barrier=one)", "TL0206"),
    ("T.wgmma_gemm(A_s, left, acc, transpose_B=True)", "TL0322"), ("T.wgmma_gemm(A_s, B_s, acc)", "TL0320"), ("T.wait_wgmma(8)", "TL0206"),
    ("T.wait_wgmma(bx)", "TL0206"), ("T.set_max_nreg(20, 1)", "TL0206"), ("T.set_max_nreg(40, 2)", "TL0206"), ("T.inc_max_nreg(100)", "TL0206"),
    ("for i in T.Parallel(8):\n            T.barrier_arrive(one)", "TL0205"), ("for i in T.Parallel(8):\n            T.wait_wgmma(0)", "TL0205"),
    ("T.mbarrier_expect_tx(one, -1)", "TL0206"), ("T.tma_store_wait(9)", "TL0206"),
    # the plan
    ("T.barrier_wait(one, 0)", "TL0508"), ("T.barrier_arrive(one)", "TL0508"), ("with T.ws(0):\n            T.barrier_arrive(one)", "TL0508"),
    ("if tx < 96:\n            T.barrier_arrive(bar[1])", "TL0508"),
    ("T.wgmma_gemm(A_s, B_s, acc, transpose_B=True)", "TL0509"),
    ("T.wgmma_gemm(A_s, B_s, acc, transpose_B=True)\n        T.copy(acc[:, 0:64], C[bx * 128, 0])\n        T.wait_wgmma(0)", "TL0509"),
    ("for i in T.serial(2):\n            T.wgmma_gemm(A_s, B_s, acc, transpose_B=True)\n            T.wait_wgmma(1)\n        T.clear(acc)\n        T.wait_wgmma(0)", "TL0509"),
    ("T.copy(A_s, left)\n        T.wgmma_gemm(left, B_s, acc, transpose_B=True)\n        T.copy(B_s, left)\n        T.wait_wgmma(0)", "TL0509"),
    ("T.tma_copy(A_s, A[0, 0])", "TL0509"), ("T.tma_copy(A_s, A[0, 0])\n        T.tma_store_arrive()", "TL0509"),
    ("with T.ws(0):\n            T.barrier_arrive(bar[1])\n            T.sync_threads()", "TL0502"),
    ("if tx % 2 == 0:\n            T.barrier_arrive(bar[0])\n            T.clear(A_s)", "TL0507"),
    ("if tx < 20:\n            T.tma_copy(A[0:128, :], A_s, barrier=one)", "TL0507"),
    ("T.barrier_arrive(bar[0])\n        with T.ws(0):\n            T.clear(acc)\n        T.copy(acc[:, 0:64], C[0:128, :])\n        T.copy(A_s, left)\n"
     "        with T.ws(0):\n            T.copy(left, A_s)", "TL0507"),
    ("with T.ws(0):\n            T.wgmma_gemm(A_s[0:40, :], B_s, acc[0:40, :], transpose_B=True)\n            T.wait_wgmma(0)", "TL0406"),
    ("T.wgmma_gemm(A_s[0:64, :], B_s, acc[0:64, :], transpose_B=True)\n        T.wait_wgmma(0)", "TL0406"),
    ("with T.ws(0):\n            T.wgmma_gemm(A_s[4:68, :], B_s, acc[0:64, :], transpose_B=True)\n            T.wait_wgmma(0)", "TL0406"),
    ("with T.ws(0):\n            T.wgmma_gemm(odd, odd, acc, transpose_B=True)\n            T.wait_wgmma(0)", "TL0406"),
    ("T.barrier_arrive(bar[0])\n        if tx == 0:\n            T.set_max_nreg(40, 0)", "TL0406"),
    ("if tx < 64:\n            T.wgmma_gemm(A_s, B_s, acc, transpose_B=True)\n            T.wait_wgmma(0)", "TL0406"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "code"), REFUSED)
def test_misuse_is_refused(body: str, code: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_text(FRAME.replace("BODY", body), None, "sm_90a")
    first = caught.value.diagnostics[0]
    assert first.code == code, first
    assert first.span.line >= 14 or "alloc" in body, first


def test_bytes_are_counted_on_hopper_only() -> None:
    body = "T.mbarrier_arrive_expect_tx(bar[0], 64)\n        T.barrier_wait(bar[0], 1)"
    compile_text(FRAME.replace("BODY", body), None, "sm_90a")
    with pytest.raises(CompileError) as caught:
        compile_text(FRAME.replace("BODY", body), None, "sm_80")
    assert caught.value.diagnostics[0].code == "TL0406" and "sm_90a" in caught.value.diagnostics[0].help


EXCHANGE = """
import tilelang.language as T
@T.prim_func
def swap(A: T.Tensor((4, 128), "int32"), B: T.Tensor((4, 128), "int32")):
    with T.Kernel(4, threads=256) as bx:
        first = T.alloc_shared((128,), "int32")
        second = T.alloc_shared((128,), "int32")
        T.create_list_of_mbarrier(128, 128)
        tx = T.get_thread_binding()
        with T.ws(0):
            for i in T.Parallel(128):
                first[i] = A[bx, i] + 1
            T.mbarrier_arrive(T.get_mbarrier(0))
            T.mbarrier_wait_parity(T.get_mbarrier(1), 0)
            for i in T.Parallel(128):
                B[bx, i] = second[127 - i]
        with T.ws(1):
            T.mbarrier_wait_parity(0, 0)
            for i in T.Parallel(128):
                second[i] = first[127 - i] * 2
            T.mbarrier_arrive(1)
"""


@needs_gxx
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_warp_groups_exchange_tiles_through_barriers(arch: str) -> None:
    compiled = compile_text(EXCHANGE, None, arch)
    a = np.random.default_rng().integers(-1000, 1000, (4, 128)).astype(np.int32)
    values = {"A": a, "B": np.full_like(a, -1)}
    want = (a + 1) * 2
    assert np.array_equal(run_reference(compiled, values)["B"], want)
    for mode in ("lazy", "eager"):
        assert np.array_equal(run_emulated(compiled, values, mode)["B"], want)
    assert "__syncthreads" not in compiled.cu.split("mbarrier_init(mbarriers + 1", 1)[1].split("__syncthreads();", 1)[1]


@needs_gxx
@pytest.mark.parametrize("wait", ["mbarrier_wait_portable(mbarriers, 0);", "mbarrier_wait_portable(mbarriers + 1, 0);"])
def test_a_wait_that_is_missing_is_a_race_in_any_order(wait: str) -> None:
    compiled = compile_text(EXCHANGE, None, "sm_80")
    assert compiled.cu.count(wait) == 1
    values = {"A": np.zeros((4, 128), np.int32), "B": np.zeros((4, 128), np.int32)}
    mode = emulator.Mode("eager", "real", 11, races=True)
    assert emulator.build(compiled.cu).run("swap_launch", dict(values), mode, 30).ok
    outcome = emulator.build(compiled.cu.replace(wait, "")).run("swap_launch", dict(values), mode, 30)
    assert not outcome.ok and "nothing orders" in outcome.message, outcome.message


TEAMS = """
import tilelang.language as T
@T.prim_func
def rows(A: T.Tensor((64, 96), "float32"), S: T.Tensor((64,), "float32"), P: T.Tensor((64, 96), "float32"), M: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=288):
        tile = T.alloc_fragment((64, 96), "float32")
        line = T.alloc_fragment((64,), "float32")
        done = T.alloc_barrier(288)
        turn = T.alloc_var("int32")
        tx = T.get_thread_binding()
        T.copy(A, tile)
        if tx < 128:
            turn = 1
            T.reduce_sum(tile, line, dim=1)
            T.copy(line, S)
        elif tx < 256:
            turn = 2
            T.cumsum(tile, dim=1)
            for i, j in T.Parallel(64, 96):
                P[i, j] = tile[i, j] * turn
        else:
            T.reduce_max(tile, line, dim=1)
            T.copy(line, M)
        T.barrier_arrive(done)
        T.barrier_wait(done, 0)
"""


@needs_gxx
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_every_team_has_register_tiles_of_its_own(arch: str) -> None:
    compiled = compile_text(TEAMS, None, arch)
    a = np.random.default_rng().integers(-9, 10, (64, 96)).astype(np.float32)
    values = {"A": a, "S": np.full(64, np.nan, np.float32), "P": np.full_like(a, np.nan), "M": np.full(64, np.nan, np.float32)}
    for got in (run_reference(compiled, values), run_emulated(compiled, values, "lazy"), run_emulated(compiled, values, "eager")):
        assert np.array_equal(got["S"], a.sum(axis=1))
        assert np.array_equal(got["P"], 2 * np.cumsum(a, axis=1))
        assert np.array_equal(got["M"], a.max(axis=1))


@needs_gxx
def test_hints_alone_change_nothing() -> None:
    plain = """
import tilelang.language as T
@T.prim_func
def k(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32")):
    with T.Kernel(1, threads=256):
        s = T.alloc_shared((256,), "float32")
        HINTS
        with T.ws(0):
            T.copy(A, s)
        T.copy(s, B)
"""
    hints = "T.set_max_nreg(240, 1)\n        T.dec_max_nreg(24)\n        T.fence_proxy_async()"
    texts = [compile_text(plain.replace("HINTS", h), None, "sm_90a").cu for h in ("T.no_set_max_nreg()", hints)]
    bodies = [t.split("__launch_bounds__", 1)[1].replace(":11", ":9").replace(":12", ":10") for t in texts]
    assert "registers" not in texts[1] and "fence_proxy" not in texts[1]
    assert len(bodies[0]) == len(bodies[1])
    a = np.random.default_rng().standard_normal(256).astype(np.float32)
    compiled = compile_text(plain.replace("HINTS", hints), None, "sm_90a")
    assert np.array_equal(run_emulated(compiled, {"A": a, "B": np.full_like(a, np.nan)})["B"], a)


GATHER = """
import tilelang.language as T
@T.prim_func
def gather(X: T.Tensor((50, 64), "float16"), R: T.Tensor((32,), "int32"), Y: T.Tensor((32, 64), "float16")):
    with T.Kernel(1, threads=384):
        s = T.alloc_shared((32, 64), "float16")
        there = T.alloc_barrier(256)
        row = T.alloc_var("int32")
        tx = T.get_thread_binding()
        if tx < 256:
            row = R[tx // 8]
            T.ptx_cp_async(T.access_ptr(s[tx // 8, tx % 8 * 8], "w", 8), T.access_ptr(X[row, tx % 8 * 8], "r", 8), 8)
            T.cp_async_barrier_noinc(there)
        else:
            T.barrier_wait(there, 0)
            T.copy(s, Y)
"""


@needs_gxx
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_rows_that_a_variable_names_move_16_bytes_at_a_time(arch: str) -> None:
    compiled = compile_text(GATHER, None, arch)
    rng = np.random.default_rng()
    values = {"X": rng.standard_normal((50, 64)).astype(np.float16), "R": rng.integers(-3, 55, 32).astype(np.int32), "Y": np.full((32, 64), np.nan, np.float16)}
    inside = (values["R"] >= 0) & (values["R"] < 50)
    want = np.where(inside[:, None], values["X"][np.clip(values["R"], 0, 49)], 0)
    assert ("load_vec<8>(X" if arch == "sm_80" else "cp_async_16_zfill(s") in compiled.cu
    for got in (run_reference(compiled, values), run_emulated(compiled, values, "lazy"), run_emulated(compiled, values, "eager")):
        assert np.array_equal(got["Y"], want)


def test_explain_says_who_does_what() -> None:
    from tilec.emit.explain import explain_text

    compiled = compile_text(EXCHANGE, None, "sm_90a")
    text = explain_text(compiled.plans[0])
    for line in ("2 barriers made by one thread", "threads 0 to 127", "arrive at mbarriers[0]", "wait at mbarriers[1] parity 0", "threads 128 to 255"):
        assert line in text, text


def test_a_product_by_hand_is_known_to_bench_and_its_work_counted() -> None:
    from pathlib import Path

    from tilec.emit.hosteval import evaluate
    from tilec.emit.manifest import manifest_text
    from tilec.runtime.bench.problems import recognise

    path = Path(__file__).resolve().parents[2] / "samples" / "by_hand" / "gemm_warp_specialized.py"
    compiled = compile_text(path.read_text(encoding="utf-8"), None, "sm_90a")
    plan = compiled.plans[0]
    assert plan.flop is not None and evaluate(manifest_text(plan.flop), {}) == 2 * 384 * 448 * 512
    found = recognise(compiled.module.kernels[0], {"A": (384, 448), "B": (448, 512), "C": (384, 512)})
    assert found is not None and found.flop == 2 * 384 * 448 * 512
