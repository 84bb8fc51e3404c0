"""Relatives of faults that users of tile compilers met: the same kinds in other places, of other types, on more threads."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.features.kit import check, poison, refused
from tests.toolchain import needs_gxx, needs_nvrtc, nvrtc_compile

pytestmark = needs_gxx
F32, I32 = np.float32, np.int32


@needs_nvrtc
def test_keeping_reduction_of_one_element_a_thread() -> None:
    text = """
@T.prim_func
def k(X: T.Tensor((4, 128), "float32"), O: T.Tensor((2,), "float32")):
    with T.Kernel(1, threads=128):
        x = T.alloc_fragment((128,), "float32")
        m = T.alloc_fragment((1,), "float32")
        T.fill(m, 0.5)
        for k in T.serial(4):
            T.copy(X[k, :], x)
            T.reduce_max(x, m, dim=0, clear=False)
        O[0] = m[0]
        T.reduce_sum(x, m, dim=0, clear=False)
        O[1] = m[0]
"""
    x = np.random.default_rng().integers(-9, 9, (4, 128)).astype(F32)
    best = max(x.max(), F32(0.5))
    compiled = check(text, {"X": x, "O": poison((2,), F32)}, {"O": np.array([best, best + x[3].sum()], F32)})
    nvrtc_compile(compiled.cu, "sm_80")


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_pipelined_loop_over_64_bit_bounds(stages: int) -> None:
    text = f"""
@T.prim_func
def k(base: T.int64, X: T.Tensor((16, 32), "float32"), O: T.Tensor((4, 32), "float32")):
    with T.Kernel(1, threads=32):
        s = T.alloc_shared((32,), "float32")
        for k in T.Pipelined(base, base + 4, num_stages={stages}):
            T.copy(X[k - base + 3, :], s)
            for j in T.Parallel(32):
                O[k - base, j] = s[31 - j] + T.cast(k % 8, "float32")
"""
    x, base = np.random.default_rng().integers(0, 99, (16, 32)).astype(F32), 5_000_000_000
    wanted = x[3:7, ::-1] + np.array([(base + n) % 8 for n in range(4)], F32)[:, None]
    check(text, {"base": base, "X": x, "O": poison((4, 32), F32)}, {"O": wanted})


def test_atomics_on_a_tensor_without_dimensions() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((64,), "int32"), O: T.Tensor((), "int32"), M: T.Tensor((), "int32")):
    with T.Kernel(2, threads=32) as b:
        for i in T.Parallel(32):
            T.atomic_add(O[()], A[b * 32 + i])
            T.atomic_max(M[()], A[b * 32 + i])
"""
    a = np.random.default_rng().integers(-9, 9, 64).astype(I32)
    check(text, {"A": a, "O": np.array(5, I32), "M": np.array(-100, I32)}, {"O": a.sum() + 5, "M": a.max()})


def test_infinity_of_an_8_bit_float() -> None:
    text = """
@T.prim_func
def k(O: T.Tensor((3,), "float8_e5m2")):
    with T.Kernel(1, threads=32):
        O[0] = T.infinity("float8_e5m2")
        O[1] = -T.infinity("float8_e5m2")
        O[2] = T.max_value("float8_e5m2")
"""
    wanted = np.array([np.inf, -np.inf, 57344], F32).astype(ml_dtypes.float8_e5m2)
    check(text, {"O": np.zeros(3, ml_dtypes.float8_e5m2)}, {"O": wanted})


def test_elements_filled_by_all_threads_and_then_stored_by_one() -> None:
    text = """
@T.prim_func
def k(n: T.int32, O: T.Tensor((4, 96), "int32")):
    with T.Kernel(1, threads=64):
        for r, c in T.Parallel(4, 96):
            O[r, c] = -1
        for i in T.serial(95, -1, -3):
            O[0, i] = i
        for i in range(1, n, 3):
            O[1, i] = i
        T.fill(O[2, 8:80], 7)
        O[2, 40] = n
        if n > 3:
            for i in T.Parallel(10):
                O[3, i * n] = i
"""
    wanted = np.full((4, 96), -1, I32)
    wanted[0, 95::-3] = np.arange(95, -1, -3)
    wanted[1, 1:9:3] = np.arange(1, 9, 3)
    wanted[2, 8:80], wanted[2, 40] = 7, 9
    wanted[3, : 10 * 9 : 9] = np.arange(10)
    check(text, {"n": 9, "O": poison((4, 96), I32)}, {"O": wanted})


def test_stores_to_elements_apart_need_no_barrier() -> None:
    text = """
@T.prim_func
def k(X: T.Tensor((64, 64), "float32"), O: T.Tensor((64, 128), "float32")):
    with T.Kernel(4, threads=64) as b:
        for i, j in T.Parallel(16, 64):
            O[b * 16 + i, j] = X[b * 16 + i, j]
        for i, j in T.Parallel(16, 64):
            O[b * 16 + i, 64 + j] = -X[b * 16 + i, 63 - j]
        for i, j in T.Parallel(16, 64):
            O[b * 16 + i, j] = O[b * 16 + i, j] if False else X[b * 16 + i, j] * 2
"""
    x = np.random.default_rng().standard_normal((64, 64)).astype(F32)
    compiled = check(text, {"X": x, "O": poison((64, 128), F32)}, {"O": np.concatenate([x * 2, -x[:, ::-1]], 1)})
    assert "__syncthreads" not in compiled.cu


@pytest.mark.parametrize("loop", ["for i in range(t):", "while i < t:"])
def test_loop_that_threads_leave_one_by_one_reads_a_tile(loop: str) -> None:
    text = f"""
@T.prim_func
def k(A: T.Tensor((64,), "int32"), O: T.Tensor((64,), "int32")):
    with T.Kernel(1, threads=64):
        s = T.alloc_shared((64,), "int32")
        t = T.get_thread_binding()
        v = T.alloc_var("int32")
        {"i = T.alloc_var('int32')" if "while" in loop else ""}
        for c in T.serial(2):
            T.copy(A, s)
            {"i = 0" if "while" in loop else ""}
            {loop}
                v += s[i]
                {"i += 1" if "while" in loop else ""}
        O[t] = v
"""
    a = np.random.default_rng().integers(-9, 9, 64).astype(I32)
    check(text, {"A": a, "O": poison((64,), I32)}, {"O": 2 * np.concatenate([[0], np.cumsum(a)[:-1]])})


def test_fragment_seen_under_another_shape_and_type() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((32, 16), "float16"), B: T.Tensor((16, 32), "float16"), U: T.Tensor((32, 32), "uint32"), S: T.Tensor((32, 4), "float32")):
    with T.Kernel(1, threads=64):
        a = T.alloc_shared((32, 16), "float16")
        b = T.alloc_shared((16, 32), "float16")
        acc = T.alloc_fragment((32, 32), "float32")
        T.copy(A, a)
        T.copy(B, b)
        T.clear(acc)
        T.gemm(a, b, acc)
        split = T.reshape(acc, (32, 4, 8))
        for i, j, h in T.Parallel(32, 4, 8):
            split[i, j, h] = T.max(split[i, j, h], 0.0)
        sums = T.alloc_fragment((32, 4), "float32")
        T.reduce_sum(split, sums, dim=-1)
        T.copy(sums, S)
        bits = T.view(acc, (32, 32), "uint32")
        T.copy(bits, U)
"""
    rng = np.random.default_rng()
    a, b = (rng.integers(-3, 3, s).astype(np.float16) for s in ((32, 16), (16, 32)))
    c = np.maximum(a.astype(F32) @ b.astype(F32), 0)
    values = {"A": a, "B": b, "U": poison((32, 32), np.uint32), "S": poison((32, 4), F32)}
    check(text, values, {"U": c.view(np.uint32), "S": c.reshape(32, 4, 8).sum(-1)})


def test_condition_read_again_after_continue() -> None:
    text = """
@T.prim_func
def k(n: T.int32, O: T.Tensor((96,), "int32")):
    with T.Kernel(1, threads=96):
        s = T.alloc_shared((96,), "int32")
        t = T.get_thread_binding()
        s[t] = 0
        while s[95] < 10:
            v = s[(t + 1) % 96]
            T.sync_threads()
            s[t] = v + 1
            if n > 3:
                continue
            s[t] = 11
        O[t] = s[95 - t]
"""
    done = check(text, {"n": 5, "O": poison((96,), I32)}, {"O": np.full(96, 10)})
    lines = [line.strip() for line in done.cu.splitlines() if line.strip() and not line.strip().startswith("//")]
    at = lines.index("continue;")
    assert lines[at - 1].startswith("__syncthreads()")


@pytest.mark.parametrize("loop", ["for i in T.serial(tid, 300, 128):", "for i in range(tid, 300, 128):"])
def test_threads_that_walk_a_tile_in_steps(loop: str) -> None:
    text = f"""
@T.prim_func
def k(A: T.Tensor((300,), "float32"), O: T.Tensor((300,), "float32")):
    with T.Kernel(1, threads=128):
        s = T.alloc_shared((300,), "float32")
        tid = T.get_thread_binding()
        T.fill(s, 0)
        {loop}
            s[i] = A[i] * 2
            s[i] = s[i] + 1
        for i in T.Parallel(300):
            s[i] = s[i] + 1
        {loop}
            O[i] = s[299 - i]
"""
    a = np.random.default_rng().integers(0, 9, 300).astype(F32)
    check(text, {"A": a, "O": poison((300,), F32)}, {"O": 2 * a[::-1] + 2})


@pytest.mark.parametrize(("source", "left", "dim"), [((4, 6), (4, 1, 1), 1), ((1, 4, 6), (4, 1, 1), 2), ((6,), (1, 1), 0)])
@pytest.mark.parametrize("clear", [True, False])
def test_reduction_into_a_tile_with_dimensions_of_its_own(source: tuple[int, ...], left: tuple[int, ...], dim: int, clear: bool) -> None:
    text = f"""
@T.prim_func
def k(A: T.Tensor({source}, "int32"), B: T.Tensor({left}, "int32"), O: T.Tensor({left}, "int32")):
    with T.Kernel(1, threads=64):
        a = T.alloc_fragment({source}, "int32")
        p = T.alloc_fragment({left}, "int32")
        T.copy(A, a)
        T.copy(B, p)
        T.reduce_sum(a, p, dim={dim}, clear={clear})
        T.copy(p, O)
"""
    rng = np.random.default_rng()
    a, b = (rng.integers(-9, 9, shape).astype(I32) for shape in (source, left))
    check(text, {"A": a, "B": b, "O": poison(left, I32)}, {"O": a.sum(dim).reshape(left) + (0 if clear else b)})


@pytest.mark.parametrize("scope", ["shared", "fragment"])
@pytest.mark.parametrize("reverse", [True, False])
def test_running_maximum_of_nothing_but_nan_is_that_of_nothing(scope: str, reverse: bool) -> None:
    text = f"""
@T.prim_func
def k(A: T.Tensor((3, 97), "float32"), O: T.Tensor((3, 97), "float32")):
    with T.Kernel(1, threads=64):
        a = T.alloc_{scope}((3, 97), "float32")
        T.copy(A, a)
        T.cummax(a, dim=1, reverse={reverse})
        T.copy(a, O)
"""
    a = np.random.default_rng().integers(-9, 9, (3, 97)).astype(F32)
    a[0, :40], a[0, -40:], a[1] = np.nan, np.nan, np.nan
    order = slice(None, None, -1 if reverse else 1)
    wanted = np.fmax.accumulate(np.where(np.isnan(a), -np.inf, a)[:, order], 1)[:, order]
    check(text, {"A": a, "O": poison((3, 97), F32)}, {"O": wanted})


def test_elements_that_macros_write_through() -> None:
    text = """
@T.macro
def bump(x: T.Ref, by):
    x = x + by
@T.macro
def count(x: T.Ref, n):
    x = 0
    for i in T.serial(n):
        if i % 2 == 0:
            bump(x, i)
    while x > 20:
        x -= 7
@T.prim_func
def k(A: T.Tensor((32,), "int32"), P: T.Tensor((32,), "int32"), O: T.Tensor((32,), "int32"), S: T.Tensor((32,), "int32")):
    with T.Kernel(1, threads=32):
        t = T.get_thread_binding()
        i = T.alloc_var("int32")
        held = T.alloc_local((4,), "int32")
        i = P[t]
        count(held[i % 4], A[t])
        i += 1
        S[t] = held[P[t] % 4]
        bump(O[P[t]], S[t] + i)
"""
    rng = np.random.default_rng()
    a, p = rng.integers(0, 40, 32).astype(I32), rng.permutation(32).astype(I32)
    counts = np.array([sum(range(0, n, 2)) for n in a])
    counts -= 7 * np.maximum(0, -((20 - counts) // 7))
    o = rng.integers(0, 99, 32).astype(I32)
    wanted = o.copy()
    wanted[p] += (counts + p + 1).astype(I32)
    check(text, {"A": a, "P": p, "O": o, "S": poison((32,), I32)}, {"O": wanted, "S": counts})


@pytest.mark.parametrize("given", ["t + 1", "3"])
def test_a_value_cannot_be_written_through(given: str) -> None:
    text = f"""
@T.macro
def bump(x: T.Ref):
    x = x + 1
@T.prim_func
def k(O: T.Tensor((32,), "int32")):
    with T.Kernel(1, threads=32):
        t = T.get_thread_binding()
        bump({given})
        O[t] = t
"""
    assert (found := refused(text)).code == "TL0206" and found.span.line == 12


def test_a_sum_of_many_terms_and_a_pass_that_nests_too_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((8,), "int32"), O: T.Tensor((1,), "int32")):
    with T.Kernel(1, threads=32):
        O[0] = sum([A[n % 8] * n for n in range(600)])
"""
    a = np.random.default_rng().integers(-9, 9, 8).astype(I32)
    check(text, {"A": a, "O": poison((1,), I32)}, {"O": [sum(a[n % 8] * n for n in range(600))]})
    monkeypatch.setattr("tilec.driver.STACK_DEPTH", 1000)
    assert refused(text.replace("600", "900")).code == "TL0110"
