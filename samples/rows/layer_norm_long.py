"""Layer normalisation of rows too long for registers, read once all the same: a part of the row in registers, the rest in shared memory.

    tilec run samples/rows/layer_norm_long.py -D M=8 -D N=65536

With 16384 of 65536 elements in registers two blocks fit on a multiprocessor, so that one reads while the other one writes. One pass sums
distances from a pivot and their squares. The pivot is the mean of the first elements: it lies within sqrt(N / few) standard deviations
of the row's mean whatever the row holds, so what cancels is at most log2(N / few) of float32's 24 bits, and next to nothing as a rule.
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def layer_norm_long(M: int = 1024, N: int = 65536, held: int = 16384, dtype: str = "float16", threads: int = 512, eps: float = 1e-5):
    few = 32
    step = threads * 8  # elements: 16 bytes a thread
    kept, parts = held // step, N // step

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), gain: T.Tensor((N,), dtype), bias: T.Tensor((N,), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(M, threads=threads) as row:
            T.annotate_min_blocks_per_sm(2)
            first = T.alloc_fragment((kept, step), dtype)
            rest = T.alloc_shared((N - held,), dtype)
            lead = T.alloc_fragment((few,), "float32")
            away = T.alloc_fragment((kept, step), "float32")
            sums = T.alloc_fragment((step,), "float32")
            squares = T.alloc_fragment((step,), "float32")
            pivot = T.alloc_fragment((1,), "float32")
            mean = T.alloc_fragment((1,), "float32")
            spread = T.alloc_fragment((1,), "float32")

            T.copy(X[row, held], rest)
            for p, j in T.Parallel(kept, step):
                first[p, j] = X[row, p * step + j]
            T.copy(X[row, 0], lead)
            T.reduce_sum(lead, pivot, dim=0)
            pivot[0] /= few
            for p, j in T.Parallel(kept, step):
                away[p, j] = T.cast(first[p, j], "float32") - pivot[0]
            T.reduce_sum(away, sums, dim=0)
            for p, j in T.Parallel(kept, step):
                away[p, j] *= away[p, j]
            T.reduce_sum(away, squares, dim=0)
            for p in T.unroll(parts - kept, unroll_factor=2):
                for j in T.Parallel(step):
                    x = T.cast(rest[p * step + j], "float32") - pivot[0]
                    sums[j] += x
                    squares[j] += x * x
            T.reduce_sum(sums, mean, dim=0)
            T.reduce_sum(squares, spread, dim=0)
            mean[0] /= N
            spread[0] = T.rsqrt(T.max(spread[0] / N - mean[0] * mean[0], 0) + eps)
            mean[0] += pivot[0]
            for p, j in T.Parallel(kept, step):
                x = (T.cast(first[p, j], "float32") - mean[0]) * spread[0]
                Y[row, p * step + j] = x * T.cast(gain[p * step + j], "float32") + T.cast(bias[p * step + j], "float32")
            for p in T.unroll(kept, parts):
                for j in T.Parallel(step):
                    at = p * step + j
                    x = (T.cast(rest[at - held], "float32") - mean[0]) * spread[0]
                    Y[row, at] = x * T.cast(gain[at], "float32") + T.cast(bias[at], "float32")

    return main
