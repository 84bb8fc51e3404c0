"""Kernels inside host programs: sizes that come from tensors of the host, factories inside factories, and tuners around them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.kit import check, poison, refused

RNG = np.random.default_rng(77)

SHAPES = """
import torch

m, k = 48, 32
torch.random.manual_seed(0)
X = torch.rand(m, k, device="cuda", dtype=torch.float16) * 2 - 1
Y = torch.randn((80, k), device="cuda").half()
M, K = X.shape
N = Y.size(0)
total = (X + 1).numel() // K + torch.zeros_like(Y).t().shape[-1] - Y.shape[0]
assert X.dtype == torch.float16 and X.dim() == 2 and (2 * Y).T.shape == (k, 80) and X.view(-1, 16).shape[0] == m * k // 16

@tilelang.jit
def product(A, B, programs: int = 5):
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((N, K), T.float16)
    C = T.empty((M, N), "float32")
    with T.Kernel(programs, threads=64) as pid:
        a = T.alloc_shared((16, K), T.float16)
        b = T.alloc_shared((16, K), T.float16)
        c = T.alloc_fragment((16, 16), "float32")
        at = T.alloc_fragment((1,), "int32", "local")
        at[0] = pid
        while at[0] < (total // 16) * (N // 16):
            row, column = at[0] // (N // 16), at[0] % (N // 16)
            T.copy(A[row * 16, 0], a)
            T.copy(B[column * 16, 0], b)
            T.gemm(a, b, c, transpose_B=True, clear_accum=True)
            T.copy(c, C[row * 16, column * 16])
            at[0] = at[0] + programs
    return C

product(X, Y)
"""


def test_sizes_from_tensors_of_the_host_program() -> None:
    a, b = (RNG.integers(-4, 5, shape).astype(np.float16) for shape in ((48, 32), (80, 32)))
    wanted = a.astype(np.float32) @ b.astype(np.float32).T
    check(SHAPES, {"A": a, "B": b, "C": poison((48, 80), np.float32)}, {"C": wanted}, kernels=("product",))


def test_elements_of_host_tensors_are_not_known() -> None:
    text = SHAPES.replace("N = Y.size(0)", "N = Y[0]")
    assert refused(text, kernels=("product",)).code in ("TL0108", "TL0201", "TL0301", "TL0309")


NESTED = """
N = 64

def make_kernel(scale):
    def kernel(rows=None, threads=None):
        @T.prim_func
        def main(A: T.Tensor((N, 32), "float32"), B: T.Tensor((N, 32), "float32")):
            with T.Kernel(T.ceildiv(N, rows), threads=threads) as bx:
                for i, j in T.Parallel(rows, 32):
                    B[bx * rows + i, j] = A[bx * rows + i, j] * scale + rows
        return main
    return kernel
"""
TUNED = """
from tilelang.autotuner import AutoTuner, autotune
from tilelang.transform import PassConfigKey

def configs():
    return [{"rows": r, "threads": 64, "pass_configs": {PassConfigKey.TL_DISABLE_WARP_SPECIALIZED: True}} for r in (16, 8)]

def best(scale):
    tuner = (
        AutoTuner.from_kernel(kernel=make_kernel(scale), configs=configs())
        .set_compile_args(out_idx=[-1], target="auto")
        .set_profile_args(supply_type=tilelang.TensorSupplyType.Integer, ref_prog=lambda a: a, skip_check=False)
    )
    return tuner.run(warmup=3, rep=20)
"""


@pytest.mark.parametrize("name", ["make_kernel", "make_kernel:main"])
def test_a_factory_that_returns_a_factory(name: str) -> None:
    a = RNG.standard_normal((64, 32)).astype(np.float32)
    values = {"A": a, "B": poison((64, 32), np.float32)}
    check(NESTED, values, {"B": a * np.float32(3) + 4}, kernels=(name,), defines={"scale": 3, "rows": 4, "threads": 96})


def test_a_factory_in_a_tuner_takes_its_first_configuration() -> None:
    a = RNG.standard_normal((64, 32)).astype(np.float32)
    values = {"A": a, "B": poison((64, 32), np.float32)}
    compiled = check(NESTED + TUNED, values, {"B": a + 16}, kernels=("best",), defines={"scale": 1})
    (kernel,) = compiled.module.kernels
    assert kernel.outputs == ("B",) and [dict(c)["rows"] for c in kernel.configs] == ["16", "8"]
    check(NESTED + TUNED, values, {"B": a + 8}, kernels=("best",), defines={"scale": 1, "rows": 8})
