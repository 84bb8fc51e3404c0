"""A GEMM whose blocks work in pairs: two below one another need the same tile of B, and each fetches half of it for both.

On Hopper the copy engine delivers such a tile into both blocks at once (multicast). `--pairs on` and `--pairs off` decide the same
for any GEMM; without either tilec takes pairs where measurements say that they pay.

    tilec explain samples/clusters/gemm.py --arch sm_90a
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def gemm(M: int = 4096, N: int = 4096, K: int = 4096, block_M: int = 128, block_N: int = 256, block_K: int = 64):
    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=256, cluster_dims=(1, 2)) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), "float16")
            B_shared = T.alloc_shared((block_K, block_N), "float16")
            C_local = T.alloc_fragment((block_M, block_N), "float32")

            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=4):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main
