"""RMS normalisation of rows that no block can hold: one pass over the row sums squares, a second one scales.

    tilec run samples/rows/rms_norm_streamed.py -D M=8 -D N=65536
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def rms_norm_streamed(M: int = 1024, N: int = 65536, chunk: int = 8192, dtype: str = "float16", threads: int = 1024, eps: float = 1e-6):
    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), weight: T.Tensor((N,), dtype), B: T.Tensor((M, N), dtype)):
        with T.Kernel(M, threads=threads) as row:
            squares = T.alloc_fragment((chunk,), "float32")
            total = T.alloc_fragment((1,), "float32")

            T.clear(squares)
            for c in T.serial(T.ceildiv(N, chunk)):
                for j in T.Parallel(chunk):
                    a = T.cast(A[row, c * chunk + j], "float32")
                    squares[j] += a * a
            T.reduce_sum(squares, total, dim=0)
            total[0] = T.rsqrt(total[0] / N + eps)
            for c in T.serial(T.ceildiv(N, chunk)):
                for j in T.Parallel(chunk):
                    a = T.cast(A[row, c * chunk + j], "float32")
                    B[row, c * chunk + j] = a * total[0] * T.cast(weight[c * chunk + j], "float32")

    return main
