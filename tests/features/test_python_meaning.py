"""Operators whose result Python defines by more than its truth."""

from __future__ import annotations

import numpy as np

from tests.features.kit import check, poison
from tests.toolchain import needs_gxx

pytestmark = needs_gxx


def test_and_and_or_give_one_of_their_operands() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "float32"), O: T.Tensor((6, 8), "int32"), F: T.Tensor((3, 8), "float32")):
    with T.Kernel(1, threads=8):
        for i in T.Parallel(8):
            v = A[i] or 5
            O[0, i] = v
            O[1, i] = A[i] and i
            O[2, i] = (A[i] > 2) or A[i]
            O[3, i] = A[i] > 2 and i > 3 or A[i] == 0
            O[4, i] = not (A[i] and i)
            O[5, i] = 1 if A[i] and (i or A[i] > 3) else 2
            F[0, i] = B[i] or 0.5
            F[1, i] = A[i] and B[i]
            F[2, i] = (0 or B[i]) and (1 and 2.5)
"""
    a = np.array([0, 1, -2, 3, -7, 0, 7, 2**31 - 1], np.int32)
    b = np.array([0.0, -1.5, 2.5, 0.0, 4.0, 1e-3, -0.0, 7.0], np.float32)
    rows = [(int(x), i, float(y)) for i, (x, y) in enumerate(zip(a, b, strict=True))]
    wanted = [
        [x or 5 for x, i, y in rows], [x and i for x, i, y in rows], [x > 2 or x for x, i, y in rows],
        [(x > 2 and i > 3) or x == 0 for x, i, y in rows], [not (x and i) for x, i, y in rows],
        [1 if x and (i or x > 3) else 2 for x, i, y in rows],
    ]  # fmt: skip
    floats = [[y or 0.5 for x, i, y in rows], [x and y for x, i, y in rows], [(0 or y) and (1 and 2.5) for x, i, y in rows]]
    check(text, {"A": a, "B": b, "O": poison((6, 8), np.int32), "F": poison((3, 8), np.float32)}, {"O": wanted, "F": np.float32(floats)})


def test_pythons_own_types_are_element_types() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((4,), int), B: T.Tensor((4,), float), C: T.Tensor((4,), dtype=bool)):
    with T.Kernel(1, threads=4):
        t = T.get_thread_binding()
        v = T.alloc_var(int, init=3)
        A[t] = v + T.cast(B[t], int)
        C[t] = B[t].astype(bool)
"""
    b = np.array([0.0, -1.5, 2.5, 1e5], np.float32)
    values = {"A": poison((4,), np.int32), "B": b, "C": np.zeros(4, np.bool_)}
    check(text, values, {"A": 3 + b.astype(np.int32), "C": b != 0})
