"""Attention forward as FlashAttention-2 does it: one block of queries a thread block, keys and values streamed past it.

    tilec compile samples/attention/forward.py -D batch=4 -D heads=16 -D kv_heads=16 -D seq=8192 -D dim=128 -o attention.cu
    tilec run samples/attention/forward.py -D batch=1 -D heads=4 -D kv_heads=2 -D seq=100 -D dim=64 -D causal=True

`kv_heads` smaller than `heads` shares keys and values between neighbouring heads (grouped queries). Rows are softmaxed with
base 2: log2(e) is folded into the scale. `LSE` receives the logarithm (base 2) of each row's sum, which the backward pass needs.
"""

import tilelang
import tilelang.language as T


FAST = {tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True}


@tilelang.jit(out_idx=[3, 4], pass_configs=FAST)
def attention(batch, heads, kv_heads, seq, dim, causal=False, block_m=64, block_n=64, stages=2, threads=128):
    scale = 1.44269504 / dim**0.5
    group = heads // kv_heads
    dtype, accum = "float16", "float32"

    @T.prim_func
    def kernel(
        Q: T.Tensor((batch, seq, heads, dim), dtype),
        K: T.Tensor((batch, seq, kv_heads, dim), dtype),
        V: T.Tensor((batch, seq, kv_heads, dim), dtype),
        O: T.Tensor((batch, seq, heads, dim), dtype),
        LSE: T.Tensor((batch, heads, seq), accum),
    ):
        with T.Kernel(T.ceildiv(seq, block_m), heads, batch, threads=threads) as (bx, head, b):
            Q_shared = T.alloc_shared((block_m, dim), dtype)
            K_shared = T.alloc_shared((block_n, dim), dtype)
            V_shared = T.alloc_shared((block_n, dim), dtype)
            scores = T.alloc_fragment((block_m, block_n), accum)
            probs = T.alloc_fragment((block_m, block_n), dtype)
            out = T.alloc_fragment((block_m, dim), accum)
            row_max = T.alloc_fragment((block_m,), accum)
            old_max = T.alloc_fragment((block_m,), accum)
            rescale = T.alloc_fragment((block_m,), accum)
            row_sum = T.alloc_fragment((block_m,), accum)
            total = T.alloc_fragment((block_m,), accum)

            T.copy(Q[b, bx * block_m : (bx + 1) * block_m, head, :], Q_shared)
            T.clear(out)
            T.clear(total)
            T.fill(row_max, -T.infinity(accum))

            last = T.min(T.ceildiv((bx + 1) * block_m, block_n), T.ceildiv(seq, block_n)) if causal else T.ceildiv(seq, block_n)
            for k in T.Pipelined(last, num_stages=stages):
                T.copy(K[b, k * block_n : (k + 1) * block_n, head // group, :], K_shared)
                for i, j in T.Parallel(block_m, block_n):
                    if causal:
                        scores[i, j] = T.if_then_else(bx * block_m + i >= k * block_n + j, 0, -T.infinity(accum))
                    else:
                        scores[i, j] = T.if_then_else(k * block_n + j < seq, 0, -T.infinity(accum))
                T.gemm(Q_shared, K_shared, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)

                T.copy(row_max, old_max)
                T.reduce_max(scores, row_max, dim=1, clear=False)
                for i in T.Parallel(block_m):
                    rescale[i] = T.exp2((old_max[i] - row_max[i]) * scale)
                for i, j in T.Parallel(block_m, block_n):
                    scores[i, j] = T.exp2(scores[i, j] * scale - row_max[i] * scale)
                T.reduce_sum(scores, row_sum, dim=1)
                for i in T.Parallel(block_m):
                    total[i] = total[i] * rescale[i] + row_sum[i]
                for i, j in T.Parallel(block_m, dim):
                    out[i, j] *= rescale[i]

                T.copy(scores, probs)
                T.copy(V[b, k * block_n : (k + 1) * block_n, head // group, :], V_shared)
                T.gemm(probs, V_shared, out, policy=T.GemmWarpPolicy.FullRow)

            for i, j in T.Parallel(block_m, dim):
                out[i, j] /= total[i]
            T.copy(out, O[b, bx * block_m : (bx + 1) * block_m, head, :])
            for i in T.Parallel(block_m):
                total[i] = T.log2(total[i]) + row_max[i] * scale
            T.copy(total, LSE[b, head, bx * block_m : (bx + 1) * block_m])

    return kernel
