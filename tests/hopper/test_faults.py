"""Seeded faults in a generated Hopper kernel: each is caught by a report or by a wrong result in some mode."""

from __future__ import annotations

import pytest

from tests.hopper.kernels import MODES, Gemm, run
from tests.toolchain import needs_gxx

pytestmark = needs_gxx

KERNEL = Gemm(bn=128)
SIZE = (700, 320, 832)

FAULTS = {
    "too few bytes announced": ("mbarrier_expect(full + stage, 32768)", "mbarrier_expect(full + stage, 32752)"),
    "too many bytes announced": ("mbarrier_expect(full + stage, 32768)", "mbarrier_expect(full + stage, 32784)"),
    "an arrival without bytes": ("mbarrier_expect(full + stage, 32768)", "mbarrier_arrive(full + stage)"),
    "too few arrivals wanted": ("mbarrier_init(empty + s, 2)", "mbarrier_init(empty + s, 1)"),
    "too many arrivals wanted": ("mbarrier_init(empty + s, 2)", "mbarrier_init(empty + s, 3)"),
    "the producer does not wait": ("mbarrier_wait(empty + stage, phase ^ 1);", ""),
    "the producer's parity": ("mbarrier_wait(empty + stage, phase ^ 1)", "mbarrier_wait(empty + stage, phase)"),
    "the consumers do not wait": ("mbarrier_wait(full + stage, phase);", ""),
    "the consumers' parity": ("mbarrier_wait(full + stage, phase)", "mbarrier_wait(full + stage, phase ^ 1)"),
    "a stage released too early": ("mbarrier_arrive(empty + previous);\n        previous", "mbarrier_arrive(empty + stage);\n        previous"),
    "a wait too short": ("wgmma_wait<1>()", "wgmma_wait<2>()"),
    "no wait before the epilogue": ("      wgmma_wait<0>();\n", ""),
    "no fence before products": ("        wgmma_fence();\n", ""),
    "no commit": ("        wgmma_commit();\n", ""),
    "the first product adds": ("a, b, step > 0)", "a, b, true)"),
    "every step starts anew": ("a, b, step > 0)", "a, b, false)"),
    "a k-step too far in a": ("acc, a + 4, b", "acc, a + 6, b"),
    "a k-step too far in b": ("b + 256, true", "b + 128, true"),
    "operand b taken for k-major": ("wgmma_m64n128k16_f16_f32<0, 1>(acc, a, b", "wgmma_m64n128k16_f16_f32<0, 0>(acc, a, b"),
    "blocks of b too close": ("wgmma_descriptor(B_s, 8192,", "wgmma_descriptor(B_s, 4096,"),
    "rows of a too close": ("4096, 16, 1024, 1)", "4096, 16, 512, 1)"),
    "another swizzle in the descriptor": ("4096, 16, 1024, 1)", "4096, 16, 1024, 2)"),
    "both consumers take the same rows": ("wgmma_descriptor(A_s + warp_group * 4096", "wgmma_descriptor(A_s"),
    "the second block of b lands on the first": ("B_s + stage * 8192 + 4096, &B_map", "B_s + stage * 8192, &B_map"),
    "coordinates exchanged": ("full + stage, ko * 64, by * 128)", "full + stage, by * 128, ko * 64)"),
    "a box of the wrong tile": ("&A_map, full + stage", "&B_map, full + stage"),
    "no swizzle in the map of a": ("A, tensor_extents, tensor_strides, tensor_box, 3)", "A, tensor_extents, tensor_strides, tensor_box, 0)"),
    "extents exchanged": ("static_cast<unsigned long long>(K), static_cast<unsigned long long>(M)}", "static_cast<unsigned long long>(M), static_cast<unsigned long long>(K)}"),
    "no proxy fence before the store": ("            fence_proxy_async();\n", ""),
    "no barrier before the store": ("            fence_proxy_async();\n            warp_group_sync(warp_group);\n", "            fence_proxy_async();\n"),
    "a chunk overwritten before it is read": ("if (thread % 128 == 0) bulk_wait_read<1>();", ""),
    "the others do not wait for that": ("bulk_wait_read<1>();\n            warp_group_sync(warp_group);", "bulk_wait_read<1>();"),
    "no wait at the end": ("    bulk_wait_read<0>();\n", ""),
    "no commit of the store": ("              bulk_commit();\n", ""),
    "chunks not exchanged": ("^ row % 8) * 8", ") * 8"),
    "the other consumer's rows": ("by * 128 + warp_group * 64)", "by * 128 + 64 - warp_group * 64)"),
    "a register count that is no multiple of 8": ("registers_take<232>", "registers_take<236>"),
    "more registers than there are": ("registers_take<232>", "registers_take<248>"),
    "a tile is skipped": ("tile += gridDim.x) {\n      // Tiles", "tile += gridDim.x + 1) {\n      // Tiles"),
    "the ring is one stage short": ("shared_tile<half_t, 49152>(0)", "shared_tile<half_t, 40960>(0)"),
    "barriers inside the ring": ("shared_tile<unsigned long long, 6>(229376)", "shared_tile<unsigned long long, 6>(0)"),
}


def mutated(text: str, old: str, new: str) -> str:
    """The Hopper kernel with one place changed; the portable body behind it stays."""
    at = text.find("__launch_bounds__(384")
    assert at >= 0
    start = text.find(old, at) if old in text[at:] else -1
    assert start >= 0, f"the kernel has no `{old}`"
    return text[:start] + new + text[start + len(old) :]


@pytest.fixture(scope="module")
def text() -> str:
    return KERNEL.compiled().cu


def test_the_kernel_without_a_fault_is_right_in_every_mode(text: str) -> None:
    for mode in MODES:
        outcome, error = run(text, KERNEL, SIZE, mode)
        assert outcome.ok, outcome
        assert error < 1e-3


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_caught(name: str, text: str) -> None:
    broken = mutated(text, *FAULTS[name])
    for mode in MODES:
        outcome, error = run(broken, KERNEL, SIZE, mode, timeout_s=20)
        if not outcome.ok or not error < 1e-3:
            return
    pytest.fail(f"`{name}` went unnoticed")
