"""Split-K: several blocks share the depth of one tile of C and add their parts to it by atomics; C starts at zero.

    tilec run samples/products/gemm_split_k.py -D M=64 -D N=64 -D K=256
"""

import tilelang
import tilelang.language as T


@tilelang.jit
def gemm_split_k(A, B, C, split_k: int = 4, block_M: int = 64, block_N: int = 64, block_K: int = 32, threads: int = 128):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    C: T.Tensor((M, N), T.float32)
    depth = K // split_k

    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), split_k, threads=threads) as (bx, by, bz):
        A_shared = T.alloc_shared((block_M, block_K), T.float16)
        B_shared = T.alloc_shared((block_K, block_N), T.float16)
        C_local = T.alloc_fragment((block_M, block_N), T.float32)

        T.clear(C_local)
        for k in T.Pipelined(T.ceildiv(depth, block_K), num_stages=2):
            T.copy(A[by * block_M, bz * depth + k * block_K], A_shared)
            T.copy(B[bz * depth + k * block_K, bx * block_N], B_shared)
            T.gemm(A_shared, B_shared, C_local)
        T.atomic_add(C[by * block_M, bx * block_N], C_local)
