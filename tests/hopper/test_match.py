"""Which kernels take Hopper's own path, and what is said of those that do not."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.compiling import compile_text, run_emulated, run_reference
from tests.hopper.kernels import Gemm, takes_hopper
from tests.toolchain import needs_gxx
from tilec.plan.walk import specialised

HEAD = """import tilelang.language as T
M, N, K = T.dynamic("M"), T.dynamic("N"), T.dynamic("K")
@T.prim_func
def gemm(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16"), D: T.Tensor((N,), "float32")):
  with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 128), threads=128) as (bx, by):
    A_s = T.alloc_shared((128, 64), "float16")
    B_s = T.alloc_shared((64, 64), "float16")
    acc = T.alloc_fragment((128, 64), "float32")
"""
LOOP = """    for ko in T.Pipelined(T.ceildiv(K, 64), num_stages=3):
      T.copy(A[by * 128, ko * 64], A_s)
      T.copy(B[ko * 64, bx * 64], B_s)
      T.gemm(A_s, B_s, acc)
"""
END = "    T.copy(acc, C[by * 128, bx * 64])\n"
CLEAR = "    T.clear(acc)\n"

TAKEN = {
    "the plain form": HEAD + CLEAR + LOOP + END,
    "a bias loaded in front": HEAD + '    D_s = T.alloc_shared((64,), "float32")\n    T.copy(D[bx * 64], D_s)\n' + CLEAR + LOOP
    + "    for i, j in T.Parallel(128, 64):\n      acc[i, j] += D_s[j]\n" + END,
    "a serial loop": HEAD + CLEAR + LOOP.replace("T.Pipelined(T.ceildiv(K, 64), num_stages=3)", "T.serial(T.ceildiv(K, 64))") + END,
    "names bound in front": HEAD + "    row = by * 128\n" + CLEAR + LOOP.replace("by * 128", "row") + END.replace("by * 128", "row"),
    "names bound in the loop": HEAD + CLEAR + LOOP.replace("      T.copy(A[by * 128, ko * 64]", "      k = ko * 64\n      T.copy(A[by * 128, k]") + END,
    "a loop that ends early for some blocks": HEAD + CLEAR + LOOP.replace("T.ceildiv(K, 64)", "T.min(T.ceildiv(K, 64), by + 1)") + END,
    "a loop that starts late": HEAD + CLEAR + LOOP.replace("T.Pipelined(T.ceildiv(K, 64)", "T.Pipelined(1, T.ceildiv(K, 64)") + END,
}  # fmt: skip

WAVES = """import tilelang.language as T
M, N, K = T.dynamic("M"), T.dynamic("N"), T.dynamic("K")
@T.prim_func
def gemm(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16"), D: T.Tensor((N,), "float32")):
  with T.Kernel(5, threads=128) as block:
    A_s = T.alloc_shared((128, 64), "float16")
    B_s = T.alloc_shared((64, 64), "float16")
    acc = T.alloc_fragment((128, 64), "float32")
    for by, bx in T.Persistent([T.ceildiv(M, 128), T.ceildiv(N, 64)], 5, block):
"""
TAKEN["the author's own waves"] = WAVES + "".join(f"  {line}\n" for line in (CLEAR + LOOP + END).splitlines())
TAKEN["a branch around all of it"] = (
    HEAD + "    if by < T.ceildiv(M, 128):\n" + "".join(f"  {line}\n" for line in (CLEAR + LOOP + END).splitlines())
)

REFUSED = {
    "no zero": (HEAD + LOOP + END, "does not start at zero"),
    "another value": (HEAD + "    T.fill(acc, 1)\n" + LOOP + END, "does not start at zero"),
    "thread indices": (HEAD + CLEAR + LOOP + '    t = T.get_thread_binding()\n    if t < 8:\n      C[0, t] = T.cast(D[t], "float16")\n' + END, "thread indices"),
    "a third copy": (HEAD + CLEAR + LOOP.replace("      T.gemm", "      T.copy(B[ko * 64, bx * 64], B_s)\n      T.gemm") + END, "another statement"),
    "work on a tile": (HEAD + CLEAR + LOOP.replace("      T.gemm", "      for i, j in T.Parallel(64, 64):\n        B_s[i, j] = B_s[i, j] * 2\n      T.gemm") + END, ""),
    "two products": (HEAD + CLEAR + LOOP + "      T.gemm(A_s, B_s, acc)\n" + END, "loop"),
    "a reduction behind": (
        HEAD + CLEAR + LOOP + '    s = T.alloc_fragment((128,), "float32")\n    T.reduce_sum(acc, s, dim=1)\n    T.copy(s, D[0])\n' + END, "line"
    ),
    "a tile of odd rows": (HEAD.replace("(128, 64)", "(96, 64)") + CLEAR + LOOP.replace("by * 128", "by * 96") + END.replace("by * 128", "by * 96"), "96x64"),
    "the result is an operand": (HEAD + CLEAR + LOOP + END.replace("C[by * 128, bx * 64]", "A[by * 128, bx * 64]"), "tensor map"),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_taken(name: str) -> None:
    compiled = compile_text(TAKEN[name], arch="sm_90a")
    assert takes_hopper(compiled), [d.message for d in compiled.diagnostics]
    assert not takes_hopper(compile_text(TAKEN[name], arch="sm_90"))


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_reason(name: str) -> None:
    text, reason = REFUSED[name]
    compiled = compile_text(text, arch="sm_90a")
    said = [d.message for d in compiled.diagnostics if d.code == "TL0505"]
    assert not takes_hopper(compiled)
    assert said and reason in said[0], said


def test_rows_that_no_map_can_reach_are_brought_by_threads() -> None:
    compiled = Gemm(sizes=(128, 129, 64)).compiled()
    assert not takes_hopper(compiled)
    variants = compiled.plans[0].launches[0].variants
    assert [(specialised(v), v.when) for v in variants] == [(True, None)]
    assert "word_in_ring(" in compiled.cu


def test_float32_in_full_precision_takes_the_portable_path() -> None:
    g = Gemm(dtype="float32", out="float32", trans_b=True, bk=32)
    assert takes_hopper(g.compiled()) and not takes_hopper(g.compiled(fp32_gemm="ieee"))


def test_the_accumulator_map_is_that_of_the_instruction() -> None:
    from tilec.layout import atoms

    layout = atoms.warp_group_accumulator(256, 48, 2)
    for thread, register, index in layout.table():
        part, i = divmod(register, 24)
        row = thread // 128 * 128 + part * 64 + thread % 128 // 32 * 16 + thread % 32 // 4 + 8 * (i >> 1 & 1)
        assert index == (row, 8 * (i >> 2) + thread % 4 * 2 + (i & 1))


@needs_gxx
@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken_means_what_it_says(name: str) -> None:
    compiled = compile_text(TAKEN[name], arch="sm_90a")
    rng = np.random.default_rng()
    for m, n, k in ((300, 136, 200), (130, 72, 64), (600, 64, 456)):
        v = {
            "A": rng.standard_normal((m, k)).astype(np.float16), "B": rng.standard_normal((k, n)).astype(np.float16),
            "C": np.full((m, n), np.nan, np.float16), "D": rng.standard_normal(n).astype(np.float32), "M": m, "N": n, "K": k,
        }  # fmt: skip
        want = run_reference(compiled, v)["C"].astype(np.float64)
        for mode in ("lazy", "eager"):
            got = run_emulated(compiled, v, mode)["C"].astype(np.float64)
            assert np.linalg.norm(got - want) <= 1e-3 * np.linalg.norm(want)


@needs_gxx
def test_parameters_may_be_called_as_the_kernels_own_variables() -> None:
    body = CLEAR + LOOP + "    for i, j in T.Parallel(128, 64):\n      acc[i, j] += D[bx * 64 + j] * tile\n" + END
    text = (HEAD + body).replace('D: T.Tensor((N,), "float32")', 'D: T.Tensor((N,), "float32"), tile: T.float32')
    for old, new in (("A", "a"), ("B", "stage"), ("C", "full"), ("D", "row"), ("M", "phase"), ("N", "steps"), ("K", "thread")):
        text = re.sub(rf"\b{old}\b", new, text)
    compiled = compile_text(text, arch="sm_90a")
    assert takes_hopper(compiled)
    rng = np.random.default_rng()
    v = {
        "a": rng.standard_normal((300, 200)).astype(np.float16), "stage": rng.standard_normal((200, 136)).astype(np.float16),
        "full": np.full((300, 136), np.nan, np.float16), "row": rng.standard_normal(136).astype(np.float32), "tile": 2.0, "phase": 300, "steps": 136,
        "thread": 200,
    }  # fmt: skip
    want, got = (run(compiled, v)["full"].astype(np.float64) for run in (run_reference, run_emulated))
    assert np.linalg.norm(got - want) <= 1e-3 * np.linalg.norm(want)
