"""A product with weights of 4 bits, two a byte, and a scale for every 64 of them: each step spreads a tile of them out to float16.

    tilec run samples/products/gemm_int4_weights.py -D M=64 -D N=128 -D K=256
"""

import tilelang
import tilelang.language as T


@tilelang.jit
def matmul(A, W, scale, block_M: int = 64, block_N: int = 64, block_K: int = 64, group: int = 64, threads: int = 128):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), T.float16)
    W: T.Tensor((N, K), T.int4)
    scale: T.Tensor((N, K // group), T.float16)
    C = T.empty((M, N), T.float16)

    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
        A_shared = T.alloc_shared((block_M, block_K), T.float16)
        W_shared = T.alloc_shared((block_N, block_K), T.int4)
        W_wide = T.alloc_shared((block_N, block_K), T.float16)
        C_local = T.alloc_fragment((block_M, block_N), T.float32)
        T.clear(C_local)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
            T.copy(A[by * block_M, k * block_K], A_shared)
            T.copy(W[bx * block_N, k * block_K], W_shared)
            for i, j in T.Parallel(block_N, block_K):
                W_wide[i, j] = W_shared[i, j] * scale[bx * block_N + i, (k * block_K + j) // group]
            T.gemm(A_shared, W_wide, C_local, transpose_B=True)
        T.copy(C_local, C[by * block_M, bx * block_N])
    return C
