"""Rows as 8-bit floats, with a scale for every 128 elements that takes the largest of them to the largest 8-bit float.

    tilec run samples/rows/quantise_fp8.py -D N=512
"""

import tilelang
import tilelang.language as T


@tilelang.jit
def quantise(X, rows: int = 8, group: int = 128, threads: int = 128):
    M = T.dynamic("M")
    N = T.const("N")
    X: T.Tensor((M, N), T.bfloat16)
    Y = T.empty((M, N), T.float8_e4m3fn)
    scale = T.empty((M, N // group), T.float32)
    largest = 448.0

    with T.Kernel(T.ceildiv(M, rows), N // group, threads=threads) as (bx, by):
        x = T.alloc_fragment((rows, group), T.float32)
        y = T.alloc_fragment((rows, group), T.float8_e4m3fn)
        top = T.alloc_fragment((rows,), T.float32)
        T.copy(X[bx * rows, by * group], x)
        T.reduce_absmax(x, top, dim=1)
        for i in T.Parallel(rows):
            top[i] = T.max(top[i], 1e-4) / largest
            scale[bx * rows + i, by] = top[i]
        for i, j in T.Parallel(rows, group):
            y[i, j] = T.clamp(x[i, j] / top[i], -largest, largest)
        T.copy(y, Y[bx * rows, by * group])
    return Y, scale
