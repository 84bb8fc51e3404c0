"""Numbers at the ends of their types: loops whose last step would leave the type, indices beyond every signed number."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.kit import check, poison
from tests.toolchain import needs_gxx

pytestmark = needs_gxx
I32 = np.int32


@pytest.mark.parametrize(
    ("dtype", "start", "stop", "step"),
    [
        ("int32", 1, 2147483647, 1000000000), ("int32", 2147483647, 1, -1500000000), ("int8", -128, 127, 100), ("uint8", 7, 250, 120),
        ("int16", 32767, -32768, -30000), ("uint32", 5, 4294967295, 2000000000), ("int64", -(2**63), 2**63 - 1, 2**62 + 9),
        ("uint64", 3, 2**64 - 1, 2**63 - 1), ("int32", 5, 5, 1000000000), ("int32", 6, 5, 7),
    ],
)  # fmt: skip
@pytest.mark.parametrize("given", [True, False])
def test_loop_whose_last_step_would_leave_the_type(dtype: str, start: int, stop: int, step: int, given: bool) -> None:
    text = f"""
@T.prim_func
def k(a: T.{dtype}, b: T.{dtype}, by: T.{dtype}, O: T.Tensor((8,), "{dtype}")):
    with T.Kernel(1, threads=1):
        n = T.alloc_var("int32")
        for i in T.serial(a, b, {step if given else "by"}):
            if n == 8:
                break
            O[n] = i
            n += 1
"""
    kind = np.dtype(dtype)
    if not given and not np.iinfo(kind).min <= step <= np.iinfo(kind).max:
        return
    numbers = list(range(start, stop, step))
    before = poison((8,), kind)
    wanted = np.concatenate([np.array(numbers, kind), before[len(numbers) :]])
    check(text, {"a": start, "b": stop, "by": step, "O": before}, {"O": wanted})


def test_loop_that_cannot_leave_its_type_is_plain() -> None:
    text = """
@T.prim_func
def k(n: T.int32, O: T.Tensor((96,), "int32")):
    with T.Kernel(1, threads=1):
        for i in T.serial(0, T.min(n, 96), 3):
            O[i] = i
"""
    wanted = np.where(np.arange(96) % 3, poison((96,), I32), np.arange(96)).astype(I32)
    compiled = check(text, {"n": 2000000000, "O": poison((96,), I32)}, {"O": wanted})
    assert "i += 3" in compiled.cu


def test_unsigned_indices_beyond_every_signed_number_are_out_of_range() -> None:
    text = """
@T.prim_func
def k(P: T.Tensor((4,), "uint64"), V: T.Tensor((10,), "int32"), G: T.Tensor((4,), "int32"), C: T.Tensor((10,), "int32")):
    with T.Kernel(1, threads=32):
        for b in T.Parallel(4):
            G[b] = V[P[b]]
            C[P[b]] = b
            T.atomic_add(C[P[b]], 10)
"""
    places = np.array([0, 9, 2**64 - 1, 2**63], np.uint64)
    v, c = np.arange(10, 20, dtype=I32), np.full(10, -7, I32)
    wanted = c.copy()
    wanted[[0, 9]] = 10, 11
    check(text, {"P": places, "V": v, "G": poison((4,), I32), "C": c}, {"G": [10, 19, 0, 0], "C": wanted})
