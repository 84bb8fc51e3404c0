"""Decoding: one query a sequence against a long cache, the cache cut into parts that blocks work on side by side.

    tilec compile samples/attention/decode.py -D heads=32 -D kv_heads=8 -D seq=8192 -D dim=128 -D splits=8 -o decode.cu

The heads of a group share their keys, so they are the rows of the score tile (padded to `block_h`). Each part leaves its own
softmax: outputs in Part and the base-2 logarithm of its sum in Lse. A second launch weighs the parts together.
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[6])
def decode(heads, kv_heads, seq, dim, splits, batch=1, block_n=64, block_h=16, stages=2, threads=128):
    scale = (1.0 / dim) ** 0.5 * 1.44269504
    group = heads // kv_heads
    rows = min(block_h, group)
    part_len = T.ceildiv(T.ceildiv(seq, splits), block_n) * block_n
    dtype, accum = T.float16, T.float32

    @T.prim_func
    def kernel(
        Q: T.Tensor([batch, heads, dim], dtype),
        K: T.Tensor([batch, seq, kv_heads, dim], dtype),
        V: T.Tensor([batch, seq, kv_heads, dim], dtype),
        Length: T.Tensor([batch], "int32"),
        Lse: T.Tensor([batch, heads, splits], accum),
        Part: T.Tensor([batch, heads, splits, dim], accum),
        O: T.Tensor([batch, heads, dim], dtype),
    ):
        with T.Kernel(batch, heads // rows, splits, threads=threads) as (bx, by, bz):
            Q_s = T.alloc_shared([block_h, dim], dtype)
            K_s = T.alloc_shared([block_n, dim], dtype)
            V_s = T.alloc_shared([block_n, dim], dtype)
            s = T.alloc_fragment([block_h, block_n], accum)
            p = T.alloc_fragment([block_h, block_n], dtype)
            o = T.alloc_fragment([block_h, dim], accum)
            m = T.alloc_fragment([block_h], accum)
            m_old = T.alloc_fragment([block_h], accum)
            alpha = T.alloc_fragment([block_h], accum)
            part = T.alloc_fragment([block_h], accum)
            den = T.alloc_fragment([block_h], accum)

            kv = by // (group // rows)
            T.copy(Q[bx, by * rows : by * rows + block_h, :], Q_s)
            T.clear(o)
            T.clear(den)
            T.fill(m, -T.infinity(accum))
            begin = bz * part_len
            length = T.max(0, T.min(Length[bx] - begin, part_len))
            for k in T.Pipelined(T.ceildiv(length, block_n), num_stages=stages):
                T.copy(K[bx, begin + k * block_n : begin + (k + 1) * block_n, kv, :], K_s)
                T.clear(s)
                T.gemm(Q_s, K_s, s, transpose_B=True)
                for i, j in T.Parallel(block_h, block_n):
                    s[i, j] = T.if_then_else(k * block_n + j < length, s[i, j], -T.infinity(accum))
                T.copy(m, m_old)
                T.reduce_max(s, m, dim=1, clear=False)
                for i in T.Parallel(block_h):
                    alpha[i] = T.exp2(m_old[i] * scale - m[i] * scale)
                for i, j in T.Parallel(block_h, block_n):
                    s[i, j] = T.exp2(s[i, j] * scale - m[i] * scale)
                T.reduce_sum(s, part, dim=1)
                for i in T.Parallel(block_h):
                    den[i] = den[i] * alpha[i] + part[i]
                T.copy(s, p)
                for i, j in T.Parallel(block_h, dim):
                    o[i, j] *= alpha[i]
                T.copy(V[bx, begin + k * block_n : begin + (k + 1) * block_n, kv, :], V_s)
                T.gemm(p, V_s, o)
            for i, j in T.Parallel(block_h, dim):
                if i < rows:
                    Part[bx, by * rows + i, bz, j] = T.if_then_else(den[i] > 0, o[i, j] / den[i], 0)
            for i in T.Parallel(block_h):
                if i < rows:
                    Lse[bx, by * rows + i, bz] = T.log2(den[i]) + m[i] * scale

        with T.Kernel(heads, batch, threads=128) as (by, bz):
            acc = T.alloc_fragment([dim], accum)
            one = T.alloc_fragment([dim], accum)
            best = T.alloc_var(accum)
            total = T.alloc_var(accum)
            weight = T.alloc_var(accum)
            best = -T.infinity(accum)
            total = 0.0
            T.clear(acc)
            for k in T.serial(splits):
                best = T.max(best, Lse[bz, by, k])
            for k in T.serial(splits):
                weight = T.exp2(Lse[bz, by, k] - best)
                total += weight
                T.copy(Part[bz, by, k, :], one)
                for j in T.Parallel(dim):
                    acc[j] += one[j] * weight
            for j in T.Parallel(dim):
                O[bz, by, j] = acc[j] / total

    return kernel
