"""Attention backward: dQ, dK and dV from the saved outputs and row sums of attention/forward.py.

    tilec compile samples/attention/backward.py -D batch=1 -D heads=16 -D seq=4096 -D dim=64 -o backward.cu

Four kernels: `delta` (row sums of dO * O), `gradients` (a block of keys stays, queries stream past; dQ is added up by atomics
in float32), `narrow` (dQ to float16), and `query_gradients` (dQ without atomics: a block of queries stays, keys stream past).
On Hopper `-D dim=128 -D block_n=128 -D threads=256` gives two warp groups 64 keys each.
"""

import tilelang
import tilelang.language as T

LOG2E = 1.44269504


def make_delta(batch, heads, seq, dim, rows=32):
    @T.prim_func
    def kernel(
        O: T.Tensor((batch, seq, heads, dim), "float16"),
        dO: T.Tensor((batch, seq, heads, dim), "float16"),
        Delta: T.Tensor((batch, heads, seq), "float32"),
    ):
        with T.Kernel(heads, T.ceildiv(seq, rows), batch) as (bx, by, bz):
            o = T.alloc_fragment([rows, dim], "float16")
            do = T.alloc_fragment([rows, dim], "float16")
            product = T.alloc_fragment([rows, dim], "float32")
            sums = T.alloc_fragment([rows], "float32")
            T.copy(O[bz, by * rows : (by + 1) * rows, bx, :], o)
            T.copy(dO[bz, by * rows : (by + 1) * rows, bx, :], do)
            for i, j in T.Parallel(rows, dim):
                product[i, j] = T.cast(o[i, j], "float32") * do[i, j]
            T.reduce_sum(product, sums, dim=1)
            T.copy(sums, Delta[bz, bx, by * rows : (by + 1) * rows])

    return kernel


def make_gradients(batch, heads, seq, dim, causal=False, block_m=64, block_n=64, stages=2, threads=128):
    scale = (1.0 / dim) ** 0.5
    scale_log2 = scale * LOG2E
    shape = (batch, seq, heads, dim)

    @T.prim_func
    def kernel(
        Q: T.Tensor(shape, "float16"),
        K: T.Tensor(shape, "float16"),
        V: T.Tensor(shape, "float16"),
        dO: T.Tensor(shape, "float16"),
        LSE: T.Tensor((batch, heads, seq), "float32"),
        Delta: T.Tensor((batch, heads, seq), "float32"),
        dQ: T.Tensor(shape, "float32"),
        dK: T.Tensor(shape, "float16"),
        dV: T.Tensor(shape, "float16"),
    ):
        with T.Kernel(heads, T.ceildiv(seq, block_n), batch, threads=threads) as (bx, by, bz):
            K_s = T.alloc_shared([block_n, dim], "float16")
            V_s = T.alloc_shared([block_n, dim], "float16")
            q = T.alloc_shared([block_m, dim], "float16")
            do = T.alloc_shared([block_m, dim], "float16")
            dsT_s = T.alloc_shared([block_n, block_m], "float16")
            lse = T.alloc_shared([block_m], "float32")
            delta = T.alloc_shared([block_m], "float32")
            sT = T.alloc_fragment([block_n, block_m], "float32")
            pT = T.alloc_fragment([block_n, block_m], "float16")
            dsT = T.alloc_fragment([block_n, block_m], "float32")
            dsT_half = T.alloc_fragment([block_n, block_m], "float16")
            dv = T.alloc_fragment([block_n, dim], "float32")
            dk = T.alloc_fragment([block_n, dim], "float32")
            dq = T.alloc_fragment([block_m, dim], "float32")

            T.copy(K[bz, by * block_n : (by + 1) * block_n, bx, :], K_s)
            T.copy(V[bz, by * block_n : (by + 1) * block_n, bx, :], V_s)
            T.clear(dv)
            T.clear(dk)
            first = T.floordiv(by * block_n, block_m) if causal else 0
            for k in T.Pipelined(first, T.ceildiv(seq, block_m), num_stages=stages):
                T.copy(Q[bz, k * block_m : (k + 1) * block_m, bx, :], q)
                T.clear(sT)
                T.gemm(K_s, q, sT, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(LSE[bz, bx, k * block_m : (k + 1) * block_m], lse)
                for i, j in T.Parallel(block_n, block_m):
                    sT[i, j] = T.exp2(sT[i, j] * scale_log2 - lse[j])
                for i, j in T.Parallel(block_n, block_m):
                    inside = by * block_n + i < seq and k * block_m + j < seq
                    if causal:
                        inside = inside and by * block_n + i <= k * block_m + j
                    sT[i, j] = T.if_then_else(inside, sT[i, j], 0)
                T.copy(dO[bz, k * block_m : (k + 1) * block_m, bx, :], do)
                T.clear(dsT)
                T.gemm(V_s, do, dsT, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(sT, pT)
                T.gemm(pT, do, dv, policy=T.GemmWarpPolicy.FullRow)
                T.copy(Delta[bz, bx, k * block_m : (k + 1) * block_m], delta)
                for i, j in T.Parallel(block_n, block_m):
                    dsT_half[i, j] = sT[i, j] * (dsT[i, j] - delta[j]) * scale
                T.gemm(dsT_half, q, dk, policy=T.GemmWarpPolicy.FullRow)
                T.copy(dsT_half, dsT_s)
                T.clear(dq)
                T.gemm(dsT_s, K_s, dq, transpose_A=True)
                for i, j in T.Parallel(block_m, dim):
                    if k * block_m + i < seq:
                        T.atomic_add(dQ[bz, k * block_m + i, bx, j], dq[i, j])
            T.copy(dv, dV[bz, by * block_n : (by + 1) * block_n, bx, :])
            T.copy(dk, dK[bz, by * block_n : (by + 1) * block_n, bx, :])

    return kernel


def make_narrow(batch, heads, seq, dim, rows=64):
    @T.prim_func
    def kernel(dQ: T.Tensor((batch, seq, heads, dim), "float32"), Out: T.Tensor((batch, seq, heads, dim), "float16")):
        with T.Kernel(T.ceildiv(seq, rows), heads, batch, threads=128) as (bx, by, bz):
            T.copy(dQ[bz, bx * rows : (bx + 1) * rows, by, :], Out[bz, bx * rows : (bx + 1) * rows, by, :])

    return kernel


def make_query_gradients(batch, heads, seq, dim, causal=False, block_m=64, block_n=64, stages=2, threads=128):
    scale = (1.0 / dim) ** 0.5
    scale_log2 = scale * LOG2E
    shape = (batch, seq, heads, dim)

    @T.prim_func
    def kernel(
        Q: T.Tensor(shape, "float16"),
        K: T.Tensor(shape, "float16"),
        V: T.Tensor(shape, "float16"),
        dO: T.Tensor(shape, "float16"),
        LSE: T.Tensor((batch, heads, seq), "float32"),
        Delta: T.Tensor((batch, heads, seq), "float32"),
        dQ: T.Tensor(shape, "float16"),
    ):
        with T.Kernel(T.ceildiv(seq, block_m), heads, batch, threads=threads) as (bx, by, bz):
            q = T.alloc_shared([block_m, dim], "float16")
            do = T.alloc_shared([block_m, dim], "float16")
            k = T.alloc_shared([block_n, dim], "float16")
            v = T.alloc_shared([block_n, dim], "float16")
            s = T.alloc_fragment([block_m, block_n], "float32")
            dp = T.alloc_fragment([block_m, block_n], "float32")
            ds = T.alloc_fragment([block_m, block_n], "float16")
            dq = T.alloc_fragment([block_m, dim], "float32")
            lse = T.alloc_fragment([block_m], "float32")
            delta = T.alloc_fragment([block_m], "float32")

            T.copy(Q[bz, bx * block_m : (bx + 1) * block_m, by, :], q)
            T.copy(dO[bz, bx * block_m : (bx + 1) * block_m, by, :], do)
            T.copy(LSE[bz, by, bx * block_m : (bx + 1) * block_m], lse)
            T.copy(Delta[bz, by, bx * block_m : (bx + 1) * block_m], delta)
            T.clear(dq)
            end = T.min(T.ceildiv((bx + 1) * block_m, block_n), T.ceildiv(seq, block_n)) if causal else T.ceildiv(seq, block_n)
            for n in T.Pipelined(end, num_stages=stages):
                T.copy(K[bz, n * block_n : (n + 1) * block_n, by, :], k)
                T.copy(V[bz, n * block_n : (n + 1) * block_n, by, :], v)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                T.gemm(do, v, dp, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_m, block_n):
                    visible = n * block_n + j < seq
                    if causal:
                        visible = visible and bx * block_m + i >= n * block_n + j
                    s[i, j] = T.if_then_else(visible, T.exp2(s[i, j] * scale_log2 - lse[i]), 0.0)
                    ds[i, j] = s[i, j] * (dp[i, j] - delta[i]) * scale
                T.gemm(ds, k, dq)
            T.copy(dq, dQ[bz, bx * block_m : (bx + 1) * block_m, by, :])

    return kernel


delta = tilelang.jit(make_delta, out_idx=[2])
gradients = tilelang.jit(make_gradients)
narrow = tilelang.jit(make_narrow, out_idx=[1])
query_gradients = tilelang.jit(make_query_gradients, out_idx=[6])
