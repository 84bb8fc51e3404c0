"""Attention over sequences of different lengths, packed one behind the other.

    tilec compile samples/attention/varlen.py -D heads=16 -D kv_heads=4 -D dim=128 -D causal=True -o varlen.cu

Sequence s has the queries Q[QStart[s] : QStart[s + 1]] and the keys K[KStart[s] : KStart[s + 1]]; the last query of a sequence
is aligned with its last key. The totals and the number of sequences are run-time arguments, so one binary serves any batch.
"""

import tilelang
import tilelang.language as T


def make(heads, kv_heads, dim, causal=False, block_m=64, block_n=64, stages=2, threads=128):
    scale = (1.0 / dim) ** 0.5 * 1.44269504
    group = heads // kv_heads
    queries, keys, starts = T.dynamic("queries, keys, starts")
    longest = T.dynamic("longest")

    @T.prim_func
    def varlen(
        Q: T.Tensor((queries, heads, dim), "float16"),
        K: T.Tensor((keys, kv_heads, dim), "float16"),
        V: T.Tensor((keys, kv_heads, dim), "float16"),
        QStart: T.Tensor((starts,), "int32"),
        KStart: T.Tensor((starts,), "int32"),
        O: T.Tensor((queries, heads, dim), "float16"),
        longest: T.int32,
    ):
        with T.Kernel(T.ceildiv(longest, block_m), heads, starts - 1, threads=threads) as (bx, by, bz):
            Q_shared = T.alloc_shared([block_m, dim], "float16")
            K_shared = T.alloc_shared([block_n, dim], "float16")
            V_shared = T.alloc_shared([block_n, dim], "float16")
            acc_s = T.alloc_fragment([block_m, block_n], "float32")
            acc_s_cast = T.alloc_fragment([block_m, block_n], "float16")
            acc_o = T.alloc_fragment([block_m, dim], "float32")
            m_new = T.alloc_fragment([block_m], "float32")
            m_old = T.alloc_fragment([block_m], "float32")
            alpha = T.alloc_fragment([block_m], "float32")
            partial = T.alloc_fragment([block_m], "float32")
            denominator = T.alloc_fragment([block_m], "float32")

            q_start = QStart[bz]
            k_start = KStart[bz]
            q_len = QStart[bz + 1] - q_start
            k_len = KStart[bz + 1] - k_start
            offset = k_len - q_len

            if bx * block_m < q_len:
                T.copy(Q[q_start + bx * block_m : q_start + (bx + 1) * block_m, by, :], Q_shared)
                T.clear(acc_o)
                T.clear(denominator)
                T.fill(m_new, -(2.0**30))

                steps = T.alloc_var("int32")
                steps = T.ceildiv(k_len, block_n)
                if causal:
                    steps = T.max(0, T.min(steps, T.ceildiv((bx + 1) * block_m + offset, block_n)))
                for k in T.Pipelined(steps, num_stages=stages):
                    T.copy(K[k_start + k * block_n : k_start + (k + 1) * block_n, by // group, :], K_shared)
                    for i, j in T.Parallel(block_m, block_n):
                        seen = k * block_n + j < k_len
                        if causal:
                            seen = seen and bx * block_m + i + offset >= k * block_n + j
                        acc_s[i, j] = T.if_then_else(seen, 0, -T.infinity("float32"))
                    T.gemm(Q_shared, K_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                    T.copy(m_new, m_old)
                    T.reduce_max(acc_s, m_new, dim=1, clear=False)
                    for i in T.Parallel(block_m):
                        alpha[i] = T.exp2(m_old[i] * scale - m_new[i] * scale)
                    for i, j in T.Parallel(block_m, block_n):
                        acc_s[i, j] = T.exp2(acc_s[i, j] * scale - m_new[i] * scale)
                    T.reduce_sum(acc_s, partial, dim=1)
                    for i in T.Parallel(block_m):
                        denominator[i] = denominator[i] * alpha[i] + partial[i]
                    T.copy(acc_s, acc_s_cast)
                    for i, j in T.Parallel(block_m, dim):
                        acc_o[i, j] = acc_o[i, j] * alpha[i]
                    T.copy(V[k_start + k * block_n : k_start + (k + 1) * block_n, by // group, :], V_shared)
                    T.gemm(acc_s_cast, V_shared, acc_o, policy=T.GemmWarpPolicy.FullRow)

                for i, j in T.Parallel(block_m, dim):
                    if bx * block_m + i < q_len:
                        O[q_start + bx * block_m + i, by, j] = T.if_then_else(denominator[i] > 0, acc_o[i, j] / denominator[i], 0)

    return varlen


varlen_kernel = tilelang.jit(make)
