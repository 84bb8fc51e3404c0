"""int8 weights back to float16: one scale for each group of columns of a row.

    tilec run samples/elementwise/dequantise.py -D N=64 -D K=256
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[2])
def dequantise(N: int = 64, K: int = 256, group: int = 64, block_N: int = 16, block_K: int = 128):
    @T.prim_func
    def main(Q: T.Tensor((N, K), "int8"), scale: T.Tensor((N, K // group), "float16"), W: T.Tensor((N, K), "float16")):
        with T.Kernel(T.ceildiv(K, block_K), T.ceildiv(N, block_N), threads=128) as (bk, bn):
            q = T.alloc_fragment((block_N, block_K), "int8")
            w = T.alloc_fragment((block_N, block_K), "float16")

            T.copy(Q[bn * block_N, bk * block_K], q)
            for i, j in T.Parallel(block_N, block_K):
                w[i, j] = q[i, j].astype("float16") * scale[bn * block_N + i, (bk * block_K + j) // group]
            T.copy(w, W[bn * block_N, bk * block_K])

    return main
