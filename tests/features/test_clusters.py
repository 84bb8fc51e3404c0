"""Clusters: blocks that run at once, their barrier, tiles sent to other blocks, copies that several blocks share."""

import numpy as np
import pytest

from tests.compiling import compile_text, run_reference
from tests.features.kit import HEAD, check, poison, refused
from tests.toolchain import needs_gxx, needs_nvcc, nvcc_compile
from tilec import emulator
from tilec.emit.explain import explain_text
from tilec.emit.manifest import manifest
from tilec.ir.read import parse
from tilec.ir.show import show
from tilec.reference import MeaningError

pytestmark = needs_gxx

EXCHANGE = """
@T.prim_func
def exchange(A: T.Tensor((16, 32), "{dtype}"), C: T.Tensor((16, 32), "{dtype}")):
    with T.Kernel({grid}, threads=64, cluster_dims={cluster}) as {names}:
        rank = T.block_rank_in_cluster()
        block = {block}
        mine = T.alloc_shared((2, 32), "{dtype}")
        got = T.alloc_shared((2, 32), "{dtype}")
        T.copy(A[block * 2, 0], mine)
        {before}
        T.copy_cluster(mine[0:1, :], got[1:2, :], dst_block=(rank + 1) % {size})
        T.copy_cluster(mine[1, 0:16], got[0, 16:32], dst_block=(rank + {size} - 1) % {size})
        T.copy_cluster(mine[1, 16:32], got[0, 0:16], dst_block=(rank + {size} - 1) % {size})
        {behind}
        T.copy(got, C[block * 2, 0])
"""
SYNC, SPLIT = "T.cluster_sync()", "T.cluster_arrive()\n        T.cluster_wait()"


def exchange(cluster="4", grid="8", names="b", block="b", size=4, dtype="float16", before=SYNC, behind=SYNC):
    return EXCHANGE.format(cluster=cluster, grid=grid, names=names, block=block, size=size, dtype=dtype, before=before, behind=behind)


def exchanged(a, order, size):
    """What every block gets: `order` lists the blocks of all clusters, one cluster after another."""
    out = np.empty_like(a)
    for first in range(0, len(order), size):
        ring = order[first : first + size]
        for r, b in enumerate(ring):
            left, right = ring[r - 1], ring[(r + 1) % size]
            out[2 * b + 1] = a[2 * left]
            out[2 * b] = np.concatenate([a[2 * right + 1][16:], a[2 * right + 1][:16]])
    return out


def numbers(dtype):
    return np.random.default_rng().integers(-99, 99, (16, 32)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "int64"])
def test_tiles_go_to_other_blocks(dtype):
    a = numbers(dtype)
    check(exchange(dtype=dtype), {"A": a, "C": poison(a.shape, dtype)}, {"C": exchanged(a, range(8), 4)}, arch="sm_90")


SHAPES = {
    "along y": ({"cluster": "(1, 4)", "grid": "2, 4", "names": "(bx, by)", "block": "bx * 4 + by"}, list(range(8)), 4),
    "along x and y": ({"cluster": "[2, 2, 1]", "grid": "2, 4", "names": "(bx, by)", "block": "by * 2 + bx"}, list(range(8)), 4),
    "along z": ({"cluster": "(1, 1, 2)", "grid": "2, 2, 2", "names": "(bx, by, bz)", "block": "bz * 4 + by * 2 + bx", "size": 2},
                [0, 4, 1, 5, 2, 6, 3, 7], 2),
    "all blocks": ({"cluster": "8", "size": 8}, list(range(8)), 8),
    "one block": ({"cluster": "1", "size": 1}, list(range(8)), 1),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_clusters_of_any_shape(shape):
    options, order, size = SHAPES[shape]
    a = numbers("float32")
    check(exchange(dtype="float32", **options), {"A": a, "C": poison(a.shape, a.dtype)}, {"C": exchanged(a, order, size)}, arch="sm_90")


@pytest.mark.parametrize("before", ["pass", SYNC, SPLIT])
@pytest.mark.parametrize("behind", [SYNC, SPLIT])
def test_barriers_in_halves_and_those_that_are_left_out(before, behind):
    a = numbers("float16")
    compiled = check(exchange(before=before, behind=behind), {"A": a, "C": poison(a.shape, a.dtype)}, {"C": exchanged(a, range(8), 4)}, arch="sm_90")
    body = compiled.cu[compiled.cu.index("__global__") :]
    halves = (before == SPLIT) + (behind == SPLIT)
    assert body.count("cluster_arrive();") == body.count("cluster_wait();") == halves
    assert body.count("cluster_sync();") == 2 - halves


def test_a_barrier_that_is_missing_between_is_seen():
    """Tiles that are read without waiting for the others: the meaning says so, and the emulator in whatever order it runs them."""
    a = numbers("float16")
    compiled = compile_text(HEAD + exchange(behind="pass"), arch="sm_90")
    values = {"A": a, "C": poison(a.shape, a.dtype)}
    got = run_reference(compiled, values)["C"]
    assert (got != exchanged(a, range(8), 4)).any()
    outcome = emulator.build(compiled.cu).run("exchange", dict(values), emulator.Mode(races=True))
    assert outcome.status == "race" and "`" not in outcome.message and "in a cluster: block" in outcome.message
    ordered = compile_text(HEAD + exchange(before="pass"), arch="sm_90")
    outcome = emulator.build(ordered.cu).run("exchange", dict(values), emulator.Mode(races=True))
    assert outcome.ok, outcome.message


def test_a_block_that_waits_too_little_is_told_by_the_meaning():
    for behind, message in (("T.cluster_wait()", "without having come"), ("T.cluster_arrive()\n        T.cluster_sync()", "again")):
        compiled = compile_text(HEAD + exchange(behind=behind), arch="sm_90")
        with pytest.raises(MeaningError, match=message):
            run_reference(compiled, {"A": numbers("float16"), "C": poison((16, 32), np.float16)})


MULTICAST = """
@T.prim_func
def shared(A: T.Tensor((24, 64), "float16"), C: T.Tensor((24, 64), "float16")):
    with T.Kernel(4, 3, threads=32, cluster_dims=4) as (bx, by):
        column = bx * 16
        tile = T.alloc_shared((8, 16), "float16")
        for half in T.serial(2):
            T.copy_cluster(A[by * 8 + half * 4, column], tile[half * 4:half * 4 + 4, :], cluster_mask={mask})
        T.copy(tile, C[by * 8, column])
"""


@pytest.mark.parametrize("mask", [0b1111, 0b0011, 0b0110, 0b1000, 0b1010])
def test_blocks_of_a_mask_get_what_its_lowest_block_copies(mask):
    a = np.random.default_rng().standard_normal((24, 64)).astype(np.float16)
    first = (mask & -mask).bit_length() - 1
    wanted = a.copy()
    for rank in range(4):
        if mask >> rank & 1:
            wanted[:, rank * 16 : rank * 16 + 16] = a[:, first * 16 : first * 16 + 16]
    check(MULTICAST.format(mask=mask), {"A": a, "C": poison(a.shape, a.dtype)}, {"C": wanted}, arch="sm_90a")


def test_a_swizzled_operand_of_a_product_comes_from_another_block():
    """Each block multiplies by the tile that its neighbour has loaded."""
    text = """
@T.prim_func
def product(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 128), "float16"), C: T.Tensor((64, 128), "float32")):
    with T.Kernel(2, threads=128, cluster_dims=2) as b:
        other = 1 - T.block_rank_in_cluster()
        A_s = T.alloc_shared((64, 64), "float16")
        mine = T.alloc_shared((64, 64), "float16")
        B_s = T.alloc_shared((64, 64), "float16")
        c = T.alloc_fragment((64, 64), "float32")
        T.copy(A, A_s)
        T.copy(B[0, other * 64], mine)
        T.copy_cluster(mine, B_s, dst_block=other)
        T.cluster_sync()
        T.gemm(A_s, B_s, c, clear_accum=True)
        T.copy(c, C[0, b * 64])
"""
    rng = np.random.default_rng()
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((64, 64), (64, 128)))
    for arch in ("sm_90", "sm_90a"):
        check(text, {"A": a, "B": b, "C": poison((64, 128), np.float32)}, {"C": a.astype(np.float64) @ b.astype(np.float64)}, arch=arch)


AROUND = {
    "in a pipelined loop": (
        """for s in T.Pipelined(2, num_stages=2):
            T.copy(A[b // 2 * 2 + s, 0, 0], mine)
            T.copy_cluster(mine, got, dst_block=1 - rank)
            T.cluster_sync()
            T.copy(got, C[b, 0, 0])
            T.cluster_sync()""", lambda a: a[[1, 1, 3, 3]],
    ),
    "from registers, with a cast": (
        """f = T.alloc_fragment((16, 32), "float16")
        T.copy(A[b, 0, 0], f)
        for i, j in T.Parallel(16, 32):
            f[i, j] = f[i, j] * 2
        T.copy_cluster(f, got, dst_block=1 - rank)
        T.cluster_sync()
        T.copy(got, C[b, 0, 0])""", lambda a: 2 * a[[1, 0, 3, 2]],
    ),
    "from one block only": (
        """T.copy(A[b, 0, 0], mine)
        T.clear(got)
        T.cluster_sync()
        if rank == 0:
            T.copy_cluster(mine, got, dst_block=1)
        T.cluster_sync()
        T.copy(got, C[b, 0, 0])""", lambda a: np.stack([0 * a[0], a[0], 0 * a[0], a[2]]),
    ),
    "to each block of a loop": (
        """T.copy(A[b, 0, 0], mine)
        for to in T.serial(2):
            T.copy_cluster(mine[rank * 8:rank * 8 + 8, :], got[rank * 8:rank * 8 + 8, :], dst_block=to)
        T.cluster_sync()
        T.copy(got, C[b, 0, 0])""",
        lambda a: np.repeat(np.stack([np.concatenate([a[n, :8], a[n + 1, 8:]]) for n in (0, 2)]), 2, 0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", AROUND)
def test_copies_among_other_statements(case):
    body, wanted = AROUND[case]
    text = f"""
@T.prim_func
def around(A: T.Tensor((4, 16, 32), "float16"), C: T.Tensor((4, 16, 32), "float32")):
    with T.Kernel(4, threads=64, cluster_dims=2) as b:
        rank = T.block_rank_in_cluster()
        mine = T.alloc_shared((16, 32), "float16")
        got = T.alloc_shared((16, 32), "float32")
        {body}
"""
    a = np.random.default_rng().integers(-99, 99, (4, 16, 32)).astype(np.float16)
    compiled = check(text, {"A": a, "C": poison(a.shape, np.float32)}, {"C": wanted(a.astype(np.float32))}, arch="sm_90")
    outcome = emulator.build(compiled.cu).run("around", {"A": a, "C": poison(a.shape, np.float32)}, emulator.Mode(races=True))
    assert outcome.ok, outcome.message


def test_views_of_tiles_go_to_other_blocks():
    text = """
@T.prim_func
def views(A: T.Tensor((4, 16, 32), "float16"), C: T.Tensor((4, 16, 32), "float32")):
    with T.Kernel(4, threads=64, cluster_dims=2) as b:
        mine = T.alloc_shared((16, 32), "float16")
        got = T.alloc_shared((16, 32), "float32")
        flat = T.reshape(got, (512,))
        T.copy(A[b, 0, 0], mine)
        T.copy_cluster(T.reshape(mine, (512,)), flat, dst_block=1 - T.block_rank_in_cluster())
        T.cluster_sync()
        T.copy(got, C[b, 0, 0])
"""
    a = np.random.default_rng().standard_normal((4, 16, 32)).astype(np.float16)
    check(text, {"A": a, "C": poison(a.shape, np.float32)}, {"C": a[[1, 0, 3, 2]].astype(np.float32)}, arch="sm_90")


LENGTH = """
@tilelang.jit
def lengths(A, C):
    N = T.dynamic("N")
    A: T.Tensor((N, 32), "float32")
    C: T.Tensor((N,), "float32")
    with T.Kernel({grid}, threads=32, cluster_dims=2) as b:
        mine = T.alloc_shared((4,), "float32")
        both = T.alloc_shared((2, 4), "float32")
        part = T.alloc_fragment((32,), "float32")
        total = T.alloc_fragment((1,), "float32")
        T.copy(A[b, 0], part)
        T.reduce_sum(part, total, dim=0)
        T.clear(mine)
        for i in T.Parallel(1):
            mine[i] = total[i]
        for k in T.serial(2):
            T.copy_cluster(mine, both[T.block_rank_in_cluster(), :], dst_block=k)
        T.cluster_sync()
        if b < N:
            C[b] = both[0, 0] + both[1, 0]
"""


def test_grids_that_are_known_at_the_launch():
    a = np.random.default_rng().integers(-9, 9, (6, 32)).astype(np.float32)
    wanted = a.reshape(3, 64).sum(1).repeat(2)
    compiled = check(LENGTH.format(grid="N"), {"A": a, "C": poison((6,), np.float32)}, {"C": wanted}, arch="sm_90")
    (entry,) = manifest(compiled.plans)["kernels"]
    assert entry["launches"][0]["variants"][0]["cluster"] == [2, 1, 1]
    assert [c["message"] for c in entry["checks"]] == ["blocks along x must be a whole number of clusters of 2"]
    values = {"A": a[:5], "C": poison((5,), np.float32)}
    assert emulator.build(compiled.cu).run("lengths", values).status == "launch error 1"
    with pytest.raises(MeaningError, match="whole number of clusters"):
        run_reference(compiled, values)


def test_grids_rounded_up_to_whole_clusters():
    a = np.random.default_rng().integers(-9, 9, (5, 32)).astype(np.float32)
    padded = np.concatenate([a, np.zeros((1, 32), np.float32)])
    wanted = padded.reshape(3, 64).sum(1).repeat(2)[:5]
    check(LENGTH.format(grid="T.ceildiv(N, 2) * 2"), {"A": a, "C": poison((5,), np.float32)}, {"C": wanted}, arch="sm_90")


def test_the_rank_is_0_without_clusters():
    text = """
@T.prim_func
def ranks(C: T.Tensor((4,), "int32")):
    with T.Kernel(4, threads=32) as b:
        T.cluster_sync()
        C[b] = T.block_rank_in_cluster() + 7
"""
    check(text, {"C": poison((4,), np.int32)}, {"C": np.full(4, 7)}, arch="sm_80")


REFUSED = {
    "8 of them at most": (exchange(cluster="16", grid="16"), "TL0407", "1 to 8 blocks"),
    "no fraction of a cluster": (exchange(grid="6"), "TL0407", "whole number of clusters of 4"),
    "an axis that the grid lacks": (exchange(cluster="(1, 4)"), "TL0407", "1 block along y"),
    "four counts": (exchange(cluster="(1, 1, 1, 1)"), "TL0407", "one to three counts"),
    "a block that is not there": (exchange().replace("(rank + 1) % 4", "4"), "TL0407", "no block 4 in a cluster of 4"),
    "no destination": (exchange().replace(", dst_block=(rank + 1) % 4", ""), "TL0203", "either `dst_block` or `cluster_mask`"),
    "both": (exchange().replace("(rank + 1) % 4", "0, cluster_mask=3"), "TL0203", "either `dst_block` or `cluster_mask`"),
    "a tensor sent": (exchange().replace("copy_cluster(mine[0:1, :]", "copy_cluster(A[0:1, :]"), "TL0322", "what T.copy_cluster sends"),
    "to a tensor": (exchange().replace("got[1:2, :], dst", "C[1:2, :], dst"), "TL0322", "the destination of T.copy_cluster"),
    "a mask too wide": (MULTICAST.format(mask=16), "TL0407", "names blocks that a cluster of 4 does not have"),
    "an empty mask": (MULTICAST.format(mask=0), "TL0407", "0x0"),
    "an index that a block keeps to itself": (
        MULTICAST.format(mask=3).replace("column = bx * 16", 'column = T.alloc_var("int32")\n        column = bx * 16'), "TL0407",
        "must follow from block indices",
    ),
    "inside T.Parallel": (exchange(behind="for i in T.Parallel(4):\n            T.cluster_sync()"), "TL0205", "T.Parallel"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case):
    text, code, message = REFUSED[case]
    found = refused(text, arch="sm_90")
    assert found.code == code and message in found.message


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89"])
def test_older_targets_have_none(arch):
    found = refused(exchange(), arch=arch)
    assert found.code == "TL0407" and f"{arch} has none" in found.message and "sm_90" in found.help
    assert found.labels and "wait for each other here" in found.labels[0].text


def test_plan_and_text_say_so():
    compiled = compile_text(HEAD + exchange(), arch="sm_90")
    (plan,) = compiled.plans
    text = explain_text(plan)
    assert "4 x 1 x 1 blocks make a cluster" in text and "cluster barrier (written by the author)" in text
    (kernel,) = compiled.module.kernels
    assert show(parse(show(kernel))) == show(kernel) and "cluster (4, 1, 1)" in show(kernel) and " peer " in show(kernel)


@needs_nvcc
def test_nvcc_takes_them(tmp_path):
    for number, text in enumerate((exchange(behind=SPLIT), MULTICAST.format(mask=3), LENGTH.format(grid="N"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        nvcc_compile(compile_text(HEAD + text, arch="sm_90").cu, "sm_90", folder)
