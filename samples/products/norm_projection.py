"""Y = (x / rms(x)) @ W.T for each row x of X: a narrow projection and the sum of squares it is divided by, in one pass over the rows.

The rows go through registers once: as an operand of the product, and squared by the threads that hold them.

    tilec run samples/products/norm_projection.py -D M=100 -D N=32 -D K=520
"""

import tilelang
import tilelang.language as T


@tilelang.jit
def norm_projection(X, W, eps: float = 1e-6, block_M: int = 32, block_K: int = 256, threads: int = 128):
    M, N, K = T.const("M, N, K")
    X: T.Tensor((M, K), T.bfloat16)
    W: T.Tensor((N, K), T.float32)
    Y = T.empty((M, N), T.float32)

    with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
        acc = T.alloc_fragment((block_M, N), T.float32)
        part = T.alloc_fragment((block_M, 4), T.float32)
        square = T.alloc_fragment((block_M,), T.float32)
        T.clear(acc)
        T.clear(part)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
            X_shared = T.alloc_shared((block_M, block_K), T.bfloat16)
            W_shared = T.alloc_shared((N, block_K), T.float32)
            T.copy(X[bx * block_M, k * block_K], X_shared)
            T.copy(W[0, k * block_K], W_shared)

            x_half = T.alloc_fragment((block_M, block_K), T.bfloat16)
            x = T.alloc_fragment((block_M, block_K), T.float32)
            T.copy(X_shared, x_half)
            T.copy(x_half, x)
            for step in T.serial(block_K // 4):
                for i, j in T.Parallel(block_M, 4):
                    part[i, j] += x[i, step * 4 + j] * x[i, step * 4 + j]
            T.gemm(x, W_shared, acc, transpose_B=True)

        T.reduce_sum(part, square)
        for i, j in T.Parallel(block_M, N):
            acc[i, j] *= T.rsqrt(square[i] / K + eps)
        T.copy(acc, Y[bx * block_M, 0])

    return Y
