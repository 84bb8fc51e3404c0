"""A fused GEMM: relu(A @ B + bias) without a second kernel, the bias read once for a tile.

    tilec run samples/gemm_bias_relu.py
"""

import tilelang.language as T

M, N, K = 256, 256, 128
BM, BN, BK = 64, 128, 32


@T.macro
def relu(x):
    return T.max(x, 0.0)


@T.prim_func
def gemm_bias_relu(
    A: T.Tensor((M, K), "float16"),
    B: T.Tensor((K, N), "float16"),
    bias: T.Tensor((N,), "float16"),
    C: T.Tensor((M, N), "float16"),
):
    with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=128) as (bx, by):
        A_s = T.alloc_shared((BM, BK), "float16")
        B_s = T.alloc_shared((BK, BN), "float16")
        bias_s = T.alloc_shared((BN,), "float16")
        acc = T.alloc_fragment((BM, BN), "float32")

        T.copy(bias[bx * BN], bias_s)
        T.clear(acc)
        for ko in T.Pipelined(T.ceildiv(K, BK), num_stages=3):
            T.copy(A[by * BM, ko * BK], A_s)
            T.copy(B[ko * BK, bx * BN], B_s)
            T.gemm(A_s, B_s, acc)
        for i, j in T.Parallel(BM, BN):
            acc[i, j] = relu(acc[i, j] + T.cast(bias_s[j], "float32"))
        T.copy(acc, C[by * BM, bx * BN])
