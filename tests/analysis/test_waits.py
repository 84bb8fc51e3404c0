"""A barrier of the whole block that only some threads reach gets a warning."""

from __future__ import annotations

import pytest

from tests.compiling import compile_text

HEAD = """import tilelang.language as T
@T.prim_func
def k(n: T.int32, O: T.Tensor((128,), "int32")):
    with T.Kernel(1, threads=128):
        t = T.get_thread_binding()
"""


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["if t < 32:", "    T.sync_threads()"], "32 of 128 threads"),
        (["if t % 2 == 0:", "    O[t] = 1", "else:", "    T.sync_threads()"], "64 of 128 threads"),
        (["if t < 32:", "    for i in T.serial(n):", "        T.sync_threads()"], "32 of 128 threads"),
        (["if t < 32:", "    T.sync_threads(1, 32)"], ""),
        (["if n > 3:", "    T.sync_threads()"], ""),
        (["if t < 500:", "    T.sync_threads()"], ""),
        (["if t < 32:", "    T.sync_threads()", "else:", "    T.sync_threads()"], ""),
        (["if t < n:", "    T.sync_threads()"], ""),
    ],
)
def test_who_comes(lines: list[str], said: str) -> None:
    compiled = compile_text(HEAD + "".join(f"        {line}\n" for line in [*lines, "O[t] = t"]))
    found = [d for d in compiled.diagnostics if d.code == "TL0502"]
    assert bool(found) == bool(said) and all(said in d.message and d.severity.name == "WARNING" and d.help for d in found)
