"""What the step before has left is read where no product is in flight: by the plan, by the assembler, and with the right result."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.compiling import compile_text
from tests.toolchain import needs_gxx, needs_nvcc
from tilec import emulator, ptxas
from tilec.driver import Compiled
from tilec.plan.plan import Fetch, PGemm, PGemms, Pipeline, PStmt, Stepped
from tilec.plan.walk import walk_plan

SAMPLE = (Path(__file__).resolve().parents[2] / "samples" / "linear_attention" / "chunked.py").read_text()
SIZES = {"dim": 128, "chunk": 64, "block_k": 64, "block_v": 32, "threads": 256}
TRACE = "Trace[b, h, bk * block_k : (bk + 1) * block_k, bv * block_v : (bv + 1) * block_v]"
TRACED = SAMPLE.replace("out_idx=[3, 4]", "out_idx=[3, 4, 5]").replace(
    "        State: T.Tensor(", "        Trace: T.Tensor([batch, heads, dim, dim], accum),\n        State: T.Tensor("
)
COPY, PICK = "                T.copy(state, state_s)\n", "                for i, j in T.Parallel(chunk, chunk):\n"
KERNELS = {
    "moved": SAMPLE,
    "others store it to global memory": TRACED.replace(COPY, f"                T.copy(state, {TRACE})\n{COPY}"),
    "right behind a product": TRACED.replace(PICK, f"                T.copy(state, {TRACE})\n{PICK}").replace("T.Pipelined(T.ceildiv(seq, chunk), num_stages=1)", "T.serial(T.ceildiv(seq, chunk))"),
    "needs the product": SAMPLE.replace("            T.clear(state)\n", '            total = T.alloc_fragment([chunk], accum)\n            T.clear(state)\n').replace(
        COPY, "                T.reduce_sum(s, total, dim=1)\n                for i, j in T.Parallel(block_k, block_v):\n                    state_s[i, j] = state[i, j] * total[i]\n"
    ),
}  # fmt: skip


BY_HAND = """
import tilelang.language as T
S, D, C, BV = 4096, 128, 64, 64
@T.prim_func
def linear(Q: T.Tensor((S, D), "float16"), K: T.Tensor((S, D), "float16"), V: T.Tensor((S, D), "float16"), O: T.Tensor((S, D), "float32")):
    with T.Kernel(D // BV, threads=256) as bx:
        q, k = T.alloc_shared((2, C, 64), "float16"), T.alloc_shared((2, C, 64), "float16")
        v, state_s = T.alloc_shared((2, C, BV), "float16"), T.alloc_shared((64, BV), "float16")
        s_s = T.alloc_shared((C, C), "float16")
        full, v_full, empty = T.alloc_barrier([128] * 2), T.alloc_barrier([128] * 2), T.alloc_barrier([128] * 2)
        if T.get_thread_binding() < 128:
            T.set_max_nreg(240, 1)
            s = T.alloc_fragment((C, C), "float32")
            o, state = T.alloc_fragment((C, BV), "float32"), T.alloc_fragment((64, BV), "float32")
            T.clear(state)
            for n in T.serial(S // C):
                T.barrier_wait(full[n % 2], n // 2 % 2)
                T.wgmma_gemm(q[n % 2, :, :], k[n % 2, :, :], s, transpose_B=True, clear_accum=True)
                T.barrier_wait(v_full[n % 2], n // 2 % 2)
                T.wait_wgmma(0)
                for i, j in T.Parallel(C, C):
                    s_s[i, j] = T.if_then_else(i >= j, s[i, j], 0)
                T.copy(state, state_s)
                T.fence_proxy_async()
                T.sync_threads(1, 128)
                T.wgmma_gemm(s_s, v[n % 2, :, :], o, clear_accum=True)
                T.wgmma_gemm(q[n % 2, :, :], state_s, o)
                T.wgmma_gemm(k[n % 2, :, :], v[n % 2, :, :], state, transpose_A=True)
                T.wait_wgmma(0)
                T.barrier_arrive(empty[n % 2])
                T.copy(o, O[n * C, bx * BV])
        else:
            T.set_max_nreg(24, 0)
            for n in T.serial(S // C):
                T.barrier_wait(empty[n % 2], (n // 2 + 1) % 2)
                T.tma_copy(Q[n * C, 0], q[n % 2, :, :], barrier=full[n % 2])
                T.tma_copy(K[n * C, 0], k[n % 2, :, :], barrier=full[n % 2])
                T.barrier_arrive(full[n % 2])
                T.tma_copy(V[n * C, bx * BV], v[n % 2, :, :], barrier=v_full[n % 2])
                T.barrier_arrive(v_full[n % 2])
"""


@cache
def compiled(name: str, seq: int = 4096, heads: int = 8) -> Compiled:
    if name == "by hand":
        return compile_text(BY_HAND, arch="sm_90a")
    return compile_text(KERNELS[name], {"heads": heads, "seq": seq, **SIZES}, arch="sm_90a")


def step(name: str) -> list[PStmt]:
    """What a step of the pipeline does, products and copies for later steps among it."""
    (p,) = (s for s in walk_plan(compiled(name).plans[0].launches[0].variants[0].body) if isinstance(s, Pipeline))
    return [x for s in p.consumers.body for x in (s.body.body if isinstance(s, Stepped) else (s,))]


def copies_beside(s: PStmt) -> bool:
    return isinstance(s, PGemms) and any(isinstance(x, Fetch) for x in s.meanwhile)


def test_the_state_of_the_step_before_is_copied_in_front_of_the_products() -> None:
    assert not any(map(copies_beside, step("moved")))
    products = [s.products if isinstance(s, PGemms) else (s,) for s in step("moved") if isinstance(s, PGemms | PGemm)]
    assert [[g.c.buffer.name for g in s] for s in products] == [["s"], ["o", "o", "state"]]  # with nothing left between them
    text = compiled("moved").cu
    assert text.index("T.copy(state, state_s)") < text.index("copy_tiles(c + 1") < text.index("T.gemm(q, k, s")
    assert text.count("__syncthreads();") == 3  # behind the barriers' initialisation, and two a step


def test_where_it_cannot_be_the_copies_are() -> None:
    text = compiled("others store it to global memory").cu
    assert text.index("copy_tiles(c + 1") < text.index("T.gemm(q, k, s") < text.index("T.copy(state, Trace")
    assert not any(map(copies_beside, step("others store it to global memory")))


def test_what_needs_the_product_stays_behind_it() -> None:
    assert any(map(copies_beside, step("needs the product")))
    text = compiled("needs the product").cu
    assert text.index("T.gemm(q, k, s") < text.index("copy_tiles(c + 1") < text.index("T.Parallel(block_k, block_v)")


def test_nothing_reads_it_beside_a_product() -> None:
    body = compiled("right behind a product").plans[0].launches[0].variants[0].body
    assert not any(s.meanwhile for s in walk_plan(body) if isinstance(s, PGemms))


def test_by_hand_the_assembler_is_told_what_is_in_flight() -> None:
    text = compiled("by hand").cu
    assert text.index("T.wgmma_gemm(q[n % 2, :, :], k") < text.index("wgmma_wait<1>();") < text.index("T.barrier_wait(v_full")
    assert text.count("wgmma_wait<1>();") == 1  # beyond a branch, and only there


@needs_nvcc
@pytest.mark.parametrize("name", [*KERNELS, "by hand"])
def test_the_assembler_puts_no_wait_in(name: str, tmp_path: Path) -> None:
    source = tmp_path / "kernel.cu"
    source.write_text(compiled(name).cu, encoding="utf-8")
    command = [
        "nvcc",
        "-std=c++17",
        "-gencode",
        "arch=compute_90a,code=sm_90a",
        "-Xptxas",
        "-v",
        "-cubin",
        "-o",
        "kernel.cubin",
        str(source),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert [str(b) for b in ptxas.parse(done.stdout + done.stderr).values() if not b.clean] == []


@needs_gxx
def test_the_result() -> None:
    heads, seq, dim = 1, 192, SIZES["dim"]
    rng = np.random.default_rng()
    q, k, v = ((rng.integers(-1, 2, (1, seq, heads, dim))).astype(np.float16) for _ in range(3))
    parts = dim // SIZES["block_k"]
    values = {
        "Q": q,
        "K": k,
        "V": v,
        "O": np.full((parts, *q.shape), np.nan, np.float32),
        "State": np.full((1, heads, dim, dim), np.nan, np.float32),
    }
    (plan,) = compiled("moved", seq, heads).plans
    text = compiled("moved", seq, heads).cu
    assert text.index("T.copy(state, state_s)") < text.index("T.gemm(q, k, s")
    outcome, got = run(text, f"{plan.symbol}_launch", values)
    assert outcome.ok, outcome.message
    q, k, v = (x[0, :, 0].astype(float) for x in (q, k, v))
    halves = [slice(n * SIZES["block_k"], (n + 1) * SIZES["block_k"]) for n in range(parts)]
    for n, half in enumerate(halves):
        assert np.array_equal(got["O"][n, 0, :, 0], (q[:, half] @ k[:, half].T * np.tri(seq)) @ v)
    assert np.array_equal(got["State"][0, 0], k.T @ v)


def run(cu: str, launch: str, values: dict[str, np.ndarray]) -> tuple[emulator.Outcome, dict[str, np.ndarray]]:
    out = {n: a.copy() for n, a in values.items()}
    return emulator.build(cu).run(launch, out, emulator.Mode("random", "real", 3, races=True), 60), out
