"""RMS normalisation of rows too long for registers, read once all the same: a part of the row in registers, the rest in shared memory.

    tilec run samples/rows/rms_norm_long.py -D M=8 -D N=65536

With 16384 of 65536 elements in registers two blocks fit on a multiprocessor, so that one reads while the other one writes.
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def rms_norm_long(M: int = 1024, N: int = 65536, held: int = 16384, dtype: str = "float16", threads: int = 512, eps: float = 1e-6):
    parts = N // held - 1

    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), weight: T.Tensor((N,), dtype), B: T.Tensor((M, N), dtype)):
        with T.Kernel(M, threads=threads) as row:
            T.annotate_min_blocks_per_sm(2)
            first = T.alloc_fragment((held,), dtype)
            rest = T.alloc_shared((parts * held,), dtype)
            squares = T.alloc_fragment((held,), "float32")
            total = T.alloc_fragment((1,), "float32")

            T.copy(A[row, held], rest)
            T.copy(A[row, 0], first)
            for j in T.Parallel(held):
                squares[j] = T.cast(first[j], "float32") * T.cast(first[j], "float32")
            for p in T.unroll(parts):
                for j in T.Parallel(held):
                    squares[j] += T.cast(rest[p * held + j], "float32") * T.cast(rest[p * held + j], "float32")
            T.reduce_sum(squares, total, dim=0)
            total[0] = T.rsqrt(total[0] / N + eps)
            for j in T.Parallel(held):
                B[row, j] = T.cast(first[j], "float32") * total[0] * T.cast(weight[j], "float32")
            for p in T.unroll(parts):
                for j in T.Parallel(held):
                    at = (p + 1) * held + j
                    B[row, at] = T.cast(rest[p * held + j], "float32") * total[0] * T.cast(weight[at], "float32")

    return main
