"""Hopper's GEMM path on the emulator: tails in every dimension, all layouts and types, several tiles a block, every asynchrony."""

from __future__ import annotations

import pytest

from tests.hopper.kernels import Gemm, run, takes_hopper
from tests.toolchain import needs_gxx
from tilec import emulator

pytestmark = needs_gxx

MODES = {
    "lazy": emulator.Mode("lazy", "apart", 1),
    "eager": emulator.Mode("eager", "real", 2),
    "random": emulator.Mode("random", "real", 3),
}
LIMITS = {"float16": 1e-3, "bfloat16": 4e-3, "float32": 1e-3, "int32": 0.0}

TAILS = [(128, 64, 64), (1, 8, 8), (129, 72, 72), (264, 136, 200), (130, 264, 520), (511, 64, 24), (640, 192, 64)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", TAILS, ids=str)
@pytest.mark.parametrize("nk", [False, True], ids=["kn", "nk"])
def test_tails(size: tuple[int, int, int], nk: bool, mode: str) -> None:
    g = Gemm(trans_b=nk)
    compiled = g.compiled()
    assert takes_hopper(compiled)
    outcome, error = run(compiled.cu, g, size, MODES[mode])
    assert outcome.ok, outcome
    assert error < 1e-3


FORMS = [
    Gemm(bm=64), Gemm(bm=192), Gemm(bm=256, bn=128), Gemm(bn=96, trans_b=True), Gemm(bn=160), Gemm(bn=256), Gemm(bn=48), Gemm(bn=24, trans_b=True),
    Gemm(bk=32), Gemm(bk=32, trans_b=True), Gemm(bk=16, trans_a=True), Gemm(bk=128, trans_b=True), Gemm(bk=128), Gemm(stages=0), Gemm(stages=6),
    Gemm(trans_a=True), Gemm(trans_a=True, trans_b=True, bm=256), Gemm(dtype="bfloat16", out="bfloat16"), Gemm(out="float32"),
    Gemm(acc="float16", trans_b=True), Gemm(acc="float16", bm=256, bn=128), Gemm(dtype="float32", out="float32", trans_b=True, bk=32),
    Gemm(dtype="int8", acc="int32", out="int32", trans_b=True, bk=128), Gemm(dtype="float8_e4m3", trans_b=True, bk=128),
    Gemm(dtype="float8_e5m2", trans_b=True, bk=64), Gemm(epilogue="shared"), Gemm(epilogue="bias"), Gemm(epilogue="direct"),
    Gemm(epilogue="mirror"), Gemm(start="clear_accum"), Gemm(start="T.fill(acc, 0)"), Gemm(batch=3), Gemm(batch=2, trans_b=True, bk=32),
    Gemm(epilogue="bias", bm=256, bn=64, dtype="bfloat16", out="bfloat16"), Gemm(epilogue="mirror", out="float32", trans_b=True),
]  # fmt: skip


@pytest.mark.parametrize("g", FORMS, ids=str)
def test_forms(g: Gemm) -> None:
    compiled = g.compiled()
    assert takes_hopper(compiled), [d.message for d in compiled.diagnostics]
    limit = 5e-3 if g.acc == "float16" else LIMITS[g.out]
    for mode, size in (("lazy", (200, 208, 176)), ("random", (72, 528, 80))):
        outcome, error = run(compiled.cu, g, size, MODES[mode])
        assert outcome.ok, outcome
        assert error <= limit


@pytest.mark.parametrize("size", [(200, 136, 71), (200, 135, 72), (70, 33, 31), (200, 136, 0), (0, 64, 64), (64, 0, 64)], ids=str)
def test_what_the_copy_engine_cannot_reach_goes_the_general_way(size: tuple[int, int, int]) -> None:
    g = Gemm()
    compiled = g.compiled()
    assert takes_hopper(compiled)
    outcome, error = run(compiled.cu, g, size, MODES["lazy"])
    assert outcome.ok, outcome
    assert error < 1e-3


@pytest.mark.parametrize("trips", [1, 2, 3, 4, 5, 8])
def test_fewer_and_more_steps_than_stages(trips: int) -> None:
    g = Gemm(bk=64, bn=128, trans_b=True)
    compiled = g.compiled()
    for mode in MODES.values():
        outcome, error = run(compiled.cu, g, (140, 136, trips * 64 - 8), mode)
        assert outcome.ok, outcome
        assert error < 1e-3


def test_fixed_sizes_and_unaligned_pointers() -> None:
    g = Gemm(sizes=(200, 136, 80))
    compiled = g.compiled()
    assert takes_hopper(compiled)
    outcome, error = run(compiled.cu, g, (200, 136, 80), MODES["lazy"])
    assert outcome.ok and error < 1e-3, outcome
    g = Gemm()
    outcome, error = run(g.compiled().cu, g, (200, 136, 80), emulator.Mode("lazy", "apart", 1, alignment=2))
    assert outcome.ok and error < 1e-3, outcome


def test_repeats_are_equal_bit_for_bit() -> None:
    import numpy as np

    from tests.hopper.kernels import operands

    g = Gemm(trans_b=True)
    program = emulator.build(g.compiled().cu)
    v = operands(g, (200, 136, 200), np.random.default_rng())
    results = []
    for mode in MODES.values():
        mine = {n: a.copy() for n, a in v.items()}
        assert program.run("gemm_launch", mine, mode).ok
        results.append(mine["C"])
    assert all(np.array_equal(r, results[0]) for r in results)


JOINED = [
    Gemm(bn=128, bk=32, acc="float16"), Gemm(bn=128, trans_b=True), Gemm(bn=128, epilogue="bias"), Gemm(bn=128, epilogue="direct"),
    Gemm(bn=128, epilogue="shared"), Gemm(bn=128, batch=2),
]  # fmt: skip


@pytest.mark.parametrize("g", JOINED, ids=str)
def test_o3_joins_two_blocks_where_nothing_can_tell(g: Gemm) -> None:
    compiled = g.compiled(opt_level=3)
    assert "wgmma_m64n256k16" in compiled.cu and "n128k16" not in compiled.cu
    for mode, size in (("lazy", (200, 208, 176)), ("eager", (130, 648, 40))):
        outcome, error = run(compiled.cu, g, size, MODES[mode])
        assert outcome.ok, outcome
        assert error < (5e-3 if g.acc == "float16" else 1e-3)


def test_o3_keeps_blocks_whose_epilogue_mixes_columns() -> None:
    compiled = Gemm(bn=128, epilogue="mirror").compiled(opt_level=3)
    assert "wgmma_m64n128k16" in compiled.cu and "n256k16" not in compiled.cu
    assert "wgmma_m64n128k16" in Gemm(bn=128).compiled().cu


@pytest.mark.parametrize("sizes", [None, (256, 256, 256)], ids=str)
def test_short_steps_go_together(sizes: tuple[int, int, int] | None) -> None:
    text = Gemm(bn=128, bk=32, acc="float16", trans_b=True, sizes=sizes).compiled().cu
    assert "2 of the author's" in text and "_map, full + stage, ko * 32" in text and "ko += 2" in text


@pytest.mark.parametrize("g", [Gemm(bm=256, bn=192, trans_b=True), Gemm(bm=256, bn=192, epilogue="shared", out="float32"), Gemm(bn=256)], ids=str)
def test_the_general_body_of_large_tiles(g: Gemm) -> None:
    for size in ((300, 213, 71), (120, 200, 65)):
        outcome, error = run(g.compiled().cu, g, size, MODES["lazy"])
        assert outcome.ok, outcome
        assert error < 1e-3


def test_o1_takes_the_author_literally() -> None:
    assert not takes_hopper(Gemm().compiled(opt_level=1))
