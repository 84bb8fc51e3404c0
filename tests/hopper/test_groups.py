"""Products whose tiles belong to groups that memory tells of: the producer finds out for itself where its operands lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.compiling import MODES, compile_text, run_emulated, run_reference
from tests.hopper.kernels import takes_hopper
from tests.toolchain import needs_gxx

BM, BN, BK = 64, 32, 64

TEXT = """import tilelang.language as T
M, N, K, G = T.dynamic("M"), T.dynamic("N"), T.dynamic("K"), T.dynamic("G")
BLOCKS = T.dynamic("BLOCKS")
@T.prim_func
def grouped(A: T.Tensor((M, K), "float16"), B: T.Tensor((G, K, N), "float16"), first: T.Tensor((G,), "int32"),
            size: T.Tensor((G,), "int32"), padded: T.Tensor((G,), "int32"), C: T.Tensor((M, N), "float32"), blocks: T.Tensor((BLOCKS,), "int32")):
  with T.Kernel(BLOCKS, T.ceildiv(N, 32), threads=128) as (bx, by):
    A_s = T.alloc_shared((64, 64), "float16")
    B_s = T.alloc_shared((64, 32), "float16")
    acc = T.alloc_fragment((64, 32), "float32")
    group = T.alloc_var("int32")
    group = 0
    for g in range(G):
      group = T.if_then_else(bx * 64 >= padded[g], g, group)
    row = bx * 64 - padded[group] + first[group]
    rows = T.max(0, T.min(64, size[group] + padded[group] - bx * 64))
    T.clear(acc)
    for k in T.Pipelined(T.ceildiv(K, 64), num_stages=2):
      T.copy(A[row:row + 64, k * 64:(k + 1) * 64], A_s)
      T.copy(B[group, k * 64:(k + 1) * 64, by * 32:(by + 1) * 32], B_s)
      T.gemm(A_s, B_s, acc)
    for i, j in T.Parallel(64, 32):
      if i < rows:
        C[row + i, by * 32 + j] = acc[i, j]
"""

WORK = TEXT.index("    T.clear(acc)")
INSIDE = "".join(f"  {line}\n" for line in TEXT[WORK:].splitlines())
GUARDED = TEXT[:WORK] + "    if rows > 0:\n" + INSIDE
SIZED = TEXT[:WORK] + "    if size[by % 3] >= 0:\n" + INSIDE
FOUND = TEXT[:WORK].replace("    row =", "    busy = size[group] > 0\n    row =") + "    if busy:\n" + INSIDE

STAGED = TEXT.replace(
    "    row = bx", "    first_s = T.alloc_shared((4,), \"int32\")\n    T.copy(first[0:4], first_s)\n    row = bx"
).replace("first[group]", "first_s[group]")  # fmt: skip
WRITTEN = TEXT.replace("      if i < rows:", "      first[0] = 0\n      if i < rows:")
COUNTED = TEXT.replace("T.Pipelined(T.ceildiv(K, 64)", "T.Pipelined(size[group] // 64")


def arguments(sizes: Sequence[int], n: int, k: int) -> dict[str, Any]:
    """Groups of these sizes, each in blocks of its own."""
    rng = np.random.default_rng()
    blocks = [-(-s // BM) for s in sizes]
    first, padded = np.cumsum([0, *sizes])[:-1], BM * np.cumsum([0, *blocks])[:-1]
    m = sum(sizes)
    return {
        "A": rng.standard_normal((m, k)).astype(np.float16), "B": rng.standard_normal((len(sizes), k, n)).astype(np.float16),
        "first": first.astype(np.int32), "size": np.array(sizes, np.int32), "padded": padded.astype(np.int32),
        "C": np.full((m, n), np.nan, np.float32), "blocks": np.zeros(sum(blocks), np.int32), "M": m, "N": n, "K": k, "G": len(sizes),
        "BLOCKS": sum(blocks),
    }  # fmt: skip


@needs_gxx
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("text", [TEXT, GUARDED, SIZED, FOUND], ids=["plain", "rows left", "from memory", "a name for it"])
def test_each_group_is_multiplied_by_its_own_matrix(text: str, arch: str, mode: str) -> None:
    compiled = compile_text(text, arch=arch)
    assert takes_hopper(compiled) == (arch == "sm_90a")
    sizes = [*(int(s) for s in np.random.default_rng().integers(1, 150, 2)), 0, 70]
    v = arguments(sizes, 40, 136)
    v["BLOCKS"] += 2  # which find no rows
    v["blocks"] = np.zeros(v["BLOCKS"], np.int32)
    got = run_emulated(compiled, v, mode)["C"]
    ends = np.cumsum([0, *sizes])
    for g in range(len(sizes)):
        part = slice(ends[g], ends[g + 1])
        want = v["A"][part].astype(np.float64) @ v["B"][g].astype(np.float64)
        assert np.linalg.norm(got[part] - want) <= 1e-5 * np.linalg.norm(want)
    assert np.array_equal(np.isnan(run_reference(compiled, v)["C"]), np.isnan(got))


def test_both_operands_run_ahead_on_the_portable_path() -> None:
    text = compile_text(TEXT, arch="sm_80").cu
    assert text.count("cp_async_16") >= 2 and "copy_A_s" in text and "copy_B_s" in text


@pytest.mark.parametrize(
    ("text", "reason"),
    [(STAGED, "by more than scalars"), (WRITTEN, "by more than scalars"), (COUNTED, "uses a value that is read from memory")],
    ids=["through a tile", "written", "a number of steps"],
)
def test_what_a_producer_cannot_find_out_is_refused(text: str, reason: str) -> None:
    compiled = compile_text(text, arch="sm_90a")
    said = [d.message for d in compiled.diagnostics if d.code == "TL0505"]
    assert not takes_hopper(compiled) and said and reason in said[0], said
