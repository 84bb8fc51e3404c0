"""A product for every matrix of a batch: the batch is the third axis of the grid.

    tilec run samples/products/gemm_batched.py -D B=3 -D M=64 -D N=96 -D K=64
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[2])
def gemm_batched(
    B: int = 3, M: int = 64, N: int = 96, K: int = 64, block_M: int = 64, block_N: int = 32, block_K: int = 32,
    dtype=T.float16, accum=T.float32
):
    @T.prim_func
    def main(X: T.Tensor((B, M, K), dtype), Y: T.Tensor((B, K, N), dtype), Z: T.Tensor((B, M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), B, threads=128) as (bx, by, bz):
            X_shared = T.alloc_shared((block_M, block_K), dtype)
            Y_shared = T.alloc_shared((block_K, block_N), dtype)
            acc = T.alloc_fragment((block_M, block_N), accum)

            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(X[bz, by * block_M : (by + 1) * block_M, k * block_K : (k + 1) * block_K], X_shared)
                T.copy(Y[bz, k * block_K : (k + 1) * block_K, bx * block_N : (bx + 1) * block_N], Y_shared)
                T.gemm(X_shared, Y_shared, acc)
            T.copy(acc, Z[bz, by * block_M : (by + 1) * block_M, bx * block_N : (bx + 1) * block_N])

    return main
