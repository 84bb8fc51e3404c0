"""Tile statements under branches on thread indices: teams of threads carry them out, and wait for each other where they must."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import compile_text
from tests.features.kit import HEAD, check, poison, refused

RNG = np.random.default_rng(96)


def _whole(shape: tuple[int, ...], dtype: type = np.float16) -> np.ndarray:
    return RNG.integers(-3, 4, shape).astype(dtype)


BRANCHES = ("tx < 32", "tx >= 64", "tx // 32 == 1", "tx == 0", "tx == 127", "not (tx >= 96)", "tx >= 32 and tx < 96")


@pytest.mark.parametrize("branch", BRANCHES)
def test_a_team_does_what_a_block_does(branch: str) -> None:
    text = f"""
@T.prim_func
def k(A: T.Tensor((32, 48), "float16"), B: T.Tensor((32, 32), "float32"), C: T.Tensor((3, 32), "float32"), D: T.Tensor((32, 48), "int32")):
    with T.Kernel(1, threads=128) as bx:
        tx = T.get_thread_binding(0)
        s = T.alloc_shared((32, 48), "float16")
        r = T.alloc_shared((32, 48), "int32")
        q = T.alloc_shared((32, 32), "float32")
        f = T.alloc_fragment((32, 32), "float32")
        m = T.alloc_fragment((32,), "float32")
        T.copy(A, s)
        T.clear(f)
        T.fill(q, -1)
        for i, j in T.Parallel(32, 48):
            r[i, j] = i * 100
        if {branch}:
            T.gemm(s, s, f, transpose_B=True)
            T.reduce_max(f, m, dim=1)
            T.copy(m, C[0, :])
            for i, j in T.Parallel(32, 32):
                q[i, j] = f[i, j] - m[i]
            T.reduce_sum(q, m, dim=0)
            T.copy(m, C[1, :])
            for i, j in T.Parallel(32, 48):
                r[i, j] += j
            T.cumsum(r, dim=1)
            C[2, 5] = 42
            for i in T.serial(5):
                C[2, i] = s[0, i]
        T.copy(q, B)
        T.copy(r, D)
"""
    a = _whole((32, 48))
    f = a.astype(np.float32) @ a.astype(np.float32).T
    c = poison((3, 32), np.float32)
    wanted = c.copy()
    wanted[0], wanted[1] = f.max(1), (f - f.max(1, keepdims=True)).sum(0)
    wanted[2, :5], wanted[2, 5] = a[0, :5], 42
    d = np.cumsum(np.arange(32)[:, None] * 100 + np.arange(48), 1).astype(np.int32)
    values = {"A": a, "B": poison((32, 32), np.float32), "C": c, "D": poison((32, 48), np.int32)}
    compiled = check(text, values, {"B": f - f.max(1, keepdims=True), "C": wanted, "D": d})
    assert compiled.cu.count("warp_sync") != 1  # a function that nothing calls: nvcc warns of it


def test_two_teams_work_side_by_side_and_tell_the_block() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((4, 16, 40), "float32"), B: T.Tensor((4, 16), "float32"), C: T.Tensor((4, 40), "float32"), D: T.Tensor((4, 56), "float32")):
    with T.Kernel(4, threads=96) as bx:
        s = T.alloc_shared((16, 40), "float32")
        both = T.alloc_shared((56,), "float32")
        f = T.alloc_fragment((16, 40), "float32")
        T.copy(A[bx, :, :], s)
        T.copy(s, f)
        if T.get_thread_binding() < 32:
            rows = T.alloc_fragment((16,), "float32")
            T.reduce_sum(f, rows, dim=1)
            T.copy(rows, B[bx, :])
            for i in T.Parallel(16):
                both[i] = rows[i]
        else:
            columns = T.alloc_fragment((40,), "float32")
            mine = T.alloc_shared((40,), "float32")
            T.reduce_sum(f, columns, dim=0)
            T.copy(columns, mine)
            for step in T.serial(3):
                for i in T.Parallel(40):
                    columns[i] = columns[i] + mine[39 - i]
                T.copy(columns, mine)
            for i in T.Parallel(40):
                C[bx, i] = mine[i]
        if T.get_thread_binding() >= 64:
            for i in T.Parallel(40):
                both[i + 16] = s[0, i]
        T.copy(both, D[bx, :])
"""
    a = _whole((4, 16, 40), np.float32)
    columns = a.sum(1)
    for _ in range(3):
        columns = columns + columns[:, ::-1]
    values = {"A": a, "B": poison((4, 16), np.float32), "C": poison((4, 40), np.float32), "D": poison((4, 56), np.float32)}
    check(text, values, {"B": a.sum(2), "C": columns, "D": np.concatenate([a.sum(2), a[:, 0]], 1)})


def test_teams_hand_tiles_to_each_other_in_a_loop() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((6, 64), "int32"), B: T.Tensor((6, 64), "int32")):
    with T.Kernel(1, threads=64) as bx:
        tx = T.get_thread_binding()
        s = T.alloc_shared((64,), "int32")
        t = T.alloc_shared((64,), "int32")
        T.clear(t)
        for i in T.Pipelined(6, num_stages=2):
            if tx < 32:
                for j in T.Parallel(64):
                    s[j] = A[i, j] + t[63 - j]
            if tx >= 32:
                for j in T.Parallel(64):
                    t[j] = s[63 - j] * 2
            T.copy(t, B[i, :])
"""
    a = _whole((6, 64), np.int32)
    t, rows = np.zeros(64, np.int32), []
    for row in a:
        t = (row + t[::-1])[::-1] * 2
        rows.append(t)
    check(text, {"A": a, "B": poison((6, 64), np.int32)}, {"B": np.stack(rows)})


def test_teams_inside_teams_with_conditions_of_the_block_around() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((3, 64, 32), "float16"), B: T.Tensor((3, 64), "float32"), C: T.Tensor((3, 32), "float32"), n: T.int32):
    with T.Kernel(3, threads=(32, 4)) as bx:
        x, y = T.get_thread_bindings()[:2]
        s = T.alloc_shared((64, 32), "float16")
        T.copy(A[bx, :, :], s)
        if bx < n:
            if y >= 2:
                f = T.alloc_fragment((64, 32), "float32")
                r = T.alloc_fragment((64,), "float32")
                T.copy(s, f)
                T.reduce_absmax(f, r, dim=1)
                T.copy(r, B[bx, :])
                if y == 3:
                    g = T.alloc_fragment((64, 32), "float32")
                    c = T.alloc_fragment((32,), "float32")
                    T.copy(s, g)
                    T.reduce_min(g, c, dim=0)
                    for i in T.Parallel(32):
                        T.atomic_add(C[bx, i], c[i])
"""
    a = _whole((3, 64, 32))
    b, c = poison((3, 64), np.float32), _whole((3, 32), np.float32)
    wanted_b, wanted_c = b.copy(), c.copy()
    wanted_b[:2] = np.abs(a[:2]).max(2)
    wanted_c[:2] += a[:2].min(1)
    check(text, {"A": a, "B": b, "C": c, "n": 2}, {"B": wanted_b, "C": wanted_c})


def test_each_team_has_the_registers_of_a_tile_that_both_use() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((2, 32, 32), "float32"), B: T.Tensor((2, 32), "float32")):
    with T.Kernel(1, threads=128) as bx:
        f = T.alloc_fragment((32, 32), "float32")
        r = T.alloc_fragment((32,), "float32")
        T.clear(f)
        if T.get_thread_binding() < 64:
            for i, j in T.Parallel(32, 32):
                f[i, j] += A[0, i, j]
            T.reduce_sum(f, r, dim=1)
            T.copy(r, B[0, :])
        else:
            for i, j in T.Parallel(32, 32):
                f[i, j] = A[1, i, j] * 2
            T.reduce_sum(f, r, dim=0)
            T.copy(r, B[1, :])
"""
    a = _whole((2, 32, 32), np.float32)
    check(text, {"A": a, "B": poison((2, 32), np.float32)}, {"B": np.stack([a[0].sum(1), a[1].sum(0) * 2])})


REFUSED = {
    "tx < 40": "T.copy(A, s)",
    "tx % 2 == 0": "T.copy(A, s)",
    "tx < n": "T.copy(A, s)",
    "A[0, tx % 64] > 0": "T.copy(A, s)",
    "tx < 32 ": "T.copy(A, s)\n        else:\n            T.copy(s, B)",
}


@pytest.mark.parametrize("branch", REFUSED)
def test_threads_that_are_no_team_are_told(branch: str) -> None:
    text = f"""
@T.prim_func
def k(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), n: T.int32):
    with T.Kernel(1, threads=128) as bx:
        tx = T.get_thread_binding(0)
        s = T.alloc_shared((64, 64), "float16")
        T.copy(B, s)
        if {branch}:
            {REFUSED[branch]}
        T.copy(s, B)
"""
    assert refused(text).code == "TL0502"


def test_what_threads_did_for_themselves_they_still_do() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((128, 4), "float32"), B: T.Tensor((128, 4), "float32")):
    with T.Kernel(1, threads=128) as bx:
        tx = T.get_thread_binding(0)
        mine = T.alloc_local((4,), "float32")
        if tx < 64:
            T.copy(A[tx, :], mine)
            T.copy(mine, B[tx, :])
"""
    compiled = compile_text(HEAD + text)
    assert "barrier_sync" not in compiled.cu and "__syncthreads" not in compiled.cu
    a, b = _whole((128, 4), np.float32), poison((128, 4), np.float32)
    check(text, {"A": a, "B": b}, {"B": np.concatenate([a[:64], b[64:]])})
