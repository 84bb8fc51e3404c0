"""Y = a * X + Y, of any length."""

import tilelang.language as T

from tiles import BLOCK

n = T.dynamic("n")


@T.prim_func
def saxpy(a: T.float32, X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
    with T.Kernel(T.ceildiv(n, BLOCK), threads=256) as bx:
        for i in T.Parallel(BLOCK):
            Y[bx * BLOCK + i] = a * X[bx * BLOCK + i] + Y[bx * BLOCK + i]
