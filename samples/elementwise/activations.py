"""SiLU(gate) * up and GELU(up), one pass over both inputs; N is known only when the kernel runs.

    tilec run samples/elementwise/activations.py -D N=10000
"""

import tilelang
import tilelang.language as T


@T.macro
def silu(x):
    return x / (1.0 + T.exp(-x))


@T.macro
def gelu(x):
    return 0.5 * x * (1.0 + T.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


@tilelang.jit
def activations(gate, up, block: int = 1024, threads: int = 128):
    N = T.dynamic("N")
    gate: T.Tensor((N,), T.float16)
    up: T.Tensor((N,), T.float16)
    gated = T.empty((N,), T.float16)
    smooth = T.empty((N,), T.float16)

    with T.Kernel(T.ceildiv(N, block), threads=threads) as bx:
        for i in T.Parallel(block):
            g = T.cast(gate[bx * block + i], T.float32)
            u = T.cast(up[bx * block + i], T.float32)
            gated[bx * block + i] = silu(g) * u
            smooth[bx * block + i] = gelu(u)

    return gated, smooth
