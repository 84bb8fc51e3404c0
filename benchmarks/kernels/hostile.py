"""A product that misbehaves on request: what a search for fast parameters must survive. `fate` says what happens.

    tilec tune benchmarks/kernels/hostile.py --space fate=fine,wrong,crash,hang,illegal block_M=64,128 --timeout 20 -D M=512 ...
"""

import tilelang
import tilelang.language as T

SOURCE = """
__device__ __forceinline__ void misbehave(int crash) {
  if (crash) *reinterpret_cast<volatile int*>(8) = 1;
  while (!crash) __nanosleep(1000);
}
__device__ __forceinline__ void spoil(float* result) { result[0] = 1000.0f; }
"""


@tilelang.jit
def hostile(A, B, fate: str = "fine", block_M: int = 128):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    C = T.empty((M, N), T.float32)

    with T.Kernel(T.ceildiv(N, 128), T.ceildiv(M, block_M), threads=128) as (bx, by):
        block_K = 2048 if fate == "illegal" else 32
        A_shared = T.alloc_shared((block_M, block_K), T.float16)
        B_shared = T.alloc_shared((block_K, 128), T.float16)
        C_local = T.alloc_fragment((block_M, 128), T.float32)
        T.import_source(SOURCE)
        if fate == "crash" or fate == "hang":
            T.call_extern("handle", "misbehave", fate == "crash")
        T.clear(C_local)
        for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
            T.copy(A[by * block_M, ko * block_K], A_shared)
            T.copy(B[ko * block_K, bx * 128], B_shared)
            T.gemm(A_shared, B_shared, C_local)
        T.copy(C_local, C[by * block_M, bx * 128])
        if fate == "wrong":
            T.call_extern("handle", "spoil", T.access_ptr(C, "rw"))

    return C
