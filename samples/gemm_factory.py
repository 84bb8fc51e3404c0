"""GEMMs from a plain Python factory: two kernels of one file, named after the variables they are bound to.

    tilec compile samples/gemm_factory.py -o gemms.cu               gemm_small and gemm_wide in one file
    tilec run samples/gemm_factory.py -k gemm_wide
"""

import tilelang.language as T


def make(m, n, k, tile, accum="float32"):
    rows, columns, depth = tile

    @T.prim_func
    def gemm(A: T.Tensor((m, k), "bfloat16"), B: T.Tensor((k, n), "bfloat16"), C: T.Tensor((m, n), accum)):
        with T.Kernel(T.ceildiv(n, columns), T.ceildiv(m, rows), threads=128) as (bx, by):
            A_s = T.alloc_shared((rows, depth), "bfloat16")
            B_s = T.alloc_shared((depth, columns), "bfloat16")
            acc = T.alloc_fragment((rows, columns), accum)
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(k, depth), num_stages=3):
                T.copy(A[by * rows, ko * depth], A_s)
                T.copy(B[ko * depth, bx * columns], B_s)
                T.gemm(A_s, B_s, acc)
            T.copy(acc, C[by * rows, bx * columns])

    return gemm


gemm_small = make(128, 128, 96, (64, 64, 32))
gemm_wide = make(128, 512, 64, (64, 128, 32))
