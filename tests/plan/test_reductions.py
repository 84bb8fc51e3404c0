"""Reductions: what they give for odd shapes and thread counts, and what becomes of long rows of 16-bit elements."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.compiling import MODES, compile_text, run_emulated, run_reference
from tests.toolchain import needs_gxx, needs_nvcc
from tilec import ptxas

SAMPLES = Path(__file__).resolve().parents[2] / "samples" / "rows"
KERNEL = """import tilelang.language as T

@T.prim_func
def f(A: T.Tensor(({m}, {n}), "{dtype}"), R: T.Tensor(({m},), "{dtype}"), C: T.Tensor(({n},), "{dtype}"), S: T.Tensor((1,), "{dtype}")):
    with T.Kernel(1, threads={threads}) as bx:
        a = T.alloc_fragment(({m}, {n}), "{dtype}")
        r = T.alloc_fragment(({m},), "{dtype}")
        c = T.alloc_fragment(({n},), "{dtype}")
        s = T.alloc_fragment((1,), "{dtype}")
        T.copy(A, a)
        T.copy(R, r)
        T.reduce_sum(a, r, dim=1, clear=False)
        T.reduce_max(a, c, dim=0)
        T.reduce_min(r, s, dim=0)
        for i in T.serial(2):
            T.reduce_absmax(c, s, dim=0, clear=False)
        T.copy(r, R)
        T.copy(c, C)
        T.copy(s, S)
"""


@needs_gxx
@pytest.mark.parametrize(
    ("m", "n", "threads", "dtype"),
    [(16, 128, 128, "float32"), (5, 96, 96, "float32"), (33, 7, 64, "int32"), (1, 1000, 160, "float32"), (48, 3, 256, "int32"), (4, 64, 32, "int32")],
)
def test_rows_columns_and_the_whole(m: int, n: int, threads: int, dtype: str) -> None:
    """Every row adds to what was there, every column and the vector of the rows is reduced, in exact numbers."""
    compiled = compile_text(KERNEL.format(m=m, n=n, threads=threads, dtype=dtype))
    rng = np.random.default_rng()
    values = {name: rng.integers(-99, 100, shape).astype(dtype) for name, shape in (("A", (m, n)), ("R", m), ("C", n), ("S", 1))}
    rows = values["R"] + values["A"].sum(axis=1)
    columns = values["A"].max(axis=0)
    want = {"R": rows, "C": columns, "S": np.array([max(rows.min(), np.abs(columns).max())])}
    for got in (run_reference(compiled, values), *(run_emulated(compiled, values, mode) for mode in MODES)):
        for name, expected in want.items():
            assert np.array_equal(got[name], expected), name


@needs_nvcc
@pytest.mark.parametrize("name", ["softmax", "rms_norm", "layer_norm"])
def test_long_rows_stay_in_registers(name: str) -> None:
    """16384 elements of 16 bits: only 16-byte accesses to global memory, one barrier a reduction, nothing spilled."""
    cu = compile_text((SAMPLES / f"{name}.py").read_text(), {"M": 8, "N": 16384, "threads": 512}).cu
    kernel = cu[cu.index("__global__") : cu.index("\n}\n", cu.index("__global__"))]
    assert set(re.findall(r"load_vec<(\d+)>", kernel)) == {"8"}
    code = re.sub("//.*", "", kernel)
    assert not re.search(r"\b(X|Y|A|B|gain|bias|weight)\[", code), "an element of a tensor is accessed alone"
    assert kernel.count("__syncthreads") == (1 if name == "rms_norm" else 2)
    assert "shared_tile<float, 16>" in kernel, "one place a warp is enough"
    said = ptxas.hear(cu, ("sm_90",))
    assert isinstance(said, ptxas.Report) and said.bodies[name].clean and said.bodies[name].registers <= 128, said


BESIDE = """import tilelang.language as T

@T.prim_func
def f(X: T.Tensor(({m}, {n}), "float16"), Y: T.Tensor(({m}, {n}), "float16")):
    with T.Kernel(1, threads=128) as b:
        x = T.alloc_shared(({m}, {n}), "float16")
        wide = T.alloc_fragment(({m}, {n}), "float32")
        most = T.alloc_fragment(({m},), "float32")
        T.copy(X, x)
        T.copy(x, wide)
        T.reduce_max(wide, most, dim=1)
        for i, j in T.Parallel({m}, {n}):
            Y[i, j] = T.cast(x[i, j], "float32") - most[{row}]
"""


@needs_gxx
@pytest.mark.parametrize(("m", "n", "row"), [(1, 2048, "0"), (4, 1024, "i"), (3, 520, "i"), (2, 1024, "1")])
def test_results_beside_rows_in_memory(m: int, n: int, row: str) -> None:
    """A loop over rows in memory that only looks at a reduction's results moves 16 bytes at once, whoever holds the results."""
    compiled = compile_text(BESIDE.format(m=m, n=n, row=row))
    kernel = compiled.cu[compiled.cu.index("__global__") :]
    assert "load_vec<8>(x" in kernel and "store_vec(Y" in kernel and not re.search(r"\bY\[", kernel)
    x = np.random.default_rng().standard_normal((m, n)).astype(np.float16)
    most = x.astype(np.float64).max(axis=1, keepdims=True)
    want = x.astype(np.float64) - (most if row == "i" else most[int(row)])
    values = {"X": x, "Y": np.full((m, n), np.nan, np.float16)}
    for got in (run_reference(compiled, values), *(run_emulated(compiled, values, mode) for mode in MODES)):
        assert np.abs(got["Y"].astype(np.float64) - want).max() < 1e-2

