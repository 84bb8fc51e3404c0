"""Tensors made from pointers: of parameters, and of addresses in memory."""

import numpy as np
import pytest

from tests.compiling import compile_text, run_reference
from tests.features.kit import HEAD, check, poison, refused
from tilec.emit import manifest
from tilec.ir.read import parse
from tilec.ir.show import show
from tilec.reference import run


def test_a_pointer_parameter_is_a_tensor():
    text = """
@T.prim_func
def add(a: T.ptr, n: T.int32, k: T.int32, c: T.ptr):
    A = T.make_tensor(a, (n, k), "float16")
    with T.Kernel(T.ceildiv(n, 16), threads=64) as b:
        C = T.make_tensor(c, (n, k), T.float32)
        flat = T.make_tensor(c, (n * k,), T.float32)
        for i, j in T.Parallel(16, 32):
            if j < k:
                C[b * 16 + i, j] = A[b * 16 + i, j] + 1.0
        if b == 0:
            flat[0] = flat[0] + 1.0
"""
    a = np.random.default_rng().integers(-9, 9, (37, 24)).astype(np.float16)
    wanted = a.astype(np.float32) + 1
    wanted[0, 0] += 1
    values = {"a": a, "c": poison((37, 24), np.float32), "n": 37, "k": 24}
    done = check(text, values, {"c": wanted})
    (kernel,) = manifest.parse(done.cu)["kernels"]
    assert [p["dtype"] for p in kernel["params"]] == ["float16", "int32", "int32", "float32"]


GROUPED = """
@T.prim_func
def grouped(sizes: T.Tensor((3,), "int32"), table: T.Tensor((3,), T.ptr), outs: T.Tensor((3,), "int64")):
    with T.Kernel(3, threads=64) as g:
        A = T.make_tensor(table[g], (32, 16), "float32")
        C = T.make_tensor(outs[g], (16, 32), "float32")
        s = T.alloc_shared((32, 16), "float32")
        for k in T.Pipelined(1, num_stages=2):
            T.copy(A, s)
            for i, j in T.Parallel(16, 32):
                if j < sizes[g]:
                    C[i, j] = s[j, i] * 2.0
"""


def test_a_table_of_pointers():
    compiled = compile_text(HEAD + GROUPED)
    rng = np.random.default_rng()
    inputs = [rng.standard_normal((32, 16)).astype(np.float32) for _ in range(3)]
    outputs = [poison((16, 32), np.float32) for _ in range(3)]
    sizes = np.array([32, 7, 20], np.int32)
    address = lambda arrays: np.array([x.ctypes.data for x in arrays], np.int64)  # noqa: E731
    (kernel,) = compiled.module.kernels
    assert show(parse(show(kernel))) == show(kernel)
    arrays = {"sizes": sizes, "table": address(inputs), "outs": address(outputs)}
    run(kernel, arrays, pointed={x.ctypes.data: x for x in (*inputs, *outputs)})
    for a, c, n in zip(inputs, outputs, sizes, strict=True):
        np.testing.assert_array_equal(c[:, :n], 2 * a.T[:, :n])
        assert np.isnan(c[:, n:]).all()
    with pytest.raises(Exception, match="only known on a GPU"):
        run_reference(compiled, {**arrays, "table": np.zeros(3, np.int64)})
    assert "reinterpret_cast<float*>(A_address)" in compiled.cu


@pytest.mark.parametrize("bad, code", [
    ("x = T.make_tensor(A, (8,))", "TL0301"), ("x = T.make_tensor(A[0], (8,))", "TL0206"), ("x = T.make_tensor(p, (T.cast(A[0], 'int32'),))", "TL0309"),
    ("A[0] = 1.0", "TL0207"),
])  # fmt: skip
def test_what_is_no_pointer_is_refused(bad, code):
    text = f'@T.prim_func\ndef f(A: T.Tensor((8,), "float32"), p: T.ptr):\n    with T.Kernel(1, threads=32):\n        {bad}\n'
    assert refused(text).code == code


def test_float32_products_in_full_are_a_flag_of_the_kernel():
    text = """
@T.prim_func
def gemm(A: T.Tensor((32, 32), "float32"), B: T.Tensor((32, 32), "float32"), C: T.Tensor((32, 32), "float32")):
    with T.Kernel(1, threads=32):
        a, b = T.alloc_shared((32, 32), "float32"), T.alloc_shared((32, 32), "float32")
        c = T.alloc_fragment((32, 32), "float32")
        T.copy(A, a)
        T.copy(B, b)
        T.gemm(a, b, c, clear_accum=True)
        T.copy(c, C)
"""
    rng = np.random.default_rng()
    a, b = (rng.standard_normal((32, 32)).astype(np.float32) for _ in range(2))
    values = {"A": a, "B": b, "C": poison((32, 32), np.float32)}
    done = check(text, values, {"C": a.astype(np.float64) @ b}, 2e-5, fp32_gemm="ieee")
    assert done.module.kernels[0].flags == ("fp32_gemm_ieee",)
