"""Layer normalisation with gain and bias: mean and variance of a row from the registers that hold it.

    tilec run samples/rows/layer_norm.py -D M=64 -D N=1024
"""

import tilelang
import tilelang.language as T


@tilelang.jit
def layer_norm(X, gain, bias, eps: float = 1e-5, rows: int = 1, threads: int = 256, dtype=T.float16):
    M, N = T.const("M, N")
    X: T.Tensor[[M, N], dtype]
    gain: T.Tensor[[N], dtype]
    bias: T.Tensor[[N], dtype]
    Y = T.empty((M, N), dtype)

    with T.Kernel(T.ceildiv(M, rows), threads=threads) as bm:
        x = T.alloc_fragment((rows, N), T.float32)
        square = T.alloc_fragment((rows, N), T.float32)
        mean = T.alloc_fragment((rows,), T.float32)
        spread = T.alloc_fragment((rows,), T.float32)

        T.copy(X[bm * rows, 0], x)
        T.reduce_sum(x, mean, dim=1)
        for i in T.Parallel(rows):
            mean[i] /= N
        for i, j in T.Parallel(rows, N):
            x[i, j] -= mean[i]
        for i, j in T.Parallel(rows, N):
            square[i, j] = x[i, j] * x[i, j]
        T.reduce_sum(square, spread, dim=1)
        for i in T.Parallel(rows):
            spread[i] = T.rsqrt(spread[i] / N + eps)
        for i, j in T.Parallel(rows, N):
            Y[bm * rows + i, j] = x[i, j] * spread[i] * gain[j] + bias[j]

    return Y
