"""An element-wise kernel with a pipeline of its author's: bulk copies run ahead, a barrier of each stage tells when it is there.

All threads of a block do the same here. The copy engine brings tiles two steps ahead and takes the results away:

    tilec run samples/by_hand/pipeline_elementwise.py --arch sm_90a

Nothing waits for the threads that still read a stage before it is filled again: tilec sees that hazard and orders it.
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def gated_sum(M=208, N=256, rows=16, steps=4, stages=3, dtype="float32"):
    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype), Z: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, rows * steps), threads=128) as bx:
            X_s = T.alloc_shared((stages, rows, N), dtype)
            Y_s = T.alloc_shared((stages, rows, N), dtype)
            Z_s = T.alloc_shared((rows, N), dtype)
            there = T.alloc_barrier([128] * stages)

            for k in T.serial(stages - 1):
                T.tma_copy(X[(bx * steps + k) * rows, 0], X_s[k, :, :], barrier=there[k])
                T.tma_copy(Y[(bx * steps + k) * rows, 0], Y_s[k, :, :], barrier=there[k])
                T.barrier_arrive(there[k])

            for k in T.serial(steps):
                ahead = k + stages - 1
                if ahead < steps:
                    s = ahead % stages
                    T.tma_copy(X[(bx * steps + ahead) * rows, 0], X_s[s, :, :], barrier=there[s])
                    T.tma_copy(Y[(bx * steps + ahead) * rows, 0], Y_s[s, :, :], barrier=there[s])
                    T.barrier_arrive(there[s])
                T.barrier_wait(there[k % stages], k // stages % 2)
                for i, j in T.Parallel(rows, N):
                    x = X_s[k % stages, i, j]
                    Z_s[i, j] = x / (1 + T.exp(-x)) + Y_s[k % stages, i, j]
                T.tma_copy(Z_s, Z[(bx * steps + k) * rows, 0])
                T.tma_store_arrive()
                T.tma_store_wait(0)

    return main
