"""The smallest kernel: C = A + B, of any length.

    tilec run samples/vector_add.py -D N=1000
"""

import tilelang.language as T

N = T.dynamic("N")
BLOCK = 1024


@T.prim_func
def vector_add(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
    with T.Kernel(T.ceildiv(N, BLOCK), threads=256) as bx:
        for i in T.Parallel(BLOCK):
            C[bx * BLOCK + i] = A[bx * BLOCK + i] + B[bx * BLOCK + i]
