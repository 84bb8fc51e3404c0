"""Sums of rows in two launches with scratch memory between them: each part of a row, then the parts."""

import tilelang.language as T

M, N = T.dynamic("M"), T.dynamic("N")
PARTS = 4


@T.prim_func
def split_sum(A: T.Tensor((M, N), "float32"), C: T.Tensor((M,), "float32")):
    partial = T.alloc_global((PARTS, M), "float32")
    with T.Kernel(PARTS, T.ceildiv(M, 32), threads=64) as (part, by):
        tile = T.alloc_fragment((32, 32), "float32")
        some = T.alloc_fragment((32,), "float32")
        total = T.alloc_fragment((32,), "float32")
        T.clear(total)
        for step in T.serial(T.ceildiv(N, 32 * PARTS)):
            T.copy(A[by * 32, (step * PARTS + part) * 32], tile)
            T.reduce_sum(tile, some, dim=1)
            for i in T.Parallel(32):
                total[i] = total[i] + some[i]
        T.copy(total, partial[part, by * 32])
    with T.Kernel(T.ceildiv(M, 64), threads=64) as b:
        for i in T.Parallel(64):
            row = b * 64 + i
            if row < M:
                C[row] = (partial[0, row] + partial[1, row]) + (partial[2, row] + partial[3, row])
