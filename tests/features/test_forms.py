"""Ways of writing kernels that are met in the wild: recursion of macros, names that are variables or numbers, nested parallel loops."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.kit import check, poison, refused
from tests.toolchain import needs_gxx

pytestmark = needs_gxx
F32, I32 = np.float32, np.int32


def test_parallel_loops_inside_of_each_other() -> None:
    text = """
@T.prim_func
def k(X: T.Tensor((2, 12, 10), "float32"), Y: T.Tensor((2, 6, 5), "float32")):
    with T.Kernel(2, threads=128) as b:
        for h in T.Parallel(6):
            for w in T.Parallel(5):
                best = T.alloc_var("float32", init=T.min_value("float32"))
                for kh in range(2):
                    for kw in T.serial(2):
                        best = T.max(best, X[b, h * 2 + kh, w * 2 + kw])
                Y[b, h, w] = best
"""
    x = np.random.default_rng().standard_normal((2, 12, 10)).astype(F32)
    check(text, {"X": x, "Y": poison((2, 6, 5), F32)}, {"Y": x.reshape(2, 6, 2, 5, 2).max((2, 4))})


@pytest.mark.parametrize("has_bias", [True, False])
def test_names_that_are_variables_or_numbers(has_bias: bool) -> None:
    text = """
from functools import lru_cache

@T.macro
def add_all(vals, out, n: int, j: int):
    if j < n:
        out[0] = out[0] + vals[j]
        add_all(vals, out, n, j + 1)

def factorial(n):
    return 1 if n <= 1 else n * factorial(n - 1)

@lru_cache(maxsize=None)
def make(has_bias: bool = True):
    @T.prim_func
    def k(A: T.Tensor((32, 4), "float32"), Bias: T.Tensor((32,), "float32"), O: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32) as (_,):
            tid = T.get_thread_binding(0)
            if has_bias:
                bias = T.alloc_var("float32")
            else:
                bias = 0.0
            if tid < 32:
                if has_bias:
                    bias = Bias[tid]
            go = T.alloc_var("bool")
            go = has_bias and tid >= 5
            vals = T.alloc_local((4,), "float32")
            out = T.alloc_local((1,), "float32")
            for i in T.vectorized(4):
                vals[i] = A[tid, i]
            out[0] = factorial(4)
            add_all(vals, out, 4, 0)
            O[tid] = out[0] + bias + T.if_then_else(go, 1.0, 0.0)
    return k
"""
    rng = np.random.default_rng()
    a, bias = rng.integers(0, 9, (32, 4)).astype(F32), rng.integers(0, 9, 32).astype(F32)
    wanted = a.sum(1) + 24 + ((bias + (np.arange(32) >= 5)) if has_bias else 0)
    check(text, {"A": a, "Bias": bias, "O": poison((32,), F32)}, {"O": wanted}, defines={"has_bias": has_bias})


def test_sorting_network_in_shared_memory() -> None:
    text = """
@T.macro
def sort(idx: T.SharedBuffer, val: T.SharedBuffer, N: int):
    for i1 in T.serial(N.bit_length() - 1):
        for i2 in T.serial(i1 + 1):
            for i in T.Parallel(N):
                ascending = (i & (1 << (i1 + 1))) != 0
                j = i ^ (1 << (i1 - i2))
                if i < j and ((ascending and val[i] > val[j]) or (not ascending and val[i] < val[j])):
                    val[i], val[j] = val[j], val[i]
                    idx[i], idx[j] = idx[j], idx[i]
            T.tvm_storage_sync("shared")

@tilelang.jit
def largest(X, N: int = 64, K: int = 8):
    M = T.const("M")
    X: T.Tensor((M, N), T.float32)
    V = T.empty((M, K), T.float32)
    I = T.empty((M, K), T.int32)
    with T.Kernel(M, threads=64) as row:
        idx = T.alloc_shared(N, T.int32)
        val = T.alloc_shared(N, T.float32)
        for i in T.Parallel(N):
            if i >= N - 2:
                val[i] = float("-inf")
            else:
                val[i] = X[row, i]
            idx[i] = T.if_then_else(i < N - 2, i, -1)
        sort(idx, val, N)
        T.copy(val[0:K], V[row, :])
        T.copy(idx[0:K], I[row, :])
    return V, I
"""
    rng = np.random.default_rng()
    x = np.stack([rng.permutation(64), rng.permutation(64)]).astype(F32)
    order = np.argsort(-x[:, :62], 1)[:, :8]
    wanted = {"V": np.take_along_axis(x, order, 1), "I": order}
    check(text, {"X": x, "V": poison((2, 8), F32), "I": poison((2, 8), I32)}, wanted, defines={"M": 2})


def test_helpers_that_exchange_between_lanes() -> None:
    text = """
def warp_sum(value):
    mask = T.tvm_warp_activemask()
    for distance in (16, 8, 4, 2, 1):
        value += T.tvm_warp_shuffle_down(mask, value, distance, 32, 32)
    return T.tvm_warp_shuffle(mask, value, 0, 32, 32)

@T.prim_func
def k(A: T.Tensor((64,), "float32"), O: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        t = T.get_thread_binding()
        v = A[t]
        O[t] = warp_sum(v * v) + v
"""
    a = np.random.default_rng().integers(0, 9, 64).astype(F32)
    check(text, {"A": a, "O": poison((64,), F32)}, {"O": np.repeat((a**2).reshape(2, 32).sum(1), 32) + a})


def test_tiles_and_numbers_made_in_front_of_the_launch() -> None:
    text = """
@tilelang.jit
def f(n, dtype, block: int = 128, threads: int = 64):
    @T.prim_func
    def main(X: T.Tensor((n,), dtype), lr: T.float64, Y: T.Tensor((n,), dtype)):
        tile = T.alloc_shared((block,), dtype)
        rate = T.Cast(dtype, lr)
        for_one = -T.infinity(dtype)
        with T.Kernel(tilelang.cdiv(n, block), threads=threads) as b:
            T.annotate_safe_value({X: for_one})
            for i in T.Parallel(block):
                tile[i] = X[b * block + i]
            for i in T.serial(T.get_thread_binding(), block, threads):
                Y[b * block + i] = tile[block - 1 - i] * rate
    return main
"""
    x = np.random.default_rng().integers(1, 9, 300).astype(F32)
    padded = np.concatenate([x, np.full(84, -np.inf, F32)]).reshape(3, 128)
    wanted = (padded[:, ::-1] / 2).reshape(-1)[:300]
    check(text, {"X": x, "lr": 0.5, "Y": poison((300,), F32)}, {"Y": wanted}, defines={"n": 300, "dtype": "float32"})


def test_factories_of_factories_by_name() -> None:
    text = """
def _make(M, N, dtype, op):
    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), B: T.Tensor((M,), dtype)):
        with T.Kernel(1, threads=64):
            a = T.alloc_shared((M, N), dtype)
            b = T.alloc_shared((M,), dtype)
            T.copy(A, a)
            op(T, a, b)
            T.copy(b, B)
    return main

def largest(M, N, dtype=T.float32):
    return _make(M, N, dtype, lambda T, src, dst: T.reduce_max(src, dst, dim=1))
"""
    a = np.random.default_rng().integers(-99, 99, (30, 10)).astype(F32)
    check(text, {"A": a, "B": poison((30,), F32)}, {"B": a.max(1)}, defines={"M": 30, "N": 10}, kernels=("largest",))


def test_arithmetic_with_a_stated_rounding() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((64,), "float32"), O: T.Tensor((7, 64), "float32")):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            a = A[i]
            O[0, i] = T.ieee_add(a, 1.5)
            O[1, i] = T.ieee_mul(a, a, "rn")
            O[2, i] = T.ieee_fdiv(a, 3.0)
            O[3, i] = T.ieee_fsqrt(a)
            O[4, i] = T.ieee_frcp(a)
            O[5, i] = T.ieee_fmaf(a, a, 1.0)
            O[6, i] = T.ieee_sub(a, 2.0)
"""
    a = np.random.default_rng().uniform(1, 9, 64).astype(F32)
    fused = (a.astype(np.float64) ** 2 + 1).astype(F32)
    wanted = np.stack([a + F32(1.5), a * a, a / F32(3), np.sqrt(a), 1 / a, fused, a - 2])
    check(text, {"A": a, "O": poison((7, 64), F32)}, {"O": wanted})


CONFIGURED = """
from dataclasses import dataclass
from typing import NamedTuple

@dataclass(frozen=True)
class Config:
    use: bool = True
    scale: float = 2.0

    @property
    def twice(self):
        return self.scale * 2

    def plus(self, n, k=1):
        return self.twice + n * k

    @staticmethod
    def five():
        return 5

class Pair(NamedTuple):
    a: int
    b: int = 3

def make(config={config}, pair=Pair(2)):
    @T.prim_func
    def k(A: T.Tensor((300,), "float32"), O: T.Tensor((300,), "float32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(300):
                O[i] = A[i] * config.twice + config.plus(1, k=2) + Config.five() + config.five() + pair.a * pair.b if not config.use else 0.0
    return k
"""


def test_configurations_as_data_classes() -> None:
    a = np.random.default_rng().integers(-9, 9, 300).astype(F32)
    check(CONFIGURED.format(config="Config(False, scale=3.0)"), {"A": a, "O": poison((300,), F32)}, {"O": a * 6 + 24})


@pytest.mark.parametrize(
    ("config", "code"), [("Config(1, 2, 3)", "TL0203"), ("Config(size=3)", "TL0203"), ("Pair()", "TL0203"), ("Config().size", "TL0201")]
)
def test_fields_that_do_not_fit(config: str, code: str) -> None:
    assert refused(CONFIGURED.format(config=config)).code == code
