"""The column of the largest element of each row, the first one where several are equal.

    tilec run samples/rows/argmax.py -D M=64 -D N=1000
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[1, 2])
def argmax(M: int = 64, N: int = 1000, threads: int = 128):
    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), where: T.Tensor((M,), "int32"), value: T.Tensor((M,), "float32")):
        with T.Kernel(M, threads=threads) as row:
            x = T.alloc_fragment((N,), "float32")
            at = T.alloc_fragment((N,), "int32")
            top = T.alloc_fragment((1,), "float32")
            first = T.alloc_fragment((1,), "int32")

            T.copy(X[row, :], x)
            T.reduce_max(x, top, dim=0)
            for j in T.Parallel(N):
                at[j] = T.if_then_else(x[j] == top[0], j, N)
            T.reduce_min(at, first, dim=0)
            where[row] = first[0]
            value[row] = top[0]

    return main
