"""Accesses that are sure to leave a tile are errors; those that may stay inside are not."""

from __future__ import annotations

import pytest

from tests.compiling import compile_text
from tilec.diagnostics import CompileError, Diagnostic

HEAD = """import tilelang.language as T
@T.prim_func
def k(n: T.int32, A: T.Tensor((16,), "int32"), O: T.Tensor((8,), "int32")):
    with T.Kernel(2, threads=64) as b:
        s = T.alloc_shared((8,), "int32")
        f = T.alloc_fragment((8,), "int32")
        w = T.alloc_local((4,), "int32")
        t = T.get_thread_binding()
        T.clear(s)
        T.clear(f)
"""


def compiled(*lines: str) -> Diagnostic | None:
    """The first error that these statements get, or None; all errors must be of this one kind."""
    text = HEAD + "".join(f"        {line}\n" for line in lines) + "        T.copy(s, O)\n"
    try:
        compile_text(text)
    except CompileError as refused:
        assert {d.code for d in refused.diagnostics} == {"TL0305"}, refused
        return refused.diagnostics[0]
    return None


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["for i in T.serial(9):", "    s[i] = 1"], "`i` of `s` reaches 8"),
        (["for i in T.Parallel(9):", "    s[i] = 1"], "`i` of `s` reaches 8"),
        (["for i in T.serial(7, -2, -1):", "    s[i] = 1"], "reaches -1"),
        (["for i in T.serial(1, 20, 7):", "    s[i] = 1"], "reaches 15"),
        (["for i in T.serial(4):", "    for j in T.Parallel(2):", "        s[i * 2 + j + 1] = 1"], "reaches 8"),
        (["for i in T.serial(4):", "    T.fill(s[i * 2:i * 2 + 4], 1)"], "reaches 6:10"),
        (["for i in T.Pipelined(3, num_stages=2):", "    T.copy(A[i * 4], s[i * 4:i * 4 + 4])"], "reaches 8:12"),
        (["s[t] = 1"], "reaches 63"),
        (["s[b + 7] = 1"], "`b + 7` of `s` reaches 8"),
        (["j = t // 64 + b * 8", "for i in T.Parallel(8):", "    s[i] = s[b * 8 + i]"], "reaches 15"),
        (["j = b + 7", "O[0] = s[j]"], "`j` of `s` reaches 8"),
        (["O[0] = s[b + 7] if n > 0 else 0", "O[b] = f[7 + b]"], "`7 + b` of `f` reaches 8"),
        (["for i in T.serial(5):", "    w[i] = i"], "`i` of `w` reaches 4"),
        (["for i in T.Parallel(8):", "    T.atomic_add(s[i + 1], 1)"], "`i + 1` of `s` reaches 8"),
    ],
)
def test_sure_to_leave(lines: list[str], said: str) -> None:
    found = compiled(*lines)
    assert found is not None and said in found.message and found.labels and found.help


@pytest.mark.parametrize(
    "lines",
    [
        ["for i in T.serial(8):", "    s[7 - i] = i"],
        ["for i in T.serial(9):", "    if i < 8:", "        s[i] = 1"],
        ["for i in T.Parallel(8):", "    s[i] = f[i - 1] if i > 0 else 0"],
        ["for i in T.Parallel(8):", "    s[i] = T.if_then_else(i < 7, f[i + 1], 0)"],
        ["for i in T.Parallel(8):", "    if i < 7 and f[i + 1] > 0:", "        s[i] = 0"],
        ["for i in T.serial(n):", "    s[i + 8] = 1"],
        ["for i in T.serial(0, 0):", "    s[i + 8] = 1"],
        ["for i in T.serial(9):", "    if s[0] == 0:", "        break", "    s[i] = 1"],
        ["for i in T.serial(9):", "    s[i % 8] = 1"],
        ["for i in T.Parallel(16):", "    O[i] = A[i + 9]"],
        ["if n > 0:", "    s[t] = 1"],
        ["while s[0] > n:", "    s[t] = 1"],
    ],
)
def test_may_stay_inside(lines: list[str]) -> None:
    assert compiled(*lines) is None
