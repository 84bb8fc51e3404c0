"""Softmax of each row, the row held in the registers of one block: it is read once and written once.

    tilec run samples/rows/softmax.py -D M=64 -D N=4096
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def softmax(M: int = 1024, N: int = 4096, dtype: str = "float16", threads: int = 256):
    scale = 1.44269504  # log2(e)

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(M, threads=threads) as row:
            x = T.alloc_fragment((1, N), "float32")
            top = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")

            T.copy(X[row, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(1, N):
                x[i, j] = T.exp2(x[i, j] * scale - top[i] * scale)
            T.reduce_sum(x, total, dim=1)
            for i in T.Parallel(1):
                total[i] = 1.0 / total[i]
            for i, j in T.Parallel(1, N):
                x[i, j] *= total[i]
            T.copy(x, Y[row, 0])

    return main
