"""Sums along the rows and along the columns of a matrix from one read of it; columns meet in global memory by atomics.

    tilec run samples/rows/row_column_sum.py -D M=256 -D N=512
"""

import tilelang
import tilelang.language as T


@tilelang.jit
def row_column_sum(A, by_row, by_column, block_M: int = 64, block_N: int = 128, threads: int = 128):
    M, N = T.const("M, N")
    A: T.Tensor((M, N), T.float32)
    by_row: T.Tensor((M,), T.float32)
    by_column: T.Tensor((N,), T.float32)

    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
        a = T.alloc_fragment((block_M, block_N), T.float32)
        rows = T.alloc_fragment((block_M,), T.float32)
        columns = T.alloc_fragment((block_N,), T.float32)

        T.copy(A[by * block_M, bx * block_N], a)
        T.reduce_sum(a, rows, dim=1)
        T.reduce_sum(a, columns, dim=0)
        for i in T.Parallel(block_M):
            T.atomic_add(by_row[by * block_M + i], rows[i])
        for j in T.Parallel(block_N):
            T.atomic_add(by_column[bx * block_N + j], columns[j])
