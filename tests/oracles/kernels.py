"""Kernels in the text form of the Tile IR, compiled and run without the frontend, for tests of the oracles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilec import emulator
from tilec.emit.kernel import EmitOptions, emit
from tilec.ir.kernel import Kernel
from tilec.ir.text import parse
from tilec.ir.verify import verify
from tilec.plan.planner import PlanOptions, plan
from tilec.targets import lookup

GEMM = """
kernel gemm[M, N, K](A: float16[M, K], B: float16[K, N], C: float32[M, N]):
  launch (bx, by) in (ceildiv(N, 64), ceildiv(M, 64)) threads (128, 1, 1):
    alloc A_s: shared float16[64, 32]
    alloc B_s: shared float16[32, 64]
    alloc acc: fragment float32[64, 64]
    fill acc = 0.0
    for ko in pipelined(0, ceildiv(K, 32), 1) stages 3:
      copy A[by * 64 +: 64, ko * 32 +: 32] -> A_s
      copy B[ko * 32 +: 32, bx * 64 +: 64] -> B_s
      gemm acc += A_s @ B_s square
    copy acc -> C[by * 64 +: 64, bx * 64 +: 64]
"""

SOFTMAX = """
kernel softmax(A: float32[16, 256], O: float32[16, 256]):
  launch (bx) in (4) threads (128, 1, 1):
    alloc s: shared float32[4, 256]
    alloc f: fragment float32[4, 256]
    alloc m: fragment float32[4]
    alloc l: fragment float32[4]
    copy A[bx * 4 +: 4, 0 +: 256] -> s
    parallel i, j in 4, 256:
      f[i, j] = s[i, 255 - j]
    reduce max f -> m dim 1
    parallel i, j in 4, 256:
      f[i, j] = exp2(f[i, j] - m[i])
    reduce sum f -> l dim 1
    parallel i, j in 4, 256:
      O[bx * 4 + i, j] = f[i, j] / l[i]
"""


def kernel(text: str) -> Kernel:
    """The verified kernel of a text."""
    k = parse(text.strip() + "\n")
    verify(k)
    return k


def cuda(k: Kernel, arch: str = "sm_80") -> str:
    """The CUDA file of a kernel."""
    target = lookup(arch)
    assert target is not None
    return emit([plan(k, PlanOptions(target), k.symbol)], EmitOptions("kernel.py"))


def emulate(cu: str, launcher: str, values: Mapping[str, Any], mode: emulator.Mode) -> tuple[emulator.Outcome, dict[str, Any]]:
    """The outcome of a run, and what it left in copies of the arrays."""
    out = {n: v.copy() if isinstance(v, np.ndarray) else v for n, v in values.items()}
    return emulator.build(cu).run(launcher, out, mode, 60), out
