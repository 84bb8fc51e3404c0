"""Tiles that are read before anything has written them get a warning; other tiles get none."""

from __future__ import annotations

import pytest

from tests.compiling import compile_text

HEAD = """import tilelang.language as T
@T.prim_func
def k(n: T.int32, A: T.Tensor((64, 64), "float16"), O: T.Tensor((64, 64), "float32"), S: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=128):
        a = T.alloc_shared((64, 64), "float16")
        f = T.alloc_fragment((64, 64), "float16")
        acc = T.alloc_fragment((64, 64), "float32")
        s = T.alloc_fragment((64,), "float32")
        w = T.alloc_local((4,), "float32")
"""
GEMM = ["T.copy(A, a)", "T.gemm(a, a, acc)", "T.copy(acc, O)"]


def told(lines: list[str]) -> list[str]:
    compiled = compile_text(HEAD + "".join(f"        {line}\n" for line in lines))
    found = [d for d in compiled.diagnostics if d.code == "TL0325"]
    assert all(d.labels and d.help and d.severity.name == "WARNING" for d in found)
    return [d.message.split("`")[1] for d in found]


@pytest.mark.parametrize(
    ("lines", "tiles"),
    [
        (GEMM, ["acc"]),
        (["for k in T.Pipelined(2, num_stages=2):", *("    " + line for line in GEMM)], ["acc"]),
        (["T.gemm(a, a, acc, clear_accum=True)"], ["a"]),
        (["T.copy(a, O)"], ["a"]),
        (["T.copy(A, a)", "T.reduce_sum(a, s, dim=1, clear=False)", "T.copy(s, S)"], ["s"]),
        (["for i in T.Parallel(64):", "    s[i] += 1", "T.copy(s, S)"], ["s"]),
        (["if n > 0:", "    T.copy(acc, O)"], ["acc"]),
        (["for i in T.serial(n):", "    T.copy(acc, O)", "    T.fill(acc, i)"], ["acc"]),
        (["S[0] = w[0]"], ["w"]),
        (["S[0] = w[0] if n > 0 else 0"], ["w"]),
        (["b = T.view(a, (64, 64), 'uint16')", "S[0] = b[0, 0]"], ["a"]),
        (["T.copy(f, a)", "T.atomic_add(a[0, 0], 1)"], ["f"]),
    ],
)
def test_read_first(lines: list[str], tiles: list[str]) -> None:
    assert told(lines) == tiles


@pytest.mark.parametrize(
    "lines",
    [
        ["T.clear(acc)", *GEMM],
        ["T.copy(A, a)", "T.gemm(a, a, acc, clear_accum=True)", "T.copy(acc, O)"],
        ["T.copy(A, a)", "for k in T.serial(2):", "    T.gemm(a, a, acc, clear_accum=k == 0)"],
        ["T.copy(A, a)", "for k in T.serial(2):", "    if k == 0:", "        T.clear(acc)", "    T.gemm(a, a, acc)"],
        ["for k in T.serial(2):", "    if k > 0:", "        T.copy(acc, O)", "    T.fill(acc, k)"],
        ["T.fill(acc[0:8, :], 1)", "T.copy(acc, O)"],
        ["for i in T.Parallel(64):", "    s[i] = i", "T.copy(s, S)"],
        ["b = T.reshape(a, (4096,))", "T.fill(b, 0)", "T.copy(a, O)"],
        ["t = T.get_thread_binding()", "if t >= 64:", "    S[t - 64] = w[0]", "else:", "    w[0] = 1"],
    ],
)
def test_written_first(lines: list[str]) -> None:
    assert told(lines) == []
