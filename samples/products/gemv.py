"""Matrix times vector: each block takes a few rows of the matrix, a tile of columns at a time.

    tilec run samples/products/gemv.py -D N=64 -D K=1024
"""

import tilelang
import tilelang.language as T


@tilelang.jit
def gemv(A, x, rows: int = 4, block_K: int = 512, threads: int = 128):
    N, K = T.const("N, K")
    A: T.Tensor((N, K), T.float16)
    x: T.Tensor((K,), T.float16)
    y = T.empty((N,), T.float16)

    with T.Kernel(T.ceildiv(N, rows), threads=threads) as bn:
        T.annotate_min_blocks_per_sm(1)  # registers for many loads under way
        acc = T.alloc_fragment((rows, block_K), T.float32)
        total = T.alloc_fragment((rows,), T.float32)

        T.clear(acc)
        for bk in T.serial(T.ceildiv(K, block_K)):
            for i, j in T.Parallel(rows, block_K):
                acc[i, j] += T.cast(A[bn * rows + i, bk * block_K + j], T.float32) * T.cast(x[bk * block_K + j], T.float32)
        T.reduce_sum(acc, total, dim=1)
        T.copy(total, y[bn * rows])

    return y
