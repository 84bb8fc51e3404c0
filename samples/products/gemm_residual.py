"""relu(A @ B + bias) + R: bias, activation and residual applied to the accumulator before it leaves the registers.

    tilec run samples/products/gemm_residual.py -D M=100 -D N=96 -D K=64
"""

import tilelang
import tilelang.language as T


@tilelang.jit
def gemm_residual(A, B, bias, R, block_M: int = 64, block_N: int = 64, block_K: int = 32, threads: int = 128):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), T.bfloat16)
    B: T.Tensor((N, K), T.bfloat16)
    bias: T.Tensor((N,), T.float32)
    R: T.Tensor((M, N), T.bfloat16)
    C = T.empty((M, N), T.bfloat16)

    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
        A_shared = T.alloc_shared((block_M, block_K), T.bfloat16)
        B_shared = T.alloc_shared((block_N, block_K), T.bfloat16)
        bias_local = T.alloc_fragment((block_N,), T.float32)
        residual = T.alloc_fragment((block_M, block_N), T.bfloat16)
        acc = T.alloc_fragment((block_M, block_N), T.float32)

        T.clear(acc)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
            T.copy(A[by * block_M, k * block_K], A_shared)
            T.copy(B[bx * block_N, k * block_K], B_shared)
            T.gemm(A_shared, B_shared, acc, transpose_B=True)
        T.copy(bias[bx * block_N], bias_local)
        T.copy(R[by * block_M, bx * block_N], residual)
        for i, j in T.Parallel(block_M, block_N):
            acc[i, j] = T.max(acc[i, j] + bias_local[j], 0) + residual[i, j]
        T.copy(acc, C[by * block_M, bx * block_N])

    return C
