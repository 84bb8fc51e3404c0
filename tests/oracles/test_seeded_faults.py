"""The oracles bite: every fault planted in generated code or in a kernel's meaning is seen.

Each fault is one edit of correct output. It counts as seen when the emulator reports it, or when the result is wrong, in one of
a few runs; the unedited output must pass all of them.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.oracles.kernels import GEMM, SOFTMAX, cuda, emulate, kernel
from tests.toolchain import needs_gxx
from tilec.emulator import Mode
from tilec.ir.dtypes import FLOAT32
from tilec.reference import run
from tilec.reference.compare import compare

RUNS = [Mode(asynchrony=a, shared=s, seed=seed) for seed in range(3) for a, s in (("lazy", "apart"), ("eager", "real"), ("lazy", "real"))]


def gemm_values() -> tuple[dict[str, Any], str, Any]:
    rng = np.random.default_rng(7)
    m, n, k = 72, 136, 200
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    values = {"A": a, "B": b, "C": np.full((m, n), np.nan, np.float32), "M": m, "N": n, "K": k}
    return values, "C", a.astype(np.float64) @ b.astype(np.float64)


def softmax_values() -> tuple[dict[str, Any], str, Any]:
    a = np.random.default_rng(8).standard_normal((16, 256)).astype(np.float32)
    e = np.exp2(a[:, ::-1].astype(np.float64) - a.max(axis=1, keepdims=True))
    return {"A": a, "O": np.full((16, 256), np.nan, np.float32)}, "O", e / e.sum(axis=1, keepdims=True)


PROGRAMS = {"gemm": (GEMM, gemm_values), "softmax": (SOFTMAX, softmax_values)}

FAULTS = [  # program, what is wrong, pattern, replacement, which occurrence
    ("gemm", "the first wait is one group short", r"cp_async_wait<1>", "cp_async_wait<2>", 1),
    ("gemm", "the wait of a step is one group short", r"cp_async_wait<1>", "cp_async_wait<2>", 2),
    ("gemm", "no wait in a step", r"cp_async_wait<1>\(\);  // the next step has arrived", "", 1),
    ("gemm", "no barrier in a step", r"__syncthreads\(\);  // for every thread; and", "// and", 1),
    ("gemm", "no commit in a step", r"cp_async_commit\(\);\n", "\n", 1),
    ("gemm", "the version to fill never wraps right", r"fill == 2 \? 0", "fill == 2 ? 1", 1),
    ("gemm", "the version to read never wraps right", r"stage == 2 \? 0", "stage == 1 ? 0", 1),
    ("gemm", "copies run three steps ahead in three versions", r"ko \+ 2", "ko + 3", 0),
    ("gemm", "rows out of range are read", r", by \* 64 \+ \(A_row \+ \w+ \* 32\) < M && (.*?)\);", r", \1);", 1),
    ("gemm", "the tail of K is not zeroed", r"ko \* 32 \+ (A_col|\(B_row \+ \w+ \* 16\)) < K", "true", 0),
    ("gemm", "stores are not guarded", r"by \* 64 \+ i < M && bx \* 64 \+ j\w* < N", "true", 1),
    ("gemm", "tiles overlap in shared memory", r"shared_tile<half_t, 6144>\(12288\)", "shared_tile<half_t, 6144>(8192)", 1),
    ("gemm", "a tile is smaller than what is stored", r"shared_tile<half_t, 6144>\(0\)", "shared_tile<half_t, 4096>(0)", 1),
    ("gemm", "a swizzle term is added instead of exchanged", r"\(a_at \^ kk\)", "(a_at + kk)", 1),
    ("gemm", "the accumulator is never cleared", r"acc\[\w+\] = 0\.0f;", ";", 1),
    ("gemm", "a fragment of the wrong row", r"a_frag\[mi\], b_frag", "a_frag[0], b_frag", 1),
    ("softmax", "no barrier between filling and reading a tile", r"__syncthreads\(\);\n", "\n", 1),
    ("softmax", "no barrier inside a reduction", r"__syncthreads\(\);\n", "\n", 2),
    ("softmax", "a shuffle of the reduction is missing", r"int (step\w*) = 1;", r"int \1 = 2;", 2),
    ("softmax", "warps meet one partner too few", r"p < (\d+)", "p < 1", 2),
]


def planted(text: str, pattern: str, replacement: str, which: int) -> str:
    """`text` with one occurrence edited (all for 0); the pattern must be there."""
    found = list(re.finditer(pattern, text))
    assert len(found) >= max(1, which), f"{pattern} does not occur {max(1, which)} times"
    if which == 0:
        return re.sub(pattern, replacement, text)
    m = found[which - 1]
    return text[: m.start()] + m.expand(replacement) + text[m.end() :]


def seen(cu: str, program: str) -> str:
    """What the runs tell of a file; empty when all of them are right."""
    _, make = PROGRAMS[program]
    values, result, exact = make()
    for mode in RUNS:
        outcome, got = emulate(cu, f"{program}_launch", values, mode)
        if not outcome.ok:
            return f"{outcome.status}: {outcome.message}"
        if wrong := compare(got[result], exact, FLOAT32, k=256):
            return str(wrong)
    return ""


@needs_gxx
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_unedited_output_is_right(program: str) -> None:
    assert seen(cuda(kernel(PROGRAMS[program][0])), program) == ""


@needs_gxx
@pytest.mark.parametrize(("program", "fault", "pattern", "replacement", "which"), FAULTS, ids=[f"{p}: {f}" for p, f, *_ in FAULTS])
def test_a_fault_in_the_output_is_seen(program: str, fault: str, pattern: str, replacement: str, which: int) -> None:
    cu = planted(cuda(kernel(PROGRAMS[program][0])), pattern, replacement, which)
    assert seen(cu, program), f"nobody saw that {fault}"


MEANINGS = [
    ("a copy starts at the wrong column", "ko * 32 +: 32] -> A_s", "ko * 16 +: 32] -> A_s"),
    ("an operand is taken transposed", "A_s @ B_s square", "A_s @ B_s square clear true"),
    ("the loop stops one step early", "pipelined(0, ceildiv(K, 32), 1)", "pipelined(0, K // 32, 1)"),
    ("the accumulator starts at one", "fill acc = 0.0", "fill acc = 1.0"),
    ("rows and columns of the grid are exchanged", "(bx, by) in", "(by, bx) in"),
]


@pytest.mark.parametrize(("fault", "right", "wrong"), MEANINGS, ids=[m[0] for m in MEANINGS])
def test_a_fault_in_the_meaning_is_seen(fault: str, right: str, wrong: str) -> None:
    assert right in GEMM
    values, result, exact = gemm_values()
    sizes = {n: values.pop(n) for n in "MNK"}
    for text, expected in ((GEMM, True), (GEMM.replace(right, wrong), False)):
        arrays = {n: v.copy() for n, v in values.items()}
        run(kernel(text), arrays, extents=sizes)
        assert (compare(arrays[result], exact, FLOAT32, k=200) is None) is expected, fault
