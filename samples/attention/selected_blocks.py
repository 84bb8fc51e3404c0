"""Attention of each token to a few blocks of keys that were selected for it; the heads of a group share the selection.

    tilec run samples/attention/selected_blocks.py -D seq_len=64
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def selected_attention(
    batch: int = 1, seq_len: int = 64, heads: int = 16, groups: int = 16, dim: int = 64, block_size: int = 32, selected: int = 2,
    num_stages: int = 2, threads: int = 64,
):
    heads_kv = heads // groups
    scale = (1.0 / dim) ** 0.5 * 1.44269504
    q_shape = [batch, seq_len, heads, dim]
    kv_shape = [batch, seq_len, heads_kv, dim]
    dtype = T.float16
    accum_dtype = T.float32

    @T.prim_func
    def main(
        Q: T.Tensor(q_shape, dtype), K: T.Tensor(kv_shape, dtype), V: T.Tensor(kv_shape, dtype),
        blocks: T.Tensor([batch, seq_len, heads_kv, selected], T.int32), O: T.Tensor(q_shape, dtype),
    ):
        with T.Kernel(seq_len, batch * heads_kv, threads=threads) as (token, bh):
            Q_shared = T.alloc_shared([groups, dim], dtype)
            K_shared = T.alloc_shared([block_size, dim], dtype)
            V_shared = T.alloc_shared([block_size, dim], dtype)
            scores = T.alloc_fragment([groups, block_size], accum_dtype)
            probs = T.alloc_fragment([groups, block_size], dtype)
            out = T.alloc_fragment([groups, dim], accum_dtype)
            top = T.alloc_fragment([groups], accum_dtype)
            top_before = T.alloc_fragment([groups], accum_dtype)
            rescale = T.alloc_fragment([groups], accum_dtype)
            row_sum = T.alloc_fragment([groups], accum_dtype)
            total = T.alloc_fragment([groups], accum_dtype)
            b, h = bh // heads_kv, bh % heads_kv

            T.copy(Q[b, token, h * groups : (h + 1) * groups, :], Q_shared)
            T.clear(out)
            T.clear(total)
            T.fill(top, -T.infinity(accum_dtype))
            for n in T.Pipelined(selected, num_stages=num_stages):
                first = blocks[b, token, h, n] * block_size
                if first >= 0 and first <= token:
                    T.copy(K[b, first : first + block_size, h, :], K_shared)
                    for i, j in T.Parallel(groups, block_size):
                        scores[i, j] = T.if_then_else(token >= first + j, 0, -T.infinity(accum_dtype))
                    T.gemm(Q_shared, K_shared, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
                    T.copy(top, top_before)
                    T.reduce_max(scores, top, dim=1, clear=False)
                    for i in T.Parallel(groups):
                        rescale[i] = T.exp2(top_before[i] * scale - top[i] * scale)
                    for i, j in T.Parallel(groups, block_size):
                        scores[i, j] = T.exp2(scores[i, j] * scale - top[i] * scale)
                    T.reduce_sum(scores, row_sum, dim=1)
                    for i in T.Parallel(groups):
                        total[i] = total[i] * rescale[i] + row_sum[i]
                    T.copy(scores, probs)
                    for i, j in T.Parallel(groups, dim):
                        out[i, j] *= rescale[i]
                    T.copy(V[b, first : first + block_size, h, :], V_shared)
                    T.gemm(probs, V_shared, out, policy=T.GemmWarpPolicy.FullCol)
            for i, j in T.Parallel(groups, dim):
                out[i, j] /= total[i]
            T.copy(out, O[b, token, h * groups : (h + 1) * groups, :])

    return main
