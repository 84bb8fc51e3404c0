"""Extents from shapes, random inputs, and the comparison of results."""

import numpy as np
import pytest

from tilec.ir import dtypes as dt
from tilec.ir.text import parse
from tilec.reference import InputError, compare, infer_extents, kernel_tolerance, np_dtype, poisoned, random_inputs, run


def kernel_of(signature, *lines):
    body = "\n".join(f"    {line}" for line in lines) or "    pass"
    return parse(f"kernel k{signature}:\n  launch (bx) in (1):\n{body}")


def named(kernel, shapes, given=None):
    arrays = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    return {v.name: n for v, n in infer_extents(kernel, arrays, given or {}).items()}


def test_extents_solve_simple_expressions():
    kernel = kernel_of("[M, N, K, P](A: float32[M, 2 * N + 1], B: float32[K - M, int32(P)])")
    assert named(kernel, {"A": (5, 9), "B": (3, 6)}) == {"M": 5, "N": 4, "K": 8, "P": 6}


def test_extents_that_only_follow_from_a_later_tensor():
    kernel = kernel_of("[M](A: float32[ceildiv(M, 4)], B: float32[M])")
    assert named(kernel, {"A": (3,), "B": (10,)}) == {"M": 10}


def test_parameters_may_be_extents():
    kernel = kernel_of("(n: int32, A: float32[n])", "A[n - 1] = 4.0")
    a = np.zeros(7, np.float32)
    run(kernel, {"A": a})
    assert a.tolist() == [0] * 6 + [4]


@pytest.mark.parametrize(
    ("signature", "shapes", "given", "told"),
    [
        ("[M](A: float32[M], B: float32[M])", {"A": (3,), "B": (4,)}, {}, "dimension 0 of `B` is 4, but 3"),
        ("[M](A: float32[M, 8])", {"A": (3, 9)}, {}, "dimension 1 of `A` is 9, but 8"),
        ("[M](A: float32[M])", {"A": (3,)}, {"M": 5}, "is 3, but 5"),
        ("[M](A: float32[2 * M])", {"A": (3,)}, {}, "extent M does not follow"),
        ("[M](A: float32[M])", {"A": (3, 3)}, {}, "1 dimension, the array has 2"),
    ],
)  # fmt: skip
def test_contradictions_are_told(signature, shapes, given, told):
    with pytest.raises(InputError, match=told):
        named(kernel_of(signature), shapes, given)


def test_strides_follow_from_the_array_and_do_not_change_the_meaning():
    kernel = kernel_of("[M, N, s: int64](A: float32[M, N] strides (s, 1), B: float32[M, N])", "copy A -> B")
    wide = np.random.default_rng(1).standard_normal((4, 20)).astype(np.float32)
    view, b = wide[:, 3:9], poisoned(dt.FLOAT32, (4, 6))
    assert {v.name: n for v, n in infer_extents(kernel, {"A": view, "B": b}, {}).items()} == {"M": 4, "N": 6, "s": 20}
    run(kernel, {"A": view, "B": b})
    np.testing.assert_array_equal(b, view)


def test_missing_and_wrong_arguments():
    kernel = kernel_of("[M](A: float32[M], x: float32)")
    with pytest.raises(InputError, match="no array for the parameter `A`"):
        run(kernel, {})
    with pytest.raises(InputError, match="no value for the parameter `x`"):
        run(kernel, {"A": np.zeros(3, np.float32)})
    with pytest.raises(InputError, match="`A` is float32, the array is float64"):
        run(kernel, {"A": np.zeros(3)})


def test_random_inputs():
    kernel = kernel_of(
        "[n](A: float16[n], I: int32[n], Q: int8[n, 40], C: float32[n], D: float32[n])",
        "parallel i in n:",
        "  C[i] = float32(A[I[i]])",
        "  atomic add D[i] (float32(Q[i, 0])) relaxed",
    )
    one, two, other = (random_inputs(kernel, {"n": 500}, seed) for seed in (1, 1, 2))
    assert {k: v.dtype for k, v in one.items()} == {
        "A": np.float16, "I": np.int32, "Q": np.int8, "C": np.float32, "D": np.float32,
    }  # fmt: skip
    assert np.isnan(one["C"]).all() and not np.isnan(one["D"]).any()
    assert one["I"].min() >= 0 and one["I"].max() < 4
    assert one["Q"].min() < -100 and one["Q"].max() > 100
    assert abs(float(one["A"].astype(np.float64).std()) - 1) < 0.2
    assert all((one[k] == two[k]).all() or k == "C" for k in one) and (one["A"] != other["A"]).any()
    with pytest.raises(InputError, match="shape of `A`"):
        random_inputs(kernel, {}, 1)


def test_indices_are_found_behind_variables_and_tiles():
    kernel = kernel_of(
        "[n](E: int32[n], L: int32[n], S: int32[n], D: int32[n], A: float32[n, 8], C: float32[n, 8])",
        "alloc s: shared int32[64]",
        "alloc v: var int32[]",
        "copy S[0 +: 64] -> s",
        "v[] = L[bx] + 1",
        "let e: int32 = E[bx]",
        "for i in serial(0, v[], 1):",
        "  C[s[i], i] = A[e, i] + float32(D[i])",
    )
    arrays = random_inputs(kernel, {"n": 400}, 5)
    assert all(arrays[x].min() >= 0 and arrays[x].max() <= 3 for x in "ELS")
    assert arrays["D"].min() < -100


@pytest.mark.parametrize("d", dt.ALL, ids=str)
def test_poison_is_no_plausible_value(d):
    p = poisoned(d, (3, 5))
    assert p.shape == (3, 5) and p.dtype == np_dtype(d)
    assert np.isnan(p.astype(np.float64)).all() if d.is_float else (p.view(np.uint8) == (1 if d == dt.BOOL else 0xA5)).all()


def test_compare_accepts_rounding_and_names_what_is_wrong():
    rng = np.random.default_rng(3)
    want = rng.standard_normal((100, 100))
    got = want.astype(np.float16)
    assert compare(got, want, dt.FLOAT16) is None
    got[70, 3] += 1
    wrong = compare(got, want, dt.FLOAT16)
    assert wrong is not None and wrong.index == (70, 3) and wrong.wrong == 1 and "[70, 3]" in str(wrong)


def test_compare_sees_one_wrong_element_in_a_million():
    want = np.random.default_rng(4).standard_normal(1_000_000)
    got = want.astype(np.float32)
    got[123456] += 0.005
    wrong = compare(got, want, dt.FLOAT32)
    assert wrong is not None and wrong.error < wrong.limit and wrong.index == (123456,)


def test_compare_nan_and_infinity():
    want = np.array([1.0, np.nan, np.inf, -np.inf])
    assert compare(want.astype(np.float32), want, dt.FLOAT32) is None
    for at, bad in ((0, np.nan), (1, 1.0), (2, -np.inf), (3, -1e30)):
        got = want.astype(np.float32)
        got[at] = bad
        wrong = compare(got, want, dt.FLOAT32)
        assert wrong is not None and wrong.index == (at,)


def test_compare_integers_exactly():
    want = np.arange(12).reshape(3, 4)
    assert compare(want.astype(np.int8), want, dt.INT8) is None
    got = want.astype(np.int8)
    got[2, 1] ^= 1
    wrong = compare(got, want, dt.INT8)
    assert wrong is not None and wrong.index == (2, 1) and wrong.wrong == 1
    assert compare(got[:0], want[:0], dt.INT8) is None


def test_kernel_tolerance_reads_the_products():
    kernel = kernel_of(
        "[K](A: float16[64, K], B: float16[K, 64], C: float16[64, 64])",
        "alloc c: fragment float16[64, 64]",
        "for k in pipelined(0, ceildiv(K, 32), 1):",
        "  gemm c += A[0 +: 64, k * 32 +: 32] @ B[k * 32 +: 32, 0 +: 64] square",
    )
    assert kernel_tolerance(kernel, dt.FLOAT16, {kernel.extents[0]: 1024}) == pytest.approx(1e-3 * 8)
