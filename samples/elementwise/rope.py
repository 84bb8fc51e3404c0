"""Rotary position embedding of queries laid out (batch, sequence, head, dimension): halves of a head rotate together.

    tilec run samples/elementwise/rope.py -D B=2 -D S=32 -D H=4 -D D=64
"""

import tilelang
import tilelang.language as T


@tilelang.jit
def rope(X, cosine, sine, block: int = 16, threads: int = 128):
    B, S, H, D = T.const("B, S, H, D")
    X: T.Tensor((B, S, H, D), T.float16)
    cosine: T.Tensor((S, D // 2), T.float32)
    sine: T.Tensor((S, D // 2), T.float32)
    Y = T.empty((B, S, H, D), T.float16)
    half = D // 2

    with T.Kernel(T.ceildiv(S, block), H, B, threads=threads) as (bs, h, b):
        T.annotate_min_blocks_per_sm(1)  # registers for all loads at once
        for i, j in T.Parallel(block, half):
            s = bs * block + i
            if s < S:
                a = T.cast(X[b, s, h, j], T.float32)
                c = T.cast(X[b, s, h, j + half], T.float32)
                Y[b, s, h, j] = a * cosine[s, j] - c * sine[s, j]
                Y[b, s, h, j + half] = c * cosine[s, j] + a * sine[s, j]

    return Y
