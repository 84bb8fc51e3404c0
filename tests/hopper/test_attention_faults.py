"""Seeded faults in a generated kernel that streams tiles: each is caught by a report or by a wrong result in some mode."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.hopper.attention import Array, Attention, error
from tests.toolchain import needs_gxx
from tilec import emulator

pytestmark = needs_gxx

MODES = [emulator.Mode("lazy", "apart", 1), emulator.Mode("eager", "real", 2), *(emulator.Mode("random", "real", n) for n in range(3, 9))]
KERNEL = Attention(bm=192, bn=128, seq=900, heads=1, kv_heads=1)

FAULTS = {
    "the producer does not wait for the held tile": ("mbarrier_wait(Q_s_empty, Q_s_phase ^ 1);", ""),
    "the producer does not wait for a streamed tile": ("mbarrier_wait(V_s_empty + V_s_stage, V_s_phase ^ 1);", ""),
    "too few bytes announced": ("mbarrier_expect(V_s_full + V_s_stage, 16384)", "mbarrier_expect(V_s_full + V_s_stage, 16368)"),
    "the step of the other product": ("(k - 1) * 128", "k * 128"),
    "the consumers do not wait for values": ("mbarrier_wait(V_s_full + V_s_stage, V_s_phase);", ""),
    "a stage handed back twice": ("mbarrier_arrive(K_s_empty + K_s_stage);", "mbarrier_arrive(K_s_empty + K_s_stage), mbarrier_arrive(K_s_empty + K_s_stage);"),
    "skipped steps are not handed back": ("for (int skipped = k; skipped < end; ++skipped) {", "for (int skipped = k; skipped < k; ++skipped) {"),
    "scores used before their product is done": ("wgmma_wait<1>();", ""),
    "values multiplied while they are scaled": ("wgmma_wait<0>();\n        wgmma_settle<64>(scores);\n        wgmma_settle<32>(out);", "wgmma_settle<32>(out);"),
    "no fence before products": ("wgmma_fence();", ""),
    "the scores add to the step before": ("Q_s_tiles, b_2, false)", "Q_s_tiles, b_2, true)"),
    "a turn too few": ("barrier_arrive_at(warp_group == 2 ? 7 : 8 + warp_group, 256);", ""),
    "steps called clean too early": ("clean_end = ", "clean_end = 1 + "),
    "steps called dead too early": ("k < live_end;", "k < live_end - 1;"),
    "lanes do not join": ("total[r_1] += shfl_xor(total[r_1], 2);", ""),
    "no proxy fence before the store": ("fence_proxy_async();", ""),
    "operand b taken for k-major": ("_held<1>(out", "_held<0>(out"),
    "words of the next slice": ("probs) + 8,", "probs) + 4,"),
}  # fmt: skip


@cache
def _values() -> tuple[dict[str, Array], Array]:
    values = KERNEL.inputs(np.random.default_rng(), growing=True)
    return values, KERNEL.exact(values)[0]


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_caught(name: str) -> None:
    old, new = FAULTS[name]
    text = KERNEL.compiled().cu
    body = text.index("__launch_bounds__(512")
    assert old in text[body:], name
    program = emulator.build(text[:body] + text[body:].replace(old, new))
    values, exact = _values()
    for mode in MODES:
        mine = {n: x.copy() for n, x in values.items()}
        outcome = program.run("attention_launch", mine, mode, 20)
        if not outcome.ok or error(mine["O"], exact) > 1e-3:
            return
    raise AssertionError("nobody noticed")
