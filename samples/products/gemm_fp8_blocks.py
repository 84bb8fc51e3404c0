"""A product of 8-bit floats with a scale for every 128 elements of a row of A and for every block of 128 by 128 of B.

    tilec run samples/products/gemm_fp8_blocks.py -D M=64 -D N=128 -D K=256
"""

import tilelang
import tilelang.language as T


@tilelang.jit
def matmul(A, B, scale_A, scale_B, block_M: int = 64, block_N: int = 128, threads: int = 128):
    M, N, K = T.const("M, N, K")
    group = 128
    A: T.Tensor[[M, K], T.float8_e4m3fn]
    B: T.Tensor[[N, K], T.float8_e4m3fn]
    scale_A: T.Tensor[[M, T.ceildiv(K, group)], T.float32]
    scale_B: T.Tensor[[T.ceildiv(N, group), T.ceildiv(K, group)], T.float32]
    C = T.empty((M, N), T.bfloat16)

    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
        A_shared = T.alloc_shared((block_M, group), T.float8_e4m3fn)
        B_shared = T.alloc_shared((block_N, group), T.float8_e4m3fn)
        scales = T.alloc_shared((block_M,), T.float32)
        C_step = T.alloc_fragment((block_M, block_N), T.float32)
        C_local = T.alloc_fragment((block_M, block_N), T.float32)
        T.use_swizzle(panel_size=10)
        T.clear(C_local)
        for k in T.Pipelined(T.ceildiv(K, group), num_stages=3):
            T.copy(A[by * block_M, k * group], A_shared)
            T.copy(B[bx * block_N, k * group], B_shared)
            for i in T.Parallel(block_M):
                scales[i] = scale_A[by * block_M + i, k] * scale_B[bx * block_N // group, k]
            T.gemm(A_shared, B_shared, C_step, transpose_B=True, clear_accum=True)
            for i, j in T.Parallel(block_M, block_N):
                C_local[i, j] += C_step[i, j] * scales[i]
        T.copy(C_local, C[by * block_M, bx * block_N])
    return C
