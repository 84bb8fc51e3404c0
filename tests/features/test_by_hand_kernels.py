"""Small kernels with barriers of their own: shapes of copies, teams of all sizes, barriers in odd places; against the meaning, exactly."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import compile_text, run_reference
from tests.toolchain import needs_gxx
from tilec import emulator
from tilec.plan.by_hand.plan import PBulkCopy
from tilec.plan.walk import walk_plan

KERNELS: dict[str, tuple[str, dict[str, tuple[tuple[int, ...], str]]]] = {
    "a line of floats": (
        """@T.prim_func
def k(A: T.Tensor((4096,), "float32"), B: T.Tensor((4096,), "float32")):
    with T.Kernel(4, threads=64) as bx:
        s = T.alloc_shared((1024,), "float32")
        b = T.alloc_barrier(64)
        T.tma_copy(A[bx * 1024], s, barrier=b)
        T.barrier_arrive(b)
        T.barrier_wait(b, 0)
        for i in T.Parallel(1024):
            s[i] = s[i] * 2
        T.tma_copy(s, B[bx * 1024])
        T.tma_store_arrive()
        T.tma_store_wait()
""",
        {"A": ((4096,), "float32"), "B": ((4096,), "float32")},
    ),
    "boxes of four dimensions": (
        """@T.prim_func
def k(A: T.Tensor((2, 3, 20, 72), "float16"), B: T.Tensor((2, 3, 20, 72), "float16")):
    with T.Kernel(3, 2, threads=96) as (bx, by):
        s = T.alloc_shared((16, 64), "float16")
        f = T.alloc_fragment((16, 64), "float16")
        b = T.alloc_barrier(96)
        for c in T.serial(4):
            T.tma_copy(A[by, bx, c // 2 * 16, c % 2 * 64], s, barrier=b)
            T.barrier_arrive(b)
            T.barrier_wait(b, c % 2)
            T.copy(s, f)
            for i, j in T.Parallel(16, 64):
                f[i, j] = f[i, j] + 1
            T.copy(f, B[by, bx, c // 2 * 16, c % 2 * 64])
""",
        {"A": ((2, 3, 20, 72), "float16"), "B": ((2, 3, 20, 72), "float16")},
    ),
    "a tile of three dimensions, one thread copies": (
        """@T.prim_func
def k(A: T.Tensor((8, 24, 32), "float32"), B: T.Tensor((8, 24, 32), "float32")):
    with T.Kernel(2, threads=128) as bx:
        s = T.alloc_shared((4, 8, 32), "float32")
        b = T.alloc_barrier(1)
        tx = T.get_thread_binding()
        for c in T.serial(3):
            if tx == 0:
                T.tma_copy(A[bx * 4 : bx * 4 + 4, c * 8 : c * 8 + 8, :], s, barrier=b)
                T.barrier_arrive(b)
            T.barrier_wait(b, c % 2)
            T.copy(s, B[bx * 4, c * 8, 0])
            T.sync_threads()
""",
        {"A": ((8, 24, 32), "float32"), "B": ((8, 24, 32), "float32")},
    ),
    "two boxes of bytes, a list of barriers": (
        """@T.prim_func
def k(A: T.Tensor((64, 512), "int8"), B: T.Tensor((64, 512), "int8")):
    with T.Kernel(4, threads=128) as bx:
        s = T.alloc_shared((16, 512), "int8")
        bars = [T.alloc_barrier(128), T.alloc_barrier(128)]
        T.tma_copy(A[bx * 16 : bx * 16 + 16, 0:256], s[:, 0:256], barrier=bars[0])
        T.tma_copy(A[bx * 16 : bx * 16 + 16, 256:512], s[:, 256:512], barrier=bars[1])
        T.barrier_arrive(bars[0])
        T.barrier_arrive(bars[1])
        T.barrier_wait(bars[0], 0)
        T.barrier_wait(bars[1], 0)
        T.copy(s, B[bx * 16, 0])
""",
        {"A": ((64, 512), "int8"), "B": ((64, 512), "int8")},
    ),
    "threads in two dimensions": (
        """@T.prim_func
def k(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=(32, 8)) as bx:
        s = T.alloc_shared((64, 64), "float32")
        r = T.alloc_fragment((64,), "float32")
        t = T.alloc_fragment((64, 64), "float32")
        b = T.alloc_barrier(128)
        with T.ws(0):
            T.copy(A, s)
            T.barrier_arrive(b)
        with T.ws(1):
            T.barrier_wait(b, 0)
            T.copy(s, t)
            T.reduce_sum(t, r, dim=0)
            for i, j in T.Parallel(64, 64):
                B[i, j] = t[i, j] + r[j]
""",
        {"A": ((64, 64), "float32"), "B": ((64, 64), "float32")},
    ),
    "three warps and two": (
        """@T.prim_func
def k(A: T.Tensor((96, 40), "int32"), B: T.Tensor((96,), "int32")):
    with T.Kernel(1, threads=160) as bx:
        s = T.alloc_shared((96, 40), "int32")
        t = T.alloc_fragment((96, 40), "int32")
        r = T.alloc_fragment((96,), "int32")
        b = T.alloc_barrier(64)
        tx = T.get_thread_binding()
        if tx < 96:
            T.barrier_wait(b, 0)
            T.copy(s, t)
            T.reduce_max(t, r, dim=1)
            T.copy(r, B)
        else:
            for i, j in T.Parallel(96, 40):
                s[i, j] = A[i, j] * 3
            T.barrier_arrive(b)
""",
        {"A": ((96, 40), "int32"), "B": ((96,), "int32")},
    ),
    "single warps": (
        """@T.prim_func
def k(A: T.Tensor((32, 64), "float32"), B: T.Tensor((32,), "float32"), N: T.Tensor((1,), "int32")):
    with T.Kernel(1, threads=64) as bx:
        t = T.alloc_fragment((32, 64), "float32")
        r = T.alloc_fragment((32,), "float32")
        b = T.alloc_barrier(32)
        tx = T.get_thread_binding()
        if tx >= 32:
            T.copy(A, t)
            T.reduce_sum(t, r, dim=1)
            T.copy(r, B)
            T.barrier_arrive(b)
        else:
            T.barrier_wait(b, 0)
            T.atomic_add(N[0], 1)
""",
        {"A": ((32, 64), "float32"), "B": ((32,), "float32"), "N": ((1,), "int32")},
    ),
    "a pipelined loop in a team": (
        """@T.prim_func
def k(A: T.Tensor((64, 256), "float16"), B: T.Tensor((256, 64), "float16"), C: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=256) as bx:
        a = T.alloc_shared((64, 64), "float16")
        b = T.alloc_shared((64, 64), "float16")
        acc = T.alloc_fragment((64, 64), "float32")
        go = T.alloc_barrier(128)
        with T.ws(0):
            T.clear(acc)
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[0, k * 64], a)
                T.copy(B[k * 64, 0], b)
                T.gemm(a, b, acc)
            T.copy(acc, C)
            T.barrier_arrive(go)
        with T.ws(1):
            T.barrier_wait(go, 0)
""",
        {"A": ((64, 256), "float16"), "B": ((256, 64), "float16"), "C": ((64, 64), "float32")},
    ),
    "barriers made in a branch, a while loop": (
        """@T.prim_func
def k(A: T.Tensor((128,), "float32"), B: T.Tensor((128,), "float32")):
    with T.Kernel(1, threads=256) as bx:
        with T.ws(1):
            late = T.alloc_barrier(128)
            s = T.alloc_shared((128,), "float32")
            n = T.alloc_var("int32")
            while n < 3:
                T.tma_copy(A, s, barrier=late)
                T.barrier_arrive(late)
                T.barrier_wait(late, n % 2)
                n = n + 1
            T.copy(s, B)
""",
        {"A": ((128,), "float32"), "B": ((128,), "float32")},
    ),
    "a view of the tile": (
        """@T.prim_func
def k(A: T.Tensor((64, 64), "float16"), B: T.Tensor((32, 128), "float16")):
    with T.Kernel(1, threads=128) as bx:
        s = T.alloc_shared((64, 64), "float16")
        v = T.reshape(s, (32, 128))
        b = T.alloc_barrier(128)
        T.tma_copy(A, s, barrier=b)
        T.barrier_arrive(b)
        T.barrier_wait(b, 0)
        T.copy(v, B)
""",
        {"A": ((64, 64), "float16"), "B": ((32, 128), "float16")},
    ),
    "a part of a tile": (
        """@T.prim_func
def k(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16")):
    with T.Kernel(1, threads=128) as bx:
        s = T.alloc_shared((64, 64), "float16")
        b = T.alloc_barrier(128)
        T.clear(s)
        T.tma_copy(A[4:20, 8:40], s[3:19, 16:48], barrier=b)
        T.barrier_arrive(b)
        T.barrier_wait(b, 0)
        T.copy(s, B)
""",
        {"A": ((64, 64), "float16"), "B": ((64, 64), "float16")},
    ),
    "one thread's scalar loop": (
        """@T.prim_func
def k(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=256) as bx:
        b = T.alloc_barrier(1)
        tx = T.get_thread_binding()
        with T.ws(1):
            if T.shuffle_elect(128):
                for i in T.serial(64):
                    A[i] = A[i] + 1
                T.barrier_arrive(b)
        T.barrier_wait(b, 0)
        if tx < 64:
            A[tx] = A[tx] * 2
""",
        {"A": ((64,), "float32")},
    ),
    "float64": (
        """@T.prim_func
def k(A: T.Tensor((16, 32), "float64"), B: T.Tensor((16, 32), "float64")):
    with T.Kernel(1, threads=128) as bx:
        s = T.alloc_shared((16, 32), "float64")
        b = T.alloc_barrier(128)
        T.tma_copy(A, s, barrier=b)
        T.barrier_arrive(b)
        T.barrier_wait(b, 0)
        T.copy(s, B)
""",
        {"A": ((16, 32), "float64"), "B": ((16, 32), "float64")},
    ),
}
BY_THREADS = {"a part of a tile"}
WITHOUT = {"threads in two dimensions", "three warps and two", "single warps", "a pipelined loop in a team", "one thread's scalar loop"}
"""Kernels whose boxes the copy engine cannot do, and kernels without bulk copies."""


def arguments(tensors: dict[str, tuple[tuple[int, ...], str]]) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    """Small integers for A, a counter N at zero, poison for results."""
    rng = np.random.default_rng(np.random.SeedSequence())
    starts = {"A": lambda shape: rng.integers(-9, 10, shape), "N": np.zeros}
    return {n: np.asarray(starts.get(n, lambda s: np.full(s, 99))(shape)).astype(kind) for n, (shape, kind) in tensors.items()}


@needs_gxx
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", KERNELS)
def test_kernel(name: str, arch: str) -> None:
    source, tensors = KERNELS[name]
    compiled, values = compile_text("import tilelang.language as T\n" + source, None, arch), arguments(tensors)
    want = run_reference(compiled, values)
    boxes = any(isinstance(s, PBulkCopy) for s in walk_plan(compiled.plans[0].launches[0].variants[0].body))
    assert boxes is (arch == "sm_90a" and name not in BY_THREADS | WITHOUT)
    for mode in (emulator.Mode("lazy", "apart", 1), emulator.Mode("random", "real", 2, races=arch == "sm_80")):
        got = {n: a.copy() for n, a in values.items()}
        outcome = emulator.build(compiled.cu).run("k_launch", got, mode, 30)
        assert outcome.ok, outcome.message
        assert all(np.array_equal(got[n], want[n]) for n in values)
