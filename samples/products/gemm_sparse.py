"""A product whose left operand keeps two of every four elements of a row; `E` holds 4 bits for each four that say which.

    tilec run samples/products/gemm_sparse.py -D M=64 -D N=64 -D K=128
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def sparse_matmul(M: int = 64, N: int = 64, K: int = 128, block_M: int = 64, block_N: int = 64, block_K: int = 64, threads: int = 128):
    marks = 16  # elements of a row that one int16 describes

    @T.prim_func
    def main(
        A: T.Tensor((M, K // 2), T.float16), E: T.Tensor((M, K // marks), T.int16), B: T.Tensor((K, N), T.float16),
        C: T.Tensor((M, N), T.float32),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K // 2), T.float16)
            E_shared = T.alloc_shared((block_M, block_K // marks), T.int16)
            B_shared = T.alloc_shared((block_K, block_N), T.float16)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[by * block_M, k * block_K // 2], A_shared)
                T.copy(E[by * block_M, k * block_K // marks], E_shared)
                T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm_sp(A_shared, E_shared, B_shared, C_local)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main
