"""Causal depthwise convolution over a sequence, as state-space models use it, with a SiLU behind it.

    tilec run samples/elementwise/conv1d.py -D B=2 -D S=100 -D C=64
"""

import tilelang
import tilelang.language as T


@tilelang.jit
def causal_conv1d(X, weight, bias, width: int = 4, block_S: int = 16, block_C: int = 64, threads: int = 128):
    B, S, C = T.const("B, S, C")
    X: T.Tensor((B, S, C), T.bfloat16)
    weight: T.Tensor((width, C), T.float32)
    bias: T.Tensor((C,), T.float32)
    Y = T.empty((B, S, C), T.bfloat16)

    with T.Kernel(T.ceildiv(C, block_C), T.ceildiv(S, block_S), B, threads=threads) as (bc, bs, b):
        acc = T.alloc_fragment((block_S, block_C), T.float32)
        for i, j in T.Parallel(block_S, block_C):
            acc[i, j] = bias[bc * block_C + j]
        for k in T.unroll(width):
            for i, j in T.Parallel(block_S, block_C):
                acc[i, j] += X[b, bs * block_S + i + k - (width - 1), bc * block_C + j] * weight[k, bc * block_C + j]
        for i, j in T.Parallel(block_S, block_C):
            acc[i, j] = acc[i, j] / (1.0 + T.exp(-acc[i, j]))
        T.copy(acc, Y[b, bs * block_S, bc * block_C])

    return Y
