"""Rungs of kernels written by hand: they compute what the first one does, and deal registers so that they add up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.compiling import compile_text
from tests.hopper.by_hand import Hand, difference, emulate
from tests.ptxas.kit import StandIn, at, bodies, codes
from tests.toolchain import needs_gxx
from tilec import emulator
from tilec.plan.ladder import LADDERS
from tilec.targets import SM90A

RUNGS = range(1, len(LADDERS["by hand"]))


def asked(numbers: dict[int, tuple[int, int]], groups: int = 2) -> str:
    """A product whose producer (team 2) and consumers ask for registers: (number, whether they take)."""
    text = Hand(groups=groups).source()
    for team, (count, takes) in numbers.items():
        head = f"with T.ws({team}):\n" if team == groups else f"with T.ws({', '.join(map(str, range(groups)))}):\n"
        assert head in text
        text = text.replace(head, f"{head}            T.set_max_nreg({count}, {takes})\n")
    return text


def registers(text: str, symbol: str = "gemm") -> list[tuple[str, int]]:
    """What the warp groups of a body give and take."""
    body = text.split(f"\n{symbol}(", 1)[1].split("\n}\n")[0]
    return [(kind, int(n)) for kind, n in re.findall(r"registers_(give|take)<(\d+)>", body)]


@needs_gxx
@pytest.mark.parametrize("symbol", ["gemm", "gemm__general"])
@pytest.mark.parametrize("n", RUNGS)
def test_every_rung_is_right(n: int, symbol: str) -> None:
    kernel, rung = Hand(), LADDERS["by hand"][n]
    compiled = at(asked({2: (24, 0), 0: (232, 1)}), {("by hand", symbol): n})
    products = symbol == "gemm" or rung.keeps
    assert bodies(compiled)[symbol].rung == n
    assert ("wgmma_descriptor_anew(" in compiled.cu.split(f"\n{symbol}(", 1)[1].split("\n}\n")[0]) is (rung.anew and products)
    if products:
        assert sorted(registers(compiled.cu, symbol)) == ([("give", 24), ("take", 240)] if rung.deals else [("give", 24), ("take", 232)])
    values = kernel.inputs()
    outcome, got = emulate(compiled.cu, "gemm", values, emulator.Mode("random", "real", 9, alignment=2 if "general" in symbol else 16))
    assert outcome.ok and difference(got["C"], kernel.wanted(values)) < 1e-3, outcome.message


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({2: (40, 0), 0: (200, 1)}, [("give", 40), ("take", 232)]),  # 64 were left over
        ({2: (24, 0), 0: (240, 1)}, [("give", 40), ("take", 232)]),  # none were: who takes gives 8 each
        ({2: (160, 0), 0: (168, 1)}, [("give", 160), ("take", 168)]),  # less than they start with cannot be taken
        ({2: (24, 0)}, [("give", 24)]),  # not every group says how many it wants
        ({0: (240, 1)}, [("take", 240)]),
        ({2: (80, 0), 0: (240, 1)}, [("give", 80), ("take", 240)]),  # more than there are
    ],
)  # fmt: skip
def test_registers_are_dealt_so_that_they_add_up(given: dict[int, tuple[int, int]], wanted: list[tuple[str, int]]) -> None:
    n = next(n for n, r in enumerate(LADDERS["by hand"]) if r.deals)
    got = sorted(registers(at(asked(given), {("by hand", "gemm"): n}).cu))
    assert got == wanted
    if len(given) == 2 and wanted != sorted((("give", "take")[t], c) for c, t in given.values()):
        assert sum(count * (2 if kind == "take" else 1) for kind, count in got) <= 3 * SM90A.registers_for(384)


def test_they_are_dealt_anew_where_the_author_leaves_too_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    StandIn(tmp_path, monkeypatch, "def spilled(name, text): return 0 if 'registers_take<232>' in text else 16")
    compiled = compile_text(asked({2: (40, 0), 0: (200, 1)}), arch="sm_90a", ptxas="always")
    assert LADDERS["by hand"][bodies(compiled)["gemm"].rung].name == "registers dealt anew" and not codes(compiled)


def test_descriptors_are_made_anew_where_they_wait_in_registers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    StandIn(tmp_path, monkeypatch, "def spilled(name, text): return 0 if 'descriptor_anew(' in text or 'wgmma' not in text else 632")
    compiled = compile_text(Hand().source(), arch="sm_90a", ptxas="always")
    assert LADDERS["by hand"][bodies(compiled)["gemm"].rung].name == "descriptors anew" and not codes(compiled)
