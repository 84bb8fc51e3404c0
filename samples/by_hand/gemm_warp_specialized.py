"""A GEMM whose author gives every warp group its work: one fills a ring of tiles through the copy engine, two multiply.

Barriers in shared memory tell each side when a stage of the ring is full or empty. tilec takes the orders as they are written:

    tilec run samples/by_hand/gemm_warp_specialized.py --arch sm_90a

On older architectures threads copy, and mma.sync multiplies; the barriers and the result are the same.
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def matmul(M=384, N=512, K=448, BM=128, BN=256, BK=64, stages=3, dtype="float16"):
    @T.prim_func
    def gemm_warp_specialized(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=384) as (bx, by):
            T.use_swizzle(16)
            A_s = T.alloc_shared((stages, BM, BK), dtype)
            B_s = T.alloc_shared((stages, BK, BN), dtype)
            acc = T.alloc_fragment((BM, BN), "float32")
            full = T.alloc_barrier([1] * stages)  # the producer arrives, and the bytes of both tiles
            empty = T.alloc_barrier([2] * stages)  # a thread of each consumer arrives

            with T.ws(2):  # the producer: one thread
                T.set_max_nreg(40, 0)
                if T.shuffle_elect(128):
                    for k in T.serial(T.ceildiv(K, BK)):
                        s = k % stages
                        T.barrier_wait(empty[s], (k // stages + 1) % 2)
                        T.tma_copy(A[by * BM, k * BK], A_s[s, :, :], barrier=full[s])
                        T.tma_copy(B[k * BK, bx * BN], B_s[s, :, :], barrier=full[s])
                        T.barrier_arrive(full[s])

            with T.ws(0, 1):  # the consumers: 64 rows of the block each
                T.set_max_nreg(232, 1)
                T.clear(acc)
                for k in T.serial(T.ceildiv(K, BK)):
                    T.barrier_wait(full[k % stages], k // stages % 2)
                    T.wgmma_gemm(A_s[k % stages, :, :], B_s[k % stages, :, :], acc)
                    T.wait_wgmma(1)  # the product of the step before is done: its stage is free
                    if k > 0 and T.shuffle_elect(128):
                        T.barrier_arrive(empty[(k - 1) % stages])
                T.wait_wgmma(0)
                T.copy(acc, C[by * BM, bx * BN])

    return gemm_warp_specialized
