"""Layer normalisation of rows too long for registers, read once all the same: a part of the row in registers, the rest in shared memory.

    tilec run samples/rows/layer_norm_long.py -D M=8 -D N=65536

One pass gives both sums. They are sums of differences from the first element of the row, so that a mean far from zero costs no
digits. With 8192 of 65536 elements in registers two blocks fit on a multiprocessor: one reads while the other one writes.
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def layer_norm_long(M: int = 1024, N: int = 65536, held: int = 8192, dtype: str = "float16", threads: int = 512, eps: float = 1e-5):
    parts = N // held - 1

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), gain: T.Tensor((N,), dtype), bias: T.Tensor((N,), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(M, threads=threads) as row:
            first = T.alloc_fragment((held,), dtype)
            rest = T.alloc_shared((parts * held,), dtype)
            sums = T.alloc_fragment((held,), "float32")
            squares = T.alloc_fragment((held,), "float32")
            mean = T.alloc_fragment((1,), "float32")
            spread = T.alloc_fragment((1,), "float32")

            T.copy(X[row, held], rest)
            T.copy(X[row, 0], first)
            origin = T.cast(X[row, 0], "float32")
            for j in T.Parallel(held):
                x = T.cast(first[j], "float32") - origin
                sums[j] = x
                squares[j] = x * x
            for p in T.unroll(parts):
                for j in T.Parallel(held):
                    x = T.cast(rest[p * held + j], "float32") - origin
                    sums[j] += x
                    squares[j] += x * x
            T.reduce_sum(sums, mean, dim=0)
            T.reduce_sum(squares, spread, dim=0)
            mean[0] /= N
            spread[0] = T.rsqrt(spread[0] / N - mean[0] * mean[0] + eps)
            mean[0] += origin
            for j in T.Parallel(held):
                Y[row, j] = (T.cast(first[j], "float32") - mean[0]) * spread[0] * T.cast(gain[j], "float32") + T.cast(bias[j], "float32")
            for p in T.unroll(parts):
                for j in T.Parallel(held):
                    x = (T.cast(rest[p * held + j], "float32") - mean[0]) * spread[0]
                    at = (p + 1) * held + j
                    Y[row, at] = x * T.cast(gain[at], "float32") + T.cast(bias[at], "float32")

    return main
