"""Softmax of rows of any length: one pass keeps a running maximum and a rescaled running sum, a second one writes.

    tilec run samples/rows/online_softmax.py -D M=64 -D N=5000
"""

import tilelang
import tilelang.language as T


@tilelang.jit
def online_softmax(X, block_M: int = 4, block_N: int = 1024, threads: int = 128):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), T.float16)
    Y = T.empty((M, N), T.float16)
    scale = 1.44269504

    with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bm:
        T.annotate_min_blocks_per_sm(1)  # registers for the loads of a whole tile
        x = T.alloc_fragment((block_M, block_N), T.float32)
        top = T.alloc_fragment((block_M,), T.float32)
        before = T.alloc_fragment((block_M,), T.float32)
        total = T.alloc_fragment((block_M,), T.float32)
        part = T.alloc_fragment((block_M,), T.float32)

        T.fill(top, -T.infinity(T.float32))
        T.clear(total)
        for bn in T.serial(T.ceildiv(N, block_N)):
            for i, j in T.Parallel(block_M, block_N):
                x[i, j] = T.if_then_else(bn * block_N + j < N, X[bm * block_M + i, bn * block_N + j], -T.infinity(T.float32))
            T.copy(top, before)
            T.reduce_max(x, top, dim=1, clear=False)
            for i, j in T.Parallel(block_M, block_N):
                x[i, j] = T.exp2((x[i, j] - top[i]) * scale)
            T.reduce_sum(x, part, dim=1)
            for i in T.Parallel(block_M):
                total[i] = total[i] * T.exp2((before[i] - top[i]) * scale) + part[i]
        for i in T.Parallel(block_M):
            total[i] = 1.0 / total[i]
        for bn in T.serial(T.ceildiv(N, block_N)):
            T.copy(X[bm * block_M, bn * block_N], x)
            for i, j in T.Parallel(block_M, block_N):
                x[i, j] = T.exp2((x[i, j] - top[i]) * scale) * total[i]
            T.copy(x, Y[bm * block_M, bn * block_N])

    return Y
