"""Linear attention in chunks: o_t = q_t S_t with S_t = S_{t-1} + k_t v_t^T, a chunk of tokens at a time.

    tilec compile samples/linear_attention/chunked.py -D heads=16 -D seq=4096 -D dim=128 -o linear.cu

Inside a chunk the causal part is a masked product, what came before is the state. The state of a head is split over blocks
along the columns of v, so each block owns a part of it from the first token to the last.
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[3, 4])
def linear_attention(heads, seq, dim, batch=1, chunk=64, block_k=64, block_v=64, threads=128):
    assert dim % block_v == 0 and dim % block_k == 0
    parts = dim // block_k
    dtype, accum = "float16", "float32"
    shape = [batch, seq, heads, dim]

    @T.prim_func
    def kernel(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(shape, dtype),
        V: T.Tensor(shape, dtype),
        O: T.Tensor([parts, batch, seq, heads, dim], accum),
        State: T.Tensor([batch, heads, dim, dim], accum),
    ):
        with T.Kernel(dim // block_v, parts, batch * heads, threads=threads) as (bv, bk, bh):
            b = bh // heads
            h = bh % heads
            q = T.alloc_shared([chunk, block_k], dtype)
            k = T.alloc_shared([chunk, block_k], dtype)
            v = T.alloc_shared([chunk, block_v], dtype)
            state_s = T.alloc_shared([block_k, block_v], dtype)
            s = T.alloc_fragment([chunk, chunk], accum)
            s_s = T.alloc_shared([chunk, chunk], dtype)
            state = T.alloc_fragment([block_k, block_v], accum)
            o = T.alloc_fragment([chunk, block_v], accum)

            T.clear(state)
            for c in T.Pipelined(T.ceildiv(seq, chunk), num_stages=1):
                T.copy(Q[b, c * chunk : (c + 1) * chunk, h, bk * block_k : (bk + 1) * block_k], q)
                T.copy(K[b, c * chunk : (c + 1) * chunk, h, bk * block_k : (bk + 1) * block_k], k)
                T.copy(V[b, c * chunk : (c + 1) * chunk, h, bv * block_v : (bv + 1) * block_v], v)
                T.clear(s)
                T.gemm(q, k, s, transpose_B=True)
                for i, j in T.Parallel(chunk, chunk):
                    s_s[i, j] = T.if_then_else(i >= j, s[i, j], 0)
                T.gemm(s_s, v, o, clear_accum=True)
                T.copy(state, state_s)
                T.gemm(q, state_s, o)
                T.gemm(k, v, state, transpose_A=True)
                T.copy(o, O[bk, b, c * chunk : (c + 1) * chunk, h, bv * block_v : (bv + 1) * block_v])
            T.copy(state, State[b, h, bk * block_k : (bk + 1) * block_k, bv * block_v : (bv + 1) * block_v])

    return kernel
