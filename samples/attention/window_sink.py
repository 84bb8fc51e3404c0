"""Causal attention over a sliding window, with a learned sink per head.

    tilec compile samples/attention/window_sink.py -D heads=64 -D kv_heads=8 -D seq=4096 -D dim=64 -D window=128 -o window.cu

Each query sees itself and the `window - 1` keys before it. A sink is one more score in the denominator of every row of a
head: it takes weight from the keys and brings no value.
"""

import tilelang
import tilelang.language as T

LOG2E = 1.44269504


@tilelang.jit(out_idx=[-1])
def window_attention(heads, kv_heads, seq, dim, window, batch=1, block_m=64, block_n=32, stages=2, threads=128, dtype="bfloat16"):
    scale = dim**-0.5 * LOG2E
    accum = T.float32
    q_shape, kv_shape = (batch, heads, seq, dim), (batch, kv_heads, seq, dim)

    @T.macro
    def softmax_step(scores, row_max, rescale, row_sum, total):
        previous = T.alloc_fragment([block_m], accum)
        T.copy(row_max, previous)
        T.reduce_max(scores, row_max, dim=1, clear=False)
        for i in T.Parallel(block_m):
            # A row that has seen no key yet keeps -inf: its differences must not become NaN.
            rescale[i] = T.if_then_else(row_max[i] == -T.infinity(accum), 1.0, T.exp2(previous[i] * scale - row_max[i] * scale))
        for i, j in T.Parallel(block_m, block_n):
            scores[i, j] = T.if_then_else(row_max[i] == -T.infinity(accum), 0.0, T.exp2(scores[i, j] * scale - row_max[i] * scale))
        T.reduce_sum(scores, row_sum, dim=1)
        for i in T.Parallel(block_m):
            total[i] = total[i] * rescale[i] + row_sum[i]

    @T.prim_func
    def kernel(
        Q: T.Tensor(q_shape, dtype),
        K: T.Tensor(kv_shape, dtype),
        V: T.Tensor(kv_shape, dtype),
        Sinks: T.Tensor((heads,), "float32"),
        O: T.Tensor(q_shape, dtype),
    ):
        with T.Kernel(T.ceildiv(seq, block_m), heads, batch, threads=threads) as (bx, by, bz):
            Q_s = T.alloc_shared([block_m, dim], dtype)
            K_s = T.alloc_shared([block_n, dim], dtype)
            V_s = T.alloc_shared([block_n, dim], dtype)
            O_s = T.alloc_shared([block_m, dim], dtype)
            scores = T.alloc_fragment([block_m, block_n], accum)
            weights = T.alloc_fragment([block_m, block_n], dtype)
            acc = T.alloc_fragment([block_m, dim], accum)
            row_max = T.alloc_fragment([block_m], accum)
            rescale = T.alloc_fragment([block_m], accum)
            row_sum = T.alloc_fragment([block_m], accum)
            total = T.alloc_fragment([block_m], accum)

            kv_head = by // (heads // kv_heads)
            T.copy(Q[bz, by, bx * block_m : (bx + 1) * block_m, :], Q_s)
            T.fill(acc, 0)
            T.fill(total, 0)
            T.fill(row_max, -T.infinity(accum))

            first = T.max(0, (bx * block_m - window + 1) // block_n)
            last = T.min(T.ceildiv((bx + 1) * block_m, block_n), T.ceildiv(seq, block_n))
            for ko in T.Pipelined(first, last, num_stages=stages):
                T.copy(K[bz, kv_head, ko * block_n : (ko + 1) * block_n, :], K_s)
                for i, j in T.Parallel(block_m, block_n):
                    row = bx * block_m + i
                    col = ko * block_n + j
                    scores[i, j] = T.if_then_else(row >= col and row < col + window, 0.0, -T.infinity(accum))
                T.gemm(Q_s, K_s, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                softmax_step(scores, row_max, rescale, row_sum, total)
                T.copy(scores, weights)
                for i, j in T.Parallel(block_m, dim):
                    acc[i, j] *= rescale[i]
                T.copy(V[bz, kv_head, ko * block_n : (ko + 1) * block_n, :], V_s)
                T.gemm(weights, V_s, acc, policy=T.GemmWarpPolicy.FullRow)

            for i in T.Parallel(block_m):
                total[i] += T.exp2(Sinks[by] * LOG2E - row_max[i] * scale)
            for i, j in T.Parallel(block_m, dim):
                acc[i, j] /= total[i]
            T.copy(acc, O_s)
            T.copy(O_s, O[bz, by, bx * block_m : (bx + 1) * block_m, :])

    return kernel
