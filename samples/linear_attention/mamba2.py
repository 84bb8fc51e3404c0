"""The two heavy kernels of Mamba-2: states at the ends of chunks, and the outputs inside them.

    tilec compile samples/linear_attention/mamba2.py -k chunk_state -D seq=4096 -D heads=64 -D groups=1 -D dim=64 -D dstate=128 -o state.cu
    tilec compile samples/linear_attention/mamba2.py -k chunk_scan  -D seq=4096 -D heads=64 -D groups=1 -D dim=64 -D dstate=128 -o scan.cu

dA_cumsum[b, h, c, l] is the running sum of dt * A inside chunk c. A chunk's state is sum_l x_l B_l^T dt_l exp(dA_last - dA_l);
its output adds what the state in front of it gives (C S exp(dA)) to what the chunk's own tokens give.
"""

import tilelang
import tilelang.language as T

LOG2E = 1.44269504


def make_state(seq, heads, groups, dim, dstate, batch=1, chunk=64, block_m=64, block_n=64, block_k=32, stages=2, threads=128):
    chunks = T.ceildiv(seq, chunk)
    dtype, accum = T.float16, T.float32

    @T.prim_func
    def kernel(
        B: T.Tensor((batch, seq, groups, dstate), dtype),
        x: T.Tensor((batch, seq, heads, dim), dtype),
        dt: T.Tensor((batch, heads, chunks, chunk), dtype),
        dA_cumsum: T.Tensor((batch, heads, chunks, chunk), dtype),
        States: T.Tensor((batch, chunks, heads, dim, dstate), dtype),
    ):
        with T.Kernel(heads, T.ceildiv(dim, block_m) * T.ceildiv(dstate, block_n), batch * chunks, threads=threads) as (bz, bx, by):
            x_shared = T.alloc_shared((block_k, block_m), dtype)
            x_local = T.alloc_fragment((block_k, block_m), dtype)
            xt_local = T.alloc_fragment((block_m, block_k), dtype)
            B_shared = T.alloc_shared((block_k, block_n), dtype)
            dt_shared = T.alloc_shared((block_k,), dtype)
            dA_shared = T.alloc_shared((block_k,), dtype)
            acc = T.alloc_fragment((block_m, block_n), accum)
            weight = T.alloc_fragment((block_k,), accum)
            dA_last = T.alloc_var(accum)

            b = by % batch
            c = by // batch
            m = bx // T.ceildiv(dstate, block_n)
            n = bx % T.ceildiv(dstate, block_n)
            dA_last = dA_cumsum[b, bz, c, chunk - 1]
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(chunk, block_k), num_stages=stages):
                first = c * chunk + k * block_k
                T.copy(x[b, first : first + block_k, bz, m * block_m : (m + 1) * block_m], x_shared)
                T.copy(dA_cumsum[b, bz, c, k * block_k : (k + 1) * block_k], dA_shared)
                T.copy(dt[b, bz, c, k * block_k : (k + 1) * block_k], dt_shared)
                for i in T.Parallel(block_k):
                    weight[i] = T.exp2((dA_last - dA_shared[i]) * LOG2E) * dt_shared[i]
                T.copy(x_shared, x_local)
                for i, j in T.Parallel(block_m, block_k):
                    xt_local[i, j] = x_local[j, i] * weight[j]
                T.copy(B[b, first : first + block_k, bz // (heads // groups), n * block_n : (n + 1) * block_n], B_shared)
                T.gemm(xt_local, B_shared, acc)
            T.copy(acc, States[b, c, bz, m * block_m : (m + 1) * block_m, n * block_n : (n + 1) * block_n])

    return kernel


def make_scan(seq, heads, groups, dim, dstate, batch=1, chunk=64, block_m=64, block_n=64, block_k=64, stages=2, threads=128):
    chunks = T.ceildiv(seq, chunk)
    per_group = heads // groups
    dtype, accum = T.float16, T.float32

    @T.prim_func
    def kernel(
        CB: T.Tensor((batch, chunks, groups, chunk, chunk), dtype),
        x: T.Tensor((batch, seq, heads, dim), dtype),
        dt: T.Tensor((batch, heads, chunks, chunk), dtype),
        dA_cumsum: T.Tensor((batch, heads, chunks, chunk), dtype),
        C: T.Tensor((batch, seq, groups, dstate), dtype),
        PrevStates: T.Tensor((batch, chunks, heads, dim, dstate), dtype),
        D: T.Tensor((heads,), dtype),
        Output: T.Tensor((batch, seq, heads, dim), dtype),
    ):
        with T.Kernel(heads, T.ceildiv(chunk, block_m) * T.ceildiv(dim, block_n), batch * chunks, threads=threads) as (bz, bx, by):
            acc_o = T.alloc_fragment((block_m, block_n), accum)
            acc_shared = T.alloc_shared((block_m, block_n), dtype)
            cb_shared = T.alloc_shared((block_m, block_k), dtype)
            cb_local = T.alloc_fragment((block_m, block_k), dtype)
            dA_k = T.alloc_fragment((block_k,), accum)
            dA_m = T.alloc_fragment((block_m,), accum)
            dt_k = T.alloc_fragment((block_k,), accum)
            dt_shared = T.alloc_shared((block_k,), dtype)
            dA_shared = T.alloc_shared((block_k,), dtype)
            x_shared = T.alloc_shared((block_k, block_n), dtype)
            x_residual = T.alloc_fragment((block_m, block_n), accum)
            C_shared = T.alloc_shared((block_m, dstate), dtype)
            state_shared = T.alloc_shared((block_n, dstate), dtype)

            b, c = by % batch, by // batch
            m = bx // T.ceildiv(dim, block_n)
            n = bx % T.ceildiv(dim, block_n)
            first = c * chunk + m * block_m
            T.clear(acc_o)
            T.copy(dA_cumsum[b, bz, c, m * block_m : (m + 1) * block_m], dA_m)
            T.copy(C[b, first : first + block_m, bz // per_group, 0:dstate], C_shared)
            T.copy(PrevStates[b, c, bz, n * block_n : (n + 1) * block_n, 0:dstate], state_shared)
            T.gemm(C_shared, state_shared, acc_o, transpose_B=True)
            for i, j in T.Parallel(block_m, block_n):
                acc_o[i, j] *= T.exp2(dA_m[i] * LOG2E)

            for k in T.Pipelined(T.ceildiv((m + 1) * block_m, block_k), num_stages=stages):
                T.copy(CB[b, c, bz // per_group, m * block_m : (m + 1) * block_m, k * block_k : (k + 1) * block_k], cb_shared)
                T.copy(cb_shared, cb_local)
                T.copy(dA_cumsum[b, bz, c, k * block_k : (k + 1) * block_k], dA_shared)
                T.copy(dA_shared, dA_k)
                T.copy(dt[b, bz, c, k * block_k : (k + 1) * block_k], dt_shared)
                T.copy(dt_shared, dt_k)
                for i, j in T.Parallel(block_m, block_k):
                    cb_local[i, j] = T.if_then_else(
                        m * block_m + i >= k * block_k + j,
                        cb_local[i, j] * T.exp2((dA_m[i] - dA_k[j]) * LOG2E) * dt_k[j],
                        0,
                    )
                T.copy(x[b, c * chunk + k * block_k : c * chunk + (k + 1) * block_k, bz, n * block_n : (n + 1) * block_n], x_shared)
                T.gemm(cb_local, x_shared, acc_o)

            T.copy(x[b, first : first + block_m, bz, n * block_n : (n + 1) * block_n], x_residual)
            for i, j in T.Parallel(block_m, block_n):
                acc_o[i, j] += x_residual[i, j] * D[bz]
            T.copy(acc_o, acc_shared)
            T.copy(acc_shared, Output[b, first : first + block_m, bz, n * block_n : (n + 1) * block_n])

    return kernel


chunk_state = tilelang.jit(make_state, out_idx=[4])
chunk_scan = tilelang.jit(make_scan, out_idx=[7])
