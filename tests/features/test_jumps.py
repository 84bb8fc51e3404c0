"""`continue` in loops without an order, `break` and `continue` in serial loops inside of them: what Python says of one iteration."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.compiling import compile_text
from tests.features.kit import HEAD, check, poison, refused
from tests.toolchain import needs_gxx
from tilec.ir.tile import Continue, Parallel
from tilec.ir.visit import walk_stmt

N = 48


def _jumping(rng: random.Random, depth: int, loop: bool) -> list[str]:
    """Lines of a body that changes `B[i]` by `A[i]`; inside of a serial `loop` also by `j`, and with `break`."""
    lines = []
    for _ in range(rng.randint(1, 3)):
        value = rng.choice(["A[i]", str(rng.randint(1, 9)), *(["j"] if loop else [])])
        lines.append(f"B[i] {rng.choice(['+=', '-=', '='])} {value}")
        if depth and rng.random() < 0.8:
            test = rng.choice(["A[i] % 3 == 0", "A[i] > 2", "B[i] % 2 == 0", "B[i] < A[i]", "i < 20", *(["j == A[i] % 4"] if loop else [])])
            lines += [f"if {test}:", *(f"    {x}" for x in _ended(rng, depth, loop))]
            if rng.random() < 0.5:
                lines += [rng.choice(["else:", "elif A[i] < -3:"]), *(f"    {x}" for x in _ended(rng, depth, loop))]
        if depth > 1 and not loop and rng.random() < 0.3:
            lines += [f"for j in T.{rng.choice(['serial', 'unroll'])}(4):", *(f"    {x}" for x in _jumping(rng, 1, True))]
    return lines


def _ended(rng: random.Random, depth: int, loop: bool) -> list[str]:
    """A branch, which perhaps leaves the iteration or the serial loop."""
    end = [rng.choice(["continue", *(["break"] if loop else [])])] if rng.random() < 0.7 else []
    return [*_jumping(rng, depth - 1, loop), *end]


def _program(lines: list[str], header: str, place: str) -> str:
    """A kernel with the body in a loop; `place` is where the iteration's elements lie."""
    indent = " " * 8
    tile = {
        "global": (), "shared": ("B = T.alloc_shared((48,), 'int32')", "T.copy(Out, B)"),
        "fragment": ("B = T.alloc_fragment((48,), 'int32')", "T.copy(Out, B)"),
    }[place]  # fmt: skip
    out = "B" if place == "global" else "Out"
    body = [*tile, f"for {header}:", *(f"    {x}" for x in lines), *([] if place == "global" else ["T.copy(B, Out)"])]
    head = f"@T.prim_func\ndef k(A: T.Tensor((48,), 'int32'), {out}: T.Tensor((48,), 'int32')):\n    with T.Kernel(1, threads=32):\n"
    return head + "".join(f"{indent}{x}\n" for x in body)


def _by_python(lines: list[str], a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What Python makes of the body, iteration after iteration."""

    class T:
        serial = unroll = staticmethod(range)

    names = {"A": [int(x) for x in a], "B": [int(x) for x in b], "T": T}
    exec(f"for i in range({N}):\n" + "".join(f"    {x}\n" for x in lines), names)
    return np.array(names["B"], np.int32)


@needs_gxx
@pytest.mark.parametrize("seed", range(8))
def test_random_bodies_do_what_python_does(seed: int) -> None:
    rng, fresh = random.Random(seed), np.random.default_rng()
    lines = _jumping(rng, 3, False)
    while sum("continue" in x for x in lines) < 2:
        lines = _jumping(rng, 3, False)
    header, place = [
        ("i in T.Parallel(48)", "global"), ("i in T.Parallel(48)", "shared"), ("i in T.Parallel(48)", "fragment"),
        ("i in T.vectorized(48)", "global"), ("i in T.unroll(48)", "global"), ("i in T.grid(48)", "shared"),
        ("i in T.serial(48)", "global"), ("i in T.Parallel(48)", "fragment"),
    ][seed]  # fmt: skip
    a, b = fresh.integers(-9, 10, N).astype(np.int32), fresh.integers(-9, 10, N).astype(np.int32)
    name = "B" if place == "global" else "Out"
    check(_program(lines, header, place), {"A": a, name: b}, {name: _by_python(lines, a, b)})


@needs_gxx
def test_two_indices_a_nest_inside_and_a_macro() -> None:
    text = '''
@T.macro
def tail(A, i):
    for j in T.serial(8):
        if A[i, j] > 5:
            break
        if A[i, j] < 0:
            continue
        A[i, j] = 100

@T.prim_func
def k(A: T.Tensor((16, 8), "int32"), B: T.Tensor((16, 8), "int32"), C: T.Tensor((16, 8), "int32"), S: T.Tensor((16,), "int32")):
    with T.Kernel(1, threads=64):
        for i, j in T.Parallel(16, 8):
            if (i + j) % 3 == 0:
                B[i, j] = -1
                continue
            if A[i, j] == 0:
                if j > 3:
                    continue
                B[i, j] = 7
            B[i, j] += A[i, j]
        for i in T.Parallel(16):
            for j in T.Parallel(8):
                if A[i, j] < 2:
                    continue
                C[i, j] = A[i, j]
        for i in T.Parallel(16):
            S[i] = 0
            if A[i, 0] > 3:
                continue
            tail(A, i)
            S[i] = A[i, 7]
'''
    fresh = np.random.default_rng()
    a, b = fresh.integers(-9, 10, (16, 8)).astype(np.int32), fresh.integers(-9, 10, (16, 8)).astype(np.int32)
    i, j = np.indices(a.shape)
    added = np.where((a == 0) & (j > 3), b, np.where(a == 0, 7, b + a))
    after, sums = a.copy(), np.zeros(16, np.int32)
    for row in range(16):
        if a[row, 0] <= 3:
            for col in range(8):
                if after[row, col] > 5:
                    break
                if after[row, col] >= 0:
                    after[row, col] = 100
            sums[row] = after[row, 7]
    wanted = {"A": after, "B": np.where((i + j) % 3 == 0, -1, added), "C": np.where(a < 2, b, a), "S": sums}
    check(text, {"A": a, "B": b, "C": b.copy(), "S": poison((16,), np.int32)}, {n: v.astype(np.int32) for n, v in wanted.items()})


def test_the_rest_of_an_iteration_is_recorded_once() -> None:
    """Ten conditions in a row leave ten statements, not a thousand."""
    lines = [x for k in range(10) for x in (f"if A[i] > {k}:", f"    B[i] += {k}", f"    if B[i] == {k}:", "        continue", "B[i] += 1")]
    done = compile_text(HEAD + _program(lines, "i in T.Parallel(48)", "global"))
    (kernel,) = done.module.kernels
    (loop,) = [s for s in walk_stmt(kernel.launches[0].body) if isinstance(s, Parallel)]
    assert not any(isinstance(s, Continue) for s in walk_stmt(loop))
    assert done.cu.count("+ 1") + done.cu.count(", 1)") < 30


def test_what_never_runs_leaves_nothing() -> None:
    done = compile_text(HEAD + _program(["B[i] = 1", "if 2 > 1:", "    continue", "B[i] = 2"], "i in T.Parallel(48)", "global"))
    assert "B[i] = 1" in done.cu.replace("(i + e)", "i") and "= 2;" not in done.cu.split("__global__")[1].split("#ifndef")[0]


@pytest.mark.parametrize("loop", ["T.Parallel(48)", "T.vectorized(48)"])
def test_break_has_no_meaning_without_an_order(loop: str) -> None:
    error = refused(_program(["if A[i] > 0:", "    break", "B[i] = 1"], f"i in {loop}", "global"))
    assert error.code == "TL0105" and loop.partition("(")[0] in error.message and "continue" in (error.help or "")


def test_break_of_a_nest_or_of_a_grid() -> None:
    nest = ["for j in T.Parallel(4):", "    if A[i] > 0:", "        break", "    B[i] = 1"]
    assert "T.Parallel" in refused(_program(nest, "i in T.Parallel(48)", "global")).message
    assert "T.grid" in refused(_program(["if A[i] > 0:", "    break", "B[i] = j"], "i, j in T.grid(4, 4)", "global")).message
