"""The gated delta rule: a state that forgets (gate g), and writes only what it does not know yet (strength beta).

    S_t = exp(g_t) S_{t-1} + beta_t k_t (v_t - exp(g_t) S_{t-1}^T k_t)^T        o_t = S_t^T q_t

    tilec compile samples/linear_attention/gated_delta.py -k chunked -D heads=8 -D seq=4096 -D dim_k=128 -D dim_v=128 -o delta.cu

`recurrent` follows the formula token by token. `chunked` treats `chunk` tokens at a time: a unit lower triangular system gives
what each token of a chunk writes, everything else is matrix products.
"""

import tilelang
import tilelang.language as T


def make_recurrent(heads, seq, dim_k, dim_v, batch=1, block_v=32, threads=128):
    @T.prim_func
    def kernel(
        Q: T.Tensor([batch, seq, heads, dim_k], "float32"),
        K: T.Tensor([batch, seq, heads, dim_k], "float32"),
        V: T.Tensor([batch, seq, heads, dim_v], "float32"),
        G: T.Tensor([batch, seq, heads], "float32"),
        Beta: T.Tensor([batch, seq, heads], "float32"),
        O: T.Tensor([batch, seq, heads, dim_v], "float32"),
    ):
        with T.Kernel(T.ceildiv(dim_v, block_v), heads, batch, threads=threads) as (bv, bh, bb):
            state = T.alloc_fragment([block_v, dim_k], "float32")
            product = T.alloc_fragment([block_v, dim_k], "float32")
            known = T.alloc_fragment([block_v], "float32")
            q = T.alloc_fragment([dim_k], "float32")
            k = T.alloc_fragment([dim_k], "float32")
            v = T.alloc_fragment([block_v], "float32")

            T.clear(state)
            for t in T.serial(seq):
                T.copy(Q[bb, t, bh, :], q)
                T.copy(K[bb, t, bh, :], k)
                T.copy(V[bb, t, bh, bv * block_v : (bv + 1) * block_v], v)
                gate = T.exp(G[bb, t, bh])
                for i, j in T.Parallel(block_v, dim_k):
                    state[i, j] *= gate
                    product[i, j] = state[i, j] * k[j]
                T.reduce_sum(product, known, dim=1)
                for i, j in T.Parallel(block_v, dim_k):
                    state[i, j] += Beta[bb, t, bh] * (v[i] - known[i]) * k[j]
                    product[i, j] = state[i, j] * q[j]
                T.reduce_sum(product, known, dim=1)
                T.copy(known, O[bb, t, bh, bv * block_v : (bv + 1) * block_v])

    return kernel


def make_chunked(heads, seq, dim_k, dim_v, batch=1, chunk=32, block_v=32, stages=2, threads=128):
    dtype, accum = "float16", "float32"

    @T.prim_func
    def kernel(
        Q: T.Tensor([batch, seq, heads, dim_k], dtype),
        K: T.Tensor([batch, seq, heads, dim_k], dtype),
        V: T.Tensor([batch, seq, heads, dim_v], dtype),
        G: T.Tensor([batch, seq, heads], accum),
        Beta: T.Tensor([batch, seq, heads], accum),
        O: T.Tensor([batch, seq, heads, dim_v], dtype),
        Final: T.Tensor([batch, heads, dim_k, dim_v], accum),
    ):
        with T.Kernel(T.ceildiv(dim_v, block_v), heads, batch, threads=threads) as (bv, bh, bb):
            q = T.alloc_shared([chunk, dim_k], dtype)
            k = T.alloc_shared([chunk, dim_k], dtype)
            v = T.alloc_shared([chunk, block_v], dtype)
            g = T.alloc_shared([chunk], accum)
            decay = T.alloc_shared([chunk], accum)
            beta = T.alloc_shared([chunk], accum)
            system = T.alloc_shared([chunk, chunk], accum)
            writes = T.alloc_shared([chunk, block_v], accum)
            writes_half = T.alloc_shared([chunk, block_v], dtype)
            state_half = T.alloc_shared([dim_k, block_v], dtype)
            scores_half = T.alloc_shared([chunk, chunk], dtype)
            late = T.alloc_shared([chunk, block_v], dtype)
            kk = T.alloc_fragment([chunk, chunk], accum)
            qk = T.alloc_fragment([chunk, chunk], accum)
            recalled = T.alloc_fragment([chunk, block_v], accum)
            out = T.alloc_fragment([chunk, block_v], accum)
            state = T.alloc_fragment([dim_k, block_v], accum)

            T.clear(state)
            for c in T.Pipelined(T.ceildiv(seq, chunk), num_stages=stages):
                rows = T.min(chunk, seq - c * chunk)
                T.copy(Q[bb, c * chunk : (c + 1) * chunk, bh, :], q)
                T.copy(K[bb, c * chunk : (c + 1) * chunk, bh, :], k)
                T.copy(V[bb, c * chunk : (c + 1) * chunk, bh, bv * block_v : (bv + 1) * block_v], v)
                T.copy(G[bb, c * chunk : (c + 1) * chunk, bh], g)
                T.copy(Beta[bb, c * chunk : (c + 1) * chunk, bh], beta)
                T.cumsum(g, decay, dim=0)
                T.copy(state, state_half)

                # What the state recalls for each key, and the part of the writes that does not depend on other tokens.
                T.gemm(k, state_half, recalled, clear_accum=True)
                for i, j in T.Parallel(chunk, block_v):
                    writes[i, j] = beta[i] * (v[i, j] - T.exp(decay[i]) * recalled[i, j])
                T.gemm(k, k, kk, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, chunk):
                    system[i, j] = T.if_then_else(i > j, beta[i] * T.exp(decay[i] - decay[j]) * kk[i, j], 0)
                # Forward substitution: the columns are independent, so each has a thread of its own.
                for j in T.Parallel(block_v):
                    for i in T.serial(1, chunk):
                        for p in T.serial(i):
                            writes[i, j] -= system[i, p] * writes[p, j]
                T.copy(writes, writes_half)

                T.gemm(q, k, qk, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, chunk):
                    scores_half[i, j] = T.if_then_else(i >= j, T.exp(decay[i] - decay[j]) * qk[i, j], 0)
                T.gemm(q, state_half, out, clear_accum=True)
                for i, j in T.Parallel(chunk, block_v):
                    out[i, j] *= T.exp(decay[i])
                T.gemm(scores_half, writes_half, out)
                T.copy(out, O[bb, c * chunk : (c + 1) * chunk, bh, bv * block_v : (bv + 1) * block_v])

                for i, j in T.Parallel(dim_k, block_v):
                    state[i, j] *= T.exp(decay[rows - 1])
                for i, j in T.Parallel(chunk, block_v):
                    late[i, j] = writes[i, j] * T.exp(decay[rows - 1] - decay[i])
                T.gemm(k, late, state, transpose_A=True)
            T.copy(state, Final[bb, bh, :, bv * block_v : (bv + 1) * block_v])

    return kernel


recurrent = tilelang.jit(make_recurrent, out_idx=[5])
chunked = tilelang.jit(make_chunked, out_idx=[5, 6])
