"""Which instruction and which warps a product gets."""

from __future__ import annotations

import numpy as np
import pytest

from tilec.ir.dtypes import BFLOAT16, FLOAT8_E4M3, FLOAT16, FLOAT32, FLOAT64, INT8, INT32, UINT8, DType
from tilec.layout.fragment import same_map
from tilec.plan.gemm_plan import GemmPlan, GemmShape
from tilec.plan.instructions import choose
from tilec.targets import ALL, SM80, SM89, lookup


def half(m: int, n: int, k: int, **kw: object) -> GemmShape:
    return GemmShape(m, n, k, FLOAT16, FLOAT16, FLOAT32, **kw)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "threads", "warps"),
    [((128, 256, 32), 256, (2, 4)), ((128, 128, 32), 128, (2, 2)), ((64, 64, 64), 128, (2, 2)), ((256, 128, 32), 256, (4, 2))],
)
def test_square_warp_tiles(shape: tuple[int, int, int], threads: int, warps: tuple[int, int]) -> None:
    plan = choose(half(*shape), threads, SM80)
    assert (plan.kind, plan.instruction, plan.warps) == ("mma", "mma_m16n8k16_f16_f32", warps)
    assert plan.registers <= 255


@pytest.mark.parametrize(("policy", "warps"), [("full_row", (4, 1)), ("full_col", (1, 4)), ("square", (2, 2))])
def test_policies(policy: str, warps: tuple[int, int]) -> None:
    assert choose(half(64, 64, 32, policy=policy), 128, SM80).warps == warps


def test_an_operand_in_registers_keeps_its_warps_in_one_line() -> None:
    scores = choose(half(64, 128, 64, policy="full_row"), 128, SM80)
    values = choose(half(64, 64, 128, a_source="register"), 128, SM80)
    assert same_map(scores.c_layout, values.a_layout)
    assert choose(half(64, 64, 32, b_source="register"), 128, SM80).warps == (1, 4)


@pytest.mark.parametrize(
    ("a", "b", "c", "instruction", "k"),
    [
        (FLOAT16, FLOAT16, FLOAT16, "mma_m16n8k16_f16_f16", 16), (BFLOAT16, BFLOAT16, FLOAT32, "mma_m16n8k16_bf16_f32", 16),
        (FLOAT32, FLOAT32, FLOAT32, "mma_m16n8k8_tf32_f32", 8), (INT8, INT8, INT32, "mma_m16n8k32_s8_s32", 32),
        (UINT8, UINT8, INT32, "mma_m16n8k32_u8_s32", 32),
    ],
)  # fmt: skip
def test_instructions_by_type(a: DType, b: DType, c: DType, instruction: str, k: int) -> None:
    plan = choose(GemmShape(64, 64, 64, a, b, c), 128, SM80)
    assert (plan.instruction, plan.step) == (instruction, (16, 8, k))


@pytest.mark.parametrize(
    ("op", "threads", "word"),
    [
        (half(8, 64, 32), 128, "M = 8"), (half(64, 60, 32), 128, "N = 60"), (half(64, 64, 24), 128, "K = 24"), (half(64, 64, 32), 100, "100"),
        (GemmShape(64, 64, 32, FLOAT64, FLOAT64, FLOAT64), 128, "float64"), (GemmShape(64, 64, 32, FLOAT8_E4M3, FLOAT8_E4M3, FLOAT32), 128, "sm_80"),
        (GemmShape(64, 64, 32, FLOAT32, FLOAT32, FLOAT32, ieee=True), 128, "full precision"), (GemmShape(64, 64, 32, INT8, UINT8, INT32), 128, "int8 by uint8"),
    ],
)  # fmt: skip
def test_what_tensor_cores_cannot_do(op: GemmShape, threads: int, word: str) -> None:
    plan = choose(op, threads, SM80)
    assert plan.kind == "fma" and word in plan.reason and not plan.can_prefetch


def test_fp8_where_the_machine_has_it() -> None:
    op = GemmShape(64, 64, 32, FLOAT8_E4M3, FLOAT8_E4M3, FLOAT32)
    assert choose(op, 128, SM89).instruction == "mma_m16n8k32_e4m3_f32"


@pytest.mark.parametrize(
    ("op", "loads"),
    [
        (half(64, 64, 32), ("ldmatrix", "ldmatrix_trans")), (half(64, 64, 32, trans_a=True, trans_b=True), ("ldmatrix_trans", "ldmatrix")),
        (GemmShape(64, 64, 32, INT8, INT8, INT32), ("ldmatrix", "elementwise")),
        (GemmShape(64, 64, 32, FLOAT32, FLOAT32, FLOAT32, trans_a=True, trans_b=True), ("elementwise", "ldmatrix")),
        (half(64, 64, 32, a_source="register", b_aligned=False), ("register", "elementwise")),
    ],
)  # fmt: skip
def test_how_operands_are_loaded(op: GemmShape, loads: tuple[str, str]) -> None:
    plan = choose(op, 128, SM80)
    assert (plan.load_a, plan.load_b) == loads


COVER = [(16, 104, 384), (16, 104, 416), (288, 8, 544), (48, 64, 256), (16, 16, 224), (256, 128, 256), (192, 104, 384), (7, 9, 100), (1, 1, 32), (5, 3, 1024)]


@pytest.mark.parametrize(("m", "n", "threads"), COVER)
def test_every_element_of_c_has_an_owner(m: int, n: int, threads: int) -> None:
    plan = choose(half(m, n, 32), threads, SM80)
    owned = np.zeros((m, n), bool)
    for _, _, index in plan.c_layout.table():
        owned[index] = True
    assert owned.all()
    _check_grid(plan, m, n, threads)


def _check_grid(plan: GemmPlan, m: int, n: int, threads: int) -> None:
    """No thread owns much more than its share."""
    if plan.kind == "fma":
        assert plan.c_layout.registers <= 2 * -(-m * n // threads) + 1
    else:
        assert plan.used_warps * 32 <= threads


def test_targets() -> None:
    assert [t.name for t in ALL] == ["sm_80", "sm_86", "sm_89", "sm_90", "sm_90a"]
    assert lookup("sm_90a") is ALL[-1] and lookup("sm_75") is None
    assert SM80.blocks_that_fit(256, 236, 98304) == 1
    assert SM80.blocks_that_fit(128, 232, 49152) == 2
    assert SM80.blocks_that_fit(256, 32, 0) == 8
