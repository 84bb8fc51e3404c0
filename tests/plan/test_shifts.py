"""Loops and copies that reach a fragment at a shift, or a part of it: threads use the registers that they hold."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import compile_text
from tests.features.kit import HEAD, check, poison

RNG = np.random.default_rng(512)


def _whole(*shape: int, dtype: type = np.float16) -> np.ndarray:
    return RNG.integers(-3, 4, shape).astype(dtype)


PRODUCT = """
@T.prim_func
def k(A: T.Tensor((32, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((32, 64), "float32"), n: T.int32):
    with T.Kernel(1, threads=128) as bx:
        a = T.alloc_shared((32, 64), "float16")
        b = T.alloc_shared((64, 64), "float16")
        s = T.alloc_shared((16, 64), "float32")
        c = T.alloc_fragment((32, 64), "float32")
        T.copy(A, a)
        T.copy(B, b)
        T.gemm(a, b, c, clear_accum=True, policy=T.GemmWarpPolicy.FullCol)
        for h in {loop}:
            {body}
            T.copy(s, C[h * 16, 0])
"""
BODIES = {
    "a window under a condition": "for i, j in T.Parallel(32, 64):\n                if i < 16:\n                    s[i, j] = c[i + h * 16, j]",
    "as many places as there are": "for i, j in T.Parallel(16, 64):\n                s[i, j] = c[i + h * 16, j]",
    "a copy of a part": "T.copy(c[h * 16:h * 16 + 16, :], s)",
    "further on by two terms": "for i, j in T.Parallel(16, 64):\n                s[i, j] = c[(h + 1) * 16 + i - 16, j]",
}


@pytest.mark.parametrize(("body", "loop"), [*((b, "range(2)") for b in BODIES), ("a copy of a part", "T.unroll(2)")])
def test_parts_of_an_accumulator_go_to_a_smaller_tile(body: str, loop: str) -> None:
    a, b = _whole(32, 64), _whole(64, 64)
    values = {"A": a, "B": b, "C": poison((32, 64), np.float32), "n": 0}
    compiled = check(PRODUCT.format(loop=loop, body=BODIES[body]), values, {"C": a.astype(np.float32) @ b.astype(np.float32)})
    assert "c_staged" not in compiled.cu and "through shared memory" not in " ".join(d.message for d in compiled.diagnostics)


def test_iterations_that_do_more_than_reach_the_fragment_are_all_done() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((48,), "int32"), B: T.Tensor((48,), "int32"), C: T.Tensor((48,), "int32")):
    with T.Kernel(1, threads=64) as bx:
        f = T.alloc_fragment((48,), "int32")
        T.copy(A, f)
        for h in T.serial(2):
            for i in T.Parallel(48):
                if i + h * 24 < 48:
                    B[i] = f[i + h * 24]
                C[i] = i + h
            for i in T.Parallel(48):
                if i < 24:
                    B[i] = B[i] + (f[i + h * 24] if i > 20 - h else 0)
"""
    a = _whole(48, dtype=np.int32)
    b = a.copy()
    for h in range(2):
        b[: 48 - h * 24] = a[h * 24 :]
        b[:24] += np.where(np.arange(24) > 20 - h, a[h * 24 : h * 24 + 24], 0).astype(np.int32)
    values = {"A": a, "B": poison((48,), np.int32), "C": poison((48,), np.int32)}
    check(text, values, {"B": b, "C": np.arange(48, dtype=np.int32) + 1})


def test_parts_are_written_and_updated_in_place() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((40, 24), "float32"), B: T.Tensor((40, 24), "float32"), n: T.int32):
    with T.Kernel(1, threads=96) as bx:
        f = T.alloc_fragment((40, 24), "float32")
        T.fill(f, 7)
        T.copy(A[3:11, :], f[16:24, :])
        T.clear(f[0:4, 8:24])
        for h in T.serial(3):
            for i, j in T.Parallel(8, 24):
                f[i + h * 8 + n, j] = f[i + h * 8 + n, j] * 2 + i
        for j, i in T.Parallel(8, 40):
            f[i, j + n] += A[i, 23 - j]
        T.copy(f, B)
"""
    a = _whole(40, 24, dtype=np.float32)
    f = np.full((40, 24), 7, np.float32)
    f[16:24] = a[3:11]
    f[:4, 8:] = 0
    for h in range(3):
        f[h * 8 + 9 : h * 8 + 17] = f[h * 8 + 9 : h * 8 + 17] * 2 + np.arange(8)[:, None]
    f[:, 9:17] += a[:, ::-1][:, :8]
    check(text, {"A": a, "B": poison((40, 24), np.float32), "n": 9}, {"B": f})


def test_fragments_reached_at_two_places_still_meet_through_memory() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((64,), "int32"), B: T.Tensor((48,), "int32")):
    with T.Kernel(1, threads=64) as bx:
        f = T.alloc_fragment((64,), "int32")
        g = T.alloc_fragment((48,), "int32")
        T.copy(A, f)
        for i in T.Parallel(48):
            g[i] = f[i + 16] - f[i]
        T.copy(g, B)
"""
    a = _whole(64, dtype=np.int32)
    check(text, {"A": a, "B": poison((48,), np.int32)}, {"B": a[16:] - a[:48]})


def test_a_window_narrower_than_the_tile_has_one_loop() -> None:
    cu = compile_text(HEAD + PRODUCT.format(loop="range(2)", body=BODIES["a window under a condition"])).cu
    assert cu.count("= c[") == 1
