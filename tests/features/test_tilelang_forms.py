"""Forms that TileLang's own tests use and examples do not: blocks with declared regions, hints, annotations, aliases."""

from __future__ import annotations

import numpy as np

from tests.features.kit import check, poison

RNG = np.random.default_rng(23)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def test_blocks_hints_and_selects() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((64, 32), "float32"), B: T.Tensor((64, 32), "float32")):
    T.func_attr({"tir.noalias": True})
    with T.Kernel(2, threads=64) as bx:
        T.annotate_l2_hit_ratio({A: 0.5})
        T.annotate_restrict_buffers(A, B)
        s = T.alloc_shared((32, 32), "float32")
        with T.sblock("load"):
            T.reads(A[bx * 32:bx * 32 + 32, :])
            T.writes(s)
            T.async_copy(A[bx * 32, 0], s)
            T.ptx_commit_group()
            T.ptx_wait_group(0)
        for i, j in T.Parallel(32, 32):
            B[bx * 32 + i, j] = T.Select(s[i, j] > 0.0, s[i, j], T.float32(0.25) * s[i, j])
"""
    a = floats(64, 32)
    check(text, {"A": a, "B": poison((64, 32), np.float32)}, {"B": np.where(a > 0, a, np.float32(0.25) * a)})


def test_annotations_of_helpers() -> None:
    text = """
from tvm import tirx

def scaled(x: T.PrimExpr, by: tirx.PrimExpr) -> T.PrimExpr:
    return x * by

@T.macro
def put(out: T.Tensor, i: T.Var, value: T.PrimExpr):
    out[i] = value

@T.prim_func
def k(a: T.handle, B: T.Tensor((128,), "float32"), n: T.int32):
    A = T.match_buffer(a, (128,), "float32")
    with T.Kernel(1, threads=128):
        i = T.get_thread_binding()
        put(B, i, scaled(A[i], T.Cast("float32", n)))
"""
    a = floats(128)
    check(text, {"a": a, "B": poison((128,), np.float32), "n": 3}, {"B": a * 3})


def test_a_value_bound_to_a_name_is_of_that_moment() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((64,), "float16"), B: T.Tensor((64,), "float16"), V: T.Tensor((16, 16), "float32")):
    with T.Kernel(1, threads=32):
        A_s = T.alloc_shared((32,), "float16")
        for k in T.Pipelined(2, num_stages=2):
            T.copy(A[k * 32], A_s)
            for i in T.Parallel(32):
                x = A_s[i] + 1.0
                B[k * 32 + i] = x
        V[0, 4:8] = V[0, 0:4] * 1.0
"""
    a, v = RNG.standard_normal(64).astype(np.float16), floats(16, 16)
    want = v.copy()
    want[0, 4:8] = v[0, 0:4]
    values = {"A": a, "B": poison((64,), np.float16), "V": v}
    check(text, values, {"B": (a.astype(np.float32) + 1).astype(np.float16), "V": want})


def test_clusters_arrive_and_wait() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((4, 32), "int32"), B: T.Tensor((4, 32), "int32")):
    with T.ClusterKernel(4, threads=32, cluster_dims=2) as bx:
        s = T.alloc_shared((32,), "int32")
        t = T.alloc_shared((32,), "int32")
        T.copy(A[bx, 0], s)
        T.cluster_sync()
        T.copy_cluster(s, t, dst_block=1 - T.block_rank_in_cluster())
        T.cluster_arrive()
        T.cluster_wait()
        T.copy(t, B[bx, 0])
"""
    a = RNG.integers(-99, 99, (4, 32)).astype(np.int32)
    check(text, {"A": a, "B": poison((4, 32), np.int32)}, {"B": a[[1, 0, 3, 2]]}, arch="sm_90a")


def test_what_types_buffers_and_expressions_tell() -> None:
    text = """
from tilelang import DataType

assert T.float16.bits == 16 and T.float32x4.lanes == 4 and T.float32x4.bytes == 16 and T.bfloat16.itemsize == 2
assert T.float4_e2m1fn.is_float4() and not T.float16.is_float4() and T.float4_e2m1fnx2.is_float4_e2m1fn()
assert T.float16.as_torch() == T.float16 and DataType("int8").bits == 8 and T.dtype("half") == "float16"
assert f"{T.float16}x2" == T.float16x2 and T.float16 in ["float16", "int8"] and {T.int8: 3}["int8"] == 3

@T.prim_func
def k(A: T.StridedTensor((4, 8), (8, 1), "float16"), B: T.Tensor((4, 8), "float32")):
    with T.Kernel(1, threads=32):
        s = T.alloc_shared((4, 8), A.dtype)
        f = T.alloc_fragment(A.shape, "float32")
        assert s.scope() in ("shared", "shared.dyn") and A.strides == (8, 1) and s.ndim == 2 and len(f.shape) == 2
        T.copy(A, s)
        for i, j in T.Parallel(*A.shape):
            f[i, j] = s[i, j].astype(f.dtype) * (2.0 if s.dtype == "float16" else 1.0)
        T.copy(f, B)
"""
    a = RNG.standard_normal((4, 8)).astype(np.float16)
    check(text, {"A": a, "B": poison((4, 8), np.float32)}, {"B": a.astype(np.float32) * 2})
