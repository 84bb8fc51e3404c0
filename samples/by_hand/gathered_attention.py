"""Attention over keys that an index tensor picks, each query's heads in one block, three warp groups with a part each.

The first group makes the scores and the left half of the result, the second the right half, the third gathers rows of keys (which are
the values, too) element by element. Barriers pass the scores, their correction and the tiles around:

    tilec run samples/by_hand/gathered_attention.py --arch sm_90a
"""

import tilelang
import tilelang.language as T


@tilelang.jit
def gathered_attention(Q, KV, Picked, H=64, D=128, picks=256, BI=64):
    S, N = T.dynamic("S, N")
    Q: T.Tensor([S, H, D], T.bfloat16)
    KV: T.Tensor([N, D], T.bfloat16)
    Picked: T.Tensor([S, picks], T.int32)
    O = T.empty([S, H, D], T.bfloat16)
    half, steps = D // 2, picks // BI
    scale = 1.44269504 / D**0.5

    with T.Kernel(S, threads=384) as s:
        Q_l = T.alloc_shared([H, half], T.bfloat16)
        Q_r = T.alloc_shared([H, half], T.bfloat16)
        K_l = T.alloc_shared([BI, half], T.bfloat16)
        K_r = T.alloc_shared([BI, half], T.bfloat16)
        P_s = T.alloc_shared([H, BI], T.bfloat16)
        factor_s = T.alloc_shared([H], T.float32)
        total_s = T.alloc_shared([H], T.float32)
        scores = T.alloc_fragment([H, BI], T.float32)
        left = T.alloc_fragment([H, half], T.float32)
        right = T.alloc_fragment([H, half], T.float32)
        top = T.alloc_fragment([H], T.float32)
        before = T.alloc_fragment([H], T.float32)
        factor = T.alloc_fragment([H], T.float32)
        part = T.alloc_fragment([H], T.float32)
        total = T.alloc_fragment([H], T.float32)
        row = T.alloc_var(T.int32)
        queries = T.alloc_barrier(384)
        keys_there = T.alloc_barrier(128)
        keys_used = T.alloc_barrier(256)
        scores_there = T.alloc_barrier(256)
        scores_used = T.alloc_barrier(256)
        sums_there = T.alloc_barrier(256)
        tx = T.get_thread_binding()

        T.tma_copy(Q[s, :, 0:half], Q_l, barrier=queries)
        T.tma_copy(Q[s, :, half:D], Q_r, barrier=queries)
        T.barrier_arrive(queries)

        if tx < 128:
            T.set_max_nreg(240, 1)
            T.clear(total)
            T.clear(left)
            T.fill(top, -(2**30))
            T.barrier_wait(queries, 0)
            for k in T.serial(steps):
                T.barrier_wait(keys_there, k % 2)
                T.wgmma_gemm(Q_l, K_l, scores, transpose_B=True, clear_accum=True)
                T.wgmma_gemm(Q_r, K_r, scores, transpose_B=True)
                T.wait_wgmma(0)
                if k > 0:  # the second group is done with the scores of the step before
                    T.barrier_arrive(scores_used)
                    T.barrier_wait(scores_used, (k - 1) % 2)
                T.copy(top, before)
                T.reduce_max(scores, top, dim=1, clear=False)
                for i in T.Parallel(H):
                    factor[i] = T.exp2((before[i] - top[i]) * scale)
                for i, j in T.Parallel(H, BI):
                    scores[i, j] = T.exp2((scores[i, j] - top[i]) * scale)
                T.reduce_sum(scores, part, dim=1)
                for i in T.Parallel(H):
                    total[i] = total[i] * factor[i] + part[i]
                for i, d in T.Parallel(H, half):
                    left[i, d] *= factor[i]
                T.copy(factor, factor_s)
                T.copy(scores, P_s)
                T.gemm(P_s, K_l, left)
                T.barrier_arrive(scores_there)
                T.barrier_arrive(keys_used)
            T.copy(total, total_s)
            T.barrier_arrive(sums_there)
            for i, d in T.Parallel(H, half):
                left[i, d] /= total[i]
            T.copy(left, O[s, :, 0:half])
        elif tx < 256:
            T.set_max_nreg(168, 1)
            T.clear(right)
            for k in T.serial(steps):
                T.barrier_arrive(scores_there)
                T.barrier_wait(scores_there, k % 2)
                for i, d in T.Parallel(H, half):
                    right[i, d] *= factor_s[i]
                T.gemm(P_s, K_r, right)
                T.barrier_arrive(keys_used)
                if k < steps - 1:
                    T.barrier_arrive(scores_used)
            T.barrier_arrive(sums_there)
            T.barrier_wait(sums_there, 0)
            for i, d in T.Parallel(H, half):
                right[i, d] /= total_s[i]
            T.copy(right, O[s, :, half:D])
        else:
            T.set_max_nreg(80, 0)
            for k in T.serial(steps):
                T.barrier_wait(keys_used, (k + 1) % 2)
                for r in T.serial(BI // 16):
                    at = r * 16 + (tx - 256) // 8
                    row = Picked[s, k * BI + at]
                    for part_of_row in T.unroll(half // 64):
                        d = part_of_row * 64 + tx % 8 * 8
                        T.ptx_cp_async(T.access_ptr(K_l[at, d], "w", 8), T.access_ptr(KV[row, d], "r", 8), 8)
                        T.ptx_cp_async(T.access_ptr(K_r[at, d], "w", 8), T.access_ptr(KV[row, half + d], "r", 8), 8)
                T.cp_async_barrier_noinc(keys_there)
    return O
