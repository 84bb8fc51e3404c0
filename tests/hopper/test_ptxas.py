"""What ptxas says of Hopper kernels: no serialised product, no ignored register hand-over, no spill, no stack, in any body."""

from __future__ import annotations

import pytest

from tests.clean import assert_clean
from tests.hopper.kernels import Gemm, takes_hopper
from tests.toolchain import needs_nvcc, needs_nvrtc, nvrtc_compile

SAMPLES = [
    Gemm(bn=256, bk=64), Gemm(bn=256, trans_b=True), Gemm(bm=256, bn=192, trans_b=True), Gemm(bm=256, bn=192), Gemm(bm=64, bn=128),
    Gemm(bm=64, bn=128, trans_b=True), Gemm(bm=192, bn=160, trans_b=True), Gemm(bm=256, bn=128, trans_b=True), Gemm(bn=192), Gemm(trans_b=True),
    Gemm(bn=256, epilogue="bias", dtype="bfloat16", out="bfloat16"), Gemm(bn=128, bk=32, acc="float16"), Gemm(bn=128, out="float32", epilogue="mirror"),
    Gemm(bm=256, bn=256, acc="float16", trans_b=True), Gemm(bn=128, bk=32, acc="float16", trans_b=True),
    Gemm(bn=256, dtype="float8_e4m3", trans_b=True, bk=128),
    Gemm(bm=256, bn=128, dtype="float8_e5m2", trans_b=True, bk=64), Gemm(dtype="int8", acc="int32", out="int32", trans_b=True, bk=128, bn=128), Gemm(batch=3),
    Gemm(bn=256, dtype="float32", out="float32", trans_b=True, bk=32), Gemm(bn=256, sizes=(4104, 4088, 4072)),
]  # fmt: skip


@needs_nvcc
@pytest.mark.parametrize("g", SAMPLES, ids=str)
def test_ptxas_has_nothing_to_complain_about(g: Gemm) -> None:
    assert_clean(g.compiled(), "sm_90a")


@needs_nvcc
@pytest.mark.parametrize("g", [Gemm(bn=256, trans_b=True), Gemm(bm=256, bn=192), Gemm(bn=128, bk=32, acc="float16")], ids=str)
def test_nor_about_padded_copies(g: Gemm) -> None:
    assert_clean(g.compiled(opt_level=3), "sm_90a")


def test_a_tile_that_only_hopper_keeps_in_registers() -> None:
    """A tile of results that does not fit beside the operands': Hopper's body has none, and the general one writes around it."""
    compiled = Gemm(bm=256, bn=192, epilogue="shared", out="float32").compiled()
    assert takes_hopper(compiled)
    assert [v.symbol for v in compiled.plans[0].launches[0].variants] == ["gemm", "gemm__pairs", "gemm__general"]


@needs_nvrtc
def test_nvrtc_takes_the_same_file() -> None:
    ptx = nvrtc_compile(Gemm(bn=256).compiled().cu, "sm_90a")
    assert ptx.count("wgmma.mma_async") == 12 and all(f".entry {name}(" in ptx for name in ("gemm", "gemm__pairs", "gemm__general"))
