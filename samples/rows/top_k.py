"""The k largest elements of each row in order and where they stand, as an expert selector has them: k rounds of maximum and removal.

    tilec run samples/rows/top_k.py -D M=64 -D N=128 -D k=4
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[1, 2])
def top_k(M: int = 64, N: int = 128, k: int = 4, rows: int = 16, threads: int = 128):
    @T.prim_func
    def main(logits: T.Tensor((M, N), "float32"), gates: T.Tensor((M, k), "float32"), experts: T.Tensor((M, k), "int32")):
        with T.Kernel(T.ceildiv(M, rows), threads=threads) as bx:
            x = T.alloc_fragment([rows, N], dtype="float32")
            top = T.alloc_fragment([rows], dtype="float32")
            at = T.alloc_fragment([rows, N], dtype="int32")
            last = T.alloc_fragment([rows], dtype="int32")

            T.copy(logits[bx * rows, 0], x)
            for n in T.serial(k):
                T.fill(at, -1)
                T.reduce_max(x, top, dim=1, clear=True)
                for i, j in T.Parallel(rows, N):
                    at[i, j] = T.if_then_else(top[i] == x[i, j], j, at[i, j])
                T.reduce_max(at, last, dim=1, clear=True)
                for i, j in T.Parallel(rows, N):
                    x[i, j] = T.if_then_else(j == last[i], -T.infinity("float32"), x[i, j])
                for i in T.Parallel(rows):
                    gates[bx * rows + i, n] = top[i]
                    experts[bx * rows + i, n] = last[i]

    return main
