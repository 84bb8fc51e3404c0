"""A small mixture of experts: tokens sorted by expert go through the expert's two layers and are added up by weight.

    tilec compile samples/moe/experts.py -D tokens=1024 -D experts=8 -D model=256 -D hidden=512 -D slots=3072 -o experts.cu

The router's answer comes as a list of `slots`: Token[s] is the token that slot s serves (-1 where a tile is padded), Weight[s]
its share, and Expert[t] the expert of the tile of `block_m` slots number t. `up_kernel` gathers rows, `down_kernel` scatters.
"""

import tilelang
import tilelang.language as T


def make_up(tokens, experts, model, hidden, slots, block_m=32, block_n=64, block_k=32, stages=2, threads=128):
    @T.prim_func
    def kernel(
        X: T.Tensor((tokens, model), "float16"),
        Wg: T.Tensor((experts, hidden, model), "float16"),
        Wu: T.Tensor((experts, hidden, model), "float16"),
        Token: T.Tensor((slots,), "int32"),
        Expert: T.Tensor((slots // block_m,), "int32"),
        H: T.Tensor((slots, hidden), "float16"),
    ):
        with T.Kernel(T.ceildiv(hidden, block_n), slots // block_m, threads=threads) as (bx, by):
            rows = T.alloc_shared((block_m, block_k), "float16")
            gate_w = T.alloc_shared((block_n, block_k), "float16")
            up_w = T.alloc_shared((block_n, block_k), "float16")
            gate = T.alloc_fragment((block_m, block_n), "float32")
            up = T.alloc_fragment((block_m, block_n), "float32")

            expert = Expert[by]
            T.clear(gate)
            T.clear(up)
            for k in T.Pipelined(T.ceildiv(model, block_k), num_stages=stages):
                for i, j in T.Parallel(block_m, block_k):
                    token = Token[by * block_m + i]
                    rows[i, j] = T.if_then_else(token >= 0, X[token, k * block_k + j], 0)
                T.copy(Wg[expert, bx * block_n : (bx + 1) * block_n, k * block_k : (k + 1) * block_k], gate_w)
                T.copy(Wu[expert, bx * block_n : (bx + 1) * block_n, k * block_k : (k + 1) * block_k], up_w)
                T.gemm(rows, gate_w, gate, transpose_B=True)
                T.gemm(rows, up_w, up, transpose_B=True)
            for i, j in T.Parallel(block_m, block_n):
                up[i, j] = up[i, j] * gate[i, j] / (1.0 + T.exp(-gate[i, j]))
            T.copy(up, H[by * block_m : (by + 1) * block_m, bx * block_n : (bx + 1) * block_n])

    return kernel


def make_down(tokens, experts, model, hidden, slots, block_m=32, block_n=64, block_k=32, stages=2, threads=128):
    @T.prim_func
    def kernel(
        H: T.Tensor((slots, hidden), "float16"),
        Wd: T.Tensor((experts, model, hidden), "float16"),
        Token: T.Tensor((slots,), "int32"),
        Weight: T.Tensor((slots,), "float32"),
        Expert: T.Tensor((slots // block_m,), "int32"),
        Y: T.Tensor((tokens, model), "float32"),
    ):
        with T.Kernel(T.ceildiv(model, block_n), slots // block_m, threads=threads) as (bx, by):
            h = T.alloc_shared((block_m, block_k), "float16")
            w = T.alloc_shared((block_n, block_k), "float16")
            y = T.alloc_fragment((block_m, block_n), "float32")
            T.clear(y)
            for k in T.Pipelined(T.ceildiv(hidden, block_k), num_stages=stages):
                T.copy(H[by * block_m, k * block_k], h)
                T.copy(Wd[Expert[by], bx * block_n : (bx + 1) * block_n, k * block_k : (k + 1) * block_k], w)
                T.gemm(h, w, y, transpose_B=True)
            for i, j in T.Parallel(block_m, block_n):
                if Token[by * block_m + i] >= 0:
                    T.atomic_add(Y[Token[by * block_m + i], bx * block_n + j], y[i, j] * Weight[by * block_m + i])

    return kernel


up_kernel = tilelang.jit(make_up, out_idx=[5])
down_kernel = tilelang.jit(make_down)
