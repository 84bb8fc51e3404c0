"""FlashAttention with every part written by hand: a producer warp group, two consumers of 64 rows, a ring of keys and of values.

A macro holds what a consumer does; each of the two has register tiles of its own. The reductions along a row stay inside of a quad of
lanes, probabilities become an operand where they lie:

    tilec run samples/by_hand/attention.py --arch sm_90a
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def attention(S=256, D=64, BM=128, BN=64, stages=2):
    scale = 1.0 / D**0.5 * 1.44269504

    @T.macro
    def consumer(w, Q_s, K_s, V_s, held, k_full, k_empty, v_full, v_empty, O, bx, h):
        scores = T.alloc_fragment((64, BN), "float32")
        probs = T.alloc_fragment((64, BN), "float16")
        out = T.alloc_fragment((64, D), "float32")
        top = T.alloc_fragment((64,), "float32")
        before = T.alloc_fragment((64,), "float32")
        factor = T.alloc_fragment((64,), "float32")
        part = T.alloc_fragment((64,), "float32")
        total = T.alloc_fragment((64,), "float32")
        T.set_max_nreg(240, 1)
        T.clear(out)
        T.clear(total)
        T.fill(top, -T.infinity("float32"))
        T.barrier_wait(held, 0)
        for n in T.serial(S // BN):
            s = n % stages
            T.barrier_wait(k_full[s], n // stages % 2)
            T.wgmma_gemm(Q_s[w, :, :], K_s[s, :, :], scores, transpose_B=True, clear_accum=True)
            T.wait_wgmma(0)
            T.barrier_arrive(k_empty[s])
            T.copy(top, before)
            T.reduce_max(scores, top, dim=1, clear=False)
            for i in T.Parallel(64):
                factor[i] = T.exp2((before[i] - top[i]) * scale)
            for i, j in T.Parallel(64, BN):
                scores[i, j] = T.exp2((scores[i, j] - top[i]) * scale)
            T.reduce_sum(scores, part, dim=1)
            for i in T.Parallel(64):
                total[i] = total[i] * factor[i] + part[i]
            for i, j in T.Parallel(64, D):
                out[i, j] *= factor[i]
            T.copy(scores, probs)
            T.barrier_wait(v_full[s], n // stages % 2)
            T.wgmma_gemm(probs, V_s[s, :, :], out)
            T.wait_wgmma(0)
            T.barrier_arrive(v_empty[s])
        for i, j in T.Parallel(64, D):
            out[i, j] /= total[i]
        T.copy(out, O[h, bx * BM + w * 64, 0])

    @T.prim_func
    def attention_by_hand(
        Q: T.Tensor((2, S, D), "float16"), K: T.Tensor((2, S, D), "float16"), V: T.Tensor((2, S, D), "float16"),
        O: T.Tensor((2, S, D), "float16"),
    ):
        with T.Kernel(S // BM, 2, threads=384) as (bx, h):
            Q_s = T.alloc_shared((2, 64, D), "float16")
            K_s = T.alloc_shared((stages, BN, D), "float16")
            V_s = T.alloc_shared((stages, BN, D), "float16")
            held = T.alloc_barrier(384)
            k_full = T.alloc_barrier([128] * stages)
            v_full = T.alloc_barrier([128] * stages)
            k_empty = T.alloc_barrier([256] * stages)
            v_empty = T.alloc_barrier([256] * stages)
            tx = T.get_thread_binding()
            T.tma_copy(Q[h, bx * BM, 0], Q_s[0, :, :], barrier=held)
            T.tma_copy(Q[h, bx * BM + 64, 0], Q_s[1, :, :], barrier=held)
            T.barrier_arrive(held)
            if tx < 128:
                consumer(0, Q_s, K_s, V_s, held, k_full, k_empty, v_full, v_empty, O, bx, h)
            elif tx < 256:
                consumer(1, Q_s, K_s, V_s, held, k_full, k_empty, v_full, v_empty, O, bx, h)
            else:
                T.set_max_nreg(24, 0)
                for n in T.serial(S // BN):
                    s = n % stages
                    T.barrier_wait(k_empty[s], (n // stages + 1) % 2)
                    T.tma_copy(K[h, n * BN, 0], K_s[s, :, :], barrier=k_full[s])
                    T.barrier_arrive(k_full[s])
                    T.barrier_wait(v_empty[s], (n // stages + 1) % 2)
                    T.tma_copy(V[h, n * BN, 0], V_s[s, :, :], barrier=v_full[s])
                    T.barrier_arrive(v_full[s])

    return attention_by_hand
