"""Kernels that chain products, on the emulator: tails, masks, layouts, ways to write the same, seeded faults, and what falls back."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.clean import complaints
from tests.compiling import compile_text
from tests.hopper.chains import Array, Gradients, chains, error, run
from tests.hopper.kernels import MODES
from tests.toolchain import needs_gxx, needs_nvcc
from tilec import emulator

FORMS = [
    Gradients(), Gradients(causal=True, dim=128, heads=1, seq=260), Gradients(bn=64, causal=True, seq=132, wide=True),
    Gradients(order="bhsd", guard=False, seq=196), Gradients(dtype="bfloat16", causal=True, batch=2, heads=1, stages=3),
    Gradients(bn=128, bm=64, dim=128, heads=1, seq=64), Gradients(seq=4, causal=True),
    Gradients(what="queries"), Gradients(what="queries", causal=True, bm=128, bn=64, dim=128, heads=1, order="bhsd", seq=260),
    Gradients(what="queries", causal=True, bm=128, seq=333), Gradients(what="queries", bm=64, bn=64, dtype="bfloat16", dim=96),
]  # fmt: skip


@needs_gxx
@pytest.mark.parametrize("g", FORMS, ids=str)
def test_forms(g: Gradients) -> None:
    compiled = g.compiled()
    assert chains(compiled), [d.message for d in compiled.diagnostics]
    assert ("tma_add_4d(" in compiled.cu) == (g.what == "keys")
    for mode in (MODES[0], MODES[1 + FORMS.index(g) % 2]):
        values, want = g.inputs(np.random.default_rng())
        ok, got = run(compiled.cu, values, mode)
        assert ok
        for name, exact in want.items():
            assert error(got[name], exact) < (8e-3 if g.dtype == "bfloat16" else 1e-3), name


@needs_gxx
def test_additions_come_on_top_of_what_is_there() -> None:
    g = Gradients(seq=96)
    values, want = g.inputs(np.random.default_rng())
    before = np.random.default_rng().standard_normal(values["dQ"].shape).astype(np.float32)
    values["dQ"] = before
    ok, got = run(g.compiled().cu, values, MODES[0])
    assert ok and error(got["dQ"] - before, want["dQ"]) < 1e-3


@needs_gxx
@pytest.mark.parametrize("what", ["keys", "queries"])
def test_sizes_at_run_time(what: str) -> None:
    g = Gradients(what=what, causal=True, bm=64 if what == "keys" else 128)
    text = g.source().replace("200", "n").replace("@T.prim_func", 'n = T.dynamic("n")\n@T.prim_func')
    compiled = compile_text(text, arch="sm_90a")
    assert chains(compiled)
    for seq in (200, 333, 4):  # rows of 333 numbers take the general body
        values, want = replace(g, seq=seq).inputs(np.random.default_rng())
        ok, got = run(compiled.cu, values, MODES[0])
        assert ok and all(error(got[name], exact) < 1e-3 for name, exact in want.items())


@needs_gxx
def test_masks_are_left_out_of_whole_steps() -> None:
    text = Gradients(causal=True, seq=512).compiled().cu
    body = text[text.index("__launch_bounds__(384") :].split('extern "C"')[0]
    assert "if (x * 128 + 127 <= k * 64)" in body


@pytest.mark.parametrize(
    "extra",
    [
        "T.copy(ds_s, p16)",  # a shared tile that row statements read
        "T.gemm(ds_s, V_s, dq, transpose_A=True)",  # two products, one accumulator
    ],
)
def test_what_the_warp_groups_cannot_do_alone_goes_the_portable_way(extra: str) -> None:
    compiled = Gradients(extra=extra).compiled()
    assert not chains(compiled)
    assert any("portable path" in d.message for d in compiled.diagnostics)


def test_rows_of_numbers_that_no_tensor_map_reaches_go_the_portable_way() -> None:
    assert not chains(Gradients(seq=77).compiled())


@needs_gxx
def test_another_use_of_an_accumulator_is_no_addition_by_the_copy_engine() -> None:
    g = Gradients(extra="for i, j in T.Parallel(64, 64): dq[i, j] = dq[i, j] * 2", seq=130 + 2)
    values, want = g.inputs(np.random.default_rng())
    compiled = g.compiled()
    assert chains(compiled)
    ok, got = run(compiled.cu, values, MODES[2])
    assert ok and error(got["dQ"], 2 * want["dQ"]) < 1e-3


FAULTS = {
    "the producer does not wait for held tiles": ("mbarrier_wait(held_empty, held_phase ^ 1);", ""),
    "the producer does not wait for streamed tiles": ("mbarrier_wait(empty + stage, phase ^ 1);", ""),
    "too few bytes announced": ("mbarrier_expect(full + stage, 16896)", "mbarrier_expect(full + stage, 16880)"),
    "the consumers do not wait for a step": ("mbarrier_wait(full + stage, phase);", ""),
    "scores used before their product is done": ("wgmma_wait<1>();", ""),
    "the last products are not waited for": ("wgmma_wait<0>();", ""),
    "no fence before products": ("wgmma_fence();", ""),
    "no proxy fence": ("fence_proxy_async();", ""),
    "consumers do not meet": ("barrier_sync<4>(256);", ""),
    "one version of the exchanged tile": ("ds_s + stage * 8192", "ds_s"),
    "a product that adds to the step before": ("K_s_across, false)", "K_s_across, true)"),
    "operand a taken for k-major": ("<1, 1>(dq", "<0, 1>(dq"),
    "columns of the other consumer": ("dQ_map, staged, warp_group * 32", "dQ_map, staged, 32 - warp_group * 32"),
    "the staging area is written too early": ("bulk_wait_read<0>();", ""),
    "masks left out too early": ("+ 127 <= k", "+ 63 <= k"),
}  # fmt: skip
SEEDED = Gradients(causal=True, seq=400)


@cache
def _values() -> tuple[dict[str, Array], dict[str, Array]]:
    return SEEDED.inputs(np.random.default_rng())


@needs_gxx
@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_caught(name: str) -> None:
    old, new = FAULTS[name]
    text = SEEDED.compiled().cu
    body, end = text.index("__launch_bounds__(384"), text.index("gradients__general(", text.index("__launch_bounds__(384"))
    assert old in text[body:end], name
    broken = text[:body] + text[body:end].replace(old, new) + text[end:]
    values, want = _values()
    for mode in (*MODES[:3], *(emulator.Mode("random", "real", n) for n in range(4, 9))):
        ok, got = run(broken, values, mode, 20)
        if not ok or any(error(got[n], x) > 1e-3 for n, x in want.items()):
            return
    raise AssertionError("nobody noticed")


SAMPLES = [
    Gradients(dim=128, seq=4096, causal=True), Gradients(dim=128, seq=4096), Gradients(dim=64, seq=2048, causal=True),
    Gradients(what="queries", dim=128, bm=128, bn=64, seq=4096, causal=True), Gradients(what="queries", dim=64, bm=128, seq=1000),
]  # fmt: skip


@needs_nvcc
@pytest.mark.parametrize("g", SAMPLES, ids=str)
def test_ptxas_has_nothing_to_complain_about(g: Gradients, tmp_path: Path) -> None:
    text = g.compiled().cu
    general = text.index('extern "C" __global__', text.index("__launch_bounds__(") + 1)
    source = tmp_path / "gradients.cu"
    source.write_text(text[:general] + "\n", encoding="utf-8")  # the general body is the portable path's business
    flags = ["-std=c++17", "-gencode", "arch=compute_90a,code=sm_90a", "-Xptxas", "-v", "-cubin", "-o", str(tmp_path / "g.cubin")]
    done = subprocess.run(["nvcc", *flags, str(source)], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "stack frame" in said and complaints(said) == [], said
