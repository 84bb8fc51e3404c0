"""A GEMM from a lazy @tilelang.jit factory: sizes come from the call, or from -D on the command line.

    tilec compile samples/gemm_lazy_jit.py -D M=512 -D N=512 -D K=512 -D trans_B=True -o gemm.cu
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[2])
def matmul(M, N, K, block_M=128, block_N=64, block_K=32, trans_B=False, dtype=T.float16, accum_dtype=T.float32):
    B_shape, B_tile = ((N, K), (block_N, block_K)) if trans_B else ((K, N), (block_K, block_N))

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor(B_shape, dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_s = T.alloc_shared((block_M, block_K), dtype)
            B_s = T.alloc_shared(B_tile, dtype)
            acc = T.alloc_fragment((block_M, block_N), accum_dtype)
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[by * block_M, ko * block_K], A_s)
                if trans_B:
                    T.copy(B[bx * block_N, ko * block_K], B_s)
                else:
                    T.copy(B[ko * block_K, bx * block_N], B_s)
                T.gemm(A_s, B_s, acc, transpose_B=trans_B)
            T.copy(acc, C[by * block_M, bx * block_N])

    return main
