"""Sources of kernels written for Hopper by hand, from a handful of choices, and their runs against float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.compiling import compile_text, run_reference
from tests.hopper.kernels import NUMPY, Array
from tilec import emulator
from tilec.driver import Compiled


@dataclass(frozen=True, slots=True)
class Hand:
    """A warp-specialised GEMM: one producer thread, `groups` consumer warp groups that are one team."""

    m: int = 250
    n: int = 200
    k: int = 328
    bm: int = 128
    bn: int = 128
    bk: int = 64
    stages: int = 3
    groups: int = 2
    dtype: str = "float16"
    out: str = "float16"
    acc: str = "float32"
    trans_a: bool = False
    trans_b: bool = False
    queued: bool = True
    store: str = "T.copy(acc, C[by * BM, bx * BN])"
    held: bool = False  # a goes through registers

    def source(self) -> str:
        """The Python text."""
        a_shape = ("K", "M", "BK", "BM") if self.trans_a else ("M", "K", "BM", "BK")
        b_shape = ("N", "K", "BN", "BK") if self.trans_b else ("K", "N", "BK", "BN")
        a_at = "ko * BK, by * BM" if self.trans_a else "by * BM, ko * BK"
        b_at = "bx * BN, ko * BK" if self.trans_b else "ko * BK, bx * BN"
        flags = f"transpose_A={self.trans_a}, transpose_B={self.trans_b}"
        left = "left" if self.held else "A_s[s, :, :]"
        product = f"T.wgmma_gemm({left}, B_s[s, :, :], acc, {flags})" if self.queued else f"T.gemm({left}, B_s[s, :, :], acc, {flags})"
        return f"""
import tilelang.language as T
M, N, K, BM, BN, BK, S = {self.m}, {self.n}, {self.k}, {self.bm}, {self.bn}, {self.bk}, {self.stages}
@T.prim_func
def gemm(A: T.Tensor(({a_shape[0]}, {a_shape[1]}), "{self.dtype}"), B: T.Tensor(({b_shape[0]}, {b_shape[1]}), "{self.dtype}"),
         C: T.Tensor((M, N), "{self.out}")):
    with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads={128 * self.groups + 128}) as (bx, by):
        A_s = T.alloc_shared((S, {a_shape[2]}, {a_shape[3]}), "{self.dtype}")
        B_s = T.alloc_shared((S, {b_shape[2]}, {b_shape[3]}), "{self.dtype}")
        C_s = T.alloc_shared((BM, BN), "{self.out}")
        left = T.alloc_fragment((BM, BK), "{self.dtype}")
        acc = T.alloc_fragment((BM, BN), "{self.acc}")
        full = T.alloc_barrier([1] * S)
        empty = T.alloc_barrier([{128 * self.groups}] * S)
        with T.ws({self.groups}):
            if T.shuffle_elect(128):
                for ko in T.serial(T.ceildiv(K, BK)):
                    s = ko % S
                    T.barrier_wait(empty[s], (ko // S + 1) % 2)
                    T.tma_copy(A[{a_at}], A_s[s, :, :], barrier=full[s])
                    T.tma_copy(B[{b_at}], B_s[s, :, :], barrier=full[s])
                    T.barrier_arrive(full[s])
        with T.ws({", ".join(map(str, range(self.groups)))}):
            T.clear(acc)
            for ko in T.serial(T.ceildiv(K, BK)):
                s = ko % S
                T.barrier_wait(full[s], ko // S % 2)
                {"T.copy(A_s[s, :, :], left)" if self.held else ""}
                {product}
                {"T.wait_wgmma(0)" if self.queued else ""}
                T.barrier_arrive(empty[s])
            {self.store}
"""

    def compiled(self, arch: str = "sm_90a", **options: Any) -> Compiled:
        """The compilation."""
        return compile_text(self.source(), None, arch, **options)

    def inputs(self) -> dict[str, Array]:
        """Random operands and a poisoned result; small integers where products are exact."""
        rng = np.random.default_rng(np.random.SeedSequence())
        kind = NUMPY[self.dtype]

        def operand(*shape: int) -> Array:
            values = rng.integers(-3, 4, shape) if self.dtype == "int8" else rng.standard_normal(shape)
            return values.astype(np.float32).astype(kind)

        out = NUMPY[self.out]
        poison = np.full((self.m, self.n), np.iinfo(np.int32).min if self.out == "int32" else np.nan, out)
        a = operand(self.k, self.m) if self.trans_a else operand(self.m, self.k)
        b = operand(self.n, self.k) if self.trans_b else operand(self.k, self.n)
        return {"A": a, "B": b, "C": poison}

    def wanted(self, values: dict[str, Array]) -> Array:
        """The product in float64."""
        a, b = values["A"].astype(np.float64), values["B"].astype(np.float64)
        out: Array = (a.T if self.trans_a else a) @ (b.T if self.trans_b else b)
        return out


def difference(got: Array, want: Array) -> float:
    """Relative error in the Frobenius norm; infinite for what is not finite."""
    wide = got.astype(np.float64)
    return float(np.linalg.norm(wide - want) / np.linalg.norm(want)) if np.isfinite(wide).all() else float("inf")


def emulate(text: str, symbol: str, values: dict[str, Array], mode: emulator.Mode, timeout_s: int = 60) -> tuple[Any, dict[str, Array]]:
    """The outcome of a run on the emulator, and the arrays behind it."""
    out = {k: v.copy() for k, v in values.items()}
    return emulator.build(text).run(f"{symbol}_launch", out, mode, timeout_s), out


__all__ = ["Hand", "difference", "emulate", "run_reference"]
