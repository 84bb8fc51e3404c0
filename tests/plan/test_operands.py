"""Operands of products that are copies of shared tiles are read where they lie, unless the tile or the copy is used otherwise."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import compile_text, run_emulated, run_reference
from tests.toolchain import needs_gxx
from tilec.plan.plan import Registers, SharedTile

SOURCE = """
import tilelang.language as T

@T.prim_func
def k(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 128), "float16"), C: T.Tensor((64, 128), "float32"), D: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=128) as bx:
        tile = T.alloc_shared((64, 64), "float16")
        other = T.alloc_shared((64, 128), "float16")
        held = T.alloc_fragment((64, 64), "float16")
        acc = T.alloc_fragment((64, 128), "float32")
        T.copy(A, tile)
        T.copy(B, other)
        T.clear(acc)
        for step in T.serial(2):
            T.copy(tile, held)
            {between}
            T.gemm(held, other, acc)
            {behind}
        T.copy(acc, C)
"""

NEGATED = "for i, j in T.Parallel(64, 64): tile[i, j] = -tile[i, j]"
FORMS = {
    "plain": ("", "", True),
    "changed after the product": ("", NEGATED, True),
    "changed before the product": (NEGATED, "", False),
    "read by a loop": ("for i, j in T.Parallel(64, 64): D[i, j] = held[i, j] * 2.0", "", False),
    "scaled in registers": ("for i, j in T.Parallel(64, 64): held[i, j] *= 2.0", "", False),
}


def source(between: str, behind: str) -> str:
    """The kernel with a statement between the copy and the product, and one behind it."""
    return SOURCE.format(between=between, behind=behind)


@pytest.mark.parametrize("form", FORMS)
def test_a_copy_for_products_alone_is_left_out(form: str) -> None:
    between, behind, left_out = FORMS[form]
    (plan,) = compile_text(source(between, behind)).plans
    kinds = {b.name: type(p) for b, p in plan.launches[0].variants[0].placements.items()}
    assert kinds["tile"] is SharedTile
    assert kinds.get("held") is (None if left_out else Registers)


@needs_gxx
@pytest.mark.parametrize("mode", ["lazy", "eager"])
@pytest.mark.parametrize("form", FORMS)
def test_the_product_sees_what_the_copy_would_hold(form: str, mode: str) -> None:
    rng = np.random.default_rng()
    a, b = (rng.integers(-8, 8, shape).astype(np.float16) for shape in ((64, 64), (64, 128)))
    values = {"A": a, "B": b, "C": np.full((64, 128), np.nan, np.float32), "D": np.full((64, 64), np.nan, np.float32)}
    compiled = compile_text(source(*FORMS[form][:2]))
    once = a.astype(np.float64) @ b.astype(np.float64)
    wanted = once * {"plain": 2, "changed after the product": 0, "changed before the product": 0, "read by a loop": 2, "scaled in registers": 4}[form]
    assert np.array_equal(run_reference(compiled, values)["C"], wanted)
    assert np.array_equal(run_emulated(compiled, values, mode)["C"], wanted)


REDUCED = """
import tilelang.language as T

@T.prim_func
def k(A: T.Tensor((64, 512), "float16"), B: T.Tensor((64, 512), "float16"), Y: T.Tensor((64, 2), "float32")):
    with T.Kernel(1, threads=256) as bx:
        left = T.alloc_shared((64, 512), "float16")
        right = T.alloc_shared((64, 512), "float16")
        more = T.alloc_shared(({rows}, 64), "float16")
        acc = T.alloc_fragment((64, 64), "float32")
        top = T.alloc_fragment((64,), "float32")
        total = T.alloc_fragment((64,), "float32")
        T.copy(A, left)
        T.copy(B, right)
        T.fill(more, 3)
        for step in T.serial(2):
            T.clear(acc)
            T.gemm(left, right, acc, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
            T.reduce_max(acc, top, dim=1)
            T.reduce_sum(acc, total, dim=1)
            for i in T.Parallel(64):
                Y[i, 0] = top[i]
                Y[i, 1] = total[i] + more[{rows} - 1, i]
"""


@needs_gxx
@pytest.mark.parametrize(("rows", "places"), [(8, 2), (264, 1)])
def test_reductions_share_their_meeting_place_where_room_is_short(rows: int, places: int) -> None:
    """128 KB of operands and 33 KB beside them leave 2 of the 163 KB of a block: one meeting place of 64 x 8 floats, not two."""
    compiled = compile_text(REDUCED.format(rows=rows))
    assert sum(b.name == "acc_parts" for b in compiled.plans[0].launches[0].variants[0].placements) == places
    rng = np.random.default_rng()
    a, b = (rng.integers(-4, 4, (64, 512)).astype(np.float16) for _ in range(2))
    values = {"A": a, "B": b, "Y": np.full((64, 2), np.nan, np.float32)}
    product = a.astype(np.float64) @ b.astype(np.float64).T
    wanted = np.stack([product.max(1), product.sum(1) + 3], 1)
    assert np.array_equal(run_reference(compiled, values)["Y"], wanted)
    for mode in ("lazy", "eager"):
        assert np.array_equal(run_emulated(compiled, values, mode)["Y"], wanted)
