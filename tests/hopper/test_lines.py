"""GEMMs on Hopper whose rows start anywhere: right in every layout and type, nothing read outside of a tensor, no registers spilled."""

from __future__ import annotations

import pytest

from tests.hopper.kernels import Gemm, run
from tests.hopper.test_gemm import FORMS, LIMITS, MODES
from tests.toolchain import needs_gxx
from tilec import emulator
from tilec.plan.walk import specialised

pytestmark = needs_gxx


@pytest.mark.parametrize("g", FORMS, ids=str)
def test_rows_of_odd_lengths(g: Gemm) -> None:
    compiled = g.compiled()
    assert specialised(compiled.plans[0].launches[0].variants[-1]) is (g.bm != 192)  # three warp groups leave producers too few registers
    limit = 5e-3 if g.acc == "float16" else LIMITS[g.out]
    for mode, size in (("lazy", (201, 209, 175)), ("random", (71, 131, 77))):
        outcome, error = run(compiled.cu, g, size, MODES[mode])
        assert outcome.ok, outcome
        assert error <= limit


@pytest.mark.parametrize("alignment", [2, 4, 8])
@pytest.mark.parametrize("trans_b", [False, True])
def test_tensors_that_start_anywhere(alignment: int, trans_b: bool) -> None:
    g = Gemm(trans_b=trans_b)
    for mode, size in (("lazy", (129, 65, 129)), ("eager", (1, 3, 5)), ("random", (130, 64, 200))):
        outcome, error = run(g.compiled().cu, g, size, emulator.Mode(mode, "apart", 1, alignment=alignment))
        assert outcome.ok and error < 1e-3, outcome


@pytest.mark.parametrize("k", [45, 129])
@pytest.mark.parametrize("trans_b", [False, True])
def test_sizes_known_when_written(k: int, trans_b: bool) -> None:
    """A loop of one step or two: what copies reach beyond its last step is no constant that they share with it."""
    g = Gemm(trans_b=trans_b, acc="float16", sizes=(130, 70, k))
    outcome, error = run(g.compiled().cu, g, (130, 70, k), MODES["lazy"])
    assert outcome.ok and error < 5e-3, outcome
