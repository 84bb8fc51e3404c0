"""Softmax of rows that no block can hold: each position of a chunk keeps its own running maximum and sum until the row is through.

    tilec run samples/rows/softmax_streamed.py -D M=8 -D N=65536
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def softmax_streamed(M: int = 1024, N: int = 65536, chunk: int = 8192, dtype: str = "float16", threads: int = 1024):
    scale = 1.44269504  # log2(e)

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(M, threads=threads) as row:
            x = T.alloc_fragment((chunk,), "float32")
            most = T.alloc_fragment((chunk,), "float32")
            sums = T.alloc_fragment((chunk,), "float32")
            top = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")

            T.fill(most, -(2.0**30))
            T.clear(sums)
            for c in T.serial(T.ceildiv(N, chunk)):
                for j in T.Parallel(chunk):
                    if c * chunk + j < N:
                        a = T.cast(X[row, c * chunk + j], "float32") * scale
                        now = T.max(most[j], a)
                        sums[j] = sums[j] * T.exp2(most[j] - now) + T.exp2(a - now)
                        most[j] = now
            T.reduce_max(most, top, dim=0)
            for j in T.Parallel(chunk):
                sums[j] *= T.exp2(most[j] - top[0])
            T.reduce_sum(sums, total, dim=0)
            total[0] = 1.0 / total[0]
            for c in T.serial(T.ceildiv(N, chunk)):
                T.copy(X[row, c * chunk], x)
                for j in T.Parallel(chunk):
                    x[j] = T.exp2(x[j] * scale - top[0]) * total[0]
                T.copy(x, Y[row, c * chunk])

    return main
