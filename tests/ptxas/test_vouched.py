"""What the rules vouch for body by body: kinds that a sweep found to spill although they were vouched for, and how it counts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import spills
from benchmarks.spill_cases import SAMPLES, Case, gemm
from tests.hopper.attention import Attention
from tests.hopper.chains import Gradients
from tests.ptxas.kit import StandIn, at, bodies
from tests.toolchain import needs_nvcc
from tilec.plan.ladder import LADDERS

CHAIN = Case("backward", Gradients(dim=128, bm=64, bn=64, seq=1024).source())
MLP = {"tokens": 4096, "hidden": 1024, "model": 256, "block_m": 64, "block_h": 64, "threads": 256}
QUERIES = {"batch": 2, "heads": 4, "seq": 1024, "dim": 256, "block_m": 64, "block_n": 128, "threads": 256}


def attention(dim: int, bm: int, bn: int, mask: str) -> Case:
    return Case("attention", Attention(dim=dim, bm=bm, bn=bn, seq=4096, mask=mask).source())


def product(kind: str, m: int, n: int, epilogue: str, threads: int, arch: str = "sm_90a", k: int = 32, opt: int = 2) -> Case:
    return Case("gemm", gemm(kind, (m, n, k), epilogue, 2, threads), arch, opt)


def sample(name: str, kernel: str, **defines: int) -> Case:
    return Case(name.split("/")[0], (SAMPLES / name).read_text(), "sm_90a", 2, defines, kernel)


SPILLS = {  # case, body, its rung by name; behind it what ptxas 13.0 says of it
    "a chain that leaves 24 registers": (CHAIN, "gradients", ""),  # 56 bytes, C7512
    "the held tile among those of a stream, two consumers": (attention(256, 128, 32, "causal"), "attention", ""),  # 48 bytes, C7512
    "the held tile among those of a stream, three": (attention(192, 192, 32, "tail"), "attention", ""),  # 32 bytes, C7512
    "threads that bring operands and read a tensor": (product("fp16", 256, 96, "residual", 128), "gemm__general", ""),  # 8 to 68 bytes
    "threads that bring operands and write two": (product("int8", 128, 256, "two", 256, k=64), "gemm__general", ""),  # 4 bytes
    "copies of a step through registers": (sample("moe/fused_mlp.py", "", **MLP), "fused_mlp", ""),  # 16 bytes
    "such copies that nvcc writes out": (sample("attention/backward.py", "query_gradients", **QUERIES), "query_gradients", ""),  # 4 bytes
    "32-bit operands, and loops that read": (product("tf32", 256, 128, "scale", 256, "sm_80"), "gemm", ""),  # 160 bytes
    "results of 16 bits, and loops that read": (product("half", 128, 192, "residual", 128, "sm_80"), "gemm__general", ""),  # 356 bytes
    "words one by one from padded rows": (product("tf32", 96, 192, "bias", 256, opt=3), "gemm__4", ""),  # 740 to 3008 bytes
    "16 iterations whose loads go together": (product("fp16", 256, 192, "residual", 256), "gemm", "loads of results in parts"),  # 24 bytes
    "one by one, and loops that read": (product("int8", 192, 192, "residual", 256, "sm_80", 64), "gemm", "steps one by one"),  # 40 bytes
    "one by one, and loops": (product("tf32", 160, 256, "two", 256, "sm_80"), "gemm", "steps one by one"),  # 44 bytes
    "one by one": (product("e4m3", 160, 160, "shared", 128, k=128), "gemm", "steps one by one"),  # 92 bytes
}  # fmt: skip


@pytest.mark.parametrize("name", SPILLS)
def test_the_rules_vouch_for_no_body_that_spills(name: str) -> None:
    c, symbol, rung = SPILLS[name]
    options = {"defines": c.defines, "kernels": (c.kernel,) if c.kernel else (), "opt_level": c.opt}
    first = bodies(at(c.text, {}, c.arch, **options))[symbol]
    if rung:
        number = next(n for n, r in enumerate(LADDERS[first.ladder]) if r.name == rung)
        first = bodies(at(c.text, {(first.ladder, symbol): number}, c.arch, **options))[symbol]
        assert first.rung == number
    assert first.strain > 0


@needs_nvcc
@pytest.mark.parametrize(
    "name", ["a chain that leaves 24 registers", "copies of a step through registers", "one by one, and loops that read"]
)
def test_what_they_vouch_for_instead_is_clean(name: str) -> None:
    told = spills.without_nvcc(SPILLS[name][0])["bodies"]
    assert [b for b in told.values() if b["strain"] <= 0] and not [b for b in told.values() if b["strain"] <= 0 and b["bad"]]


def test_a_hole_is_told_beside_a_body_that_is_asked_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body is counted for itself: the one behind it, in doubt, kept an earlier sweep from looking at Hopper's own."""
    StandIn(tmp_path, monkeypatch, "def spilled(name, text): return 8")
    c = product("fp16", 128, 192, "relu", 256, "sm_90a")
    told = spills.outcome(c, rules=True)
    table = spills.body_table({"case": told})
    vouched = {s for s, b in told["bodies"].items() if b["strain"] <= 0 and not b["open"]}
    assert vouched and all(f"- case: `{s}` 8 bytes spilled" in table for s in vouched)
    assert f"| {len(told['bodies'])} | {len(vouched)} | {len(vouched)} | 0 |" in table.splitlines()[-len(vouched) - 2]


def test_the_short_way_down_the_ladder_is_the_long_one() -> None:
    """The rung that the rules go to at once is one that the walk step by step comes to; those between are beyond the registers."""
    text = (SAMPLES / "products/norm_projection.py").read_text()
    args = {"X": ("bfloat16", (200, 1000)), "W": ("float32", (24, 1000))}  # whose operand in registers leaves rungs without effect
    for symbol, first in bodies(at(text, {}, args=args)).items():
        assert first.strain > 0 and first.sure != first.below, "it goes no short way: it shows nothing"
        now = bodies(at(text, {(first.ladder, symbol): first.below}, args=args))[symbol]
        while now.rung < first.sure:
            assert now.strain > 0
            now = bodies(at(text, {(first.ladder, symbol): now.below}, args=args))[symbol]
        assert now.rung == first.sure
