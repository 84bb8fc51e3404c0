"""Softmax of rows that are too long for one block: a cluster of blocks holds a row in its registers and reads it once.

Each block sends its maximum and its sum to all others through their shared memory. Clusters need sm_90.

    tilec run samples/clusters/softmax.py --arch sm_90 -D M=4 -D N=16384
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def softmax(M: int = 1024, N: int = 65536, blocks: int = 4, dtype: str = "float16", threads: int = 512):
    scale = 1.44269504  # log2(e)
    part = N // blocks

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(M * blocks, threads=threads, cluster_dims=blocks) as block:
            rank = T.block_rank_in_cluster()
            row = block // blocks
            x = T.alloc_fragment((1, part), "float32")
            top = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            mine = T.alloc_shared((2,), "float32")
            parts = T.alloc_shared((blocks, 2), "float32")

            T.copy(X[row, rank * part], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(1, part):
                x[i, j] = T.exp2(x[i, j] * scale - top[i] * scale)
            T.reduce_sum(x, total, dim=1)
            for i in T.Parallel(1):
                mine[0] = top[i]
                mine[1] = total[i]
            for peer in T.serial(blocks):
                T.copy_cluster(mine, parts[rank, :], dst_block=peer)
            T.cluster_sync()

            best = T.alloc_var("float32")
            whole = T.alloc_var("float32")
            best = parts[0, 0]
            for k in T.serial(1, blocks):
                best = T.max(best, parts[k, 0])
            for k in T.serial(blocks):
                whole += parts[k, 1] * T.exp2((parts[k, 0] - best) * scale)
            for i in T.Parallel(1):
                total[i] = T.exp2((top[i] - best) * scale) / whole
            for i, j in T.Parallel(1, part):
                x[i, j] *= total[i]
            T.copy(x, Y[row, rank * part])

    return main
