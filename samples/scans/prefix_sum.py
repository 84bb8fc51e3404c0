"""Running sums along the rows of a matrix, tile after tile: each tile adds what the ones before it came to.

    tilec run samples/scans/prefix_sum.py -D M=64 -D N=1000
"""

import tilelang
import tilelang.language as T


@tilelang.jit
def prefix_sum(X, rows: int = 16, block: int = 64, threads: int = 64, reverse: bool = False):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), T.float32)
    Y = T.empty((M, N), T.float32)

    with T.Kernel(T.ceildiv(M, rows), threads=threads) as bm:
        tile = T.alloc_shared((rows, block), T.float32)
        carry = T.alloc_shared((rows,), T.float32)

        T.clear(carry)
        for step in T.serial(T.ceildiv(N, block)):
            b = T.ceildiv(N, block) - 1 - step if reverse else step
            T.copy(X[bm * rows, b * block], tile)
            T.cumsum(tile, dim=1, reverse=reverse)
            for i, j in T.Parallel(rows, block):
                tile[i, j] += carry[i]
            T.copy(tile, Y[bm * rows, b * block])
            for i in T.Parallel(rows):
                carry[i] = tile[i, 0 if reverse else block - 1]

    return Y
