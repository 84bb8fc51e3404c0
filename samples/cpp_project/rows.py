"""Two kernels in one file: the largest magnitude of each row, and every row divided by it."""

import tilelang.language as T

M, N = T.dynamic("M"), T.dynamic("N")
WIDTH = 256


@T.prim_func
def row_max(X: T.Tensor((M, N), "float32"), top: T.Tensor((M,), "float32")):
    with T.Kernel(M, threads=128) as bm:
        x = T.alloc_fragment((1, WIDTH), "float32")
        part = T.alloc_fragment((1,), "float32")
        best = T.alloc_fragment((1,), "float32")
        T.clear(best)
        for ko in T.serial(T.ceildiv(N, WIDTH)):
            T.copy(X[bm, ko * WIDTH], x)
            T.reduce_absmax(x, part, dim=1)
            for i in T.Parallel(1):
                best[i] = T.max(best[i], part[i])
        for i in T.Parallel(1):
            top[bm + i] = best[i]


@T.prim_func
def row_scale(top: T.Tensor((M,), "float32"), X: T.Tensor((M, N), "float32")):
    with T.Kernel(T.ceildiv(N, WIDTH), M, threads=128) as (bn, bm):
        for j in T.Parallel(WIDTH):
            X[bm, bn * WIDTH + j] = X[bm, bn * WIDTH + j] / top[bm]
