"""Retention (RetNet), parallel form: scores decay with distance by a rate of the head, and no softmax follows.

    tilec compile samples/linear_attention/retention.py -D heads=8 -D seq=2048 -D dim_qk=64 -D dim_v=128 -o retention.cu

o_i = sum over j <= i of (q_i k_j) gamma^(i - j) v_j / max(|sum of the weights|, 1), gamma = 1 - 2^(-5 - h).
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[3])
def retention(heads, seq, dim_qk, dim_v, batch=1, block_m=64, block_n=64, block_v=64, stages=2, threads=128):
    @T.macro
    def decay(head, distance):
        return T.exp2(T.log2(1 - T.exp2(-5.0 - T.cast(head, "float32"))) * T.cast(distance, "float32"))

    @T.prim_func
    def kernel(
        Q: T.Tensor([batch, seq, heads, dim_qk], "float16"),
        K: T.Tensor([batch, seq, heads, dim_qk], "float16"),
        V: T.Tensor([batch, seq, heads, dim_v], "float16"),
        O: T.Tensor([batch, seq, heads, dim_v], "float16"),
    ):
        with T.Kernel(T.ceildiv(seq, block_m) * T.ceildiv(dim_v, block_v), heads, batch, threads=threads) as (bx, head, b):
            pid_m = bx // T.ceildiv(dim_v, block_v)
            pid_v = bx % T.ceildiv(dim_v, block_v)
            q_shared = T.alloc_shared([block_m, dim_qk], "float16")
            k_shared = T.alloc_shared([block_n, dim_qk], "float16")
            v_shared = T.alloc_shared([block_n, block_v], "float16")
            s = T.alloc_fragment([block_m, block_n], "float32")
            s_half = T.alloc_fragment([block_m, block_n], "float16")
            o = T.alloc_fragment([block_m, block_v], "float32")
            norm = T.alloc_fragment([block_m], "float32")

            T.clear(o)
            T.clear(norm)
            T.copy(Q[b, pid_m * block_m : (pid_m + 1) * block_m, head, :], q_shared)
            for n in T.Pipelined(T.ceildiv(T.min((pid_m + 1) * block_m, seq), block_n), num_stages=stages):
                T.copy(K[b, n * block_n : (n + 1) * block_n, head, :], k_shared)
                T.copy(V[b, n * block_n : (n + 1) * block_n, head, pid_v * block_v : (pid_v + 1) * block_v], v_shared)
                T.clear(s)
                T.gemm(q_shared, k_shared, s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                for i, j in T.Parallel(block_m, block_n):
                    distance = pid_m * block_m + i - n * block_n - j
                    s[i, j] = T.if_then_else(distance >= 0, s[i, j] * decay(head, distance), 0)
                T.reduce_sum(s, norm, dim=1, clear=False)
                T.copy(s, s_half)
                T.gemm(s_half, v_shared, o, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_m, block_v):
                o[i, j] = o[i, j] / T.max(T.abs(norm[i]), 1)
            T.copy(o, O[b, pid_m * block_m : (pid_m + 1) * block_m, head, pid_v * block_v : (pid_v + 1) * block_v])

    return kernel
