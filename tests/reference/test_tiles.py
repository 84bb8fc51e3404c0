"""Copies, fills, reductions, scans and views against independent NumPy formulas."""

import numpy as np
import pytest

from tilec.ir import dtypes as dt
from tilec.ir.expr import Buffer, Const, Scope, Var, VarKind
from tilec.ir.kernel import Kernel, Launch
from tilec.ir.text import parse
from tilec.ir.tile import Alloc, Copy, Reduce, Region, Seq
from tilec.ir.verify import verify
from tilec.reference import MeaningError, compare, np_dtype, poisoned, run


def build(text):
    kernel = parse(text)
    verify(kernel)
    return kernel


def body(signature, lines, grid="1"):
    """A kernel of one launch from its signature and its statements."""
    inner = "\n".join("    " + line for line in lines.strip("\n").splitlines())
    return build(f"kernel k{signature}:\n  launch (bx) in ({grid}) threads (64, 1, 1) index (x = tx):\n{inner}")


def shift(n, start):
    """What a copy of 16 elements from `start` of an array of n sees: positions, and which of them exist."""
    at = np.arange(16) + start
    return at, (at >= 0) & (at < n)


@pytest.mark.parametrize("start", [-20, -3, 0, 5, 11, 40])
def test_copies_out_of_range(start):
    kernel = body(
        "(A: float32[20] safe 7.0, B: float32[20], s: int32)",
        """
alloc t: shared float32[16]
copy A[s +: 16] -> t
copy t -> B[s +: 16]
""",
    )
    rng = np.random.default_rng(start + 100)
    a, b = rng.standard_normal(20).astype(np.float32), np.full(20, -1, np.float32)
    run(kernel, {"A": a, "B": b}, {"s": start})
    at, inside = shift(20, start)
    want = np.full(20, -1, np.float32)
    want[at[inside]] = a[at[inside]]
    np.testing.assert_array_equal(b, want)


def test_reads_out_of_range_give_the_safe_value():
    kernel = body("(A: float16[10] safe 7.0:float16, B: float16[16])", "alloc t: fragment float16[16]\ncopy A[4 +: 16] -> t\ncopy t -> B")
    a, b = np.arange(10).astype(np.float16), poisoned(dt.FLOAT16, (16,))
    run(kernel, {"A": a, "B": b})
    np.testing.assert_array_equal(b, [*range(4, 10), *[7] * 10])


def test_copy_pairs_dimensions_and_casts():
    kernel = body(
        "[b](Q: float32[b, 8, 3, 6], O: float16[8, 6])",
        "alloc t: shared float32[8, 1, 6]\ncopy Q[1, 0 +: 8, 2, 0 +: 6] -> t\ncopy t -> O",
    )
    q = np.random.default_rng(0).standard_normal((2, 8, 3, 6)).astype(np.float32)
    o = poisoned(dt.FLOAT16, (8, 6))
    run(kernel, {"Q": q, "O": o})
    np.testing.assert_array_equal(o, q[1, :, 2].astype(np.float16))


def test_copy_within_one_tile_reads_first():
    kernel = body("(A: int32[8], B: int32[8])", "alloc t: shared int32[8]\ncopy A -> t\ncopy t[0 +: 7] -> t[1 +: 7]\ncopy t -> B")
    a, b = np.arange(8, dtype=np.int32), np.zeros(8, np.int32)
    run(kernel, {"A": a, "B": b})
    assert b.tolist() == [0, 0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("line", ["copy A[0 +: 9] -> t[0 +: 9]", "fill t[4 +: 8] = 0.0", "t[s] = 1.0", "copy t[s +: 8] -> A[0 +: 8]"])
def test_tiles_have_no_outside(line):
    kernel = body("(A: float32[32], s: int32)", f"alloc t: shared float32[8]\n{line}")
    with pytest.raises(MeaningError, match=r"t\[.*out of its range 8") as caught:
        run(kernel, {"A": np.zeros(32, np.float32)}, {"s": 8})
    assert caught.value.span.line == 4


def test_undefined_tiles_show():
    kernel = body("(A: float32[4], B: int32[4])", "alloc t: shared float32[4]\nalloc u: fragment int32[4]\ncopy t -> A\ncopy u -> B")
    a, b = np.zeros(4, np.float32), np.zeros(4, np.int32)
    run(kernel, {"A": a, "B": b})
    assert np.isnan(a).all() and (b.view(np.uint8) == 0xA5).all()


REDUCTIONS = {
    "sum": lambda x: x.sum(1), "max": lambda x: x.max(1), "min": lambda x: x.min(1), "abssum": lambda x: np.abs(x).sum(1),
    "absmax": lambda x: np.abs(x).max(1),
}  # fmt: skip


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "int8"])
@pytest.mark.parametrize("shape", [(8, 32), (5, 7), (3, 1)])
def test_reductions(op, dtype, shape):
    d = dt.lookup(dtype)
    m, n = shape
    kernel = body(
        f"(A: {dtype}[{m}, {n}], B: {dtype}[{m}])",
        f"alloc t: fragment {dtype}[{m}, {n}]\nalloc r: fragment {dtype}[{m}]\ncopy A -> t\nreduce {op} t -> r dim 1\ncopy r -> B",
    )
    rng = np.random.default_rng(11)
    a = (rng.integers(-3, 4, shape) if d.is_int else rng.standard_normal(shape)).astype(np_dtype(d))
    b = poisoned(d, (m,))
    run(kernel, {"A": a, "B": b})
    want = REDUCTIONS[op](a.astype(np.float64))
    wrong = compare(b, want, d, limit=None if not d.is_float else {16: 2e-2, 32: 1e-6}[d.bits])
    assert wrong is None, wrong


def test_reduction_keeps_and_accumulates_once():
    kernel = body(
        "(A: float32[4, 3, 5], B: float32[4, 5], C: float32[4, 1, 5])",
        """
alloc t: shared float32[4, 3, 5]
alloc r: fragment float32[4, 5]
alloc q: fragment float32[4, 1, 5]
copy A -> t
copy B -> r
copy C -> q
reduce sum t -> r dim 1 keep
reduce max t -> q dim 1 keep
copy r -> B
copy q -> C
""",
    )
    rng = np.random.default_rng(12)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((4, 3, 5), (4, 5), (4, 1, 5)))
    want_b = b.astype(np.float64) + a.astype(np.float64).sum(1)
    want_c = np.maximum(c, a.max(1, keepdims=True))
    run(kernel, {"A": a, "B": b, "C": c})
    assert compare(b, want_b, dt.FLOAT32) is None
    np.testing.assert_array_equal(c, want_c)


def test_reductions_of_nan():
    kernel = body(
        "(A: float32[3, 4], B: float32[3], C: float32[3])",
        """
alloc t: fragment float32[3, 4]
alloc r: fragment float32[3]
copy A -> t
reduce max t -> r dim 1
copy r -> B
reduce max t -> r dim 1 nan
copy r -> C
""",
    )
    nan = np.nan
    a = np.array([[1, nan, 3, 2], [nan, nan, nan, nan], [-5, -2, -9, -7]], np.float32)
    b, c = poisoned(dt.FLOAT32, (3,)), poisoned(dt.FLOAT32, (3,))
    run(kernel, {"A": a, "B": b, "C": c})
    np.testing.assert_array_equal(b, [3, -np.inf, -2])
    np.testing.assert_array_equal(c, [nan, nan, -2])


@pytest.mark.parametrize(
    ("op", "formula"),
    [
        ("bitand", np.bitwise_and), ("bitor", np.bitwise_or), ("bitxor", np.bitwise_xor), ("any", np.logical_or), ("all", np.logical_and),
    ],
)  # fmt: skip
def test_bit_and_truth_reductions(op, formula):
    kernel = body(
        "(A: int32[6, 9], B: int32[9])",
        f"alloc t: shared int32[6, 9]\nalloc r: shared int32[9]\ncopy A -> t\nreduce {op} t -> r dim 0\ncopy r -> B",
    )
    a = np.random.default_rng(13).integers(-4, 4, (6, 9)).astype(np.int32)
    a[:, 0], a[:, 1] = 0, 1
    b = poisoned(dt.INT32, (9,))
    run(kernel, {"A": a, "B": b})
    np.testing.assert_array_equal(b, formula.reduce(a, axis=0).astype(np.int32))


def test_half_precision_sums_stay_half():
    """2048 + 1 is 2048 in float16: the tree over [2048, 1, 0, 1] gives (2048 + 0) + (1 + 1) = 2050, not 2049 or 2051."""
    kernel = body(
        "(A: float16[1, 4], B: float16[1])",
        "alloc t: fragment float16[1, 4]\nalloc r: fragment float16[1]\ncopy A -> t\nreduce sum t -> r dim 1\ncopy r -> B",
    )
    a, b = np.array([[2048, 1, 0, 1]], np.float16), np.zeros(1, np.float16)
    run(kernel, {"A": a, "B": b})
    assert b[0] == 2050


def test_direct_construction_of_a_reduction():
    """The same through the data classes instead of the text form."""
    n = Var("n", dt.INT32, VarKind.EXTENT)
    one, zero = Const(1, dt.INT32), Const(0, dt.INT32)
    width = Const(16, dt.INT32)
    a = Buffer("A", dt.FLOAT32, (n, width), Scope.GLOBAL)
    b = Buffer("B", dt.FLOAT32, (n,), Scope.GLOBAL)
    tile, row = Buffer("t", dt.FLOAT32, (one, width), Scope.SHARED), Buffer("r", dt.FLOAT32, (one,), Scope.FRAGMENT)
    bx = Var("bx", dt.INT32, VarKind.BLOCK)

    def whole(x):
        return Region(x, (zero,) * x.rank, x.shape)

    statements = Seq((
        Alloc(tile), Alloc(row), Copy(Region(a, (bx, zero), (one, width)), whole(tile)),
        Reduce("sum", whole(tile), whole(row), 1, True), Copy(whole(row), Region(b, (bx,), (one,))),
    ))  # fmt: skip
    kernel = Kernel("rows", (a, b), (n,), (Launch((bx,), (n,), (32, 1, 1), (), statements),))
    verify(kernel)
    x, y = np.random.default_rng(14).standard_normal((9, 16)).astype(np.float32), poisoned(dt.FLOAT32, (9,))
    run(kernel, {"A": x, "B": y})
    assert compare(y, x.astype(np.float64).sum(1), dt.FLOAT32) is None


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_scans(reverse, axis):
    words = " reverse" if reverse else ""
    kernel = body(
        "(A: int32[6, 10], B: int32[6, 10], C: int32[6, 10])",
        f"""
alloc t: shared int32[6, 10]
copy A -> t
scan sum t -> t dim {axis}{words}
copy t -> B
copy A -> t
scan max t -> t dim {axis}{words}
copy t -> C
""",
    )
    a = np.random.default_rng(15).integers(-9, 9, (6, 10)).astype(np.int32)
    b, c = poisoned(dt.INT32, a.shape), poisoned(dt.INT32, a.shape)
    run(kernel, {"A": a, "B": b, "C": c})
    turned = np.flip(a, axis) if reverse else a
    for got, want in ((b, np.cumsum(turned, axis)), (c, np.maximum.accumulate(turned, axis))):
        np.testing.assert_array_equal(got, np.flip(want, axis) if reverse else want)


def test_views_share_bytes():
    kernel = body(
        "(A: float16[4, 8], B: uint16[32], C: float16[2, 16])",
        """
alloc t: shared float16[4, 8]
view bits: shared uint16[32] of t
view wide: shared float16[2, 16] of t
copy A -> t
copy bits -> B
bits[31] = 15360:uint16
copy wide -> C
""",
    )
    a = np.random.default_rng(16).standard_normal((4, 8)).astype(np.float16)
    b, c = poisoned(dt.UINT16, (32,)), poisoned(dt.FLOAT16, (2, 16))
    run(kernel, {"A": a, "B": b, "C": c})
    np.testing.assert_array_equal(b, a.view(np.uint16).reshape(-1))
    want = a.copy().reshape(2, 16)
    want[1, 15] = 1.0
    np.testing.assert_array_equal(c, want)


def test_views_of_parameters_write_through():
    kernel = body("(A: int32[4, 6])", "view flat: global int32[24] of A\nparallel i in 24:\n  flat[i] = i")
    a = np.zeros((4, 6), np.int32)
    run(kernel, {"A": a})
    np.testing.assert_array_equal(a, np.arange(24).reshape(4, 6))
    with pytest.raises(MeaningError, match="not dense"):
        run(kernel, {"A": np.zeros((6, 4), np.int32).T})


def test_workspaces_carry_from_launch_to_launch():
    kernel = build("""
kernel two(A: int32[8], B: int32[8]):
  launch (bx) in (8):
    workspace W: global int32[8]
    W[bx] = A[bx] * 2
  launch (bx) in (8):
    B[bx] = W[7 - bx]
""")
    a, b = np.arange(8, dtype=np.int32), np.zeros(8, np.int32)
    run(kernel, {"A": a, "B": b})
    assert b.tolist() == [14, 12, 10, 8, 6, 4, 2, 0]
