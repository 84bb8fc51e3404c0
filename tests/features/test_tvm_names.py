"""Expressions and declarations written with TVM's names, and what a launch tells of itself."""

from __future__ import annotations

import numpy as np

from tests.features.kit import check, poison

RNG = np.random.default_rng(11)


def test_expressions_written_as_calls() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32"), F: T.Tensor((64,), "float32"), C: T.Tensor((8, 64), "int32"),
      D: T.Tensor((3, 64), "float32")):
    with T.Kernel(1, threads=64):
        i = T.get_thread_binding()
        a, b = T.BufferLoad(A, [i]), B[i]
        C[0, i] = T.Add(a, T.Mul(b, T.IntImm("int32", 3)))
        C[1, i] = T.FloorDiv(a, b)
        C[2, i] = T.FloorMod(a, b)
        C[3, i] = T.Div(a, b)
        C[4, i] = T.Mod(a, b)
        C[5, i] = T.if_then_else(T.And(T.GE(a, 0), T.LT(a, 50)), T.Max(a, b), T.Min(a, b))
        T.buffer_store(C, T.Sub(a, b), [6, i], predicate=T.likely(i < 40))
        C[7, i] = T.q_multiply_shift(a, b, 7, -2)
        D[0, i] = T.ldexp(F[i], a % 8)
        D[1, i] = T.fmul(F[i], T.FloatImm("float32", 0.5))
        D[2, i] = T.fast_rcp(F[i])
"""
    a, b = RNG.integers(-1000, 1000, 64).astype(np.int32), RNG.integers(1, 90, 64).astype(np.int32)
    f = RNG.uniform(0.5, 2.0, 64).astype(np.float32)
    c = poison((8, 64), np.int32)
    want = c.copy()
    want[0], want[1], want[2] = a + b * 3, a // b, a % b
    want[3], want[4] = np.trunc(a / b).astype(np.int32), np.fmod(a, b)
    want[5] = np.where((a >= 0) & (a < 50), np.maximum(a, b), np.minimum(a, b))
    want[6, :40] = (a - b)[:40]
    want[7] = (a.astype(np.int64) * b + (1 << 8)) >> 9
    floats = np.stack([np.ldexp(f, a % 8), f * np.float32(0.5), np.float32(1) / f])
    check(text, {"A": a, "B": b, "F": f, "C": c, "D": poison((3, 64), np.float32)}, {"C": want, "D": floats})


def test_declared_buffers() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((4, 32), "float32"), B: T.Tensor((128,), "float32")):
    with T.Kernel(1, threads=32):
        tx = T.env_thread("threadIdx.x")
        s = T.allocate((4, 32), "float32", "shared")
        p = T.sblock_alloc_buffer((4,), "float32", scope="local")
        T.copy(A, s)
        flat = T.decl_buffer((128,), "float32", data=s)
        same = T.match_buffer(A, (128,), "float32")
        for j in T.serial(4):
            p[j] = T.bind(flat[j * 32 + tx] * 2.0)
        for j in range(4):
            B[j * 32 + tx] = p[j] + same[j * 32 + tx]
"""
    a = RNG.standard_normal((4, 32)).astype(np.float32)
    check(text, {"A": a, "B": poison((128,), np.float32)}, {"B": (a * 2 + a).ravel()})


def test_what_a_launch_tells_of_itself() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((12, 10), "int32")):
    with T.Kernel(4, 3, threads=32, cluster_dims=(2, 1, 1)) as (bx, by):
        if T.get_thread_binding() == 0:
            row = by * 4 + bx
            A[row, 0] = T.get_block_extent(0)
            A[row, 1] = T.get_block_extents()[1]
            A[row, 2] = T.get_cluster_size()
            A[row, 3] = T.get_cluster_dims()[0]
            A[row, 4] = T.get_cluster_id(0)
            A[row, 5] = T.get_cluster_ids()[1]
            A[row, 6] = T.get_cluster_extent(0)
            A[row, 7] = T.get_cluster_extents()[2]
            A[row, 8] = T.get_thread_extents()[0]
            A[row, 9] = T.get_block_extent(2)
"""
    rows = [[4, 3, 2, 2, bx // 2, by, 2, 1, 32, 1] for by in range(3) for bx in range(4)]
    check(text, {"A": poison((12, 10), np.int32)}, {"A": np.array(rows, np.int32)}, arch="sm_90a")
