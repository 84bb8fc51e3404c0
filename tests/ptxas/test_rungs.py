"""Every rung of every ladder computes what the first one does: on the emulator, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import MODES, compile_text, run_emulated
from tests.hopper.attention import Attention, error, reference
from tests.hopper.attention import run as run_attention
from tests.hopper.chains import Gradients, chains
from tests.hopper.chains import error as chain_error
from tests.hopper.chains import run as run_chain
from tests.hopper.kernels import MODES as EVERY
from tests.hopper.kernels import Gemm, run
from tests.ptxas.kit import DOUBTFUL, at, bodies
from tilec.plan.ladder import LADDERS, rung_of
from tilec.plan.plan import Variant

BIAS = Gemm(bm=128, bn=64, bk=32, trans_b=True, epilogue="bias")


def own(body: Variant) -> bool:
    """True for a body of Hopper's own, where tiles go by tensor maps as a whole."""
    return bool(body.tensor_maps) and not body.hopper


@pytest.mark.parametrize("n", range(1, len(LADDERS["product"])))
def test_products_of_hoppers_own(n: int) -> None:
    compiled = at(BIAS.source(), {("product", "gemm"): n})
    body = bodies(compiled)["gemm"]
    assert body.rung == (0 if LADDERS["product"][n].portable else n) and own(body) is not LADDERS["product"][n].portable
    assert ("thread_index_anew" in compiled.cu) is LADDERS["product"][n].anew
    assert ("if (grid_exists())" in compiled.cu) is (LADDERS["product"][n].parts > 0)
    outcome, off = run(compiled.cu, BIAS, (200, 136, 160), MODES["lazy"])
    assert outcome.ok and off < 1e-3, outcome


@pytest.mark.parametrize("n", range(1, len(LADDERS["lines"])))
def test_products_whose_operands_threads_bring(n: int) -> None:
    g, rung = Gemm(bm=128, bn=64, bk=64, dtype="int8", out="int32", acc="int32", trans_b=True, epilogue="bias"), LADDERS["lines"][n]
    compiled = at(g.source(), {("lines", "gemm__general"): n})
    body, text = bodies(compiled)["gemm__general"], compiled.cu.split("\ngemm__general(", 1)[1].split("\n}\n")[0]
    assert (body.ladder == "lines" and body.rung == n) is not rung.portable and ("wgmma_m64" in text) is not rung.portable
    assert rung.portable or ("thread_index_anew" in text and ("registers_give<80>" in text) is (rung.take[0] == 80))
    outcome, off = run(compiled.cu, g, (199, 131, 161), MODES["lazy"])  # rows off 16 bytes
    assert outcome.ok and off < 1e-3, outcome


@pytest.mark.parametrize("n", range(1, len(LADDERS["pairs"])))
def test_pairs(n: int) -> None:
    text = BIAS.source()
    compiled = at(text, {("pairs", "gemm"): n, ("pairs", "gemm__pairs"): n}, pairs="on")
    assert any(v.cluster == 2 for v in bodies(compiled).values()) is LADDERS["pairs"][n].pairs
    outcome, off = run(compiled.cu, BIAS, (264, 136, 160), MODES["lazy"])
    assert outcome.ok and off < 1e-3, outcome


@pytest.mark.parametrize("n", [n for n, r in enumerate(LADDERS["portable"]) if n and r.groups and not r.shelved])
def test_portable_bodies(n: int) -> None:
    g = Gemm(bm=64, bn=64, bk=32, epilogue="bias")
    compiled = at(g.source().replace("threads=256", "threads=128"), {("portable", "gemm"): n, ("portable", "gemm__general"): n}, "sm_80")
    body, (launch,) = bodies(compiled)["gemm__general"], compiled.plans[0].launches
    rung = rung_of({("portable", "gemm__general"): n}, "portable", "gemm__general")[1]
    assert body.rung == n and launch.threads[0] == (rung.threads or 128)
    for size in ((100, 72, 64), (65, 67, 33)):  # rows on 16 bytes, and not
        outcome, off = run(compiled.cu, g, size, MODES["lazy"])
        assert outcome.ok and off < 1e-3, outcome


@pytest.mark.parametrize("n", range(1, len(LADDERS["stream"])))
def test_streamed_tiles(n: int) -> None:
    a = Attention(dim=128, bn=64, seq=200)
    compiled = at(a.source(), {("stream", "attention"): n})
    assert own(bodies(compiled)["attention"]) is not LADDERS["stream"][n].portable
    values = a.inputs(np.random.default_rng())
    got = run_attention(a, compiled, values, MODES["lazy"])
    assert error(got["O"], a.exact(values)[0]) < 2e-3 and reference(compiled, values)["O"].shape == got["O"].shape


@pytest.mark.parametrize("what, n", [("keys", 1), ("keys", 3), ("queries", 1), ("queries", 2)])
def test_chains(what: str, n: int) -> None:
    g = Gradients(what=what, heads=1, seq=132, bm=64 if what == "keys" else 128, causal=True)
    compiled, rung = at(g.source(), {("chain", "gradients"): n}), LADDERS["chain"][n]
    whole = bodies(at(g.source(), {}))["gradients"]
    assert chains(compiled) is not rung.portable
    assert (bodies(compiled)["gradients"].threads != whole.threads) is (rung.cut > 1 or rung.portable)
    values, want = g.inputs(np.random.default_rng())
    ok, got = run_chain(compiled.cu, values, EVERY[n % 3])
    assert ok and all(chain_error(got[name], exact) < 1e-3 for name, exact in want.items())


@pytest.mark.parametrize("epilogue, arch, rows", [("copy", "sm_90a", 192), ("shared", "sm_80", 64), ("bias", "sm_80", 64), ("direct", "sm_80", 64)])
def test_blocks_cut_in_halves(epilogue: str, arch: str, rows: int) -> None:
    g = Gemm(bm=rows, bn=128, bk=32, trans_b=True, epilogue=epilogue)
    half = next(n for n, r in enumerate(LADDERS["portable"]) if r.cut == 2)
    whole, compiled = at(g.source(), {}, arch), at(g.source(), {("portable", "gemm__general"): half}, arch)
    one, two = (compiled.plans[0].launches[0] for compiled in (whole, compiled))
    assert f"acc[{rows // 4}]" in compiled.cu and one.grid != two.grid
    outcome, off = run(compiled.cu, g, (100, 200, 65), MODES["eager"])
    assert outcome.ok and off < 1e-3, outcome


def test_hoppers_own_takes_halves_where_it_cannot_take_the_whole() -> None:
    half = next(n for n, r in enumerate(LADDERS["portable"]) if r.cut == 2)
    compiled = at(DOUBTFUL.replace("T.alloc_shared((256, 32)", "T.alloc_shared((256, 64)").replace("((32, 256)", "((64, 256)")
                  .replace("ko * 32", "ko * 64").replace("Pipelined(16", "Pipelined(8"), {("portable", "gemm"): half})
    assert bodies(compiled)["gemm"].tensor_maps and "wgmma_m64n256k16" in compiled.cu


def test_blocks_that_tell_keep_their_size() -> None:
    mirror = "for i, j in T.Parallel(64, 64):\n      C[by * 64 + i, bx * 64 + j] = acc[63 - i, 63 - j]"
    text = DOUBTFUL.replace("256", "64").replace("T.copy(acc, C[by * 64, bx * 64])", mirror)
    half = next(n for n, r in enumerate(LADDERS["portable"]) if r.cut == 2)
    first, same = at(text, {}, "sm_80"), at(text, {("portable", "gemm"): half}, "sm_80")
    assert first.plans[0].launches[0].grid == same.plans[0].launches[0].grid


@pytest.mark.parametrize("line", ["C[0, 0] = T.get_thread_binding()", "T.sync_warp()", 'T.print("x")', "T.atomic_add(C[0, 0], 1)"])
def test_threads_that_the_source_can_tell_stay(line: str) -> None:
    text = DOUBTFUL.replace("256", "64").replace("threads=64", "threads=128") + f"    {line}\n"
    n = next(n for n, r in enumerate(LADDERS["portable"]) if r.threads == 256)
    assert at(text, {("portable", "gemm"): n}, "sm_80").plans[0].launches[0].threads[0] == 128
    free = text.rsplit("\n", 2)[0] + "\n"
    assert at(free, {("portable", "gemm"): n}, "sm_80").plans[0].launches[0].threads[0] == 256


def test_the_bound_on_blocks_goes_first() -> None:
    text = DOUBTFUL.replace("256", "64").replace("threads=64", "threads=128")
    text = text.replace("    T.clear", "    T.annotate_min_blocks_per_sm(8)\n    T.clear")
    first, second, third = (at(text, {("portable", "gemm"): n}, "sm_80") for n in (0, 1, 2))
    assert "__launch_bounds__(128, 8)" in first.cu and "__launch_bounds__(128)" in second.cu and "__launch_bounds__(128, 1)" in third.cu
    assert bodies(first)["gemm"].below == 1 and bodies(second)["gemm"].strain < bodies(first)["gemm"].strain
    rng = np.random.default_rng()
    a, b = (rng.standard_normal((512, 512)).astype(np.float16) for _ in range(2))
    got = run_emulated(second, {"A": a, "B": b, "C": np.full((512, 512), np.nan, np.float32)})["C"]
    true = a.astype(np.float64) @ b.astype(np.float64)
    assert np.linalg.norm(got - true) < 1e-4 * np.linalg.norm(true)


def test_every_rung_says_why() -> None:
    for name, rungs in LADDERS.items():
        assert len({r.name for r in rungs}) == len(rungs)
        assert all(r.why for r in rungs[1:]), name
    assert compile_text(DOUBTFUL.replace("256", "64"), ptxas="never").plans[0].asked == ()
