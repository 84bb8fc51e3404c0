"""The author's own CUDA: calls, pointers into every memory, text in front of the kernels."""

import numpy as np
import pytest

from tests.compiling import compile_text, run_reference
from tests.features.kit import HEAD, check, poison, refused
from tilec.ir.read import parse
from tilec.ir.show import show
from tilec.reference.errors import MeaningError

TEXT = '''
SOURCE = r"""
__device__ __forceinline__ float twice(float x) { return 2.0f * x; }
template <typename T, int n>
__device__ void unpack(const unsigned char* from, T* to) {
  for (int i = 0; i < n; ++i) {
    to[2 * i] = static_cast<T>(from[i] & 15);
    to[2 * i + 1] = static_cast<T>(from[i] >> 4);
  }
}
__device__ void reverse(float* tile, int n, int thread) {
  if (thread < n / 2) {
    const float kept = tile[thread];
    tile[thread] = tile[n - 1 - thread];
    tile[n - 1 - thread] = kept;
  }
}
__device__ int count = 0;
__device__ int bump(int* counter, int by) {
  *counter += by;
  return *counter;
}
"""

@T.prim_func
def own(A: T.Tensor((64,), "float32"), P: T.Tensor((64, 4), "uint8"), B: T.Tensor((64,), "float32"), U: T.Tensor((64, 8), "int32"),
        N: T.Tensor((64,), "int32"), G: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64, prelude="__device__ int three() { return 3; }"):
        tx = T.get_thread_binding()
        T.import_source(SOURCE)
        s = T.alloc_shared((64,), "float32")
        packed = T.alloc_local((4,), "uint8")
        wide = T.alloc_local((8,), "int32")
        calls = T.alloc_local((1,), "int32")
        for i in T.Parallel(64):
            s[i] = T.call_extern("float32", "twice", A[i])
        T.call_extern("handle", "reverse", T.access_ptr(s[0], "rw"), 64, tx)
        B[tx] = s[tx] + T.call_pure_extern("float32", "twice", 1.0)
        for k in T.vectorized(4):
            packed[k] = P[tx, k]
        T.call_extern("unpack<int, 4>", T.address_of(packed[0]), T.access_ptr(wide, "w"), dtype="handle")
        for k in T.serial(8):
            U[tx, k] = wide[k]
        calls[0] = tx
        T.call_extern("int32", "bump", T.address_of(calls[0]), 4)
        more = T.call_extern("int32", "bump", calls, T.call_extern("int32", "three"))
        N[tx] = more * 1000 + calls[0]
        T.call_extern("reverse", T.access_ptr(G, "rw", offset=0), 0, tx, dtype="float16")
        T.call_extern("void", "reverse", T.access_ptr(G, "rw", offset=32), 32, tx)
'''


def test_calls_pointers_and_sources():
    rng = np.random.default_rng()
    a, g = rng.standard_normal(64).astype(np.float32), rng.standard_normal(64).astype(np.float32)
    p = rng.integers(0, 256, (64, 4)).astype(np.uint8)
    values = {"A": a, "P": p, "B": poison((64,), np.float32), "U": poison((64, 8), np.int32), "N": poison((64,), np.int32), "G": g}
    n = np.arange(64) + 7
    wanted = {
        "B": 2 * a[::-1] + np.float32(2), "U": np.stack([p & 15, p >> 4], 2).reshape(64, 8), "N": n * 1000 + n,
        "G": np.concatenate([g[:32], g[:31:-1]]),
    }  # fmt: skip
    done = check(TEXT, values, wanted, reference=False)
    (kernel,) = done.module.kernels
    assert show(parse(show(kernel))) == show(kernel)
    with pytest.raises(MeaningError, match="twice"):
        run_reference(done, values)
    assert 'int* __restrict__ N' in done.cu and "const float* __restrict__ A" in done.cu and " float* __restrict__ G" in done.cu


def test_a_tile_filled_through_a_pointer_is_complete_for_all_threads():
    text = '''
SOURCE = "__device__ void put(float* p, float v) { *p = v; }"

@T.prim_func
def fill(A: T.Tensor((96,), "float32"), B: T.Tensor((96,), "float32")):
    with T.Kernel(1, threads=96):
        tx = T.get_thread_binding()
        T.import_source(SOURCE)
        s = T.alloc_shared((96,), "float32")
        for r in T.serial(3):
            T.call_extern("handle", "put", T.access_ptr(s[tx], "w"), A[tx] + T.cast(r, "float32"))
            B[tx] = s[95 - tx]
'''
    a = np.random.default_rng().standard_normal(96).astype(np.float32)
    check(text, {"A": a, "B": poison((96,), np.float32)}, {"B": (a + np.float32(2))[::-1]}, reference=False)


@pytest.mark.parametrize("bad, code", [
    ('T.call_extern("float32", "f(")', "TL0206"), ('T.call_extern("float32")', "TL0203"), ('T.access_ptr(A[0], "x")', "TL0206"),
    ('T.call_extern("handle", "f", T.address_of(frag[0]))', "TL0322"), ("T.import_source(3)", "TL0206"),
])  # fmt: skip
def test_what_is_no_call_is_refused(bad, code):
    text = f"""
@T.prim_func
def f(A: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=32):
        frag = T.alloc_fragment((8,), "float32")
        {bad}
"""
    assert refused(text).code == code
    assert compile_text(HEAD + text.replace(bad, "A[0] = 1.0")).cu


SOURCE_KERNEL = '''
SRC = """
#include <stdint.h>
struct word { uint16_t bits; };
extern "C" __global__ void __launch_bounds__(64) doubled(const float* A, float* B, word* H, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    B[i] = A[i] * 2;
    H[i].bits = static_cast<uint16_t>(0x3c00 + i);
  }
}
__global__ void other(int* x) { *x = 1; }
"""

def make(source, entry):
    N = T.dynamic("N")
    @T.prim_func
    def main(A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32), H: T.Tensor((N,), T.float16)):
        T.CUDASourceCodeKernel(T.ceildiv(N, 64), threads=64, source_code_or_path=source, entry_name=entry)
    return main
'''


@pytest.mark.parametrize("defines", [{}, {"N": 100}])
def test_kernels_that_are_the_authors_own(defines):
    a = np.random.default_rng().standard_normal(100).astype(np.float32)
    values = {"A": a, "B": poison((100,), np.float32), "H": poison((100,), np.float16)} | ({} if defines else {"N": 100})
    wanted = {"B": 2 * a, "H": (0x3C00 + np.arange(100)).astype(np.uint16).view(np.float16)}
    text = SOURCE_KERNEL + 'k = make(SRC, "doubled")\n'
    done = check(text, values, wanted, reference=False, defines=defines, kernels=("k",))
    assert done.cu.count("__global__ void") == 2 and "extern \"C\" __global__ void __launch_bounds__(64)\nk(" in done.cu


@pytest.mark.parametrize(
    ("call", "said"), [("SRC, None", "which __global__"), ('SRC, "three"', "no `__global__ void three`"), ('SRC, "other"', "takes 1 arg"),
                       ('"lost.cu", "doubled"', "cannot read"), ("3, None", "takes CUDA text")],
)  # fmt: skip
def test_kernels_of_the_author_that_are_not_there(call, said):
    assert said in refused(SOURCE_KERNEL + f"k = make({call})\n", kernels=("k",)).message
