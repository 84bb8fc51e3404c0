"""Several launches in one function, and scratch memory between them."""

import numpy as np

from tests.compiling import compile_text
from tests.features.kit import HEAD, check, poison, refused

SPLIT = """
@T.prim_func
def split_sum(A: T.Tensor((M, 128), "float32"), C: T.Tensor((M,), "float32")):
    partial = T.alloc_global((4, M), "float32")
    count = T.alloc_global((4,), "int32")
    with T.Kernel(4, T.ceildiv(M, 32), threads=64) as (k, by):
        tile = T.alloc_fragment((32, 32), "float32")
        total = T.alloc_fragment((32,), "float32")
        T.copy(A[by * 32:(by + 1) * 32, k * 32:(k + 1) * 32], tile)
        T.reduce_sum(tile, total, dim=1)
        T.copy(total, partial[k, by * 32:(by + 1) * 32])
        if by == 0:
            count[k] = k + 1
    with T.Kernel(T.ceildiv(M, 64), threads=64) as b:
        for i in T.Parallel(64):
            row = b * 64 + i
            if row < M:
                C[row] = (partial[0, row] + partial[1, row]) + (partial[2, row] + partial[3, row]) + T.cast(count[3], "float32")
"""


def test_scratch_memory_carries_values_from_one_launch_to_the_next():
    a = np.random.default_rng().standard_normal((70, 128)).astype(np.float32)
    wanted = a.astype(np.float64).sum(1) + 4
    done = check("M = 70\n" + SPLIT, {"A": a, "C": poison((70,), np.float32)}, {"C": wanted}, 1e-5)
    (plan,) = done.plans
    assert [v.symbol for g in plan.launches for v in g.variants][-2:] != []
    assert "split_sum_workspace" in done.cu


def test_scratch_of_run_time_size_lies_behind_other_scratch():
    a = np.random.default_rng().standard_normal((70, 128)).astype(np.float32)
    wanted = a.astype(np.float64).sum(1) + 4
    done = check("M = T.dynamic('M')\n" + SPLIT, {"A": a, "C": poison((70,), np.float32)}, {"C": wanted}, 1e-5)
    from tilec.emit.manifest import parse
    from tilec.emit.hosteval import evaluate

    (kernel,) = parse(done.cu)["kernels"]
    assert evaluate(kernel["workspace"], {"M": 70}) == -(-4 * 70 * 4 // 256) * 256 + 256


def test_launches_are_ordered_and_empty_grids_are_skipped():
    text = """
n = T.dynamic("n")
@T.prim_func
def steps(A: T.Tensor((n,), "int32")):
    with T.Kernel(T.ceildiv(n, 32), threads=32) as b:
        for i in T.Parallel(32):
            A[b * 32 + i] = A[b * 32 + i] * 3
    with T.Kernel(n // 64, threads=32) as b:
        for i in T.Parallel(32):
            A[b * 32 + i] = A[b * 32 + i] + 1
    with T.Kernel(T.ceildiv(n, 32), threads=32) as b:
        for i in T.Parallel(32):
            A[b * 32 + i] = A[b * 32 + i] * 5
"""
    for n in (33, 130):
        a = np.arange(n, dtype=np.int32)
        touched = (np.arange(n) < n // 64 * 32).astype(np.int32)
        check(text, {"A": a}, {"A": (a * 3 + touched) * 5})


def test_a_scratch_tensor_of_unknown_size_is_refused():
    text = """
@T.prim_func
def f(A: T.Tensor((8,), "int32")):
    with T.Kernel(1, threads=32) as b:
        s = T.alloc_global((A[0],), "int32")
        s[0] = 1
"""
    assert refused(text).code == "TL0309"


GRID = """
@T.prim_func
def ring(A: T.Tensor((G, 32), "int32"), O: T.Tensor((G, 32), "int32"), S: T.Tensor((1,), "int32")):
    with T.Kernel(G, threads=32) as b:
        tx = T.get_thread_binding()
        turn = T.alloc_global((G, 32), "int32")
        turn[b, tx] = A[b, tx] + 1
        T.sync_grid()
        for step in T.serial(3):
            x = turn[(b + 1) % G, 31 - tx]
            T.sync_grid()
            turn[b, tx] = x * 2
            T.sync_grid()
        O[b, tx] = turn[b, tx]
        if tx == 0:
            T.atomic_add(S[0], O[b, 0])
"""


def test_blocks_wait_for_each_other():
    for blocks in (1, 5):
        a = np.random.default_rng().integers(-99, 99, (blocks, 32)).astype(np.int32)
        turn = a + 1
        for _ in range(3):
            turn = np.roll(turn, -1, 0)[:, ::-1] * 2
        values = {"A": a, "O": poison((blocks, 32), np.int32), "S": np.zeros(1, np.int32)}
        done = check(f"G = {blocks}\n" + GRID, values, {"O": turn, "S": [turn[:, 0].sum()]})
        assert "cudaLaunchAttributeCooperative" in done.cu and "cudaMemsetAsync(workspace, 0" in done.cu


def test_what_goes_wrong_between_waiting_blocks_is_reported():
    from tests.compiling import compile_text
    from tests.features.kit import HEAD
    from tilec import emulator

    beyond = "s = T.alloc_shared((4,), 'int32')\n        s[tx + A[b, tx]] = 1\n        O[b, tx] = s[0]"
    compiled = compile_text(HEAD + "G = 3\n" + GRID.replace("O[b, tx] = turn[b, tx]", beyond))
    values = {"A": np.zeros((3, 32), np.int32), "O": np.zeros((3, 32), np.int32), "S": np.zeros(1, np.int32)}
    outcome = emulator.build(compiled.cu).run("ring_launch", values)
    assert outcome.status == "overrun" and "shared" in outcome.message


def test_parameters_keep_their_names_in_the_kernel():
    text = """
@T.prim_func
def keep(A: T.Tensor((32,), "int64"), k: T.int64, m: T.int32):
    with T.Kernel(1, threads=32):
        for i in T.Parallel(32):
            A[i] = A[i] * k + m
"""
    a = np.arange(32, dtype=np.int64)
    done = check(text, {"A": a, "k": 3, "m": 4}, {"A": a * 3 + 4})
    assert "keep(long long* __restrict__ A, long long k, int m)" in done.cu


def test_blocks_that_should_fit_a_multiprocessor_bound_the_registers():
    text = """
@T.prim_func
def k(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32")):
    with T.Kernel(2, threads=128) as b:
        T.annotate_min_blocks_per_sm(3)
        for i in T.Parallel(128):
            B[b * 128 + i] = A[b * 128 + i] * 2
"""
    a = np.random.default_rng().standard_normal(256).astype(np.float32)
    done = check(text, {"A": a, "B": poison((256,), np.float32)}, {"B": a.astype(np.float64) * 2})
    assert "__launch_bounds__(128, 3)" in done.cu
    assert "between 1 and 32 blocks" in refused(text.replace("(3)", "(0)")).message


PDL = """
@T.prim_func
def k(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32"), C: T.Tensor((256,), "float32")):
    with T.Kernel(2, threads=128) as bx:
        for i in T.Parallel(128):
            B[bx * 128 + i] = A[bx * 128 + i] + 1.0
        T.pdl_trigger()
    with T.Kernel(2, threads=128) as bx:
        T.pdl_sync()
        for i in T.Parallel(128):
            C[bx * 128 + i] = B[255 - bx * 128 - i] * 2.0
"""


def test_a_launch_that_waits_itself_may_begin_early() -> None:
    a = np.random.default_rng().standard_normal(256).astype(np.float32)
    values = {"A": a, "B": poison((256,), np.float32), "C": poison((256,), np.float32)}
    want = {"B": a + 1, "C": (a[::-1] + 1) * 2}
    done = check(PDL, values, want, arch="sm_90")
    first, second = done.cu.split('extern "C" __global__')[1:3]
    assert "release_launches();" in first and "await_launches();" not in first
    assert "await_launches();" in second and "release_launches();" not in second
    assert done.cu.count("cudaLaunchAttributeProgrammaticStreamSerialization") == 1 and '"overlaps": true' in done.cu
    older = check(PDL, values, want).cu
    assert "await_launches" not in older and "Programmatic" not in older


def test_products_of_warp_groups_begin_in_stream_order() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((256, 256), "float16"), B: T.Tensor((256, 256), "float16"), C: T.Tensor((256, 256), "float16")):
    with T.Kernel(2, 2, threads=128) as (bx, by):
        a, b = T.alloc_shared((128, 64), "float16"), T.alloc_shared((64, 128), "float16")
        c = T.alloc_fragment((128, 128), "float32")
        T.pdl_sync()
        T.clear(c)
        for k in T.Pipelined(4, num_stages=2):
            T.copy(A[by * 128, k * 64], a)
            T.copy(B[k * 64, bx * 128], b)
            T.gemm(a, b, c)
        T.copy(c, C[by * 128, bx * 128])
"""
    done = compile_text(HEAD + text, arch="sm_90a")
    assert "wgmma" in done.cu and "Programmatic" not in done.cu
