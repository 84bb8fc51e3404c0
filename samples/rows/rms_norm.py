"""RMS normalisation, as inference code has it: the whole row in shared memory and registers of one block.

    tilec run samples/rows/rms_norm.py -D M=64 -D N=4096
"""

import tilelang.language as T


def rms_norm(M: int = 1024, N: int = 4096, blk_m: int = 1, threads: int = 256, dtype: str = "bfloat16", eps: float = 1e-6):
    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), weight: T.Tensor((N,), dtype), B: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, blk_m), threads=threads) as bx:
            A_local = T.alloc_fragment((blk_m, N), "float32")
            A_pow_local = T.alloc_fragment((blk_m, N), "float32")
            A_powsum = T.alloc_fragment((blk_m,), "float32")

            T.copy(A[bx * blk_m : (bx + 1) * blk_m, :], A_local)
            for i, j in T.Parallel(blk_m, N):
                A_pow_local[i, j] = A_local[i, j] * A_local[i, j]
            T.reduce_sum(A_pow_local, A_powsum, dim=1)
            for i in T.Parallel(blk_m):
                A_powsum[i] = T.rsqrt(A_powsum[i] / N + eps)
            for i, j in T.Parallel(blk_m, N):
                A_local[i, j] *= A_powsum[i]
            for i, j in T.Parallel(blk_m, N):
                B[bx * blk_m + i, j] = A_local[i, j] * weight[j]

    return main
