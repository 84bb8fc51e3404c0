"""Rows that registers do not hold: what leaves the compiler spills nothing, with nvcc's answers and by the rules alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compiling import compile_text
from tests.ptxas.kit import bodies, codes
from tests.ptxas.test_gate import clean
from tests.toolchain import needs_nvcc, nvcc_compile
from tilec.plan.plan import Registers, Variant

SAMPLES = Path(__file__).parents[2] / "samples" / "rows"


def shelved(v: Variant) -> int:
    """Elements of a thread that lie in shared memory."""
    return sum(place.shelved for place in v.placements.values() if isinstance(place, Registers))


@needs_nvcc
def test_a_row_of_all_registers_does_not_spill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    compiled = compile_text((SAMPLES / "softmax.py").read_text(), {"M": 64, "N": 65536, "dtype": "float32", "threads": 1024}, "sm_90a")
    (body,) = bodies(compiled).values()
    assert body.configuration.shelved and shelved(body) and not codes(compiled)
    clean(compiled.cu, "sm_90a")
    nvcc_compile(compiled.cu, "sm_90a", tmp_path)


@needs_nvcc
@pytest.mark.parametrize(("name", "sizes", "arch"), [
    ("layer_norm", {"M": 64, "N": 65536, "dtype": "float16", "threads": 512}, "sm_80"),
    ("rms_norm", {"M": 64, "N": 65536, "dtype": "float32", "threads": 1024, "blk_m": 2}, "sm_90a"),
])  # fmt: skip
def test_the_rules_vouch_for_it(name: str, sizes: dict[str, int | str], arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    compiled = compile_text((SAMPLES / f"{name}.py").read_text(), sizes, arch, ptxas="never")
    (body,) = bodies(compiled).values()
    assert shelved(body) and body.configuration.settles and body.strain <= 0 and not codes(compiled)
    assert body.configuration.cut == (2 if "blk_m" in sizes else 1)
    clean(compiled.cu, arch)


def test_what_no_block_holds_is_told_to_go_in_pieces() -> None:
    compiled = compile_text((SAMPLES / "softmax.py").read_text(), {"M": 64, "N": 262144, "threads": 256}, "sm_90a", ptxas="never")
    (told,) = (d for d in compiled.diagnostics if d.code == "TL0511")
    assert told.help is not None and "in pieces" in told.help and not any(shelved(v) for v in bodies(compiled).values())
