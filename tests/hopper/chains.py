"""Sources of kernels that chain products, gradients of attention from a handful of choices, and their runs against float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tests.compiling import compile_text
from tilec import emulator
from tilec.driver import Compiled

Array = npt.NDArray[Any]
NUMPY: dict[str, Any] = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
LOG2E = 1.4426950408889634


@dataclass(frozen=True, slots=True)
class Gradients:
    """A kernel: sizes, blocks of `bn` keys and `bm` queries, and how the author wrote it.

    `what`: keys (dK and dV of a block of keys, dQ added up by atomics) or queries (dQ of a block of queries). `order` of dimensions:
    bhsd or bshd. `guard`: the addition tests its range. `wide`: dS passes through float32 first. `extra`: one more line of the step.
    """

    what: str = "keys"
    heads: int = 2
    seq: int = 200
    dim: int = 64
    bm: int = 64
    bn: int = 128
    batch: int = 1
    causal: bool = False
    order: str = "bshd"
    dtype: str = "float16"
    guard: bool = True
    wide: bool = False
    stages: int = 2
    extra: str = ""

    def at(self, name: str, start: str, count: int) -> str:
        """Rows of a tensor."""
        rows = f"{start} : {start} + {count}"
        return f"{name}[b, {rows}, h, :]" if self.order == "bshd" else f"{name}[b, h, {rows}, :]"

    def source(self) -> str:
        """The Python text."""
        shape = (self.batch, self.seq, self.heads, self.dim) if self.order == "bshd" else (self.batch, self.heads, self.seq, self.dim)
        rows = (self.batch, self.heads, self.seq)
        tensors = [*((n, shape, self.dtype) for n in ("Q", "K", "V", "dO")), *((n, rows, "float32") for n in ("LSE", "Delta"))]
        tensors += [("dQ", shape, "float32"), ("dK", shape, self.dtype), ("dV", shape, self.dtype)] if self.what == "keys" else [("dQ", shape, self.dtype)]
        params = ", ".join(f'{n}: T.Tensor({s}, "{t}")' for n, s, t in tensors)
        block = self.bn if self.what == "keys" else self.bm
        lines = ["import tilelang.language as T", "@T.prim_func", f"def gradients({params}):"]
        lines.append(f"  with T.Kernel(T.ceildiv({self.seq}, {block}), {self.heads}, {self.batch}, threads=256) as (x, h, b):")
        body = self.keys() if self.what == "keys" else self.queries()
        return "\n".join([*lines, *(f"    {line}" for line in body)]) + "\n"

    def keys(self) -> list[str]:
        """A block of keys stays, queries stream past."""
        m, n, d, t = self.bm, self.bn, self.dim, self.dtype
        see = f" and x * {n} + i <= k * {m} + j" if self.causal else ""
        row = f"k * {m} + i"
        place = f"dQ[b, {row}, h, j]" if self.order == "bshd" else f"dQ[b, h, {row}, j]"
        first = f"x * {n} // {m}" if self.causal else "0"
        ds = f"(dp[i, j] - delta[j]) * s[i, j] * {d**-0.5}"
        return [
            *(f'{name}_s = T.alloc_shared(({r}, {d}), "{t}")' for name, r in (("K", n), ("V", n), ("q", m), ("do", m))),
            f'ds_s = T.alloc_shared(({n}, {m}), "{t}")', *(f'{v} = T.alloc_shared(({m},), "float32")' for v in ("lse", "delta")),
            *(f'{f} = T.alloc_fragment(({n}, {m}), "float32")' for f in ("s", "dp")),
            *(f'{f} = T.alloc_fragment(({n}, {m}), "{t}")' for f in ("p16", "ds16")),
            *(f'{f} = T.alloc_fragment(({n}, {d}), "float32")' for f in ("dk", "dv")), f'dq = T.alloc_fragment(({m}, {d}), "float32")',
            f"T.copy({self.at('K', f'x * {n}', n)}, K_s)", f"T.copy({self.at('V', f'x * {n}', n)}, V_s)", "T.clear(dk)", "T.clear(dv)",
            f"for k in T.Pipelined({first}, T.ceildiv({self.seq}, {m}), num_stages={self.stages}):",
            *(f"  {line}" for line in (
                f"T.copy({self.at('Q', f'k * {m}', m)}, q_s)", f"T.copy(LSE[b, h, k * {m} : k * {m} + {m}], lse)", "T.clear(s)",
                "T.gemm(K_s, q_s, s, transpose_B=True)",
                f"for i, j in T.Parallel({n}, {m}): s[i, j] = T.exp2(s[i, j] * {d**-0.5 * LOG2E} - lse[j])",
                f"for i, j in T.Parallel({n}, {m}): s[i, j] = T.if_then_else(x * {n} + i < {self.seq} and k * {m} + j < {self.seq}{see}, s[i, j], 0)",
                f"T.copy({self.at('dO', f'k * {m}', m)}, do_s)", "T.gemm(V_s, do_s, dp, transpose_B=True, clear_accum=True)",
                "T.copy(s, p16)", "T.gemm(p16, do_s, dv)", f"T.copy(Delta[b, h, k * {m} : k * {m} + {m}], delta)",
                *([f"for i, j in T.Parallel({n}, {m}): dp[i, j] = {ds}", "T.copy(dp, ds16)"] if self.wide
                  else [f"for i, j in T.Parallel({n}, {m}): ds16[i, j] = {ds}"]),
                "T.gemm(ds16, q_s, dk)", "T.copy(ds16, ds_s)", "T.clear(dq)", "T.gemm(ds_s, K_s, dq, transpose_A=True)",
                *([self.extra] if self.extra else []),
                f"for i, j in T.Parallel({m}, {d}):",
                *([f"  if {row} < {self.seq}:", f"    T.atomic_add({place}, dq[i, j])"] if self.guard else [f"  T.atomic_add({place}, dq[i, j])"]),
            )),
            f"T.copy(dk, {self.at('dK', f'x * {n}', n)})", f"T.copy(dv, {self.at('dV', f'x * {n}', n)})",
        ]  # fmt: skip

    def queries(self) -> list[str]:
        """A block of queries stays, keys stream past."""
        m, n, d, t = self.bm, self.bn, self.dim, self.dtype
        see = f" and x * {m} + i >= k * {n} + j" if self.causal else ""
        stop = f"T.min(T.ceildiv({self.seq}, {n}), T.ceildiv((x + 1) * {m}, {n}))" if self.causal else f"T.ceildiv({self.seq}, {n})"
        return [
            *(f'{name}_s = T.alloc_shared(({r}, {d}), "{t}")' for name, r in (("Q", m), ("dO", m), ("k", n), ("v", n))),
            *(f'{f} = T.alloc_fragment(({m}, {n}), "float32")' for f in ("s", "dp")), f'ds = T.alloc_fragment(({m}, {n}), "{t}")',
            f'dq = T.alloc_fragment(({m}, {d}), "float32")', *(f'{v} = T.alloc_fragment(({m},), "float32")' for v in ("lse", "delta")),
            *(f"T.copy({self.at(name, f'x * {m}', m)}, {name}_s)" for name in ("Q", "dO")),
            *(f"T.copy({name}[b, h, x * {m} : x * {m} + {m}], {v})" for name, v in (("LSE", "lse"), ("Delta", "delta"))), "T.clear(dq)",
            f"for k in T.Pipelined({stop}, num_stages={self.stages}):",
            *(f"  {line}" for line in (
                f"T.copy({self.at('K', f'k * {n}', n)}, k_s)", f"T.copy({self.at('V', f'k * {n}', n)}, v_s)",
                "T.gemm(Q_s, k_s, s, transpose_B=True, clear_accum=True)", "T.gemm(dO_s, v_s, dp, transpose_B=True, clear_accum=True)",
                f"for i, j in T.Parallel({m}, {n}):",
                f"  s[i, j] = T.if_then_else(k * {n} + j < {self.seq}{see}, T.exp2(s[i, j] * {d**-0.5 * LOG2E} - lse[i]), 0)",
                f"  ds[i, j] = s[i, j] * (dp[i, j] - delta[i]) * {d**-0.5}", "T.gemm(ds, k_s, dq)",
            )),
            f"T.copy(dq, {self.at('dQ', f'x * {m}', m)})",
        ]  # fmt: skip

    def compiled(self) -> Compiled:
        """Compiled for sm_90a."""
        return compile_text(self.source(), arch="sm_90a")

    def inputs(self, rng: np.random.Generator) -> tuple[dict[str, Array], dict[str, Array]]:
        """The arguments with poisoned results, and what the gradients should be."""
        axes = [self.order.index(c) for c in "bhsd"]
        shape = (self.batch, self.heads, self.seq, self.dim)

        def stored(x: Array) -> Array:
            return np.ascontiguousarray(np.moveaxis(x, [0, 1, 2, 3], axes))

        args = {n: stored(rng.standard_normal(shape)).astype(NUMPY[self.dtype]) for n in ("Q", "K", "V", "dO")}
        q, k, v, do = (np.moveaxis(args[n].astype(np.float64), axes, [0, 1, 2, 3]) for n in ("Q", "K", "V", "dO"))
        s = q @ k.swapaxes(-1, -2) * self.dim**-0.5
        s = np.where(np.tri(self.seq, dtype=bool), s, -np.inf) if self.causal else s
        top = s.max(-1, keepdims=True)
        e = np.exp(s - top)
        p = e / e.sum(-1, keepdims=True)
        delta = (p @ v * do).sum(-1)
        ds = p * (do @ v.swapaxes(-1, -2) - delta[..., None]) * self.dim**-0.5
        want = {"dQ": stored(ds @ k), "dK": stored(ds.swapaxes(-1, -2) @ q), "dV": stored(p.swapaxes(-1, -2) @ do)}
        args |= {"LSE": ((np.log(e.sum(-1)) + top[..., 0]) * LOG2E).astype(np.float32), "Delta": delta.astype(np.float32)}
        poison = np.full_like(args["Q"], np.nan)
        if self.what == "queries":
            return {**args, "dQ": poison}, {"dQ": want["dQ"]}
        return {**args, "dQ": np.zeros(poison.shape, np.float32), "dK": poison, "dV": poison.copy()}, want


def chains(compiled: Compiled) -> bool:
    """True when the launcher's first choice is the body that chains products."""
    return "held_full" in compiled.cu


def error(got: Array, want: Array) -> float:
    """Relative error in the Frobenius norm; infinite when something is not finite."""
    g = got.astype(np.float64)
    return float(np.linalg.norm(g - want) / np.linalg.norm(want)) if np.isfinite(g).all() else float("inf")


def run(text: str, values: dict[str, Array], mode: emulator.Mode, seconds: float = 60) -> tuple[bool, dict[str, Array]]:
    """Whether a run on the emulator ends well, and the arguments behind it."""
    mine = {n: x.copy() for n, x in values.items()}
    return emulator.build(text).run("gradients_launch", mine, mode, seconds).ok, mine
