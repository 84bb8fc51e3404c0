"""Loops whose iterations go together: names, conditions and computed indices do not stand in the way, wrong neighbours do."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tests.compiling import MODES, Array, compile_text, run_emulated, run_reference
from tests.toolchain import needs_gxx
from tilec.analysis.facts import Facts
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Binary, Compare, Const, Expr, Var, VarKind
from tilec.plan.chunks import Chunk, same, slope

N = 1024
HEAD = """import tilelang.language as T

@T.prim_func
def f(A: T.Tensor((1024,), "float32"), B: T.Tensor((1024,), "float32"), C: T.Tensor((1024,), "float32"), n: T.int32):
    with T.Kernel(2, threads=64) as bx:
        for i in T.Parallel(512):
"""


def body(*lines: str) -> str:
    return HEAD + "\n".join(f"            {line}" for line in lines) + "\n"


BODIES: dict[str, tuple[tuple[str, ...], bool]] = {
    "names": (("at = bx * 512 + i", "a = A[at]", "b = a * 2", "B[at] = b + a", "C[at] = b - 1"), True),
    "position in the value": (("B[bx * 512 + i] = A[bx * 512 + i] * (i % 4)",), True),
    "a guard": (("at = bx * 512 + i", "if at < 900:", "    B[at] = A[at] + 1"), True),
    "a guard that splits chunks": (("at = bx * 512 + i", "if at < n:", "    B[at] = A[at] + 1"), False),
    "a branch for each": (("at = bx * 512 + i", "a = A[at]", "if a > 0:", "    B[at] = a", "else:", "    B[at] = -a", "C[at] = a"), True),
    "computed neighbours": (("k = bx * 512 + i", "B[k // 64 * 64 + (k % 64)] = A[k % 512]",), True),
    "not neighbours": (("k = bx * 512 + i", "B[k] = A[k % 6]",), True),
    "stored, then read": (("B[bx * 512 + i] = A[bx * 512 + i]", "C[bx * 512 + i] = B[bx * 512 + i] + 1"), False),
    "in place": (("B[bx * 512 + i] = B[bx * 512 + i] * A[bx * 512 + i]",), True),
    "an inner loop": (("s = T.alloc_var('float32')", "s = 0", "for k in T.serial(3):", "    s += A[(bx * 512 + i) // 4 * 4 + k]", "B[bx * 512 + i] = s"), False),
}  # fmt: skip


@needs_gxx
@pytest.mark.parametrize("name", BODIES)
def test_chunks_keep_the_meaning(name: str) -> None:
    lines, wide = BODIES[name]
    compiled = compile_text(body(*lines))
    rng = np.random.default_rng()
    values: dict[str, Array | int] = {n: rng.integers(-9, 10, N).astype(np.float32) for n in "ABC"}
    values["n"] = 601
    want = run_reference(compiled, values)
    assert ("store_vec(" in compiled.cu) == wide
    for mode in MODES:
        got = run_emulated(compiled, values, mode)
        for tensor in "ABC":
            assert np.array_equal(got[tensor], want[tensor]), (name, mode, tensor)


def binary(op: str, a: Expr, b: Expr | int) -> Binary:
    return Binary(op, a, b if not isinstance(b, int) else Const(b, INT32), INT32)


def test_slopes_are_those_of_every_chunk() -> None:
    """A slope, and being the same, hold for the values of every aligned chunk; what moves unevenly has none."""
    j, k = Var("j", INT32, VarKind.LOOP), Var("k", INT32, VarKind.LOOP)
    base = binary("add", binary("mul", k, 32), j)
    shapes: list[tuple[Expr, int | None]] = [
        (base, 1), (binary("mul", base, 3), 3), (binary("mod", base, 16), 1), (binary("floordiv", base, 16), 0),
        (binary("mod", base, 6), None), (binary("floordiv", base, 6), None), (binary("sub", k, base), -1),
        (binary("mod", binary("add", base, 1), 16), None), (binary("mul", j, j), None), (binary("floordiv", k, 3), 0),
    ]  # fmt: skip
    at = Chunk(j, 8, Facts().with_range(j, 0, 63, divisor=8).with_range(k, 0, 9))
    for e, expected in shapes:
        assert slope(e, at) == expected, e
        for first in range(0, 64, 8):
            for step in range(10):
                seen = [value(e, {j: first + n, k: step}) for n in range(8)]
                grows = {b - a for a, b in pairwise(seen)}
                assert expected is None or grows == {expected}
    assert same(Compare("lt", base, Const(64, INT32)), at) and not same(Compare("lt", base, Const(63, INT32)), at)
    assert not same(Compare("le", base, Const(64, INT32)), at)


def value(e: Expr, env: dict[Var, int]) -> int:
    match e:
        case Const(value=v):
            return int(v)
        case Var():
            return env[e]
        case Binary(op, a, b):
            x, y = value(a, env), value(b, env)
            return {"add": x + y, "sub": x - y, "mul": x * y, "mod": x % (y or 1), "floordiv": x // (y or 1)}[op]
    raise AssertionError(e)


def test_what_a_branch_has_tested_is_not_tested_again() -> None:
    guarded = body("at = bx * 900 + i", "if at < 1024 and i < n:", "    B[at] = A[at]")
    assert compile_text(guarded).cu.count("< 1024") == 1
    changing = body("if bx * 900 + i < 1024:", "    B[bx * 900 + i] = A[bx * 900 + i] + A[bx * 900 + i + 1]")
    assert "+ 1 < 1024" in compile_text(changing).cu
