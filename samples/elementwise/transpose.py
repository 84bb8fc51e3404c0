"""Transpose through a tile in shared memory: rows are read and rows are written, both in whole lines.

    tilec run samples/elementwise/transpose.py -D M=100 -D N=200
"""

import tilelang
import tilelang.language as T


@tilelang.jit
def transpose(A, block: int = 128, threads: int = 256, dtype=T.float16):
    M, N = T.const("M, N")
    A: T.Tensor((M, N), dtype)
    B = T.empty((N, M), dtype)

    with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=threads) as (bx, by):
        tile = T.alloc_shared((block, block), dtype)
        turned = T.alloc_fragment((block, block), dtype)

        T.copy(A[by * block, bx * block], tile)
        for i, j in T.Parallel(block, block):
            turned[i, j] = tile[j, i]
        T.copy(turned, B[bx * block, by * block])

    return B
