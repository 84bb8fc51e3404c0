"""Pointers that advance and 16-byte stores: the same results as indices and pairs, and present where they should be."""

from __future__ import annotations

import numpy as np
import pytest

from tests.toolchain import needs_gxx
from tilec.emit.kernel import EmitOptions, emit
from tilec.emulator import Mode, build
from tilec.ir.text import parse
from tilec.layout.atoms import accumulator
from tilec.plan.planner import PlanOptions, plan
from tilec.plan.rows import group_of, row_layout
from tilec.targets import SM80

GEMM = """kernel gemm{head}(A: float16[{M}, {K}], B: float16[{N}, {K}], C: {out}[{M}, {N}]):
  launch (bx, by) in (ceildiv({N}, {bn}), ceildiv({M}, {bm})) threads ({threads}, 1, 1):
    alloc A_s: shared float16[{bm}, {bk}]
    alloc B_s: shared float16[{bn}, {bk}]
    alloc acc: fragment float32[{bm}, {bn}]
    fill acc = 0.0
    for ko in pipelined({start}, ceildiv({K}, {bk}), 1) stages 3:
      copy A[by * {bm} +: {bm}, {at} +: {bk}] -> A_s
      copy B[bx * {bn} +: {bn}, {at} +: {bk}] -> B_s
      gemm acc += A_s @ B_s.T square
    copy acc -> C[by * {bm} +: {bm}, bx * {bn} +: {bn}]
"""


def gemm_text(shape: tuple[int, int, int] | None, tile: tuple[int, int, int, int], start: int = 0, at: str = "", out: str = "float16") -> str:
    """A GEMM's CUDA text: of fixed extents, or of run-time ones for None."""
    bm, bn, bk, threads = tile
    m, n, k = shape or ("M", "N", "K")
    head = "" if shape else "[M: int32, N: int32, K: int32]"
    text = GEMM.format(M=m, N=n, K=k, bm=bm, bn=bn, bk=bk, threads=threads, head=head, start=start, at=at or f"ko * {bk}", out=out)
    return emit([plan(parse(text), PlanOptions(SM80), "gemm")], EmitOptions("gemm.py"))


def check(text: str, shape: tuple[int, int, int], fixed: bool, first: int = 0, out: type = np.float16) -> None:
    """Runs the text on whole numbers; columns of A before `first` do not count."""
    m, n, k = shape
    rng = np.random.default_rng(m + n + k)
    a, b = rng.integers(-3, 4, (m, k)).astype(np.float16), rng.integers(-3, 4, (n, k)).astype(np.float16)
    c = np.full((m, n), np.nan, out)
    extents = {} if fixed else {"M": m, "N": n, "K": k}
    outcome = build(text).run("gemm", {"A": a, "B": b, "C": c, **extents}, Mode(asynchrony="random", seed=k))
    assert outcome.ok, outcome.message
    assert np.array_equal(c.astype(np.float64), a[:, first:].astype(np.float64) @ b[:, first:].T.astype(np.float64))


@needs_gxx
@pytest.mark.parametrize("tile", [(64, 64, 32, 128), (32, 64, 64, 64), (64, 32, 16, 64)])
@pytest.mark.parametrize("shape", [(128, 128, 96), (130, 72, 40), (1, 8, 8), (70, 45, 33), (129, 200, 256)])
@pytest.mark.parametrize("fixed", [True, False])
def test_products_with_edges(tile: tuple[int, int, int, int], shape: tuple[int, int, int], fixed: bool) -> None:
    check(gemm_text(shape if fixed else None, tile), shape, fixed)


@needs_gxx
def test_loops_that_start_late() -> None:
    text = gemm_text((64, 64, 160), (64, 64, 32, 128), start=2)
    assert "A_next" in text
    check(text, (64, 64, 160), True, first=64)


@needs_gxx
def test_pointers_stay_where_steps_are_uneven() -> None:
    text = gemm_text((64, 64, 96), (64, 64, 32, 128), at="(ko // 1 * 2 - ko % 3) * 32")
    assert "A_next" not in text
    check(gemm_text((64, 64, 96), (64, 64, 32, 128), at="(ko % 3) * 32"), (64, 64, 96), True)


def test_where_16_bytes_are_stored() -> None:
    assert "quad_transpose" in gemm_text((128, 128, 64), (64, 64, 32, 128))
    assert "quad_transpose" not in gemm_text((128, 128, 64), (64, 64, 32, 128), out="float32")
    assert "quad_transpose" not in gemm_text((128, 124, 64), (64, 64, 32, 128))


@pytest.mark.parametrize(("m", "n", "warps"), [(64, 64, (2, 2)), (128, 256, (2, 4)), (32, 32, (2, 1))])
def test_the_exchange_moves_columns_within_quads(m: int, n: int, warps: tuple[int, int]) -> None:
    """After the exchange a lane's eight columns are those its quad held of one tile, and every element has one owner."""
    threads = 32 * warps[0] * warps[1]
    before, after = accumulator(m, n, warps, threads), row_layout(accumulator(m, n, warps, threads))
    assert group_of(before) >= 0 and after.registers * 8 == before.registers
    owners = {index: thread for thread, _, index in before.table()}
    seen = set()
    for thread in range(threads):
        for r in range(after.registers):
            row, col = after.index(thread, r)
            for e in range(8):
                assert owners[row, col + e] // 4 == thread // 4
                seen.add((row, col + e))
    assert len(seen) == m * n


def test_layouts_without_rows() -> None:
    assert group_of(accumulator(32, 16, (2, 1), 64)) == -1
