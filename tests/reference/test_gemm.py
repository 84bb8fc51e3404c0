"""Matrix products against float64 and exact integers, over operand types, transposes and tails."""

import ml_dtypes
import numpy as np
import pytest

from tests.counting import calls
from tilec.ir import dtypes as dt
from tilec.ir.text import parse
from tilec.ir.verify import verify
from tilec.reference import compare, kernel_tolerance, np_dtype, random_inputs, run, tolerance

TILES = """
kernel matmul[M, N, K](A: {operand}[{a}], B: {operand}[{b}], C: {out}[M, N]):
{flags}
  launch (bx, by) in (ceildiv(N, {BN}), ceildiv(M, {BM})) threads ({threads}, 1, 1):
    alloc A_s: shared {operand}[{a_tile}]
    alloc B_s: shared {operand}[{b_tile}]
    alloc C_l: fragment {acc}[{BM}, {BN}]
    fill C_l = {zero}
    for k in pipelined(0, ceildiv(K, {BK}), 1) stages 3:
      copy A[{a_at}] -> A_s
      copy B[{b_at}] -> B_s
      gemm C_l += A_s{ta} @ B_s{tb} square
    copy C_l -> C[by * {BM} +: {BM}, bx * {BN} +: {BN}]
"""


def matmul(operand, acc, out, trans_a=False, trans_b=False, block=(32, 32, 32), flags="", threads=128):
    """A tiled product with dynamic extents; A is stored K x M when `trans_a`, B is N x K when `trans_b`."""
    bm, bn, bk = block
    zero = "0.0" if acc == "float32" else f"0.0:{acc}" if "float" in acc else "0"
    text = TILES.format(
        operand=operand, acc=acc, out=out, zero=zero, BM=bm, BN=bn, BK=bk, ta=".T" if trans_a else "", tb=".T" if trans_b else "",
        a="K, M" if trans_a else "M, K", b="N, K" if trans_b else "K, N",
        a_tile=f"{bk}, {bm}" if trans_a else f"{bm}, {bk}", b_tile=f"{bn}, {bk}" if trans_b else f"{bk}, {bn}",
        a_at=f"k * {bk} +: {bk}, by * {bm} +: {bm}" if trans_a else f"by * {bm} +: {bm}, k * {bk} +: {bk}",
        b_at=f"bx * {bn} +: {bn}, k * {bk} +: {bk}" if trans_b else f"k * {bk} +: {bk}, bx * {bn} +: {bn}",
        flags=flags, threads=threads,
    )  # fmt: skip
    kernel = parse(text)
    verify(kernel)
    return kernel


def product(arrays, trans_a, trans_b, kind=np.float64):
    a, b = arrays["A"].astype(kind), arrays["B"].astype(kind)
    return (a.T if trans_a else a) @ (b.T if trans_b else b)


@pytest.mark.parametrize("extents", [(128, 128, 32), (130, 70, 45), (1, 1, 1), (33, 31, 17), (64, 64, 0)])
@pytest.mark.parametrize("trans", [(False, False), (False, True), (True, False), (True, True)])
def test_transposes_and_tails(extents, trans):
    kernel = matmul("float16", "float32", "float32", *trans)
    m, n, k = extents
    arrays = random_inputs(kernel, {"M": m, "N": n, "K": k}, seed=m + n + k)
    run(kernel, arrays, extents={"K": k})
    assert compare(arrays["C"], product(arrays, *trans), dt.FLOAT32, k) is None


@pytest.mark.parametrize(
    ("operand", "acc", "out"),
    [
        ("float16", "float32", "float16"), ("float16", "float16", "float16"), ("bfloat16", "float32", "bfloat16"),
        ("bfloat16", "float32", "float32"), ("float32", "float32", "float32"), ("tfloat32", "float32", "float32"),
        ("float64", "float64", "float64"), ("float8_e4m3fn", "float32", "float32"), ("float8_e5m2", "float32", "float16"),
    ],
)  # fmt: skip
def test_float_types(operand, acc, out):
    kernel = matmul(operand, acc, out, trans_b=True, block=(64, 32, 16))
    arrays = random_inputs(kernel, {"M": 100, "N": 60, "K": 200}, seed=3)
    run(kernel, arrays)
    wrong = compare(arrays["C"], product(arrays, False, True), dt.lookup(out), 200, dt.lookup(operand), dt.lookup(acc))
    assert wrong is None, wrong


@pytest.mark.parametrize("operand", ["int8", "uint8"])
def test_integers_are_exact(operand):
    kernel = matmul(operand, "int32", "int32")
    arrays = random_inputs(kernel, {"M": 40, "N": 50, "K": 300}, seed=4)
    run(kernel, arrays)
    np.testing.assert_array_equal(arrays["C"], product(arrays, False, False, np.int64))


def test_integer_accumulator_wraps():
    kernel = matmul("int32", "int32", "int32")
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-(2**31), 2**31, s).astype(np.int32) for s in ((8, 40), (40, 9)))
    c = np.zeros((8, 9), np.int32)
    run(kernel, {"A": a, "B": b, "C": c})
    exact = a.astype(object) @ b.astype(object)
    want = np.vectorize(lambda x: (int(x) + 2**31) % 2**32 - 2**31)(exact)
    np.testing.assert_array_equal(c, want)


def test_float32_operands_are_truncated_unless_told():
    rng = np.random.default_rng(6)
    a, b = (rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    cut = [(x.view(np.uint32) >> 13 << 13).view(np.float32).astype(np.float64) for x in (a, b)]
    for flags, want in (("", cut[0] @ cut[1]), ('  flags "fp32_gemm_ieee"', exact)):
        c = np.full((64, 64), np.nan, np.float32)
        run(matmul("float32", "float32", "float32", flags=flags), {"A": a, "B": b, "C": c})
        assert compare(c, want, dt.FLOAT32, 64) is None
    assert compare(cut[0] @ cut[1], exact, dt.FLOAT32, 64) is not None


@pytest.mark.parametrize(("block", "threads"), [((8, 32, 32), 128), ((32, 12, 32), 128), ((32, 32, 20), 128), ((32, 32, 32), 48)])
def test_float32_tiles_that_no_tensor_core_multiplies_stay_whole(block, threads):
    rng = np.random.default_rng(16)
    m, n, k = block
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
    kernel = matmul("float32", "float32", "float32", block=block, threads=threads)
    c = np.full((m, n), np.nan, np.float32)
    run(kernel, {"A": a, "B": b, "C": c})
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert compare(c, exact, dt.FLOAT32, limit=kernel_tolerance(kernel, dt.FLOAT32)) is None
    assert kernel_tolerance(kernel, dt.FLOAT32) == pytest.approx(1e-5)


def test_float16_accumulator_rounds_every_sixteen_steps():
    """2048 + 16 * 0.0625 rounds back to 2048 in each step of 16, but adding 0.0625 * 256 at once would not."""
    kernel = matmul("float16", "float16", "float16", block=(16, 16, 32))
    a = np.full((16, 256 + 16), 0.0625, np.float16)
    a[:, 0] = 2048
    a[:, 1:16] = 0
    c = np.empty((16, 16), np.float16)
    run(kernel, {"A": a, "B": np.ones((272, 16), np.float16), "C": c})
    assert (c == 2048).all()


def test_clear_may_depend_on_the_loop():
    text = TILES.replace("square", "square clear k == 0").replace("fill C_l = {zero}", "pass")
    filled = text.format(
        operand="float16", acc="float32", out="float32", a="M, K", b="K, N", a_tile="32, 32", b_tile="32, 32", BM=32, BN=32, BK=32,
        a_at="by * 32 +: 32, k * 32 +: 32", b_at="k * 32 +: 32, bx * 32 +: 32", ta="", tb="", flags="", threads=128,
    )  # fmt: skip
    kernel = parse(filled)
    verify(kernel)
    arrays = random_inputs(kernel, {"M": 48, "N": 64, "K": 96}, seed=7)
    run(kernel, arrays)
    assert compare(arrays["C"], product(arrays, False, False), dt.FLOAT32, 96) is None


def test_an_accumulator_without_clear_shows():
    text = TILES.replace("fill C_l = {zero}", "pass").format(
        operand="float16", acc="float32", out="float32", a="M, K", b="K, N", a_tile="32, 32", b_tile="32, 32", BM=32, BN=32, BK=32,
        a_at="by * 32 +: 32, k * 32 +: 32", b_at="k * 32 +: 32, bx * 32 +: 32", ta="", tb="", flags="", threads=128,
    )  # fmt: skip
    kernel = parse(text)
    arrays = random_inputs(kernel, {"M": 32, "N": 32, "K": 32}, seed=8)
    run(kernel, arrays)
    assert np.isnan(arrays["C"]).all()


def test_elements_of_a_tile_are_computed_together():
    def work(side):
        kernel = matmul("float16", "float32", "float16", block=(side, side, 32))
        arrays = random_inputs(kernel, {"M": 2 * side, "N": 3 * side, "K": 96}, seed=9)
        count = calls(lambda: run(kernel, arrays))
        assert compare(arrays["C"], product(arrays, False, False), dt.FLOAT16, 96) is None
        return count

    work(32)  # the first run imports what it needs
    assert work(128) < 1.1 * work(32)  # as many blocks and steps, of sixteen times as many elements


def test_tolerances():
    assert tolerance(dt.INT32) == 0
    assert tolerance(dt.FLOAT16, 4096) == 1e-3
    assert tolerance(dt.FLOAT32, 128, dt.FLOAT16) == pytest.approx(2e-5)
    assert tolerance(dt.FLOAT32, 128, dt.FLOAT32) == 1e-3
    assert tolerance(dt.FLOAT32, 128, dt.FLOAT32, ieee=True) == pytest.approx(2e-5)
    assert tolerance(dt.FLOAT16, 64, dt.FLOAT16, dt.FLOAT16) == pytest.approx(2e-3)
    assert np_dtype(dt.BFLOAT16) == ml_dtypes.bfloat16
