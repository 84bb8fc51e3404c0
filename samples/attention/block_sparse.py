"""Causal attention that skips blocks of keys: a mask says which 64 x 64 blocks of scores exist.

    tilec compile samples/attention/block_sparse.py -D seq=8192 -D heads=16 -D dim=64 -o sparse.cu

Mask[b, h, m, n] is not 0 where block row m of the queries looks at block n of the keys. The diagonal must be present.
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[4])
def sparse_attention(seq, heads, dim, batch=1, block=64, stages=2, threads=128):
    blocks = tilelang.cdiv(seq, block)
    scale = 1.44269504 / dim**0.5
    shape = [batch, heads, seq, dim]

    @T.prim_func
    def kernel(
        Q: T.Tensor(shape, "float16"),
        K: T.Tensor(shape, "float16"),
        V: T.Tensor(shape, "float16"),
        Mask: T.Tensor([batch, heads, blocks, blocks], "int8"),
        O: T.Tensor(shape, "float16"),
    ):
        with T.Kernel(blocks, heads, batch, threads=threads) as (bx, by, bz):
            Q_s = T.alloc_shared([block, dim], "float16")
            K_s = T.alloc_shared([block, dim], "float16")
            V_s = T.alloc_shared([block, dim], "float16")
            s = T.alloc_fragment([block, block], "float32")
            p = T.alloc_fragment([block, block], "float16")
            o = T.alloc_fragment([block, dim], "float32")
            m, m_old = T.alloc_fragment([block], "float32"), T.alloc_fragment([block], "float32")
            alpha, part, den = (T.alloc_fragment([block], "float32") for _ in range(3))
            present = T.alloc_local([blocks], "int8")

            T.copy(Q[bz, by, bx * block : (bx + 1) * block, :], Q_s)
            T.fill(o, 0)
            T.fill(den, 0)
            T.fill(m, -T.infinity("float32"))
            for n in T.serial(blocks):
                present[n] = Mask[bz, by, bx, n]

            for n in T.Pipelined(bx + 1, num_stages=stages):
                if present[n] != 0:
                    T.copy(K[bz, by, n * block : (n + 1) * block, :], K_s)
                    if n == bx:
                        for i, j in T.Parallel(block, block):
                            s[i, j] = T.if_then_else(i >= j, 0, -T.infinity("float32"))
                    else:
                        T.clear(s)
                    T.gemm(Q_s, K_s, s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                    T.copy(m, m_old)
                    T.reduce_max(s, m, dim=1, clear=False)
                    for i in T.Parallel(block):
                        alpha[i] = T.exp2(m_old[i] * scale - m[i] * scale)
                    for i, j in T.Parallel(block, block):
                        s[i, j] = T.exp2(s[i, j] * scale - m[i] * scale)
                    T.reduce_sum(s, part, dim=1)
                    for i in T.Parallel(block):
                        den[i] = den[i] * alpha[i] + part[i]
                    for i, j in T.Parallel(block, dim):
                        o[i, j] *= alpha[i]
                    T.copy(s, p)
                    T.copy(V[bz, by, n * block : (n + 1) * block, :], V_s)
                    T.gemm(p, V_s, o, policy=T.GemmWarpPolicy.FullRow)

            for i, j in T.Parallel(block, dim):
                o[i, j] /= den[i]
            T.copy(o, O[bz, by, bx * block : (bx + 1) * block, :])

    return kernel
