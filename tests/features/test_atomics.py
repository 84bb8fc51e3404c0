"""Atomics: every type, the value before, orders of memory, tiles at once."""

import ml_dtypes
import numpy as np
import pytest

from tests.features.kit import check, poison, refused

TYPES = {
    "int8": np.int8, "uint8": np.uint8, "int16": np.int16, "uint16": np.uint16, "int32": np.int32, "uint32": np.uint32, "int64": np.int64,
    "uint64": np.uint64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64,
}  # fmt: skip


def _updates() -> str:
    """One kernel that adds, takes the maximum and the minimum of 96 values into 3 elements of every type."""
    params = ", ".join(f'{v}_{t}: T.Tensor(({n},), "{t}")' for t in TYPES for v, n in (("X", 96), ("S", 3), ("H", 3), ("L", 3)))
    body = "\n".join(
        f"            T.atomic_add(S_{t}[i % 3], X_{t}[i])\n            T.atomic_max(H_{t}[i % 3], X_{t}[i])\n"
        f'            T.atomic_min(L_{t}[i % 3], X_{t}[i], memory_order="acq_rel")' for t in TYPES
    )
    return f"@T.prim_func\ndef updates({params}):\n    with T.Kernel(2, threads=32) as b:\n        for k in T.Parallel(48):\n            i = b * 48 + k\n{body}\n"


def test_every_type_adds_and_compares():
    rng = np.random.default_rng()
    values, wanted = {}, {}
    for name, kind in TYPES.items():
        whole = name.startswith(("int", "uint"))
        info = np.iinfo(kind) if whole else None
        x = rng.integers(info.min, info.max, 96, kind, True) if info else rng.integers(-2, 3, 96).astype(kind)
        start = x[rng.integers(0, 96, 3)]
        values |= {f"X_{name}": x, f"S_{name}": start.copy(), f"H_{name}": start.copy(), f"L_{name}": start.copy()}
        wide = x if info else x.astype(np.float64)
        groups = [wide[k::3] for k in range(3)]
        with np.errstate(over="ignore"):
            total = np.array([start[k].astype(wide.dtype) + g.sum(dtype=wide.dtype) for k, g in enumerate(groups)])
        wanted[f"S_{name}"] = total.astype(kind)
        wanted[f"H_{name}"] = np.array([max(start[k], *x[k::3]) for k in range(3)], kind)
        wanted[f"L_{name}"] = np.array([min(start[k], *x[k::3]) for k in range(3)], kind)
    check(_updates(), values, wanted)


def test_bits_and_exchanges():
    ints = [t for t in TYPES if "int" in t]
    params = ", ".join(f'A_{t}: T.Tensor((4,), "{t}"), X_{t}: T.Tensor((32,), "{t}"), O_{t}: T.Tensor((32,), "{t}")' for t in TYPES)
    body = ""
    for t in TYPES:
        if t in ints:
            body += f"        T.atomic_and(A_{t}[0], X_{t}[tx])\n        T.atomic_or(A_{t}[1], X_{t}[tx])\n        T.atomic_xor(A_{t}[2], X_{t}[tx])\n"
        body += f"        if tx == 5:\n            O_{t}[0] = T.atomic_exch(A_{t}[3], X_{t}[1])\n"
        body += f"            O_{t}[1] = T.atomic_cas(A_{t}[3], X_{t}[1], X_{t}[2])\n"
        body += f"            O_{t}[2] = T.atomic_cas(A_{t}[3], X_{t}[1], X_{t}[3])\n"
        body += f'            O_{t}[3] = T.atomic_load(A_{t}[3], memory_order="acquire")\n'
    text = f"@T.prim_func\ndef bits({params}):\n    with T.Kernel(1, threads=32) as b:\n        tx = T.get_thread_binding()\n{body}"
    rng = np.random.default_rng()
    values, wanted = {}, {}
    for t, kind in TYPES.items():
        x = np.arange(1, 33).astype(kind) if t not in ints else rng.integers(0, np.iinfo(kind).max, 32, kind)
        x[1:4] = [1, 2, 3]
        a = np.array([7, 9, 11, 13]).astype(kind)
        values |= {f"A_{t}": a, f"X_{t}": x, f"O_{t}": poison((32,), np.uint8).astype(kind)}
        out = values[f"O_{t}"].copy()
        out[:4] = [13, 1, 2, 2]
        wanted[f"O_{t}"] = out
        end = a.copy()
        end[3] = 2
        if t in ints:
            end[:3] = [np.bitwise_and.reduce(x) & a[0], np.bitwise_or.reduce(x) | a[1], np.bitwise_xor.reduce(x) ^ a[2]]
        wanted[f"A_{t}"] = end
    check(text, values, wanted)


def test_the_value_before_gives_each_thread_a_ticket():
    text = """
@T.prim_func
def tickets(C: T.Tensor((1,), "int32"), F: T.Tensor((1,), "float32"), O: T.Tensor((256,), "int32"), P: T.Tensor((256,), "float32")):
    with T.Kernel(2, threads=64) as b:
        tx = T.get_thread_binding()
        old = T.atomic_add(C[0], 1, return_prev=True)
        O[old] = 1
        for i in T.Parallel(64):
            before = T.atomic_add(F[0], 1.0, return_prev=True)
            P[T.cast(before, "int32")] = before
        again = T.atomic_add(C[0], 1, memory_order="release", return_prev=True)
        O[again] = 1
"""
    out, floats = np.zeros(256, np.int32), np.zeros(256, np.float32)
    values = {"C": np.zeros(1, np.int32), "F": np.zeros(1, np.float32), "O": out, "P": floats}
    wanted = {"C": [256], "F": [128], "O": np.ones(256), "P": np.where(np.arange(256) < 128, np.arange(256), 0)}
    check(text, values, wanted)


def test_tiles_at_once_from_registers_and_shared_memory():
    text = """
@T.prim_func
def tiles(A: T.Tensor((64, 40), "float16"), C: T.Tensor((40, 24), "float32"), D: T.Tensor((64, 40), "int32"), V: T.Tensor((40,), "float32")):
    with T.Kernel(2, threads=64) as b:
        s = T.alloc_shared((32, 40), "float16")
        f = T.alloc_fragment((32, 40), "float32")
        v = T.alloc_fragment((40,), "float32")
        T.copy(A[b * 32:(b + 1) * 32, :], s)
        T.copy(s, f)
        T.atomic_add(C[b * 16, 0], f[0:32, 0:24])
        T.atomic_max(D[b * 32:(b + 1) * 32, :], s)
        T.reduce_sum(f, v, dim=0)
        T.atomic_add(V, v)
        T.atomic_add(V[4:8], 2.0)
"""
    rng = np.random.default_rng()
    a = rng.integers(-8, 9, (64, 40)).astype(np.float16)
    c, d, v = np.zeros((40, 24), np.float32), rng.integers(-8, 9, (64, 40)).astype(np.int32), np.ones(40, np.float32)
    total = c.copy()
    for b in range(2):
        rows = min(32, 40 - b * 16)
        total[b * 16 : b * 16 + rows] += a[b * 32 : b * 32 + rows, :24].astype(np.float32)
    wanted = {"C": total, "D": np.maximum(d, a.astype(np.int32)), "V": v + a.astype(np.float64).sum(0) + 4 * ((np.arange(40) // 4) == 1)}
    check(text, {"A": a, "C": c, "D": d, "V": v}, wanted)


@pytest.mark.parametrize("bad, code", [
    ('T.atomic_add(B[0], True)', "TL0340"), ("T.atomic_or(F[0], 1.0)", "TL0340"), ('T.atomic_add(F[0], 1.0, memory_order="lazy")', "TL0206"),
    ("T.atomic_add(F, F, return_prev=True)", "TL0341"),
])  # fmt: skip
def test_what_has_no_atomic_is_refused(bad, code):
    text = f'@T.prim_func\ndef f(F: T.Tensor((8,), "float32"), B: T.Tensor((8,), "bool")):\n    with T.Kernel(1, threads=32):\n        {bad}\n'
    assert refused(text).code == code


def test_vectors_are_added_lane_by_lane() -> None:
    text = """
@T.prim_func
def k(V: T.Tensor((32,), T.float32x4), C: T.Tensor((4,), "float32"), H: T.Tensor((64,), "float16"), D: T.Tensor((2,), "float16"),
      P: T.Tensor((32, 2), "float32"), E: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        T.atomic_addx4(C[0], V[tx])
        T.atomic_addx2(D[0:2], H[tx * 2:tx * 2 + 2])
        old = T.atomic_addx2(E[tx * 2], T.float32x2(1.0, 2.0), return_prev=True)
        P[tx, 0:2] = old
"""
    rng = np.random.default_rng(3)
    v, h = rng.integers(-8, 8, (32, 4)).astype(np.float32), rng.integers(-4, 4, 64).astype(np.float16)
    e = rng.standard_normal(64).astype(np.float32)
    values = {"V": v, "C": np.zeros(4, np.float32), "H": h, "D": np.zeros(2, np.float16), "P": poison((32, 2), np.float32), "E": e}
    want = {"C": v.sum(0), "D": h.reshape(32, 2).sum(0), "P": e.reshape(32, 2), "E": (e.reshape(32, 2) + np.float32([1, 2])).ravel()}
    check(text, values, want)
