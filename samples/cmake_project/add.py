"""C = A + B, of any length; `block` elements a thread block."""

import tilelang
import tilelang.language as T

from common import THREADS


@tilelang.jit
def add(block: int = 1024):
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32"), C: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, block), threads=THREADS) as bx:
            for i in T.Parallel(block):
                C[bx * block + i] = A[bx * block + i] + B[bx * block + i]

    return main
