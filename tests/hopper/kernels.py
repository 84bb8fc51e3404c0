"""GEMM sources for Hopper, one text from a handful of choices, and their runs against float64."""

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
MODES = [
    emulator.Mode("lazy", "apart", 1), emulator.Mode("eager", "real", 2), emulator.Mode("random", "real", 3), emulator.Mode("lazy", "real", 4),
    emulator.Mode("eager", "apart", 5), emulator.Mode("random", "apart", 6),
]  # fmt: skip
"""Every asynchrony and both ways to place tiles; the first three have each at least once."""

NUMPY: dict[str, Any] = {
    "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "int8": np.int8, "int32": np.int32,
    "float8_e4m3": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Gemm:
    """A kernel: block tile, stages, element types, how operands are stored, the epilogue, and fixed sizes if any."""

    bm: int = 128
    bn: int = 64
    bk: int = 64
    stages: int = 3
    dtype: str = "float16"
    out: str = "float16"
    acc: str = "float32"
    trans_a: bool = False
    trans_b: bool = False
    epilogue: str = "copy"
    start: str = "T.clear(acc)"
    sizes: tuple[int, int, int] | None = None
    batch: int = 0

    def source(self) -> str:
        """The Python text."""
        bm, bn, bk = self.bm, self.bn, self.bk
        names = [str(n) for n in self.sizes] if self.sizes else ["M", "N", "K"]
        m, n, k = names
        lead, at = (f"{self.batch}, ", "bz, ") if self.batch else ("", "")
        a = (f"{k}, {m}", f"{bk}, {bm}", f"ko * {bk}, by * {bm}") if self.trans_a else (f"{m}, {k}", f"{bm}, {bk}", f"by * {bm}, ko * {bk}")
        b = (f"{n}, {k}", f"{bn}, {bk}", f"bx * {bn}, ko * {bk}") if self.trans_b else (f"{k}, {n}", f"{bk}, {bn}", f"ko * {bk}, bx * {bn}")
        dynamic = "" if self.sizes else "\n".join(f'{x} = T.dynamic("{x}")' for x in names)
        grid = f"T.ceildiv({n}, {bn}), T.ceildiv({m}, {bm})" + (f", {self.batch}" if self.batch else "")
        clear = ", clear_accum=(ko == 0)" if self.start == "clear_accum" else ""
        start = "" if self.start == "clear_accum" else self.start
        bias = f', D: T.Tensor(({n},), "float32")' if self.epilogue == "bias" else ""
        lines = [
            "import tilelang.language as T", dynamic, "@T.prim_func",
            f'def gemm(A: T.Tensor(({lead}{a[0]}), "{self.dtype}"), B: T.Tensor(({lead}{b[0]}), "{self.dtype}"), '
            f'C: T.Tensor(({lead}{m}, {n}), "{self.out}"){bias}):',
            f"  with T.Kernel({grid}, threads=256) as (bx, by{', bz' if self.batch else ''}):",
            f'    A_s = T.alloc_shared(({a[1]}), "{self.dtype}")',
            f'    B_s = T.alloc_shared(({b[1]}), "{self.dtype}")',
            f'    acc = T.alloc_fragment(({bm}, {bn}), "{self.acc}")',
            *([f"    {start}"] if start else []),
            f"    for ko in T.Pipelined(T.ceildiv({k}, {bk}), num_stages={self.stages}):",
            f"      T.copy(A[{at}{a[2]}], A_s)",
            f"      T.copy(B[{at}{b[2]}], B_s)",
            f"      T.gemm(A_s, B_s, acc, transpose_A={self.trans_a}, transpose_B={self.trans_b}{clear})",
            *(f"    {x}" for x in self.tail(f"C[{at}by * {bm}, bx * {bn}]")),
        ]  # fmt: skip
        return "\n".join(lines) + "\n"

    def tail(self, place: str) -> list[str]:
        """The lines of the epilogue."""
        bm, bn = self.bm, self.bn
        loop = f"for i, j in T.Parallel({bm}, {bn}):"
        match self.epilogue:
            case "shared":
                return [f'C_s = T.alloc_shared(({bm}, {bn}), "{self.out}")', "T.copy(acc, C_s)", f"T.copy(C_s, {place})"]
            case "bias":
                return [loop, f"  acc[i, j] = T.max(acc[i, j] + D[bx * {bn} + j], 0)", f"T.copy(acc, {place})"]
            case "direct":
                return [loop, f"  C[by * {bm} + i, bx * {bn} + j] = acc[i, j] * 2"]
            case "mirror":  # elements of other threads: through a tile in shared memory
                tile = f'C_s = T.alloc_shared(({bm}, {bn}), "float32")'
                return [tile, "T.copy(acc, C_s)", loop, f"  C[by * {bm} + i, bx * {bn} + j] = C_s[i, j] - C_s[i, {bn - 1} - j]"]
            case _:
                return [f"T.copy(acc, {place})"]

    def compiled(self, arch: str = "sm_90a", **options: Any) -> Compiled:
        """The compilation."""
        return compile_text(self.source(), arch=arch, **options)


def takes_hopper(compiled: Compiled) -> bool:
    """Whether the first body of the kernel is one of Hopper's own, with persistent blocks and tensor maps."""
    first = compiled.plans[0].launches[0].variants[0]
    return bool(first.tensor_maps) and not first.hopper


def operands(g: Gemm, size: tuple[int, int, int], rng: np.random.Generator) -> dict[str, Array]:
    """Fresh A, B, bias, and a poisoned C."""
    m, n, k = size
    lead = (g.batch,) if g.batch else ()

    def fresh(*shape: int) -> Array:
        if g.dtype == "int8":
            return rng.integers(-128, 128, (*lead, *shape)).astype(np.int8)
        return rng.standard_normal((*lead, *shape)).astype(NUMPY[g.dtype])

    empty = np.full((*lead, m, n), -77 if g.out == "int32" else np.nan, NUMPY[g.out])
    values = {"A": fresh(k, m) if g.trans_a else fresh(m, k), "B": fresh(n, k) if g.trans_b else fresh(k, n), "C": empty}
    return values | ({"D": rng.standard_normal(n).astype(np.float32)} if g.epilogue == "bias" else {})


def exact(g: Gemm, v: dict[str, Array]) -> Array:
    """The result in float64."""
    a, b = v["A"].astype(np.float64), v["B"].astype(np.float64)
    c = (np.swapaxes(a, -1, -2) if g.trans_a else a) @ (np.swapaxes(b, -1, -2) if g.trans_b else b)
    if g.epilogue == "bias":
        c = np.maximum(c + v["D"], 0)
    elif g.epilogue == "direct":
        c = c * 2
    elif g.epilogue == "mirror":
        m, n = c.shape
        wide = np.zeros((m, -(-n // g.bn) * g.bn))
        wide[:, :n] = c
        c = (wide - wide.reshape(m, -1, g.bn)[:, :, ::-1].reshape(m, -1))[:, :n]
    return c


def run(cu: str, g: Gemm, size: tuple[int, int, int], mode: emulator.Mode, timeout_s: int = 60) -> tuple[emulator.Outcome, float]:
    """How the run of a file ended, and the relative error of what it left behind."""
    v = operands(g, size, np.random.default_rng())
    outcome = emulator.build(cu).run("gemm_launch", v, mode, timeout_s)
    true = exact(g, v)
    error = float(np.linalg.norm(v["C"].astype(np.float64) - true) / max(float(np.linalg.norm(true)), 1e-30))
    return outcome, error


