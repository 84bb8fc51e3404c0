"""What the emulated instructions compute, against NumPy: mma, ldmatrix, shuffles, asynchronous copies, atomics."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from benchmarks import gpu_twins
from benchmarks.gpu_twins import Case, Words
from tests.toolchain import needs_gxx
from tilec import emulator

pytestmark = needs_gxx

LANE = np.arange(32)
G, Q = LANE // 4, LANE % 4


def run(case: Case, words: Words, mode: emulator.Mode | None = None) -> Words:
    output = np.full(case.output_words, 0xDEADBEEF, np.uint32)
    outcome = emulator.build(gpu_twins.file_text(case)).run("twin", {"input": words, "output": output}, mode or emulator.Mode())
    assert outcome.ok, outcome
    return output


def spread(matrix: npt.NDArray[Any], transposed: bool) -> Words:
    """The registers of an mma operand: `matrix` is a[16][k] or, transposed, b[k][8]."""
    per = 4 // matrix.dtype.itemsize
    registers = np.zeros((32, 2 if transposed else 4, per), matrix.dtype)
    for r in range(registers.shape[1]):
        for e in range(per):
            if transposed:
                registers[:, r, e] = matrix[per * Q + 4 * per * r + e, G]
            else:
                registers[:, r, e] = matrix[G + r % 2 * 8, per * Q + r // 2 * 4 * per + e]
    return registers.reshape(-1).view(np.uint32)


def accumulator_positions() -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    i = np.arange(4)
    return G[:, None] + i // 2 * 8, Q[:, None] * 2 + i % 2


MMAS: list[tuple[str, Any, Any, float]] = [
    ("mma_m16n8k16_f16_f32", np.float16, np.float32, 1e-6),
    ("mma_m16n8k16_bf16_f32", ml_dtypes.bfloat16, np.float32, 1e-6),
    ("mma_m16n8k16_f16_f16", np.float16, np.float16, 6e-4),
    ("mma_m16n8k32_e4m3_f32", ml_dtypes.float8_e4m3fn, np.float32, 1e-6),
    ("mma_m16n8k32_e5m2_f32", ml_dtypes.float8_e5m2, np.float32, 1e-6),
]


@pytest.mark.parametrize("name, operand, accumulator, tolerance", MMAS, ids=lambda v: v if isinstance(v, str) else "")
def test_mma_of_floats(name: str, operand: Any, accumulator: Any, tolerance: float) -> None:
    rng = np.random.default_rng()
    depth = 8 * (4 // np.dtype(operand).itemsize)
    a, b = rng.standard_normal((16, depth)).astype(operand), rng.standard_normal((depth, 8)).astype(operand)
    d = rng.standard_normal((16, 8)).astype(accumulator)
    check_mma(name, a, b, d, a.astype(np.float64) @ b.astype(np.float64) + d, tolerance)


def test_mma_tf32_does_not_read_the_low_bits() -> None:
    rng = np.random.default_rng()
    a, b = rng.standard_normal((16, 8)).astype(np.float32), rng.standard_normal((8, 8)).astype(np.float32)
    d = rng.standard_normal((16, 8)).astype(np.float32)

    def cut(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)

    check_mma("mma_m16n8k8_tf32_f32", a, b, d, cut(a) @ cut(b) + d, 1e-6)


@pytest.mark.parametrize("name, operand", [("mma_m16n8k32_s8_s32", np.int8), ("mma_m16n8k32_u8_s32", np.uint8)])
def test_mma_of_integers_is_exact_and_wraps(name: str, operand: Any) -> None:
    rng = np.random.default_rng()
    info = np.iinfo(operand)
    a = rng.integers(info.min, info.max, (16, 32), operand, endpoint=True)
    b = rng.integers(info.min, info.max, (32, 8), operand, endpoint=True)
    d = rng.integers(-(2**31), 2**31, (16, 8)).astype(np.int32)
    exact = a.astype(np.int64) @ b.astype(np.int64) + d
    check_mma(name, a, b, d, exact.astype(np.int32), 0)


@pytest.mark.parametrize("name, operand", [("mma_sp_m16n8k32_f16_f32", np.float16), ("mma_sp_m16n8k32_bf16_f32", ml_dtypes.bfloat16)])
def test_sparse_mma(name: str, operand: Any) -> None:
    """Two of every four elements of a row, by the marks that lanes 0 and 1 of each four hold: 16 columns of rows g and g + 8 each."""
    rng = np.random.default_rng()
    kept, b = rng.integers(-8, 8, (16, 16)).astype(operand), rng.integers(-8, 8, (32, 8)).astype(operand)
    d = rng.integers(-8, 8, (16, 8)).astype(np.float32)
    places = np.sort(np.argsort(rng.random((16, 8, 4)), axis=2)[:, :, :2], axis=2)
    dense = np.zeros((16, 8, 4))
    np.put_along_axis(dense, places, kept.astype(np.float64).reshape(16, 8, 2), 2)
    codes = (places[:, :, 0] | places[:, :, 1] << 2).reshape(16, 2, 4) << 4 * np.arange(4)
    halves = codes.sum(2).astype(np.uint32)
    marks = halves[:8] | halves[8:] << 16
    rows, columns = accumulator_positions()
    low, high = (spread(b[k : k + 16], True).reshape(32, 2) for k in (0, 16))
    parts = [spread(kept, False), np.concatenate([low, high], 1), np.ascontiguousarray(d[rows, columns]).view(np.uint32), marks]
    case = next(c for c in gpu_twins.cases() if c.name == name)
    got = np.zeros_like(d)
    got[rows, columns] = run(case, np.concatenate([p.reshape(-1) for p in parts])).view(np.float32).reshape(32, 4)
    assert np.array_equal(got, dense.reshape(16, 32) @ b.astype(np.float64) + d)


@pytest.mark.parametrize("name, operand", [("mma_sp_m16n8k64_s8_s32", np.int8), ("mma_sp_m16n8k64_u8_s32", np.uint8)])
def test_sparse_mma_of_integers(name: str, operand: Any) -> None:
    """As above; lane q of each four holds the marks of 32 columns from q / 2 * 32 on of row g + q % 2 * 8."""
    rng = np.random.default_rng()
    info = np.iinfo(operand)
    kept = rng.integers(info.min, info.max, (16, 32), operand, endpoint=True)
    b = rng.integers(info.min, info.max, (64, 8), operand, endpoint=True)
    d = rng.integers(-(2**20), 2**20, (16, 8)).astype(np.int32)
    places = np.sort(np.argsort(rng.random((16, 16, 4)), axis=2)[:, :, :2], axis=2)
    dense = np.zeros((16, 16, 4), np.int64)
    np.put_along_axis(dense, places, kept.astype(np.int64).reshape(16, 16, 2), 2)
    words = ((places[:, :, 0] | places[:, :, 1] << 2).reshape(16, 2, 8) << 4 * np.arange(8)).sum(2).astype(np.uint32)
    marks = words.reshape(2, 8, 2).transpose(1, 2, 0)  # [g][half of the columns][half of the rows]
    rows, columns = accumulator_positions()
    low, high = (spread(b[k : k + 32], True).reshape(32, 2) for k in (0, 32))
    parts = [spread(kept, False), np.concatenate([low, high], 1), np.ascontiguousarray(d[rows, columns]).view(np.uint32), marks]
    case = next(c for c in gpu_twins.cases() if c.name == name)
    got = np.zeros_like(d)
    got[rows, columns] = run(case, np.concatenate([p.reshape(-1) for p in parts])).view(np.int32).reshape(32, 4)
    assert np.array_equal(got, dense.reshape(16, 64) @ b.astype(np.int64) + d)


def check_mma(name: str, a: Any, b: Any, d: Any, expected: Any, tolerance: float) -> None:
    case = next(c for c in gpu_twins.cases() if c.name == name)
    rows, columns = accumulator_positions()
    words = np.concatenate([spread(a, False), spread(b, True), np.ascontiguousarray(d[rows, columns]).reshape(-1).view(np.uint32)])
    got = np.zeros_like(d)
    got[rows, columns] = run(case, words).view(d.dtype).reshape(32, 4)
    if tolerance == 0:
        assert np.array_equal(got, expected)
    else:
        error = np.abs(got.astype(np.float64) - expected).max() / np.abs(expected).max()
        assert error <= tolerance


def test_f16_accumulation_rounds_once() -> None:
    """2048 + 16 products of 0.5: f16 has steps of 2 there, so adding them one by one would lose every one."""
    case = next(c for c in gpu_twins.cases() if c.name == "mma_m16n8k16_f16_f16")
    a, b, d = np.ones((16, 16), np.float16), np.full((16, 8), 0.5, np.float16), np.full((16, 8), 2048, np.float16)
    words = np.concatenate([spread(a, False), spread(b, True), d.reshape(-1).view(np.uint32)])
    assert np.all(run(case, words).view(np.float16) == 2056)


@pytest.mark.parametrize("count", (1, 2, 4))
@pytest.mark.parametrize("transposed", (False, True))
def test_ldmatrix(count: int, transposed: bool) -> None:
    case = gpu_twins.ldmatrix_case(count, transposed)
    words = np.random.default_rng().integers(0, 2**32, 128, dtype=np.uint32)
    tile = words.view(np.uint16).reshape(32, 8)
    addressed = tile[LANE * 5 % 32].reshape(4, 8, 8)  # [matrix][row][column], in the order of the lanes that give addresses
    expected = np.zeros((32, count, 2), np.uint16)
    for m in range(count):
        for e in range(2):
            expected[:, m, e] = addressed[m, Q * 2 + e, G] if transposed else addressed[m, G, Q * 2 + e]
    assert np.array_equal(run(case, words), expected.reshape(-1).view(np.uint32))


SHUFFLES: list[tuple[str, str, Callable[[npt.NDArray[Any]], npt.NDArray[Any]]]] = [
    ("shfl_xor", "5", lambda lane: lane ^ 5),
    ("shfl_down", "3", lambda lane: np.where(lane + 3 < 32, lane + 3, lane)),
    ("shfl_up", "7", lambda lane: np.where(lane >= 7, lane - 7, lane)),
    ("shfl_idx", "11", lambda lane: np.full_like(lane, 11)),
]


@pytest.mark.parametrize("name, argument, source", SHUFFLES, ids=[s[0] for s in SHUFFLES])
@pytest.mark.parametrize("element, kind", [("unsigned", "u4"), ("double", "u8"), ("half_t", "u2"), ("signed char", "u1")])
def test_shuffles(name: str, argument: str, source: Callable[[Any], Any], element: str, kind: str) -> None:
    words = np.random.default_rng().integers(0, 2**32, 64, dtype=np.uint32)
    got = run(gpu_twins.shuffle_case(name, element, argument), words).view(kind)[:32]
    assert np.array_equal(got, words.view(kind)[source(LANE)])


@pytest.mark.parametrize("size", (4, 8, 16))
@pytest.mark.parametrize("zfill", (False, True))
@pytest.mark.parametrize("asynchrony", ("lazy", "eager", "random"))
def test_asynchronous_copies(size: int, zfill: bool, asynchrony: Any) -> None:
    words = np.random.default_rng().integers(0, 2**32, 16 * size, dtype=np.uint32)
    expected = words.reshape(64, size // 4).copy()
    if zfill:
        expected[:32][LANE % 3 == 0] = 0
        expected[32:][::-1][LANE % 3 == 0] = 0
    got = run(gpu_twins.cp_async_case(size, zfill), words, emulator.Mode(asynchrony))
    assert np.array_equal(got.reshape(64, -1), expected)


def test_votes() -> None:
    case = next(c for c in gpu_twins.cases() if c.name.startswith("any_sync"))
    for words in (np.full(32, 5), np.r_[np.full(31, 5), 64]):
        any_zero = bool(np.any(words % 64 == 0))
        got = run(case, words.astype(np.uint32)).reshape(32, 2)
        assert np.all(got[:, 0] == any_zero) and np.all(got[:, 1] == (not any_zero))


def test_named_barriers_order_two_warps() -> None:
    case = next(c for c in gpu_twins.cases() if c.name.startswith("barrier_sync"))
    words = np.random.default_rng().integers(0, 2**32, 64, dtype=np.uint32)
    for seed in range(6):
        got = run(case, words, emulator.Mode(seed=seed))
        assert np.array_equal(got, np.concatenate([words[32:], words[:32][::-1]]))


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


ATOMICS = [(operation, dtype) for operation in OPERATIONS for dtype in ("int8", "uint16", "int32", "uint64", "int64")]
ATOMICS += [(operation, dtype) for operation in ("add", "max", "min") for dtype in ("float16", "bfloat16", "float32", "float64")]


@pytest.mark.parametrize("operation, dtype", ATOMICS)
def test_atomics(operation: str, dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    words = np.random.default_rng().integers(0, 2**32, 100, dtype=np.uint32)
    numbers = (words % 16).astype(np.int64) - 8
    cells, v = numbers[:68].astype(kind), numbers[68:].astype(kind)
    got = run(gpu_twins.atomic_case(operation, dtype), words).view(kind)[:68]
    apply = OPERATIONS[operation]
    with np.errstate(over="ignore"):
        together = [cells[i] for i in range(4)]
        for lane in range(32):
            together[lane % 4] = apply(together[lane % 4], v[lane])
        alone = apply(cells[4:36], v)
    assert np.array_equal(got[:4], np.array(together, kind))
    assert np.array_equal(got[4:36], alone.astype(kind))
    assert np.array_equal(got[36:], cells[4:36]), "the value before is returned"


@pytest.mark.parametrize("dtype, count", [("float32", 2), ("float32", 4), ("float16", 8), ("bfloat16", 4)])
def test_chunks_are_added(dtype: str, count: int) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    words = np.random.default_rng().integers(0, 2**32, 32 * count, dtype=np.uint32)
    got = run(gpu_twins.chunk_add_case(dtype, count), words).view(kind).astype(np.int64)
    v = ((words % 16).astype(np.int64) - 8).reshape(16, 2 * count)
    assert np.array_equal(got, np.arange(2 * count) + v.sum(0))


def test_atomic_max_of_floats_drops_nan() -> None:
    body = """  float* const cells = reinterpret_cast<float*>(output);
  cells[thread] = __uint_as_float(input[thread]);
  atomic_max(cells + thread, __uint_as_float(input[32 + thread]));
  cells[32 + thread] = __uint_as_float(input[thread]);
  atomic_min(cells + 32 + thread, __uint_as_float(input[32 + thread]));"""
    case = Case("nan", ("atomic_max_float32", "atomic_min_float32"), body, gpu_twins.random_words(64), 64)
    rng = np.random.default_rng()
    a, b = rng.standard_normal((2, 32)).astype(np.float32)
    a[:8], b[4:12] = np.nan, np.nan
    got = run(case, np.concatenate([a, b]).view(np.uint32)).view(np.float32)
    assert np.array_equal(got[:32], np.fmax(a, b), equal_nan=True)
    assert np.array_equal(got[32:], np.fmin(a, b), equal_nan=True)
