"""Softmax of rows too long for registers, read once all the same: a part of the row in registers, the rest in shared memory.

    tilec run samples/rows/softmax_long.py -D M=8 -D N=65536

With 16384 of 65536 elements in registers two blocks fit on a multiprocessor, so that one reads while the other one writes.
"""

import tilelang
import tilelang.language as T

FAST = {tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True}


@tilelang.jit(out_idx=[-1], pass_configs=FAST)
def softmax_long(M: int = 1024, N: int = 65536, held: int = 16384, dtype: str = "float16", threads: int = 512):
    scale = 1.44269504  # log2(e)
    parts = N // held - 1

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(M, threads=threads) as row:
            T.annotate_min_blocks_per_sm(2)
            first = T.alloc_fragment((held,), dtype)
            rest = T.alloc_shared((parts * held,), dtype)
            wide = T.alloc_fragment((held,), "float32")
            top = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")

            T.copy(X[row, held], rest)
            T.copy(X[row, 0], first)
            T.copy(first, wide)
            for p in T.unroll(parts):
                for j in T.Parallel(held):
                    wide[j] = T.max(wide[j], T.cast(rest[p * held + j], "float32"))
            T.reduce_max(wide, top, dim=0)
            top[0] *= scale
            for j in T.Parallel(held):
                wide[j] = T.exp2(T.cast(first[j], "float32") * scale - top[0])
            for p in T.unroll(parts):
                for j in T.Parallel(held):
                    wide[j] += T.exp2(T.cast(rest[p * held + j], "float32") * scale - top[0])
            T.reduce_sum(wide, total, dim=0)
            total[0] = 1.0 / total[0]
            for j in T.Parallel(held):
                Y[row, j] = T.exp2(T.cast(first[j], "float32") * scale - top[0]) * total[0]
            for p in T.unroll(parts):
                for j in T.Parallel(held):
                    Y[row, (p + 1) * held + j] = T.exp2(T.cast(rest[p * held + j], "float32") * scale - top[0]) * total[0]

    return main
