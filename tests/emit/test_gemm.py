"""The text of products and pipelines, run on the emulator against NumPy and compiled by nvcc."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.emit.gemm_files import pipeline_file, product_file, shapes
from tests.toolchain import needs_gxx, needs_nvcc
from tilec.emulator import Mode, build
from tilec.ir.dtypes import BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2, FLOAT16, FLOAT32, FLOAT64, INT8, INT32, UINT8, DType
from tilec.plan.gemm_plan import GemmPlan, GemmShape
from tilec.plan.instructions import choose
from tilec.targets import SM80, SM89

NUMPY = {
    FLOAT16: np.float16, BFLOAT16: ml_dtypes.bfloat16, FLOAT32: np.float32, FLOAT64: np.float64, INT8: np.int8, UINT8: np.uint8,
    INT32: np.int32, FLOAT8_E4M3: ml_dtypes.float8_e4m3fn, FLOAT8_E5M2: ml_dtypes.float8_e5m2,
}  # fmt: skip


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Whole numbers small enough that every type holds them and every sum is exact."""
    low, high = (0, 8) if dtype is UINT8 else (-3, 4)
    return rng.integers(low, high, shape).astype(NUMPY[dtype])


def product(a: np.ndarray, b: np.ndarray, op: GemmShape) -> np.ndarray:
    a, b = a.astype(np.float64), b.astype(np.float64)
    return np.asarray((a.swapaxes(-1, -2) if op.trans_a else a) @ (b.swapaxes(-1, -2) if op.trans_b else b))


def check_product(plan: GemmPlan, clear: str = "", margin: tuple[int, int] = (0, 0)) -> None:
    rng = np.random.default_rng(plan.op.m * 1000 + plan.op.n)
    op, (a_shape, b_shape) = plan.op, shapes(plan)
    a, b, c = numbers(rng, a_shape, op.a_dtype), numbers(rng, b_shape, op.b_dtype), numbers(rng, (op.m, op.n), op.c_dtype)
    want = product(a, b, op) + (0 if clear else c.astype(np.float64))
    extra = np.zeros(1, np.int32)
    outcome = build(product_file(plan, clear, margin)).run("product", {"A": a, "B": b, "C": c, "extra": extra}, Mode(seed=7))
    assert outcome.ok, outcome.message
    assert np.array_equal(c.astype(np.float64), want)


TYPES = [
    (FLOAT16, FLOAT32), (FLOAT16, FLOAT16), (BFLOAT16, FLOAT32), (FLOAT32, FLOAT32), (INT8, INT32), (UINT8, INT32), (FLOAT8_E4M3, FLOAT32), (FLOAT8_E5M2, FLOAT32),
]  # fmt: skip


@needs_gxx
@pytest.mark.parametrize("trans", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("types", TYPES, ids=lambda t: f"{t[0]}-{t[1]}")
def test_types_and_transposes(types: tuple[DType, DType], trans: tuple[bool, bool]) -> None:
    plan = choose(GemmShape(64, 48, 64, types[0], types[0], types[1], *trans), 128, SM89)
    assert plan.kind == "mma"
    check_product(plan)


@needs_gxx
@pytest.mark.parametrize(("m", "n", "k", "threads"), [
    (16, 104, 32, 384), (16, 104, 32, 416), (288, 8, 16, 544), (48, 64, 32, 256), (16, 16, 48, 224), (192, 104, 32, 384), (32, 24, 16, 32),
    (8, 64, 32, 128), (1, 1, 1, 32), (7, 9, 3, 100), (64, 64, 20, 128), (4, 40, 33, 64), (16, 12, 16, 256),
])  # fmt: skip
@pytest.mark.parametrize("trans", [(False, False), (True, True)])
def test_extents_and_threads(m: int, n: int, k: int, threads: int, trans: tuple[bool, bool]) -> None:
    check_product(choose(GemmShape(m, n, k, FLOAT16, FLOAT16, FLOAT32, *trans), threads, SM80))


@needs_gxx
@pytest.mark.parametrize(("a", "b", "c"), [
    (FLOAT64, FLOAT64, FLOAT64), (FLOAT8_E4M3, FLOAT8_E4M3, FLOAT32), (INT8, UINT8, INT32), (FLOAT16, FLOAT16, BFLOAT16), (FLOAT16, FLOAT32, FLOAT32),
    (INT8, INT8, INT8), (BFLOAT16, BFLOAT16, FLOAT16),
])  # fmt: skip
def test_products_without_tensor_cores(a: DType, b: DType, c: DType) -> None:
    plan = choose(GemmShape(20, 24, 40 if c is not INT8 else 3, a, b, c), 96, SM80)
    assert plan.kind == "fma"
    check_product(plan)


@needs_gxx
@pytest.mark.parametrize("policy", ["square", "full_row", "full_col"])
@pytest.mark.parametrize(("a_source", "b_source"), [("register", "shared"), ("shared", "register"), ("register", "register")])
@pytest.mark.parametrize("dtype", [FLOAT16, INT8, FLOAT32, FLOAT64])
def test_operands_in_registers(policy: str, a_source: str, b_source: str, dtype: DType) -> None:
    trans = policy == "full_col", policy == "full_row"
    c = {INT8: INT32, FLOAT64: FLOAT64}.get(dtype, FLOAT32)
    check_product(choose(GemmShape(64, 32, 32, dtype, dtype, c, *trans, a_source, b_source, policy), 128, SM80))


@needs_gxx
@pytest.mark.parametrize("trans", [(False, False), (True, True)])
@pytest.mark.parametrize("margin", [(8, 0), (3, 32), (0, 16)])
def test_operands_inside_larger_tiles(trans: tuple[bool, bool], margin: tuple[int, int]) -> None:
    check_product(choose(GemmShape(64, 64, 32, FLOAT16, FLOAT16, FLOAT32, *trans), 128, SM80), margin=margin)


@needs_gxx
@pytest.mark.parametrize("margin", [(0, 1), (2, 4)])
def test_rows_that_ldmatrix_cannot_take(margin: tuple[int, int]) -> None:
    op = GemmShape(32, 32, 32, FLOAT16, FLOAT16, FLOAT32, False, True, a_aligned=False, b_aligned=False)
    check_product(choose(op, 64, SM80), margin=margin)


@needs_gxx
@pytest.mark.parametrize("dtype", [FLOAT16, FLOAT64])
def test_clear(dtype: DType) -> None:
    plan = choose(GemmShape(32, 32, 32, dtype, dtype, dtype), 64, SM80)
    check_product(plan, "1")
    check_product(plan, "thread >= 0")


@needs_gxx
@pytest.mark.parametrize("asynchrony", ["lazy", "eager", "random"])
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize(("prefetch", "known", "chunk"), [(True, True, 16), (True, False, 16), (False, False, 16), (False, True, 4), (True, False, 0)])
def test_pipelines(stages: int, prefetch: bool, known: bool, chunk: int, asynchrony: str) -> None:
    plan = choose(GemmShape(32, 32, 32, FLOAT16, FLOAT16, FLOAT32, False, True), 64, SM80)
    counts = (0, 1, 2, 5) if known else (5,)
    for steps in counts:
        rng = np.random.default_rng(steps)
        text = pipeline_file(plan, stages, steps, known, prefetch, chunk, start=0 if prefetch else 3)
        program = build(text)
        for now in (steps,) if known else (0, 1, 3, 5):
            a, b = numbers(rng, (max(1, steps), 32, 32), FLOAT16), numbers(rng, (max(1, steps), 32, 32), FLOAT16)
            c = np.full((32, 32), np.nan, np.float32)
            mode = Mode(asynchrony=asynchrony, seed=stages, shared="real")  # type: ignore[arg-type]
            outcome = program.run("product", {"A": a, "B": b, "C": c, "extra": np.full(1, now, np.int32)}, mode)
            assert outcome.ok, outcome.message
            assert np.array_equal(c, product(a[:now], b[:now], plan.op).sum(0))


@needs_gxx
@pytest.mark.parametrize("fault", ["cp_async_wait<1>", "__syncthreads();"])
def test_a_pipeline_without_its_waits_is_wrong(fault: str) -> None:
    """The checks above can fail: without the wait, or without the barrier, the emulator's answer is wrong."""
    plan = choose(GemmShape(32, 32, 32, FLOAT16, FLOAT16, FLOAT32, False, True), 64, SM80)
    good = pipeline_file(plan, 3, 6, True, True)
    assert fault in good
    program = build(good.replace("cp_async_wait<1>", "cp_async_wait<3>") if "wait" in fault else good.replace(fault, ""))
    rng = np.random.default_rng(1)
    a, b = numbers(rng, (6, 32, 32), FLOAT16), numbers(rng, (6, 32, 32), FLOAT16)
    want = product(a, b, plan.op).sum(0)
    bad = 0
    for seed in range(4):
        c = np.full((32, 32), np.nan, np.float32)
        outcome = program.run("product", {"A": a, "B": b, "C": c, "extra": np.zeros(1, np.int32)}, Mode(seed=seed))
        bad += not outcome.ok or not np.array_equal(c, want)
    assert bad


@needs_nvcc
@pytest.mark.parametrize(("shape", "threads", "trans_b", "acc", "limit"), [
    ((128, 256, 32), 256, True, FLOAT32, 240), ((128, 256, 32), 256, False, FLOAT32, 250), ((128, 256, 64), 256, False, FLOAT32, 255), ((128, 128, 32), 128, False, FLOAT16, 220),
])  # fmt: skip
def test_large_tiles_do_not_spill(tmp_path: Path, shape: tuple[int, int, int], threads: int, trans_b: bool, acc: DType, limit: int) -> None:
    plan = choose(GemmShape(*shape, FLOAT16, FLOAT16, acc, False, trans_b), threads, SM80)
    stack, spills, used = compiled(pipeline_file(plan, 3, 100, False, True), tmp_path)
    assert (stack, spills) == (0, 0)
    assert used <= limit


@needs_nvcc
@pytest.mark.parametrize("sources", [("register", "shared"), ("shared", "register"), ("shared", "shared")])
@pytest.mark.parametrize("dtype", [FLOAT16, INT8, FLOAT32, FLOAT64])
def test_nvcc_takes_it_without_a_warning(tmp_path: Path, sources: tuple[str, str], dtype: DType) -> None:
    c = {INT8: INT32, FLOAT64: FLOAT64}.get(dtype, FLOAT32)
    plan = choose(GemmShape(64, 32, 32, dtype, dtype, c, False, False, *sources), 128, SM80)
    stack, spills, _ = compiled(product_file(plan), tmp_path)
    assert plan.registers > 255 or (stack, spills) == (0, 0)


def compiled(text: str, folder: Path) -> tuple[int, int, int]:
    """Stack, spilled bytes and registers of the file's kernel by ptxas."""
    (folder / "x.cu").write_text(text)
    command = ["nvcc", "-std=c++17", "-arch=sm_80", "-cubin", "-Werror", "all-warnings", "-Xptxas", "-v", str(folder / "x.cu"), "-o", str(folder / "x.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores.*?Used (\d+) registers", done.stderr, re.S)
    assert found, done.stderr
    return int(found[1]), int(found[2]), int(found[3])
