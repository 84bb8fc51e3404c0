"""Layer normalisation of rows too long for registers, read once all the same: a part of the row in registers, the rest in shared memory.

    tilec run samples/rows/layer_norm_long.py -D M=8 -D N=65536

With 16384 of 65536 elements in registers two blocks fit on a multiprocessor, so that one reads while the other one writes.
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def layer_norm_long(M: int = 1024, N: int = 65536, held: int = 16384, dtype: str = "float16", threads: int = 512, eps: float = 1e-5):
    parts = N // held - 1

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), gain: T.Tensor((N,), dtype), bias: T.Tensor((N,), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(M, threads=threads) as row:
            T.annotate_min_blocks_per_sm(2)
            first = T.alloc_fragment((held,), dtype)
            rest = T.alloc_shared((parts * held,), dtype)
            wide = T.alloc_fragment((held,), "float32")
            mean = T.alloc_fragment((1,), "float32")
            spread = T.alloc_fragment((1,), "float32")

            T.copy(X[row, held], rest)
            T.copy(X[row, 0], first)
            T.copy(first, wide)
            for p in T.unroll(parts):
                for j in T.Parallel(held):
                    wide[j] += T.cast(rest[p * held + j], "float32")
            T.reduce_sum(wide, mean, dim=0)
            mean[0] /= N
            for j in T.Parallel(held):
                wide[j] = (T.cast(first[j], "float32") - mean[0]) * (T.cast(first[j], "float32") - mean[0])
            for p in T.unroll(parts):
                for j in T.Parallel(held):
                    centred = T.cast(rest[p * held + j], "float32") - mean[0]
                    wide[j] += centred * centred
            T.reduce_sum(wide, spread, dim=0)
            spread[0] = T.rsqrt(spread[0] / N + eps)
            for j in T.Parallel(held):
                Y[row, j] = (T.cast(first[j], "float32") - mean[0]) * spread[0] * T.cast(gain[j], "float32") + T.cast(bias[j], "float32")
            for p in T.unroll(parts):
                for j in T.Parallel(held):
                    at = (p + 1) * held + j
                    x = (T.cast(rest[p * held + j], "float32") - mean[0]) * spread[0]
                    Y[row, at] = x * T.cast(gain[at], "float32") + T.cast(bias[at], "float32")

    return main
