"""Plain copies to shared memory go on in the background in kernels without products, and are waited for before anybody needs them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import MODES, compile_text, run_emulated, run_reference
from tests.toolchain import needs_gxx
from tilec.driver import Compiled
from tilec.plan.plan import AsyncCopy, PBarrier, Pipeline, TileLoop
from tilec.plan.walk import walk_plan

HEAD = """import tilelang.language as T

@T.prim_func
def f(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float16")):
    with T.Kernel(1, threads=64) as bx:
        tile = T.alloc_shared((64, 64), "float16")
        other = T.alloc_shared((64, 64), "float16")
        x = T.alloc_fragment((64, 64), "float16")
        r = T.alloc_fragment((64,), "float16")
"""
TURN = "for i, j in T.Parallel(64, 64):\n    {to}[i, j] = tile[j, i]"


def compiled(body: str) -> Compiled:
    return compile_text(HEAD + "".join(f"        {line}\n" for line in body.split("\n")))


def outline(built: Compiled) -> list[str]:
    """Copies in the background, waits for them, barriers of the block and other loops of the first variant, in order."""
    names = {AsyncCopy: "async", TileLoop: "loop", Pipeline: "pipeline"}
    out = []
    for s in walk_plan(built.plans[0].launches[0].variants[0].body):
        if isinstance(s, PBarrier):
            out.append({"copies": "wait", "block": "barrier"}[s.kind])
        elif type(s) in names:
            out.append(names[type(s)])
    return out


@needs_gxx
@pytest.mark.parametrize(
    ("body", "want"),
    [
        (f"T.copy(A, tile)\n{TURN.format(to='B')}", ["async", "wait", "barrier", "loop"]),
        # Each thread reads what it has copied itself: no barrier, and a wait all the same.
        ("T.copy(A, tile)\nT.copy(tile, B)", ["async", "wait", "loop"]),
        # Work in registers goes on meanwhile, and so does a second copy.
        (f"T.copy(A, tile)\nT.copy(C, other)\nT.copy(C, x)\n{TURN.format(to='B')}", ["async", "async", "loop", "wait", "barrier", "loop"]),
        # So does a reduction by shuffles; one through shared memory has a barrier of its own.
        ("T.copy(A, tile)\nT.copy(C, x)\nT.reduce_max(x, r, dim=1)\nT.copy(tile, B)", ["async", "loop", "wait", "loop"]),
        ("T.copy(A, tile)\nT.copy(C, x)\nT.reduce_max(x, r, dim=0)\nT.copy(tile, B)", ["async", "loop", "wait", "loop"]),
        # A store to global memory waits, since it may be to what a copy still reads.
        (f"T.copy(A, tile)\nT.copy(C, B)\n{TURN.format(to='C')}", None),
        # The same tile again: the first copy comes first.
        ("T.copy(A, tile)\nT.copy(C, tile)\nT.copy(tile, B)", ["async", "wait", "async", "wait", "loop"]),
        # What the kernel writes too is read where it stands.
        (f"T.copy(A, tile)\n{TURN.format(to='A')}", ["loop", "barrier", "loop"]),
        # A loop waits in front of it.
        ("T.clear(x)\nT.copy(A, tile)\nfor k in T.serial(3):\n    for i, j in T.Parallel(64, 64):\n        x[i, j] += tile[63 - i, j]\nT.copy(x, B)", None),
    ],
)
def test_what_waits_and_what_does_not(body: str, want: list[str] | None) -> None:
    built = compiled(body)
    if want is not None:
        assert outline(built) == want
    rng = np.random.default_rng()
    values = {n: rng.integers(-9, 10, (64, 64)).astype(np.float16) for n in "ABC"}
    expected = run_reference(built, values)
    for mode in MODES:
        got = run_emulated(built, values, mode)
        for name in "ABC":
            assert np.array_equal(got[name], expected[name]), (name, mode)


def test_loops_keep_their_copies() -> None:
    loop = "for k in T.serial(3):\n    T.copy(A, tile)\n    " + TURN.format(to="B").replace("\n", "\n    ")
    assert "async" not in outline(compiled(loop))
    assert outline(compiled(f"T.copy(C, other)\n{loop}"))[:2] == ["async", "wait"]


def test_products_keep_their_copies() -> None:
    text = """import tilelang.language as T

@T.prim_func
def f(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=128) as bx:
        a = T.alloc_shared((64, 64), "float16")
        b = T.alloc_shared((64, 64), "float16")
        c = T.alloc_fragment((64, 64), "float32")
        T.clear(c)
        T.copy(A, a)
        T.copy(B, b)
        T.gemm(a, b, c)
        T.copy(c, C)
"""
    assert "async" not in outline(compile_text(text))


def test_narrow_rows_and_casts_are_plain_loops() -> None:
    copies = "        T.copy(A, tile)\n        T.copy(tile, B)\n"
    narrow = (HEAD + copies).replace("(64, 64)", "(8, 12)").replace("threads=64", "threads=32")
    assert outline(compile_text(narrow)) == ["loop", "loop"]
    cast = HEAD.replace('tile = T.alloc_shared((64, 64), "float16")', 'tile = T.alloc_shared((64, 64), "float32")')
    assert "async" not in outline(compile_text(cast + copies))
