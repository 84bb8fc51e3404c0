"""A gated feed-forward layer in one kernel: Y = (silu(X Wg) * (X Wu)) Wd, the hidden layer never leaves the chip.

    tilec compile samples/moe/fused_mlp.py -D tokens=4096 -D model=128 -D hidden=2048 -o mlp.cu

Each block keeps its rows of X and of Y, and walks over the hidden layer in strips. It fits models whose rows fit shared memory.
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[4])
def fused_mlp(tokens, model, hidden, block_m=64, block_h=32, stages=2, threads=128):
    dtype, accum = "bfloat16", "float32"

    @T.prim_func
    def kernel(
        X: T.Tensor((tokens, model), dtype),
        Wg: T.Tensor((model, hidden), dtype),
        Wu: T.Tensor((model, hidden), dtype),
        Wd: T.Tensor((hidden, model), dtype),
        Y: T.Tensor((tokens, model), dtype),
    ):
        with T.Kernel(T.ceildiv(tokens, block_m), threads=threads) as bx:
            x = T.alloc_shared((block_m, model), dtype)
            gate_w = T.alloc_shared((model, block_h), dtype)
            up_w = T.alloc_shared((model, block_h), dtype)
            down_w = T.alloc_shared((block_h, model), dtype)
            gate = T.alloc_fragment((block_m, block_h), accum)
            up = T.alloc_fragment((block_m, block_h), accum)
            act = T.alloc_fragment((block_m, block_h), dtype)
            y = T.alloc_fragment((block_m, model), accum)

            T.copy(X[bx * block_m, 0], x)
            T.clear(y)
            for h in T.Pipelined(T.ceildiv(hidden, block_h), num_stages=stages):
                T.copy(Wg[0, h * block_h], gate_w)
                T.copy(Wu[0, h * block_h], up_w)
                T.copy(Wd[h * block_h, 0], down_w)
                T.gemm(x, gate_w, gate, clear_accum=True)
                T.gemm(x, up_w, up, clear_accum=True)
                for i, j in T.Parallel(block_m, block_h):
                    act[i, j] = gate[i, j] * T.sigmoid(gate[i, j]) * up[i, j]
                T.gemm(act, down_w, y)
            T.copy(y, Y[bx * block_m, 0])

    return kernel
