"""-O3: GEMMs whose rows the copy engine cannot reach run on padded copies of their operands in the workspace."""

from __future__ import annotations

import pytest

from tests.hopper.kernels import MODES, Gemm, run
from tests.toolchain import needs_gxx
from tilec.emit.hosteval import evaluate
from tilec.emit.manifest import parse
from tilec.plan.hopper import gemm_padding


def padded_text(g: Gemm, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file of a kernel that pads operands of any size."""
    monkeypatch.setattr(gemm_padding, "LEAST", 1)
    return g.compiled(opt_level=3).cu


FORMS = [
    Gemm(bn=128, trans_b=True), Gemm(bn=256), Gemm(bm=64, bn=128, bk=32), Gemm(trans_a=True), Gemm(epilogue="bias", dtype="bfloat16", out="bfloat16"),
    Gemm(bn=128, bk=32, acc="float16", trans_b=True), Gemm(epilogue="direct"), Gemm(dtype="int8", acc="int32", out="int32", trans_b=True, bk=128),
]  # fmt: skip


@needs_gxx
@pytest.mark.parametrize("g", FORMS, ids=str)
def test_any_rows(g: Gemm, monkeypatch: pytest.MonkeyPatch) -> None:
    text = padded_text(g, monkeypatch)
    limit = 0.0 if g.out == "int32" else 1e-2 if g.acc == "float16" else 4e-3 if g.out == "bfloat16" else 1e-3
    for mode, size in zip(MODES[:3], ((135, 137, 133), (200, 136, 71), (129, 263, 72)), strict=True):
        outcome, error = run(text, g, size, mode)
        assert outcome.ok, outcome
        assert error <= limit


@needs_gxx
def test_rows_within_reach_take_no_copies_and_no_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    text = padded_text(Gemm(), monkeypatch)
    (kernel,) = parse(text)["kernels"]
    for size, copies in (((200, 136, 72), False), ((200, 136, 71), True)):
        env = {**dict(zip("MNK", size, strict=True)), "multiprocessors": 132}
        blocks = [evaluate(str(launch["variants"][-1]["grid"][0]), env) for launch in kernel["launches"]]
        assert [n > 0 for n in blocks] == [not copies, copies, copies, copies]
        assert (evaluate(kernel["workspace"], env) > 0) is copies
    outcome, error = run(text, Gemm(), (200, 136, 72), MODES[0])
    assert outcome.ok, outcome
    assert error < 1e-3


def test_small_products_and_lower_levels_need_no_workspace() -> None:
    assert parse(Gemm().compiled().cu)["kernels"][0]["workspace"] == "0"
    compiled = Gemm().compiled(opt_level=3)
    workspace = parse(compiled.cu)["kernels"][0]["workspace"]
    assert any("copied to a workspace" in r.message for r in compiled.plans[0].launches[0].variants[0].remarks)
    assert evaluate(workspace, {"M": 511, "N": 511, "K": 511}) == 0 < evaluate(workspace, {"M": 1025, "N": 1025, "K": 1025})


def test_kernels_that_read_an_operand_elsewhere_keep_it() -> None:
    text = Gemm().source().replace("T.copy(acc, C[", "T.copy(A[0, 0], acc)\n    T.copy(acc, C[")
    from tests.compiling import compile_text

    assert parse(compile_text(text, arch="sm_90a", opt_level=3).cu)["kernels"][0]["workspace"] == "0"
