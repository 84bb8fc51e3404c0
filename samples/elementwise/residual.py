"""A residual connection with a scale for each channel, as vision transformers have it: Y = X + scale * R, row by row.

    tilec run samples/elementwise/residual.py -D M=64 -D N=1000
"""

import tilelang
import tilelang.language as T


@tilelang.jit
def residual(X, R, scale, block: int = 2048, threads: int = 256, dtype=T.float16):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), dtype)
    R: T.Tensor((M, N), dtype)
    scale: T.Tensor((N,), dtype)
    Y = T.empty((M, N), dtype)

    parts = T.ceildiv(N, block)
    with T.Kernel(M * parts, threads=threads) as b:
        row = b // parts
        for i in T.Parallel(block):
            j = b % parts * block + i
            Y[row, j] = T.cast(X[row, j], T.float32) + T.cast(scale[j], T.float32) * T.cast(R[row, j], T.float32)

    return Y
