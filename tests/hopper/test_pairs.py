"""Blocks in pairs: which sizes take them, results with odd numbers of tiles, and seeded faults in how two blocks share a tile."""

from __future__ import annotations

import pytest

from tests.hopper.kernels import MODES, Gemm, run
from tests.toolchain import needs_gxx
from tilec.emit.hosteval import evaluate
from tilec.emit.manifest import parse

KERNEL = Gemm(bn=128, sizes=(600, 264, 840))
SIZE = (600, 264, 840)


def bodies(g: Gemm, size: tuple[int, int, int]) -> tuple[list[str], str]:
    """The bodies in a file, and the one that tensors of these sizes take."""
    (launch,) = parse(g.compiled().cu)["kernels"][0]["launches"]
    env = {"A": 0, "B": 0, "C": 0, "D": 0, **dict(zip("MNK", size, strict=True))}
    return [v["symbol"] for v in launch["variants"]], next(v["symbol"] for v in launch["variants"] if evaluate(v["when"], env))


@pytest.mark.parametrize(("g", "size", "taken"), [
    (Gemm(bn=256, trans_b=True), (4104, 4088, 4072), "gemm__pairs"),
    (Gemm(bn=256, trans_b=True), (4096, 4096, 4096), "gemm"),
    (Gemm(bn=128, trans_b=True), (128, 4096, 4072), "gemm"),  # one row of tiles has no neighbours
    (Gemm(bn=256, trans_b=True), (4096, 256, 4072), "gemm"),  # nor has one column
    (Gemm(bn=256), (4096, 4088, 4096), "gemm__pairs"),
    (Gemm(bm=256, bn=192), (4096, 192, 4072), "gemm"),  # neighbours along n, of which there are none
    (Gemm(bn=128), (2048, 2048, 2048), "gemm"),
    (Gemm(bn=128), (2048, 2048, 2047), "gemm__general"),
], ids=str)  # fmt: skip
def test_where_pairs_pay(g: Gemm, size: tuple[int, int, int], taken: str) -> None:
    names, chosen = bodies(g, size)
    assert names == ["gemm", "gemm__pairs", "gemm__general"]
    assert chosen == taken


def test_fixed_sizes_take_one_body() -> None:
    for size, paired in (((700, 264, 840), True), ((640, 256, 832), False)):
        g = Gemm(bn=128, sizes=size)
        assert bodies(g, size) == (["gemm", "gemm__general"], "gemm")
        assert ("__cluster_dims__(2, 1, 1)" in g.compiled().cu) is paired


FORMS = [
    Gemm(bn=128), Gemm(bn=256, trans_b=True), Gemm(bm=256, bn=128), Gemm(bm=256, bn=64, trans_b=True), Gemm(bm=64, bn=128), Gemm(bm=64, bn=128, trans_b=True),
    Gemm(bm=192, bn=96), Gemm(bn=128, bk=32, acc="float16"), Gemm(trans_a=True, bn=128), Gemm(bm=256, trans_a=True), Gemm(bn=128, epilogue="direct"),
    Gemm(bn=128, epilogue="mirror"), Gemm(bn=128, epilogue="bias", dtype="bfloat16", out="bfloat16"), Gemm(bn=128, dtype="int8", acc="int32", out="int32", trans_b=True, bk=128),
]  # fmt: skip


@needs_gxx
@pytest.mark.parametrize("g", FORMS, ids=str)
def test_odd_and_even_numbers_of_tiles(g: Gemm) -> None:
    limit = 0.0 if g.out == "int32" else 1e-2 if g.acc == "float16" else 4e-3 if g.out == "bfloat16" else 1e-3
    for mode, size in ((MODES[0], (2 * g.bm + 8, 2 * g.bn + 16, 208)), (MODES[2], (g.bm + 16, 3 * g.bn + 48, 80)), (MODES[1], (4 * g.bm - 16, g.bn + 16, 16))):
        assert bodies(g, size)[1] == "gemm__pairs"
        outcome, error = run(g.compiled().cu, g, size, mode)
        assert outcome.ok, outcome
        assert error <= limit


FAULTS = {
    "arrivals of one block only": ("mbarrier_init(empty + s, 4)", "mbarrier_init(empty + s, 2)"),
    "an arrival that nobody makes": ("mbarrier_init(empty + s, 4)", "mbarrier_init(empty + s, 5)"),
    "a stage released to one block": ("if (step > 0 && again-- > 0 && thread % 128 < 2)", "if (step > 0 && again-- > 0 && thread % 128 < 1)"),
    "released to the same block twice": ("mbarrier_arrive_at(empty + previous, thread % 128);\n        previous", "mbarrier_arrive_at(empty + previous, 0);\n        previous"),
    "the last stage not released": ("if (steps > 0 && again--", "if (steps > 1000 && again--"),
    "both fetch the first half": ("ko * 64 + rank * 32, 3)", "ko * 64, 3)"),
    "both halves land on one place": ("+ rank * 2048, &B_map", ", &B_map"),
    "a half for one block only": ("ko * 64 + rank * 32, 3)", "ko * 64 + rank * 32, 1 << rank)"),
    "own bytes announced only": ("mbarrier_expect(full + stage, 32768)", "mbarrier_expect(full + stage, 24576)"),
    "a whole box in the map of b": ("tensor_box[] = {64, 32}", "tensor_box[] = {64, 64}"),
    "both blocks take the same tile": ("in_panel % panel_rows) + rank", "in_panel % panel_rows)"),
    "tiles counted one by one": ("tile += gridDim.x / 2) {\n      // Pairs", "tile += gridDim.x) {\n      // Pairs"),
    "a pair too few": ("(tiles_y + 1) / 2", "tiles_y / 2"),
    "the producer does not wait at the start": ("registers_give<40>();\n    cluster_wait();", "registers_give<40>();"),
    "the consumers do not wait at the start": ("    cluster_wait();\n    for", "    for"),
    "a stage not handed back that is filled again": ("* steps - 6;", "* steps - 7;"),
    "a stage handed back when the other block has ended": ("* steps - 6;", "* steps;"),
}  # fmt: skip


@pytest.fixture(scope="module")
def text() -> str:
    return KERNEL.compiled().cu


@needs_gxx
def test_without_a_fault_it_is_right_in_every_mode(text: str) -> None:
    for mode in MODES:
        outcome, error = run(text, KERNEL, SIZE, mode)
        assert outcome.ok, outcome
        assert error < 1e-3


@needs_gxx
@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_caught(name: str, text: str) -> None:
    old, new = FAULTS[name]
    assert old in text, f"the kernel has no `{old}`"
    broken = text.replace(old, new, 1)
    for mode in MODES:
        outcome, error = run(broken, KERNEL, SIZE, mode, timeout_s=20)
        if not outcome.ok or not error < 1e-3:
            return
    pytest.fail(f"`{name}` went unnoticed")
