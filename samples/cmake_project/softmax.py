"""Y = softmax of the rows of X, whose length is fixed when the kernel is compiled."""

import tilelang.language as T

from common import THREADS, WIDTH

M = T.dynamic("M")


@T.prim_func
def softmax(X: T.Tensor((M, WIDTH), "float32"), Y: T.Tensor((M, WIDTH), "float32")):
    with T.Kernel(M, threads=THREADS) as bm:
        x = T.alloc_fragment((1, WIDTH), "float32")
        top = T.alloc_fragment((1,), "float32")
        total = T.alloc_fragment((1,), "float32")
        T.copy(X[bm, 0], x)
        T.reduce_max(x, top, dim=1)
        for i, j in T.Parallel(1, WIDTH):
            x[i, j] = T.exp(x[i, j] - top[i])
        T.reduce_sum(x, total, dim=1)
        for i, j in T.Parallel(1, WIDTH):
            Y[bm + i, j] = x[i, j] / total[i]
