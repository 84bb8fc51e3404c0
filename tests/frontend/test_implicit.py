"""Kernels without T.Kernel: what is inferred, the notes that tell it, and what cannot be inferred."""

from __future__ import annotations

import pytest

from tilec.diagnostics import CompileError
from tilec.frontend import ArgSpec
from tilec.ir.text import show

GEMM = """
@tilelang.jit(target="cuda")
def mul(X, W, Y, M, N, K, tile=64):
    x = T.alloc_shared((tile, 16), "float16")
    w = T.alloc_shared((16, 32), "bfloat16" if False else "float16")
    acc = T.alloc_fragment((tile, 32), "float32")
    for step in T.Pipelined(T.ceildiv(K, 16), num_stages=2):
        T.copy(X[by * tile, step * 16], x)
        T.copy(W[step * 16, bx * 32], w)
        T.gemm(x, w, acc)
    for i, j in T.Parallel(tile, 32):
        Y[by * tile + i, bx * 32 + j] = acc[i, j]
"""
WANTED = """
kernel mul(X: float16[M, K], W: float16[K, N], Y: float32[M, N], M: int32, N: int32, K: int32):
  implicit
  bind "tile" = "64"
  launch (bx, by) in (ceildiv(N, 32), ceildiv(M, 64)) index (x = tx, y = ty, z = tz):
    alloc x: shared float16[64, 16]
    alloc w: shared float16[16, 32]
    alloc acc: fragment float32[64, 32]
    fill acc = 0.0
    for step in pipelined(0, ceildiv(K, 16), 1) stages 2:
      copy X[by * 64 +: 64, step * 16 +: 16] -> x
      copy W[step * 16 +: 16, bx * 32 +: 32] -> w
      gemm acc += x @ w square
    parallel i, j in 64, 32:
      Y[by * 64 + i, bx * 32 + j] = acc[i, j]
"""


def test_a_gemm_in_the_articles_form(same) -> None:
    same(GEMM, WANTED)


def test_each_inference_is_told_once(reading) -> None:
    notes = [(n.code, n.message) for n in reading(GEMM).notes]
    assert [c for c, _ in notes] == ["TL0225", "TL0221", "TL0221", "TL0221", "TL0222", "TL0223", "TL0224", "TL0226"]
    told = "\n".join(m for _, m in notes)
    for word in ("`acc` starts at zero", "`X` is a float16 tensor of shape M×K", "`Y` is a float32 tensor of shape M×N", "ceildiv(M, 64)", "`bx`"):
        assert word in told


def test_sizes_given_while_compiling(reading) -> None:
    kernel = reading(GEMM, defines={"M": 100, "K": 48}).kernels[0]
    first, *rest = show(kernel).splitlines()
    assert first == "kernel mul(X: float16[100, 48], W: float16[48, N], Y: float32[100, N], N: int32):"
    assert any("in (ceildiv(N, 32), 2)" in line for line in rest)
    assert any("pipelined(0, 3, 1)" in line for line in rest)
    by_arg = reading(GEMM, args={"X": ArgSpec("float16", (100, "K")), "Y": ArgSpec("float16", ("M", 64))}).kernels[0]
    assert show(by_arg).splitlines()[0] == "kernel mul(X: float16[100, K], W: float16[K, 64], Y: float16[100, 64], K: int32):"


def test_an_accumulator_that_is_written_first_is_not_cleared(reading) -> None:
    text = GEMM.replace("    for step", "    T.fill(acc, 1)\n    for step")
    body = show(reading(text).kernels[0])
    assert body.count("fill acc") == 1
    assert "fill acc = 1.0" in body
    cleared = GEMM.replace("T.gemm(x, w, acc)", "T.gemm(x, w, acc, clear_accum=True)")
    assert "fill" not in show(reading(cleared).kernels[0])


ADD = """
@tilelang.jit
def add(A, B, C, n):
    for i in T.Parallel(128):
        C[bx * 128 + i] = A[bx * 128 + i] + B[bx * 128 + i]
"""


def test_tensors_without_a_tile_need_a_dtype(reading, fails) -> None:
    first = fails(ADD, "TL0230", line=3, word="dtype of `A`")
    assert "--arg A=" in first.help
    args = {name: ArgSpec("float32", ("n",)) for name in "ABC"}
    kernel = reading(ADD, args=args).kernels[0]
    assert show(kernel).splitlines()[0] == "kernel add(A: float32[n], B: float32[n], C: float32[n], n: int32):"
    text = ADD.replace("A, B, C, n", "A: T.Tensor((n,), 'int8'), B: 'T.Tensor((n,), T.int8)', C: T.Tensor((n,), 'int32'), n")
    assert show(reading(text).kernels[0]).splitlines()[0] == "kernel add(A: int8[n], B: int8[n], C: int32[n], n: int32):"


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("T.copy(W[step * 16, bx * 32], w)", "T.copy(W[step * 16, bx * 32], w)\n        T.copy(X[by * tile, step * 16], acc[:, 0:16])", "float16 and float32"),
        ("Y[by * tile + i, bx * 32 + j]", "Y[bz, by * tile + i, bx * 32 + j]", "dimension 1 of `W` cannot be inferred"),
        ("W[step * 16, bx * 32]", "W[step * 16, bx]", "dimension 1 of `W` cannot be inferred"),
        ("X[by * tile, step * 16]", "X[by * tile]", "dimension"),
        ("for step in T.Pipelined(T.ceildiv(K, 16)", "T.clear(Y[0])\n    for step in T.Pipelined(T.ceildiv(K, 16)", "indices"),
    ],
)
def test_what_stays_open_or_contradicts_itself_is_an_error(reading, old: str, new: str, word: str) -> None:
    with pytest.raises(CompileError) as caught:
        reading(GEMM.replace(old, new))
    assert any(word in d.message for d in caught.value.diagnostics), caught.value.diagnostics


def test_tile_sizes_may_be_parameters_too(reading, fails) -> None:
    text = GEMM.replace("X, W, Y, M, N, K, tile=64", "tile, X, W, Y, M, N, K")
    kernel = reading(text, defines={"tile": 64}).kernels[0]
    assert show(kernel) == show(reading(GEMM).kernels[0])
    both = show(reading(text, defines={"tile": 64, "M": 100}).kernels[0])
    assert both.splitlines()[0] == "kernel mul(X: float16[100, K], W: float16[K, N], Y: float32[100, N], N: int32, K: int32):"
    fails(text, "TL0309", word="-D tile=VALUE")
