"""Sources of kernels whose products warp groups do in place, from a handful of choices, and what they mean in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.compiling import compile_text
from tests.hopper.kernels import NUMPY, Array
from tilec.driver import Compiled


@dataclass(frozen=True, slots=True)
class Weighted:
    """C = sum over k blocks of (1 + block) * A block @ B block: each product starts from zero and is added by an element loop, which
    Hopper's own bodies do not take."""

    m: int = 128
    n: int = 128
    k: int = 256
    bm: int = 64
    bn: int = 64
    bk: int = 64
    stages: int = 2
    threads: int = 128
    dtype: str = "float16"
    acc: str = "float32"
    trans_a: bool = False
    trans_b: bool = False
    held: bool = False  # a goes through registers
    policy: str = "Square"
    written: bool = False  # tiles are filled by an element loop, not by copies that run ahead
    times: int = 1  # the loop runs more than once, which keeps its copies from the copy engine

    def source(self) -> str:
        """The Python text."""
        a_shape = ("K", "M", "BK", "BM") if self.trans_a else ("M", "K", "BM", "BK")
        b_shape = ("N", "K", "BN", "BK") if self.trans_b else ("K", "N", "BK", "BN")
        a_at = ("ko * BK", "by * BM") if self.trans_a else ("by * BM", "ko * BK")
        b_at = ("bx * BN", "ko * BK") if self.trans_b else ("ko * BK", "bx * BN")
        fill = f"T.copy(A[{a_at[0]}, {a_at[1]}], A_s)"
        if self.written:
            fill = f"for i, j in T.Parallel({a_shape[2]}, {a_shape[3]}):\n                    A_s[i, j] = A[{a_at[0]} + i, {a_at[1]} + j]"
        flags = f"transpose_A={self.trans_a}, transpose_B={self.trans_b}, clear_accum=True, policy=T.GemmWarpPolicy.{self.policy}"
        text = f"""
import tilelang.language as T
M, N, K, BM, BN, BK = {self.m}, {self.n}, {self.k}, {self.bm}, {self.bn}, {self.bk}
@T.prim_func
def weighted(A: T.Tensor(({a_shape[0]}, {a_shape[1]}), "{self.dtype}"), B: T.Tensor(({b_shape[0]}, {b_shape[1]}), "{self.dtype}"),
             C: T.Tensor((M, N), "{self.acc}")):
    with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads={self.threads}) as (bx, by):
        A_s = T.alloc_shared(({a_shape[2]}, {a_shape[3]}), "{self.dtype}")
        B_s = T.alloc_shared(({b_shape[2]}, {b_shape[3]}), "{self.dtype}")
        left = T.alloc_fragment((BM, BK), "{self.dtype}")
        part = T.alloc_fragment((BM, BN), "{self.acc}")
        acc = T.alloc_fragment((BM, BN), "{self.acc}")
        T.clear(acc)
        for again in T.serial({self.times}):
            for ko in T.Pipelined(K // BK, num_stages={self.stages}):
                {fill}
                T.copy(B[{b_at[0]}, {b_at[1]}], B_s)
                {"T.copy(A_s, left)" if self.held else ""}
                {"for i, j in T.Parallel(BM, BK): left[i, j] = left[i, j] + left[i, j]" if self.held else ""}
                T.gemm({"left" if self.held else "A_s"}, B_s, part, {flags})
                for i, j in T.Parallel(BM, BN):
                    acc[i, j] += part[i, j] * (ko + 1)
        T.copy(acc, C[by * BM, bx * BN])
"""
        return text.replace("for again in T.serial(1):", "if True:")

    def compiled(self, **options: Any) -> Compiled:
        """Its compilation for sm_90a."""
        return compile_text(self.source(), arch="sm_90a", **options)

    def inputs(self) -> dict[str, Array]:
        """Small whole numbers, which every type here holds and sums exactly."""
        rng = np.random.default_rng()
        a, b = (rng.integers(0 if self.dtype == "uint8" else -3, 4, s).astype(NUMPY[self.dtype]) for s in ((self.m, self.k), (self.k, self.n)))
        c = np.full((self.m, self.n), 77, NUMPY[self.acc]) if self.acc.startswith("int") else np.full((self.m, self.n), np.nan, NUMPY[self.acc])
        return {"A": np.ascontiguousarray(a.T) if self.trans_a else a, "B": np.ascontiguousarray(b.T) if self.trans_b else b, "C": c}

    def wanted(self, values: dict[str, Array]) -> Array:
        """What it means."""
        a = (values["A"].T if self.trans_a else values["A"]).astype(np.float64) * (2 if self.held else 1) * self.times
        b = (values["B"].T if self.trans_b else values["B"]).astype(np.float64)
        cuts = range(0, self.k, self.bk)
        return np.sum([(1 + n) * a[:, k : k + self.bk] @ b[k : k + self.bk] for n, k in enumerate(cuts)], axis=0)  # type: ignore[no-any-return]


DECODE = """
import tilelang.language as T
H, D, BN, S = 64, DIM, 64, SEQ
@T.prim_func
def decode(Q: T.Tensor((H, D), "float16"), KV: T.Tensor((S, D), "float16"), O: T.Tensor((H, D), "float32")):
    with T.Kernel(1, threads=THREADS) as bx:
        Q_s = T.alloc_shared((H, D), "float16")
        KV_s = T.alloc_shared((BN, D), "float16")
        P_s = T.alloc_shared((H, BN), "float16")
        s = T.alloc_fragment((H, BN), "float32")
        p = T.alloc_fragment((H, BN), "float16")
        o = T.alloc_fragment((H, D), "float32")
        top = T.alloc_fragment((H,), "float32")
        old = T.alloc_fragment((H,), "float32")
        total = T.alloc_fragment((H,), "float32")
        rows = T.alloc_fragment((H,), "float32")
        T.copy(Q, Q_s)
        T.clear(o)
        T.clear(total)
        T.fill(top, -T.infinity("float32"))
        for k in T.Pipelined(S // BN, num_stages=2):
            T.copy(KV[k * BN, 0], KV_s)
            T.gemm(Q_s, KV_s, s, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.POLICY)
            T.copy(top, old)
            T.reduce_max(s, top, dim=1, clear=False)
            for i, j in T.Parallel(H, BN):
                s[i, j] = T.exp2(s[i, j] - top[i])
            T.reduce_sum(s, rows, dim=1)
            for i in T.Parallel(H):
                total[i] = total[i] * T.exp2(old[i] - top[i]) + rows[i]
            for i, j in T.Parallel(H, D):
                o[i, j] *= T.exp2(old[i] - top[i])
            PASS
            T.gemm(LEFT, KV_s, o, policy=T.GemmWarpPolicy.POLICY)
            for i, j in T.Parallel(H, D):
                o[i, j] = o[i, j] + 0.0
        for i, j in T.Parallel(H, D):
            O[i, j] = o[i, j] / total[i]
"""
"""Two products a step read one tile, a row-wise softmax between them; the probabilities pass through PASS to LEFT."""


def decode_text(dim: int, seq: int, threads: int, policy: str, shared: bool) -> str:
    """Such a kernel; `shared`: the probabilities go through a shared tile, else they stay in registers."""
    passing = "T.copy(s, P_s)" if shared else "T.copy(s, p)"
    table = {"DIM": dim, "SEQ": seq, "THREADS": threads, "POLICY": policy, "PASS": passing, "LEFT": "P_s" if shared else "p"}
    text = DECODE
    for word, value in table.items():
        text = text.replace(word, str(value))
    return text


def decode_wanted(q: Array, kv: Array) -> Array:
    """Attention in base 2, in float64."""
    s = q.astype(np.float64) @ kv.T.astype(np.float64)
    p = np.exp2(s - s.max(axis=1, keepdims=True))
    return p @ kv.astype(np.float64) / p.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]
