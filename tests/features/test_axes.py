"""T.launch_thread, which declares the axes of a launch, and T.let, which gives names their values."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import compile_text
from tests.features.kit import HEAD, check, poison, refused

RNG = np.random.default_rng(2811)


def test_axes_as_statements_make_the_launch() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((4, 96), "float32"), B: T.Tensor((4, 96), "float32")):
    T.func_attr({"global_symbol": "main"})
    s = T.alloc_shared((96,), "float32")
    bx = T.launch_thread("blockIdx.x", 2)
    by = T.launch_thread("blockIdx.y", 2)
    tx = T.launch_thread("threadIdx.x", 32)
    ty = T.launch_thread("threadIdx.y", 3)
    _ = T.launch_thread("threadIdx.z", 1)
    row = by * 2 + bx
    s[ty * 32 + tx] = A[row, ty * 32 + tx]
    B[row, ty * 32 + tx] = s[95 - (ty * 32 + tx)]
"""
    a = RNG.standard_normal((4, 96)).astype(np.float32)
    compiled = check(text, {"A": a, "B": poison((4, 96), np.float32)}, {"B": a[:, ::-1]})
    launch = compiled.module.kernels[0].launches[0]
    assert launch.threads == (32, 3, 1) and len(launch.grid) == 2


def test_axes_as_scopes_and_under_names_of_env_thread() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((256,), "float16"), B: T.Tensor((256,), "float16")):
    tx = T.env_thread("threadIdx.x")
    with T.launch_thread("blockIdx.x", 4) as bx, T.launch_thread(tx, 160) as t:
        f = T.alloc_fragment((64,), "float32")
        g = T.alloc_fragment((1,), "float32")
        T.copy(A[bx * 64:bx * 64 + 64], f)
        T.reduce_sum(f, g, dim=0)
        for i in T.Parallel(64):
            B[bx * 64 + i] = g[0] + f[i]
        with T.attr(tx, "pragma", 1):
            if t == 159 and bx == 3:
                B[255] = 7.0
"""
    a = RNG.integers(-8, 8, 256).astype(np.float16)
    wanted = a.reshape(4, 64) + a.reshape(4, 64).sum(1, keepdims=True)
    wanted[3, 63] = 7
    check(text, {"A": a, "B": poison((256,), np.float16)}, {"B": wanted.ravel()})


def test_axes_that_run_time_sizes_give_in_an_eager_kernel() -> None:
    text = """
@tilelang.jit
def k(A):
    n = T.dynamic("n")
    A: T.Tensor((n,), "int32")
    C = T.empty((n,), "int32")
    bx = T.launch_thread("blockIdx.x", T.ceildiv(n, 64))
    tx = T.launch_thread("threadIdx.x", 64)
    if bx * 64 + tx < n:
        C[bx * 64 + tx] = A[bx * 64 + tx] * 2 + T.get_thread_extent(0)
    return C
"""
    a = RNG.integers(-99, 99, 150).astype(np.int32)
    check(text, {"A": a, "n": 150, "C": poison((150,), np.int32)}, {"C": a * 2 + 64})


def test_an_axis_under_a_kernel_is_its_index() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((3, 64), "int32")):
    with T.Kernel(3, threads=64):
        bx = T.launch_thread("blockIdx.x", 3)
        tx = T.launch_thread("threadIdx.x", 64)
        A[bx, tx] = bx * 1000 + tx
"""
    check(text, {"A": poison((3, 64), np.int32)}, {"A": np.arange(3)[:, None] * 1000 + np.arange(64)})


def test_names_that_let_gives_values() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((256,), "float32"), B: T.Tensor((4, 256), "float32")):
    with T.Kernel(2, threads=128) as bx:
        tx = T.get_thread_binding()
        at = T.int32()
        T.let(at, bx * 128 + tx)
        u = T.Var("u", "int32")
        with T.let(T.float32(), A[at]):
            B[0, at] = A[at] * 2.0
        w = T.float32()
        for j in T.serial(2):
            v = T.var("int32")
            T.let(v, at + j)
            B[1 + j, at] = A[v]
        with T.let(w, A[at]):
            B[0, at] += w
        B[3, at] = T.Let(A[u] + 1.0, where={u: 255 - at}) + T.let(u, at, A[u])
"""
    a = RNG.standard_normal(256).astype(np.float32)
    wanted = np.stack([a * 2 + a, a, np.append(a[1:], 0), (a[::-1] + np.float32(1)) + a])
    check(text, {"A": a, "B": poison((4, 256), np.float32)}, {"B": wanted})


BAD = {
    "x = T.int32()\n        A[tx] = x": ("TL0201", "has no value"),
    "x = T.int32()\n        T.let(x, 1)\n        T.let(x, 2)\n        A[tx] = x": ("TL0206", "has a value already"),
    "x = T.int32()\n        if tx > 3:\n            T.let(x, 1)\n        A[tx] = x": ("TL0201", "has no value"),
    "T.let(tx, 1)": ("TL0206", "what has no value yet"),
    'T.launch_thread("threadIdx.x", 32)': ("TL0402", "this kernel has 64"),
    'T.launch_thread("blockIdx.x", 3)': ("TL0401", "this kernel has 2"),
    'T.launch_thread("blockIdx.y", 2)': ("TL0401", "no blocks along y"),
    'T.launch_thread("vthread", 2)': ("TL0206", "unknown thread axis"),
}


@pytest.mark.parametrize("line", BAD)
def test_what_is_wrong_is_told(line: str) -> None:
    text = f"""
@T.prim_func
def k(A: T.Tensor((64,), "int32")):
    with T.Kernel(2, threads=64):
        tx = T.get_thread_binding()
        {line}
"""
    found = refused(text)
    assert (found.code, BAD[line][1] in found.message) == (BAD[line][0], True), found


def test_axes_that_disagree_or_are_too_long_are_refused() -> None:
    head = '@T.prim_func\ndef k(A: T.Tensor((64,), "int32")):\n    tx = T.launch_thread("threadIdx.x", {})\n{}    A[tx % 64] = 1\n'
    assert refused(head.format(64, '    T.launch_thread("threadIdx.x", 32)\n')).code == "TL0402"
    assert refused(head.format(2048, "")).code == "TL0402"
    assert refused(head.format(64, '    T.launch_thread("threadIdx.y", 32)\n')).code == "TL0402"
    assert refused(head.format(64, '    T.launch_thread("blockIdx.y", 70000)\n')).code == "TL0401"
    assert "launches nothing" not in refused(head.format("A", "")).message
    compile_text(HEAD + head.format(64, ""))
