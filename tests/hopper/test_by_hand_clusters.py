"""Kernels whose authors order the blocks of a cluster by barriers: tiles sent with an arrival, arrivals at other blocks, multicasts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compiling import compile_text, run_emulated, run_reference
from tests.features.kit import HEAD, check, poison, refused
from tests.toolchain import needs_gxx, needs_nvcc, nvcc_compile
from tilec import emulator
from tilec.emit.explain import explain_text
from tilec.emit.manifest import manifest
from tilec.ir.read import parse
from tilec.ir.show import show
from tilec.reference import MeaningError

pytestmark = needs_gxx

SEND = """
@T.prim_func
def send(A: T.Tensor((8, 4, 32), "float32"), B: T.Tensor((8, 4, 32), "float32")):
    with T.Kernel(8, threads=64, cluster_dims=4) as pid:
        rank = T.block_rank_in_cluster()
        src = T.alloc_shared((4, 32), "float32")
        dst = T.alloc_shared((4, 32), "float32")
        bar = T.alloc_cluster_barrier([{count}])
        for i, j in T.Parallel(4, 32):
            src[i, j] = A[pid, i, j] * 2.0
        {copies}
        T.mbarrier_wait_parity(bar[0], 0)
        for i, j in T.Parallel(4, 32):
            B[pid, i, j] = dst[i, j]
"""
WHOLE = ("T.copy_cluster(src, dst, dst_block=(rank + 1) % 4, remote_barrier=bar[0])", 1)
ROWS = (
    "T.copy_cluster(src[0:2, :], dst[2:4, :], dst_block=(rank + 1) % 4, remote_barrier=bar[0])\n"
    "        T.copy_cluster(src[2:4, :], dst[0:2, :], dst_block=(rank + 1) % 4, remote_barrier=bar[0])", 2,
)  # fmt: skip
PARTS = (
    "for r in T.serial(4):\n"
    "            T.copy_cluster(src[r, 0:16], dst[r, 16:32], dst_block=(rank + 1) % 4, remote_barrier=bar[0])\n"
    "            T.copy_cluster(src[r, 16:32], dst[r, 0:16], dst_block=(rank + 1) % 4, remote_barrier=bar[0])", 8,
)  # fmt: skip


def sent(copies: tuple[str, int]) -> str:
    """The text of a kernel that sends its tile to the next block."""
    return SEND.format(copies=copies[0], count=copies[1])


@pytest.mark.parametrize("arch", ["sm_90", "sm_90a"])
@pytest.mark.parametrize("copies", [WHOLE, ROWS, PARTS], ids=("whole", "rows", "parts"))
def test_tiles_arrive_at_the_barrier_of_another_block(copies: tuple[str, int], arch: str) -> None:
    a = np.random.default_rng().standard_normal((8, 4, 32)).astype(np.float32)
    wanted = 2 * np.roll(a.reshape(2, 4, 4, 32), 1, axis=1).reshape(a.shape)
    wanted = np.roll(wanted, 2, axis=1) if copies is ROWS else np.roll(wanted, 16, axis=2) if copies is PARTS else wanted
    compiled = check(sent(copies), {"A": a, "B": poison(a.shape, a.dtype)}, {"B": wanted}, arch=arch)
    assert "of the cluster  by the copy engine, " in explain_text(compiled.plans[0])
    (kernel,) = compiled.module.kernels
    assert show(parse(show(kernel))) == show(kernel)
    for body in compiled.cu.split("__global__")[1:]:
        assert body.count("cluster_sync();") == 2  # left out by the author: in front of the first copy and at the end
        assert body.index("fence_proxy_async();") < body.index("bulk_copy_at(")


RING = """
@T.prim_func
def ring(A: T.Tensor((4, 12, 64), "int32"), B: T.Tensor((4, 12), "int32")):
    with T.Kernel(4, threads=64, cluster_dims=4) as pid:
        tx = T.get_thread_binding()
        mine = T.alloc_shared((12, 64), "int32")
        box = T.alloc_shared((2, 64), "int32")
        ready = T.alloc_cluster_barrier([1, 1])
        free = T.alloc_cluster_barrier([32, 32])
        T.copy(A[pid, 0, 0], mine)
        if tx < 32:
            for s in T.serial(12):
                T.barrier_wait(free[s % 2], (s // 2 + 1) % 2)
                T.copy_cluster(mine[s, :], box[s % 2, :], dst_block=(pid + 1) % 4, remote_barrier=ready[s % 2])
        else:
            for s in T.serial(12):
                T.barrier_wait(ready[s % 2], s // 2 % 2)
                if tx == 32:
                    B[pid, s] = box[s % 2, s]
                T.barrier_arrive(free[s % 2], (pid + 3) % 4)
"""


@pytest.mark.parametrize("arch", ["sm_90", "sm_90a"])
def test_boxes_are_used_again_once_their_sender_hears_of_it(arch: str) -> None:
    """Every block sends twelve rows to the next one, two at a time."""
    a = np.random.default_rng().integers(0, 1 << 30, (4, 12, 64)).astype(np.int32)
    wanted = np.array([[a[p - 1, s, s] for s in range(12)] for p in range(4)], np.int32)
    compiled = check(RING, {"A": a, "B": poison((4, 12), np.int32)}, {"B": wanted}, arch=arch)
    program = emulator.build(compiled.cu)
    for seed in range(6):
        values = {"A": a, "B": poison((4, 12), np.int32)}
        outcome = program.run("ring", values, emulator.Mode("random", "apart", seed))
        assert outcome.ok, outcome.message
        np.testing.assert_array_equal(values["B"], wanted)


GEMM = """
@T.prim_func
def gemm(A: T.Tensor((256, 320), "float16"), B: T.Tensor((320, 256), "float16"), C: T.Tensor((256, 256), "float32")):
    with T.Kernel(2, 2, threads=256, cluster_dims=(1, 2)) as (bx, by):
        tx = T.get_thread_binding()
        A_s = T.alloc_shared((2, 128, 64), "float16")
        B_s = T.alloc_shared((2, 64, 128), "float16")
        acc = T.alloc_fragment((128, 128), "float32")
        full = T.alloc_barrier([1, 1])
        empty = T.alloc_cluster_barrier([256, 256])
        T.cluster_sync()
        if tx < 128:
            if tx == 0:
                for k in T.serial(5):
                    T.barrier_wait(empty[k % 2], (k // 2 + 1) % 2)
                    T.tma_copy(A[by * 128, k * 64], A_s[k % 2, :, :], barrier=full[k % 2])
                    T.tma_copy(B[k * 64, bx * 128], B_s[k % 2, :, :], barrier=full[k % 2], cluster_mask=3)
                    T.barrier_arrive(full[k % 2])
        else:
            T.clear(acc)
            for k in T.serial(5):
                T.barrier_wait(full[k % 2], k // 2 % 2)
                T.gemm(A_s[k % 2, :, :], B_s[k % 2, :, :], acc)
                for r in T.serial(2):
                    T.barrier_arrive(empty[k % 2], r)
            T.copy(acc, C[by * 128, bx * 128])
"""


def matrices() -> tuple[dict[str, Any], Any]:
    """Inputs of GEMM and the exact product."""
    rng = np.random.default_rng()
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((256, 320), (320, 256)))
    return {"A": a, "B": b, "C": poison((256, 256), np.float32)}, a.astype(np.float64) @ b.astype(np.float64)


@pytest.mark.parametrize("arch", ["sm_90", "sm_90a"])
def test_one_block_loads_for_both(arch: str) -> None:
    values, exact = matrices()
    compiled = check(GEMM, values, {"C": exact}, arch=arch)
    assert ("tma_load_2d_multicast(" in compiled.cu) == (arch == "sm_90a")
    told = explain_text(compiled.plans[0])
    assert "arrive at empty[k % 2] of block r of the cluster" in told
    assert ("one block's into all of mask 0x3" in told) == (arch == "sm_90a")
    (entry,) = manifest(compiled.plans)["kernels"]
    assert all(v["cluster"] == [1, 2, 1] for v in entry["launches"][0]["variants"])


FAULTS = {
    "half of the arrivals": ("mbarrier_init(empty, 256)", "mbarrier_init(empty, 128)"),
    "arrivals at the own block only": ("mbarrier_arrive_at(empty + k_1 % 2, r_1)", "mbarrier_arrive(empty + k_1 % 2)"),
    "a load for one block only": ("k_1 * 64, 3);", "k_1 * 64, 1);"),
    "a block that does not exist": ("k_1 * 64, 3);", "k_1 * 64, 7);"),
    "nobody loads": ("cluster_rank() == 0", "cluster_rank() == 2"),
    "both load": ("if (cluster_rank() == 0) {", "{"),
    "no barrier in front": ("  cluster_sync();\n", "  __syncthreads();\n"),
    "no barrier at the end": ("  cluster_sync();\n#endif", "#endif"),
    "the wait for a free stage": ("mbarrier_wait(empty + k_1 % 2, (k_1 / 2 + 1) % 2);", ""),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_caught(fault: str) -> None:
    old, new = FAULTS[fault]
    text = compile_text(HEAD + GEMM, arch="sm_90a").cu
    body = text.index("__global__")
    assert old in text[body:]
    program = emulator.build(text[:body] + text[body:].replace(old, new, 1))
    modes = [emulator.Mode("lazy", "apart", 1), emulator.Mode("eager", "real", 2), *(emulator.Mode("random", "real", n) for n in range(3, 9))]
    values, exact = matrices()
    for mode in modes:
        mine = {n: x.copy() for n, x in values.items()}
        outcome = program.run("gemm", mine, mode, 20)
        if not outcome.ok or (mine["C"] != exact).any():
            return
    raise AssertionError("nobody noticed")


def test_the_meaning_tells_what_is_wrong() -> None:
    a = np.zeros((8, 4, 32), np.float32)
    for old, new, message in (
        ("mbarrier_wait_parity(bar[0], 0)", "mbarrier_wait_parity(bar[0], 0)\n        T.mbarrier_wait_parity(bar[0], 1)", "no thread can go on"),
        ("alloc_cluster_barrier([1])", "alloc_cluster_barrier([3])", "no thread can go on.*block 0 of the cluster"),
    ):  # fmt: skip
        text = sent(WHOLE)
        assert old in text
        compiled = compile_text(HEAD + text.replace(old, new), arch="sm_90a")
        with pytest.raises(MeaningError, match=message):
            run_reference(compiled, {"A": a, "B": a.copy()})
        with pytest.raises(AssertionError, match=r"deadlock|fault"):
            run_emulated(compiled, {"A": a, "B": a.copy()})


REFUSED = {
    "rows that are no 16 bytes": (sent(WHOLE).replace("copy_cluster(src, dst,", "copy_cluster(src[0, 0:3], dst[0, 0:3],"), "TL0406", "one piece"),
    "columns": (sent(WHOLE).replace("copy_cluster(src, dst,", "copy_cluster(src[:, 0:16], dst[:, 0:16],"), "TL0406", "one piece"),
    "another type": (sent(WHOLE).replace('dst = T.alloc_shared((4, 32), "float32")', 'dst = T.alloc_shared((4, 32), "float16")'), "TL0322", "as they are"),
    "a barrier with a mask": (
        sent(WHOLE).replace("copy_cluster(src, dst, dst_block=(rank + 1) % 4", "copy_cluster(A[0, :, :], dst, cluster_mask=3"), "TL0202", "no `remote_barrier`",
    ),
    "no barrier at all": (sent(WHOLE).replace("remote_barrier=bar[0]", "remote_barrier=src"), "TL0206", "takes a barrier"),
    "a block too far": (sent(WHOLE).replace("(rank + 1) % 4", "4"), "TL0407", "no block 4"),
    "no cluster": (sent(WHOLE).replace(", cluster_dims=4", "").replace("(rank + 1) % 4", "0"), "TL0407", "no remote barrier"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    text, code, message = REFUSED[case]
    found = refused(text, arch="sm_90a")
    assert found.code == code and message in found.message, found


@needs_nvcc
@pytest.mark.parametrize("text", [sent(PARTS), RING, GEMM], ids=("send", "ring", "gemm"))
def test_nvcc_takes_them(text: str, tmp_path: Path) -> None:
    cu = compile_text(HEAD + text, arch="sm_90a").cu
    nvcc_compile(cu, "sm_90a", tmp_path)
    assert re.search(r"__cluster_dims__\(\d, \d, 1\) __launch_bounds__\(\d+, 1\)", cu)
