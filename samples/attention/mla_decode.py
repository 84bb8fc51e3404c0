"""Multi-head latent attention, decoding: all heads of a token share one latent row that is both key and value.

    tilec compile samples/attention/mla_decode.py -D batch=64 -D heads=128 -D seq=8192 -D latent=512 -D rope=64 -o mla.cu

Scores are Q KV^T + Q_rope K_rope^T, outputs P KV: the latent tile is read once and multiplied twice.
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def mla_decode(batch, heads, seq, latent, rope, block_h=64, block_n=32, stages=2, threads=256):
    scale = (1.0 / (latent + rope)) ** 0.5 * 1.44269504
    dtype, accum = "bfloat16", "float32"

    @T.prim_func
    def kernel(
        Q: T.Tensor([batch, heads, latent], dtype),
        Q_rope: T.Tensor([batch, heads, rope], dtype),
        KV: T.Tensor([batch, seq, latent], dtype),
        K_rope: T.Tensor([batch, seq, rope], dtype),
        O: T.Tensor([batch, heads, latent], dtype),
    ):
        with T.Kernel(heads // block_h, batch, threads=threads) as (bx, b):
            Q_s = T.alloc_shared([block_h, latent], dtype)
            Qr_s = T.alloc_shared([block_h, rope], dtype)
            KV_s = T.alloc_shared([block_n, latent], dtype)
            Kr_s = T.alloc_shared([block_n, rope], dtype)
            P_s = T.alloc_shared([block_h, block_n], dtype)
            s = T.alloc_fragment([block_h, block_n], accum)
            o = T.alloc_fragment([block_h, latent], accum)
            m = T.alloc_fragment([block_h], accum)
            m_old = T.alloc_fragment([block_h], accum)
            alpha = T.alloc_fragment([block_h], accum)
            part = T.alloc_fragment([block_h], accum)
            den = T.alloc_fragment([block_h], accum)

            T.copy(Q[b, bx * block_h : (bx + 1) * block_h, :], Q_s)
            T.copy(Q_rope[b, bx * block_h : (bx + 1) * block_h, :], Qr_s)
            T.fill(o, 0)
            T.fill(den, 0)
            T.fill(m, -T.infinity(accum))
            for k in T.Pipelined(T.ceildiv(seq, block_n), num_stages=stages):
                T.copy(KV[b, k * block_n : (k + 1) * block_n, :], KV_s)
                T.copy(K_rope[b, k * block_n : (k + 1) * block_n, :], Kr_s)
                T.gemm(Q_s, KV_s, s, transpose_B=True, policy=T.GemmWarpPolicy.FullCol, clear_accum=True)
                T.gemm(Qr_s, Kr_s, s, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
                T.copy(m, m_old)
                T.fill(m, -T.infinity(accum))
                for i, j in T.Parallel(block_h, block_n):
                    s[i, j] = T.if_then_else(k * block_n + j < seq, s[i, j], -T.infinity(accum))
                T.reduce_max(s, m, dim=1, clear=False)
                for i in T.Parallel(block_h):
                    m[i] = T.max(m[i], m_old[i])
                    alpha[i] = T.exp2(m_old[i] * scale - m[i] * scale)
                for i, j in T.Parallel(block_h, block_n):
                    s[i, j] = T.exp2(s[i, j] * scale - m[i] * scale)
                T.reduce_sum(s, part, dim=1)
                T.copy(s, P_s)
                for i in T.Parallel(block_h):
                    den[i] = den[i] * alpha[i] + part[i]
                for i, j in T.Parallel(block_h, latent):
                    o[i, j] *= alpha[i]
                T.gemm(P_s, KV_s, o, policy=T.GemmWarpPolicy.FullCol)
            for i, j in T.Parallel(block_h, latent):
                o[i, j] /= den[i]
            T.copy(o, O[b, bx * block_h : (bx + 1) * block_h, :])

    return kernel
