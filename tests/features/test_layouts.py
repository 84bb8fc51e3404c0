"""T.annotate_layout: hints for tiles, an order in memory for tensors."""

import numpy as np
import pytest

from tests.features.kit import check, poison, refused

WRITE = """
@T.prim_func
def write(X: T.Tensor((2, 40, 32), "float32"), Q: T.Tensor((2, 40, 32), "float32")):
    with T.Kernel(5, 2, threads=64) as (bx, b):
        T.annotate_layout({Q: T.Layout(Q.shape, lambda b, l, d: [b, l // 8, d // 8, d % 2, 4 * (l % 8) + (d % 8) // 2])})
        s = T.alloc_shared((8, 32), "float32")
        f = T.alloc_fragment((8, 32), "float32")
        T.annotate_layout({s: T.Layout((8, 32), lambda i, j: [i, j ^ i]), f: T.Fragment((8, 32), lambda i, j: (i, j))})
        T.copy(X[b, bx * 8:(bx + 1) * 8, :], s)
        T.copy(s, f)
        if bx % 2 == 0:
            T.copy(f, Q[b, bx * 8:(bx + 1) * 8, :])
        else:
            for i, j in T.Parallel(8, 32):
                Q[b, bx * 8 + i, j] = f[i, j]
"""
READ = """
@T.prim_func
def read(Q: T.Tensor((2, 40, 32), "float32"), O: T.Tensor((2, 40, 32), "float16")):
    with T.Kernel(T.ceildiv(40, 16), 2, threads=64) as (bx, b):
        T.annotate_layout({Q: lambda b, l, d: [b, l // 8, d // 8, d % 2, 4 * (l % 8) + (d % 8) // 2]})
        T.copy(Q[b, bx * 16:(bx + 1) * 16, :], O[b, bx * 16:(bx + 1) * 16, :])
"""
ADD = WRITE.replace("T.copy(f, Q[", "T.atomic_add(Q[").replace(", :])\n        else", ", :], f)\n        else").replace("= f[i, j]", "+= f[i, j]")


def places(x):
    """The tensor as the annotation lays it out in memory."""
    b, l, d = np.meshgrid(np.arange(2), np.arange(40), np.arange(32), indexing="ij")
    out = np.empty((2, 5, 4, 2, 32), x.dtype)
    out[b, l // 8, d // 8, d % 2, 4 * (l % 8) + (d % 8) // 2] = x
    return out.reshape(x.shape)


def test_a_tensor_is_written_and_read_in_its_own_order():
    x = np.random.default_rng().standard_normal((2, 40, 32)).astype(np.float32)
    check(WRITE, {"X": x, "Q": poison(x.shape, np.float32)}, {"Q": places(x)})
    check(READ, {"Q": places(x), "O": poison(x.shape, np.float16)}, {"O": x.astype(np.float16)})
    start = np.ones_like(x)
    check(ADD, {"X": x, "Q": start}, {"Q": places(x + 1)})


def test_tails_and_indices_out_of_range_go_nowhere():
    text = """
@T.prim_func
def turn(A: T.Tensor((24, 10), "int32"), O: T.Tensor((24, 10), "int32")):
    with T.Kernel(T.ceildiv(24, 16), threads=32) as b:
        T.annotate_layout({O: T.Layout(O.shape, lambda i, j: [(i * 10 + 9 - j) % 240 // 10 * 10 + (9 - j)])})
        for i, j in T.Parallel(16, 12):
            O[b * 16 + i, j - 1] = A[b * 16 + i, j - 1]
"""
    a = np.random.default_rng().integers(-99, 99, (24, 10)).astype(np.int32)
    check(text, {"A": a, "O": poison((24, 10), np.int32)}, {"O": a[:, ::-1]})


@pytest.mark.parametrize("layout, code", [
    ("lambda i, j: [i // 8, j]", "TL0343"), ("lambda i, j: [j - i, i]", "TL0343"), ("lambda i, j: [i, j * 1.5]", "TL0343"),
])  # fmt: skip
def test_layouts_that_are_no_orders_are_refused(layout, code):
    text = f"""
@T.prim_func
def f(A: T.Tensor((16, 8), "float32")):
    with T.Kernel(1, threads=32):
        T.annotate_layout({{A: T.Layout(A.shape, {layout})}})
        A[0, 0] = 1.0
"""
    assert refused(text).code == code
