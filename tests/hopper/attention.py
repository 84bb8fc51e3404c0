"""Attention sources for Hopper, one text from a handful of choices, and their runs against float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tests.compiling import compile_text, run_reference
from tilec import emulator
from tilec.driver import Compiled

Array = npt.NDArray[Any]
NUMPY: dict[str, Any] = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


@dataclass(frozen=True, slots=True)
class Attention:
    """A kernel: sizes, block, and how the author wrote the mask, the exponentials, and what leaves.

    `mask`: none, causal or tail, put on the scores `before` or `after` their product. `order` of dimensions: bhsd or bshd.
    `staged`: the output takes a trip through shared memory; `refill`: the maximum of a step is found afresh and joined.
    """

    heads: int = 2
    kv_heads: int = 2
    seq: int = 200
    dim: int = 64
    bm: int = 128
    bn: int = 64
    batch: int = 1
    mask: str = "causal"
    where: str = "before"
    power: str = "exp2"
    order: str = "bshd"
    dtype: str = "float16"
    stages: int = 2
    lse: bool = False
    staged: bool = False
    refill: bool = False
    extra: str = ""

    def source(self) -> str:
        """The Python text."""
        scale = self.dim**-0.5 * (1.44269504 if self.power == "exp2" else 1.0)

        def shape(heads: int) -> str:
            sizes = {"b": self.batch, "h": heads, "s": self.seq, "d": self.dim}
            return ", ".join(str(sizes[c]) for c in self.order)

        def place(tensor: str, head: str, rows: str) -> str:
            parts = {"b": "b", "h": head, "s": rows, "d": ":"}
            return f"{tensor}[{', '.join(parts[c] for c in self.order)}]"

        bm, bn = self.bm, self.bn
        keep = {"causal": f"bx * {bm} + i >= k * {bn} + j", "tail": f"k * {bn} + j < {self.seq}", "none": ""}[self.mask]
        inf = '-T.infinity("float32")'
        start = f"scores[i, j] = T.if_then_else({keep}, 0, {inf})" if keep and self.where == "before" else "scores[i, j] = 0"
        later = [f"for i, j in T.Parallel({bm}, {bn}): scores[i, j] = T.if_then_else({keep}, scores[i, j], {inf})"]
        log = {"exp2": "log2", "exp": "log"}[self.power]
        stop = f"T.ceildiv({self.seq}, {bn})"
        stop = f"T.min(T.ceildiv((bx + 1) * {bm}, {bn}), {stop})" if self.mask == "causal" else stop
        factor = f"old_max[i] * {scale} - row_max[i] * {scale}" if self.refill else f"(old_max[i] - row_max[i]) * {scale}"
        rows, keys, kv = f"bx * {bm} : (bx + 1) * {bm}", f"k * {bn} : (k + 1) * {bn}", f"head // {self.heads // self.kv_heads}"
        leave = [f'O_s = T.alloc_shared(({bm}, {self.dim}), "{self.dtype}")', "T.copy(out, O_s)", f"T.copy(O_s, {place('O', 'head', rows)})"]
        lse = [f"for i in T.Parallel({bm}): total[i] = T.{log}(total[i]) + row_max[i] * {scale}", f"T.copy(total, L[b, head, {rows}])"]
        loop = [
            f"T.copy({place('K', kv, keys)}, K_s)", f"for i, j in T.Parallel({bm}, {bn}): {start}", "T.gemm(Q_s, K_s, scores, transpose_B=True)",
            *(later if keep and self.where == "after" else []), "T.copy(row_max, old_max)",
            *([f"T.fill(row_max, {inf})"] if self.refill else []), "T.reduce_max(scores, row_max, dim=1, clear=False)",
            *([f"for i in T.Parallel({bm}): row_max[i] = T.max(row_max[i], old_max[i])"] if self.refill else []),
            f"for i in T.Parallel({bm}): rescale[i] = T.{self.power}({factor})",
            f"for i, j in T.Parallel({bm}, {bn}): scores[i, j] = T.{self.power}(scores[i, j] * {scale} - row_max[i] * {scale})",
            "T.reduce_sum(scores, row_sum, dim=1)", f"for i in T.Parallel({bm}): total[i] = total[i] * rescale[i] + row_sum[i]",
            "T.copy(scores, probs)", f"for i, j in T.Parallel({bm}, {self.dim}): out[i, j] *= rescale[i]", *([self.extra] if self.extra else []),
            f"T.copy({place('V', kv, keys)}, V_s)", "T.gemm(probs, V_s, out)",
        ]  # fmt: skip
        body = [
            *(f'{n}_s = T.alloc_shared(({r}, {self.dim}), "{self.dtype}")' for n, r in (("Q", bm), ("K", bn), ("V", bn))),
            f'scores = T.alloc_fragment(({bm}, {bn}), "float32")', f'probs = T.alloc_fragment(({bm}, {bn}), "{self.dtype}")',
            f'out = T.alloc_fragment(({bm}, {self.dim}), "float32")',
            *(f'{n} = T.alloc_fragment(({bm},), "float32")' for n in ("row_max", "old_max", "rescale", "row_sum", "total")),
            f"T.copy({place('Q', 'head', rows)}, Q_s)", "T.fill(out, 0)", "T.fill(total, 0)", f"T.fill(row_max, {inf})",
            f"for k in T.Pipelined({stop}, num_stages={self.stages}):", *(f"  {x}" for x in loop),
            f"for i, j in T.Parallel({bm}, {self.dim}): out[i, j] /= total[i]",
            *(leave if self.staged else [f"T.copy(out, {place('O', 'head', rows)})"]), *(lse if self.lse else []),
        ]  # fmt: skip
        params = [f'{n}: T.Tensor(({shape(h)}), "{self.dtype}")' for n, h in (("Q", self.heads), ("K", self.kv_heads), ("V", self.kv_heads), ("O", self.heads))]
        params += [f'L: T.Tensor(({self.batch}, {self.heads}, {self.seq}), "float32")'] if self.lse else []
        head = f"T.Kernel(T.ceildiv({self.seq}, {bm}), {self.heads}, {self.batch}, threads={2 * bm}) as (bx, head, b)"
        lines = ["import tilelang.language as T", "@T.prim_func", f"def attention({', '.join(params)}):", f"  with {head}:"]
        return "\n".join([*lines, *(f"    {x}" for x in body)]) + "\n"

    def compiled(self) -> Compiled:
        """Compiled for sm_90a; nvcc is asked where it is there, since kernels that are tight in registers take another body without it."""
        return compile_text(self.source(), arch="sm_90a", ptxas="auto")

    def inputs(self, rng: np.random.Generator, growing: bool = False) -> dict[str, Array]:
        """Random Q, K, V in the kernel's order, poisoned results. `growing`: keys whose scores keep growing."""

        def draw(heads: int, ramp: bool = False) -> Array:
            x = rng.standard_normal((self.batch, heads, self.seq, self.dim))
            x = x * np.linspace(0.1, 8, self.seq)[:, None] if ramp else x
            return np.ascontiguousarray(np.moveaxis(x, [0, 1, 2, 3], [self.order.index(c) for c in "bhsd"]).astype(NUMPY[self.dtype]))

        out = {"Q": draw(self.heads), "K": draw(self.kv_heads, growing), "V": draw(self.kv_heads)}
        out["O"] = np.full_like(out["Q"], np.nan)
        return {**out, "L": np.full((self.batch, self.heads, self.seq), np.nan, np.float32)} if self.lse else out

    def exact(self, v: dict[str, Array]) -> tuple[Array, Array]:
        """Output in the kernel's order and log-sum-exp in the base of the exponentials, in float64."""
        q, k, x = (np.moveaxis(v[n].astype(np.float64), [self.order.index(c) for c in "bhsd"], [0, 1, 2, 3]) for n in "QKV")
        k, x = (np.repeat(t, self.heads // self.kv_heads, 1) for t in (k, x))
        s = q @ k.swapaxes(-1, -2) * self.dim**-0.5
        s = np.where(np.tri(self.seq, dtype=bool), s, -np.inf) if self.mask == "causal" else s
        top = s.max(-1, keepdims=True)
        e = np.exp(s - top)
        lse = np.log(e.sum(-1)) + top[..., 0]
        out = e / e.sum(-1, keepdims=True) @ x
        return np.moveaxis(out, [0, 1, 2, 3], [self.order.index(c) for c in "bhsd"]), lse * (np.log2(np.e) if self.power == "exp2" else 1)


def streams(compiled: Compiled) -> bool:
    """True when the launcher's first choice is the body that streams tiles."""
    first = compiled.plans[0].launches[0].variants[0]
    return bool(first.tensor_maps) and not first.hopper


def error(got: Array, want: Array) -> float:
    """Relative error in the Frobenius norm; infinite when something is not finite."""
    g = got.astype(np.float64)
    return float(np.linalg.norm(g - want) / np.linalg.norm(want)) if np.isfinite(g).all() else float("inf")


def run(a: Attention, compiled: Compiled, values: dict[str, Array], mode: emulator.Mode) -> dict[str, Array]:
    """The results on the emulator."""
    mine = {n: x.copy() for n, x in values.items()}
    outcome = emulator.build(compiled.cu).run("attention_launch", mine, mode, 60)
    assert outcome.ok, outcome
    return mine


def reference(compiled: Compiled, values: dict[str, Array]) -> dict[str, Array]:
    """The results as the kernel's meaning has them."""
    return run_reference(compiled, values)
