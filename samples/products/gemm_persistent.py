"""A persistent GEMM: as many blocks as the GPU holds, each takes tile after tile in an order that keeps operands in the L2 cache.

    tilec run samples/products/gemm_persistent.py -D M=256 -D N=192 -D K=64 -D blocks=3
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[2])
def gemm_persistent(
    M: int = 256, N: int = 192, K: int = 64, block_M: int = 64, block_N: int = 64, block_K: int = 32, blocks: int = 132, num_stages: int = 3
):
    dtype = "float16"

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(blocks, threads=128) as block_id:
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")

            for bx, by in T.Persistent([T.ceildiv(M, block_M), T.ceildiv(N, block_N)], blocks, block_id):
                T.clear(C_local)
                for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                    T.copy(A[bx * block_M, k * block_K], A_shared)
                    T.copy(B[k * block_K, by * block_N], B_shared)
                    T.gemm(A_shared, B_shared, C_local)
                T.copy(C_local, C[bx * block_M, by * block_N])

    return main
