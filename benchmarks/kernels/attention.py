"""Attention forward on [batch, heads, seq, dim] as FlashAttention-2 states it: nothing in here knows of a machine."""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[3])
def attention(batch, heads, seq, dim, causal=False, block_m=128, block_n=128, dtype="float16"):
    scale = 1.44269504 / dim**0.5
    shape = (batch, heads, seq, dim)

    @T.prim_func
    def kernel(Q: T.Tensor(shape, dtype), K: T.Tensor(shape, dtype), V: T.Tensor(shape, dtype), O: T.Tensor(shape, dtype)):
        with T.Kernel(T.ceildiv(seq, block_m), heads, batch, threads=2 * block_m) as (bx, head, b):
            Q_shared = T.alloc_shared((block_m, dim), dtype)
            K_shared = T.alloc_shared((block_n, dim), dtype)
            V_shared = T.alloc_shared((block_n, dim), dtype)
            scores = T.alloc_fragment((block_m, block_n), "float32")
            probs = T.alloc_fragment((block_m, block_n), dtype)
            out = T.alloc_fragment((block_m, dim), "float32")
            row_max = T.alloc_fragment((block_m,), "float32")
            old_max = T.alloc_fragment((block_m,), "float32")
            rescale = T.alloc_fragment((block_m,), "float32")
            row_sum = T.alloc_fragment((block_m,), "float32")
            total = T.alloc_fragment((block_m,), "float32")

            T.copy(Q[b, head, bx * block_m : (bx + 1) * block_m, :], Q_shared)
            T.fill(out, 0)
            T.fill(total, 0)
            T.fill(row_max, -T.infinity("float32"))
            last = T.min(T.ceildiv((bx + 1) * block_m, block_n), T.ceildiv(seq, block_n)) if causal else T.ceildiv(seq, block_n)
            for k in T.Pipelined(last, num_stages=2):
                T.copy(K[b, head, k * block_n : (k + 1) * block_n, :], K_shared)
                for i, j in T.Parallel(block_m, block_n):
                    if causal:
                        scores[i, j] = T.if_then_else(bx * block_m + i >= k * block_n + j, 0, -T.infinity("float32"))
                    else:
                        scores[i, j] = T.if_then_else(k * block_n + j < seq, 0, -T.infinity("float32"))
                T.gemm(Q_shared, K_shared, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(row_max, old_max)
                T.reduce_max(scores, row_max, dim=1, clear=False)
                for i in T.Parallel(block_m):
                    rescale[i] = T.exp2(old_max[i] * scale - row_max[i] * scale)
                for i, j in T.Parallel(block_m, block_n):
                    scores[i, j] = T.exp2(scores[i, j] * scale - row_max[i] * scale)
                T.reduce_sum(scores, row_sum, dim=1)
                for i in T.Parallel(block_m):
                    total[i] = total[i] * rescale[i] + row_sum[i]
                T.copy(scores, probs)
                for i, j in T.Parallel(block_m, dim):
                    out[i, j] *= rescale[i]
                T.copy(V[b, head, k * block_n : (k + 1) * block_n, :], V_shared)
                T.gemm(probs, V_shared, out, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_m, dim):
                out[i, j] /= total[i]
            T.copy(out, O[b, head, bx * block_m : (bx + 1) * block_m, :])

    return kernel
