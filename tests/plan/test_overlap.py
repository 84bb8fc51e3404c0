"""Tiles that would not fit side by side share bytes once they are dead, and rows are swizzled where padding would not fit."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from tests.compiling import compile_text, run_emulated, run_reference
from tests.toolchain import needs_gxx
from tilec.layout.shared import conflict_free
from tilec.plan.plan import SharedTile

LIMIT = 163 * 1024  # bytes of shared memory that a block may have on sm_80

AFTER = """
import tilelang.language as T

@T.prim_func
def k(A: T.Tensor((192, 256), "float16"), B: T.Tensor((96, 256), "float16"), C: T.Tensor((192, 256), "float16"),
      D: T.Tensor((96, 256), "float16"), E: T.Tensor((192, 256), "float16")):
    with T.Kernel(1, threads=128) as bx:
        first = T.alloc_shared((192, 256), "float16")
        both = T.alloc_shared((96, 256), "float16")
        last = T.alloc_shared((192, 256), "float16")
        T.copy(A, first)
        for i, j in T.Parallel(192, 256):
            C[i, j] = first[191 - i, 255 - j]
        for step in T.serial(2):
            T.copy(B, both)
            for i, j in T.Parallel(96, 256):
                D[i, j] = both[95 - i, 255 - j] + first[i, j]
        T.copy(C, last)
        for i, j in T.Parallel(192, 256):
            E[i, j] = last[191 - i, j] + both[i // 2, j]
"""


def test_dead_tiles_give_their_bytes() -> None:
    (plan,) = compile_text(AFTER).plans
    (variant, *_) = plan.launches[0].variants
    at = {b.name: (p.offset, p.offset + p.bytes) for b, p in variant.placements.items() if isinstance(p, SharedTile)}
    assert sum(stop - start for start, stop in at.values()) > LIMIT >= variant.shared_bytes
    meeting = {pair for pair in combinations(sorted(at), 2) if at[pair[0]][0] < at[pair[1]][1] and at[pair[1]][0] < at[pair[0]][1]}
    assert meeting == {("first", "last")}  # `both` lives with either


@needs_gxx
@pytest.mark.parametrize("mode", ["lazy", "eager"])
def test_bytes_are_given_when_all_threads_are_done(mode: str) -> None:
    rng = np.random.default_rng(5)
    values = {n: rng.integers(-100, 100, (192, 256)).astype(np.float16) for n in "ACE"}
    values |= {n: rng.integers(-100, 100, (96, 256)).astype(np.float16) for n in "BD"}
    compiled = compile_text(AFTER)
    meant, found = run_reference(compiled, values), run_emulated(compiled, values, mode)
    assert np.array_equal(meant["C"], values["A"][::-1, ::-1])
    assert np.array_equal(meant["D"], values["B"][::-1, ::-1] + values["A"][:96])
    assert np.array_equal(meant["E"], meant["C"][::-1] + np.repeat(values["B"], 2, 0))
    for name in "CDE":
        assert np.array_equal(found[name], meant[name])


SCRATCH = """
import tilelang.language as T

@T.prim_func
def k(A: T.Tensor((41696,), "float32"), O: T.Tensor((3, 2), "float32")):
    with T.Kernel(1, threads=128) as bx:
        held = T.alloc_shared((41696,), "float32")
        f = T.alloc_fragment((1024,), "float32")
        total = T.alloc_fragment((1,), "float32")
        most = T.alloc_fragment((1,), "float32")
        T.copy(A, held)
        T.copy(held[0:1024], f)
        for step in T.serial(3):
            T.reduce_sum(f, total)
            T.reduce_max(f, most)
            O[step, 0] = total[0]
            O[step, 1] = most[0]
            for i in T.Parallel(1024):
                f[i] = f[i] * 2 + held[1024 + i]
"""


@needs_gxx
@pytest.mark.parametrize("mode", ["lazy", "eager"])
def test_reductions_share_scratch_where_bytes_are_short(mode: str) -> None:
    compiled = compile_text(SCRATCH)
    assert LIMIT - 128 < compiled.plans[0].launches[0].variants[0].shared_bytes <= LIMIT
    a = np.random.default_rng(6).integers(-9, 9, 41696).astype(np.float32)
    wanted, f = [], a[:1024]
    for _ in range(3):
        wanted.append([f.sum(), f.max()])
        f = f * 2 + a[1024:2048]
    found = run_emulated(compiled, {"A": a, "O": np.zeros((3, 2), np.float32)}, mode)["O"]
    assert np.array_equal(found, np.array(wanted, np.float32))


@pytest.mark.parametrize("columns", [64, 128, 192, 320, 384, 576, 640, 1152])
def test_compact_rows_meet_every_bank_once(columns: int) -> None:
    layout = conflict_free((32, columns), 2, compact=True)
    places = np.array([[layout.offset((i, j)) for j in range(columns)] for i in range(32)])
    assert layout.bytes == 32 * columns * 2 and sorted(places.ravel()) == list(range(32 * columns))
    for row in range(0, 32, 8):
        for chunk in range(0, columns, 8):
            assert len({int(places[row + k, chunk]) // 8 % 8 for k in range(8)}) == 8, "eight rows of one chunk: eight groups of banks"
