"""Code for some threads only, numbered barriers, reductions over threads."""

import numpy as np
import pytest

from tests.features.kit import check, poison, refused

REDUCE = 'T.attr(T.comm_reducer(lambda x, y: {op}, [T.cast(0, "{dtype}")]), "reduce_scope", T.reinterpret(T.uint64(0), dtype="handle"))'


@pytest.mark.parametrize("threads", [(8, 4), (32, 2), (128, 2), (96, 1), (20, 3)])
def test_all_threads_along_x_get_the_reduction(threads):
    x, y = threads
    text = f"""
@T.prim_func
def gemv(A: T.Tensor(({y}, {x}), "float32"), S: T.Tensor(({y}, {x}), "float32"), M: T.Tensor(({y}, {x}), "int32")):
    with T.Kernel(1, threads=({x}, {y})):
        tx = T.thread_binding(0, {x}, thread="threadIdx.x")
        ty = T.thread_binding(0, {y}, thread="threadIdx.y")
        part = T.alloc_local((1,), "float32")
        total = T.alloc_local((1,), "float32")
        biggest = T.alloc_local((1,), "int32")
        part[0] = A[ty, tx] * 2.0
        with {REDUCE.format(op="x + y", dtype="float32")}:
            T.evaluate(T.tvm_thread_allreduce(T.uint32(1), part[0], True, total[0], tx, dtype="handle"))
        with {REDUCE.format(op="T.max(x, y)", dtype="int32")}:
            T.evaluate(T.tvm_thread_allreduce(T.uint32(1), T.cast(A[ty, tx] * 100, "int32"), True, biggest[0], tx, dtype="handle"))
        S[ty, tx] = total[0]
        M[ty, tx] = biggest[0]
"""
    a = np.random.default_rng().standard_normal((y, x)).astype(np.float32)
    sums = np.repeat(2.0 * a.astype(np.float64).sum(1, keepdims=True), x, 1)
    largest = np.repeat((a * np.float32(100)).astype(np.int32).max(1, keepdims=True), x, 1)
    check(text, {"A": a, "S": poison((y, x), np.float32), "M": poison((y, x), np.int32)}, {"S": sums, "M": largest}, 2e-5)


@pytest.mark.parametrize("threads, axis", [((2, 32, 1), 1), ((8, 16, 2), 2), ((3, 10, 2), 1), ((4, 8, 4), 1), ((64, 4, 1), 1)])
def test_threads_along_another_axis_get_the_reduction(threads, axis):
    x, y, z = threads
    text = f"""
@T.prim_func
def gemv(A: T.Tensor(({z}, {y}, {x}), "int32"), S: T.Tensor(({z}, {y}, {x}), "int32")):
    with T.Kernel(1, threads={threads}):
        tx, ty, tz = T.get_thread_bindings()
        total = T.alloc_local((1,), "int32")
        with {REDUCE.format(op="x + y", dtype="int32")}:
            T.evaluate(T.tvm_thread_allreduce(T.uint32(1), A[tz, ty, tx], True, total[0], {("tx", "ty", "tz")[axis]}, dtype="handle"))
        S[tz, ty, tx] = total[0]
"""
    a = np.random.default_rng().integers(-99, 99, (z, y, x)).astype(np.int32)
    wanted = np.broadcast_to(a.sum(2 - axis, keepdims=True), a.shape)
    check(text, {"A": a, "S": poison(a.shape, np.int32)}, {"S": wanted})


def test_a_reduction_by_any_function_over_all_threads():
    text = f"""
@T.prim_func
def fold(A: T.Tensor((2, 48), "float32"), S: T.Tensor((2, 48), "float32")):
    with T.Kernel(1, threads=(48, 2)):
        tx, ty = T.get_thread_binding(0), T.get_thread_binding(1)
        total = T.alloc_local((1,), "float32")
        with {REDUCE.format(op="x * 0.5 + y", dtype="float32")}:
            T.tvm_thread_allreduce(T.uint32(1), A[ty, tx], True, total[0], tx, ty, dtype="handle")
        S[ty, tx] = total[0]
"""
    a = np.random.default_rng().standard_normal((2, 48)).astype(np.float32)
    total = a.reshape(-1)[0].astype(np.float64)
    for v in a.reshape(-1)[1:]:
        total = total * 0.5 + v
    check(text, {"A": a, "S": poison((2, 48), np.float32)}, {"S": np.full((2, 48), total)}, 1e-5)


def test_warp_groups_take_their_own_statements_and_share_tiles():
    text = """
@T.prim_func
def roles(A: T.Tensor((256,), "float32"), O: T.Tensor((256,), "float32"), P: T.Tensor((65,), "float32")):
    with T.Kernel(1, threads=256):
        tx = T.get_thread_binding()
        s = T.alloc_shared((256,), "float32")
        f = T.alloc_fragment((64,), "float32")
        with T.ws(0):
            s[tx] = A[tx + 128] * 2.0
            T.sync_threads(1, 128)
            s[tx + 128] = s[127 - tx] + 1.0
        with T.ws(1):
            T.copy(A[0:64], f)
            for i in T.Parallel(64):
                f[i] = f[i] + 1.0
            T.copy(f, P[0:64])
            if tx == 200:
                P[64] = 5.0
        T.sync_threads()
        O[tx] = s[tx]
"""
    a = np.random.default_rng().standard_normal(256).astype(np.float32)
    low = a[128:] * np.float32(2)
    plus = np.append(a[:64] + np.float32(1), np.float32(5))
    values = {"A": a, "O": poison((256,), np.float32), "P": poison((65,), np.float32)}
    check(text, values, {"O": np.concatenate([low, low[::-1] + np.float32(1)]), "P": plus})


def test_numbered_barriers_and_masks_of_lanes():
    text = """
@T.prim_func
def meet(A: T.Tensor((128,), "int32"), O: T.Tensor((128,), "int32")):
    with T.Kernel(1, threads=128):
        tx = T.get_thread_binding()
        s = T.alloc_shared((128,), "int32")
        pair = tx // 64
        if tx < 64:
            s[tx] = A[tx]
            T.sync_threads(pair + 1, 64)
            O[tx] = s[63 - tx]
            T.named_barrier_arrive(5, 128)
        else:
            T.sync_threads(5, 128)
            O[tx] = s[tx - 64] * 2
        if tx < 16:
            T.sync_warp(0xFFFF)
        T.sync_threads(7)
"""
    a = np.random.default_rng().integers(-99, 99, 128).astype(np.int32)
    check(text, {"A": a, "O": poison((128,), np.int32)}, {"O": np.concatenate([a[63::-1], a[:64] * 2])})


@pytest.mark.parametrize("bad, code", [
    ("with T.ws(4):\n            A[0] = 1.0", "TL0402"), ("T.sync_threads(16)", "TL0206"), ("T.sync_threads(1, 40)", "TL0206"),
    ("T.tvm_thread_allreduce(T.uint32(1), A[0], True, A[1], T.get_thread_binding())", "TL0205"),
    ("with T.attr(T.comm_reducer(lambda x, y: x + y, [T.cast(0, 'float32')]), 'reduce_scope', T.reinterpret(T.uint64(0), dtype='handle')):\n"
     "            T.tvm_thread_allreduce(T.uint32(1), A[0], A[0] > 0, A[1], T.get_thread_binding())", "TL0206"),
    ("A[1] = T.BufferLoad(A, [0], A[0] > 0)", "TL0204"),
])  # fmt: skip
def test_roles_and_barriers_that_do_not_exist_are_refused(bad, code):
    text = f'@T.prim_func\ndef f(A: T.Tensor((128,), "float32")):\n    with T.Kernel(1, threads=256):\n        {bad}\n'
    assert refused(text).code == code


def test_a_fragment_is_printed_once_a_block():
    from tests.compiling import compile_text
    from tests.features.kit import HEAD
    from tilec import emulator
    from tilec.reference import run

    text = """
@T.prim_func
def show(A: T.Tensor((3, 2), "float32")):
    with T.Kernel(1, threads=64):
        f = T.alloc_fragment((3, 2), "float32")
        T.copy(A, f)
        T.print(f, msg="f")
        T.print("done")
"""
    compiled = compile_text(HEAD + text)
    a = np.arange(6, dtype=np.float32).reshape(3, 2)
    lines = []
    (kernel,) = compiled.module.kernels
    run(kernel, {"A": a}, printed=lines.append)
    wanted = [f"f {i} {j} {2 * i + j}" for i in range(3) for j in range(2)]
    assert [x for x in lines if x != "done"] == wanted
    outcome = emulator.build(compiled.cu).run("show_launch", {"A": a})
    assert outcome.ok and [x for x in outcome.output.splitlines() if x != "done"] == wanted


def test_the_author_orders_what_some_threads_do():
    text = """
@T.prim_func
def pass_on(A: T.Tensor((64,), "int32"), O: T.Tensor((64,), "int32")):
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        s = T.alloc_shared((64,), "int32")
        O[tx] = 0
        if tx < 32:
            s[tx] = A[tx]
            T.sync_warp()
            O[tx] = s[31 - tx]
"""
    assert refused(text).code == "TL0502"
    jit = '@tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_DISABLE_THREAD_STORAGE_SYNC: True})\ndef make():\n'
    inner = "\n".join(f"    {line}" for line in text.strip().splitlines())
    a = np.random.default_rng().integers(-99, 99, 64).astype(np.int32)
    values = {"A": a, "O": poison((64,), np.int32)}
    check(f"{jit}{inner}\n    return pass_on\n\nk = make()\n", values, {"O": np.append(a[31::-1], np.zeros(32, np.int32))})
