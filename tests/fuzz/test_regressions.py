"""Small kernels that random programs boiled down to: each came out wrong once. They must agree with the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compiling import MODES, compile_text, run_emulated, run_reference
from tests.toolchain import needs_gxx
from tilec import emulator
from tilec.ir.expr import Buffer
from tilec.reference.inputs import random_inputs

HEAD = "import tilelang.language as T\n@T.prim_func\n"


def agree(text: str, arch: str = "sm_80", extents: dict[str, int] | None = None, races: bool = False, **scalars: Any) -> None:
    """Runs a kernel both ways on the same random arguments; integers and single operations must be equal."""
    compiled = compile_text(HEAD + text, arch=arch)
    (kernel,) = compiled.module.kernels
    values = {**random_inputs(kernel, extents or {}, 5), **(extents or {}), **scalars}
    want = run_reference(compiled, values)
    tensors = [p.name for p in kernel.params if isinstance(p, Buffer)]
    for mode in MODES:
        got = run_emulated(compiled, values, mode)
        for name in tensors:
            np.testing.assert_array_equal(np.asarray(got[name]).astype(np.float64), np.asarray(want[name]).astype(np.float64), name)
    if races:
        outcome = emulator.build(compiled.cu).run(compiled.plans[0].symbol, want, emulator.Mode("random", "real", 3, races=True))
        assert outcome.ok, outcome.message


CASES = {
    "a kernel called like a variable of its launcher": """
def kernel(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64) as bx:
        for i in T.Parallel(64):
            B[i] = A[i]
""",
    "elements of a chunk at a place of their own, when a row is one chunk": """
def k(A: T.Tensor((16, 3), "float32"), B: T.Tensor((128, 2), "float32")):
    with T.Kernel(1, threads=128) as bx:
        s = T.alloc_shared((128, 2), "float32")
        T.copy(A[0:128, 0:2], s)
        T.copy(s, B)
""",
    "remainders of the last index in a vectorised loop": """
def k(A: T.Tensor((64,), "int32"), B: T.Tensor((1024,), "int32")):
    with T.Kernel(1, threads=128) as bx:
        for i in T.Parallel(1024):
            B[i] = A[i // 2 % 64] * (i % 4) + i % 2
""",
    "a fill of a tile that leaves the registers": """
def k(A: T.Tensor((16, 16), "float32"), B: T.Tensor((2, 16), "float32")):
    with T.Kernel(2, threads=128) as bx:
        f = T.alloc_fragment((16, 16), "float32")
        T.fill(f, A[bx, 3])
        g = T.alloc_fragment((16,), "float32")
        T.fill(g, f[bx, bx] + 1.0)
        T.copy(g, B[bx, 0:16])
""",
    "a fill with an element of the same tile": """
def k(A: T.Tensor((16, 16), "float32"), B: T.Tensor((2, 16, 16), "float32")):
    with T.Kernel(2, threads=128) as bx:
        s = T.alloc_shared((16, 16), "float32")
        f = T.alloc_fragment((16, 16), "float32")
        T.copy(A, s)
        T.copy(A, f)
        T.fill(s, s[bx, 5] + 1.0)
        T.fill(f, f[bx, 5] + 1.0)
        for i, j in T.Parallel(16, 16):
            B[bx, i, j] = s[i, j] + f[i, j]
""",
    "a tile that is read in the condition of a branch": """
def k(A: T.Tensor((256,), "int32"), B: T.Tensor((256,), "int32")):
    with T.Kernel(1, threads=128) as bx:
        s = T.alloc_shared((256,), "int32")
        f = T.alloc_fragment((256,), "int32")
        T.fill(f, 3)
        for i in T.Parallel(256):
            s[i] = A[255 - i]
        if s[0] > 0:
            T.copy(A, f)
        for i in T.Parallel(256):
            s[i] = f[i] + 1
        for k in T.serial(s[3] % 3):
            for i in T.Parallel(256):
                s[i] = s[i] + k
        T.copy(s, B)
""",
    "a reduction over one element": """
def k(A: T.Tensor((2, 96, 1), "int8"), B: T.Tensor((2, 96), "int8")):
    with T.Kernel(1, threads=64) as bx:
        s = T.alloc_shared((2, 96, 1), "int8")
        T.copy(A, s)
        f = T.alloc_fragment((2, 96), "int8")
        T.reduce_max(s, f, dim=-1)
        T.copy(f, B)
""",
    "a reduction into the accumulator of a product": """
def k(A: T.Tensor((16, 16), "int8"), X: T.Tensor((16, 16, 3), "int32"), B: T.Tensor((16, 16), "int32")):
    with T.Kernel(1, threads=32) as bx:
        s = T.alloc_shared((16, 16), "int8")
        T.copy(A, s)
        f = T.alloc_fragment((16, 16, 3), "int32")
        T.copy(X, f)
        acc = T.alloc_fragment((16, 16), "int32")
        T.reduce_sum(f, acc, dim=2)
        T.gemm(s, s, acc)
        T.reduce_sum(f, acc, dim=2, clear=False)
        T.copy(acc, B)
""",
    "an atomic update with a wider or chosen value": """
def k(A: T.Tensor((64,), "int8"), B: T.Tensor((2, 16), "int32")):
    with T.Kernel(1, threads=64) as bx:
        s = T.alloc_shared((2, 16), "int32")
        T.clear(s)
        for i in T.Parallel(64):
            T.atomic_add(s[0, i % 16], T.cast(A[i], "int32"))
            T.atomic_max(s[1, i % 16], T.cast(A[i], "int32") if A[63 - i] > 0 else T.cast(A[i] > 3, "int32"))
        T.copy(s, B)
""",
    "an atomic update with the difference of what was widened": """
def k(A: T.Tensor((64,), "int16"), B: T.Tensor((3,), "int32")):
    with T.Kernel(1, threads=64) as bx:
        s = T.alloc_shared((3,), "int32")
        T.clear(s)
        for i in T.Parallel(64):
            T.atomic_add(s[bx], bx - (T.cast(0, "int32") - T.cast(A[i], "int32")))
        T.copy(s, B)
""",
    "a variable that is assigned to itself": """
def k(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
    with T.Kernel(1, threads=64) as bx:
        w = T.alloc_var("int32")
        w = A[3]
        w = w
        for k in T.serial(4):
            w = w + k
            if A[k] > 0:
                w = w
        for i in T.Parallel(64):
            v = T.alloc_var("int32")
            v = A[i]
            for k in T.serial(3):
                v = v
            B[i] = v + w
""",
    "as many products as an element of a tensor says": """
def k(A: T.Tensor((64,), "int32"), X: T.Tensor((64, 16), "int8"), B: T.Tensor((16, 16), "int32")):
    with T.Kernel(1, threads=32) as bx:
        s = T.alloc_shared((16, 16), "int8")
        acc = T.alloc_fragment((16, 16), "int32")
        T.clear(acc)
        for k in T.Pipelined(A[15] % 3, num_stages=2):
            T.copy(X[k * 16, 0], s)
            T.gemm(s, s, acc)
        T.copy(acc, B)
""",
    "places and bounds that are read from what the statement changes": """
def k(A: T.Tensor((256,), "int32"), B: T.Tensor((4, 64), "int32")):
    with T.Kernel(1, threads=64) as bx:
        s = T.alloc_shared((64,), "int32")
        f = T.alloc_fragment((64,), "int32")
        acc = T.alloc_fragment((64,), "int32")
        for i in T.Parallel(64):
            s[i] = 3 + i
            f[i] = 5 + i
        T.copy(A[s[1]:s[1] + 64], s)
        T.copy(s, B[0, 0:64])
        T.copy(A[f[1]:f[1] + 64], f)
        T.copy(f, B[1, 0:64])
        T.clear(acc)
        n = T.alloc_var("int32")
        n = 4
        for k in T.Pipelined(n, num_stages=3):
            T.copy(A[k * 64:k * 64 + 64], s)
            for i in T.Parallel(64):
                acc[i] += s[63 - i]
            n = n - 1
        T.copy(acc, B[2, 0:64])
        m = T.alloc_shared((1,), "int32")
        m[0] = 40
        for i in T.Parallel(m[0]):
            s[i] = A[i]
        m[0] = 20
        for i in T.Parallel(m[0]):
            s[i] = s[i] + 1
        T.copy(s, B[3, 0:64])
""",
    "copies from one part of a tile to another": """
def k(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
    with T.Kernel(1, threads=64) as bx:
        s = T.alloc_shared((64,), "int32")
        T.copy(A, s)
        T.copy(s[0:48], s[16:64])
        f = T.alloc_fragment((64,), "int32")
        T.copy(s, f)
        T.copy(f[8:40], f[0:32])
        T.copy(f, B)
""",
    "a loop on a variable that all threads have alike, beside code of single threads": """
def k(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
    with T.Kernel(1, threads=64) as bx:
        tx = T.get_thread_binding(0)
        s = T.alloc_shared((64,), "int32")
        r = T.alloc_shared((64,), "int32")
        s[tx] = A[tx] + tx
        w = T.alloc_var("int32")
        w = 3
        while w > 0:
            for i in T.Parallel(64):
                r[i] = s[63 - i] + w
            T.copy(r, s)
            w = w - 1
        T.copy(s, B)
""",
}


@needs_gxx
@pytest.mark.parametrize("case", CASES)
def test_it_agrees_with_the_reference(case: str) -> None:
    agree(CASES[case], races=True)


BODIES = {
    "in a row": ["total[i] += part[i]"],
    "by a name": ["v = total[i]", "total[i] = v + part[i]", "f[i] = v"],
    "into registers first": ["f[i] = total[i]", "total[i] = f[i] + part[i]"],
    "into registers after": ["total[i] += part[i]", "f[i] = total[i]"],
    "under a condition on it": ["if total[i] < 5:", "    total[i] += part[i]"],
    "what an atomic found": ["old = T.atomic_add(total[i], 3, return_prev=True)", "f[i] = old + part[i]"],
}


@needs_gxx
@pytest.mark.parametrize("extent", [4, 3])
@pytest.mark.parametrize("body", BODIES)
def test_memory_that_an_iteration_reads_and_changes_while_several_threads_hold_its_registers(body: str, extent: int) -> None:
    inner = "".join(f"                {line}\n" for line in BODIES[body])
    agree(f"""
def k(A: T.Tensor(({extent}, 256), "int32"), B: T.Tensor(({extent},), "int32"), C: T.Tensor(({extent},), "int32")):
    with T.Kernel(1, threads=64) as bx:
        x = T.alloc_fragment(({extent}, 256), "int32")
        part = T.alloc_fragment(({extent},), "int32")
        f = T.alloc_fragment(({extent},), "int32")
        total = T.alloc_shared(({extent},), "int32")
        T.copy(A, x)
        T.clear(total)
        T.reduce_max(x, part, dim=1)
        T.reduce_min(x, f, dim=1)
        for k in T.serial(2):
            for i in T.Parallel({extent}):
{inner}        T.copy(total, B)
        T.copy(f, C)
""", races=True)  # fmt: skip
