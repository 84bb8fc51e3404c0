"""Matrix times vector thread by thread: 16-byte reads into private arrays, partial sums joined by atomics in shared memory.

    tilec run samples/products/gemv_simt.py -D N=32 -D K=512
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def gemv_simt(N: int = 64, K: int = 1024, rows: int = 4, lanes: int = 32, vector: int = 8):
    block_K = lanes * vector

    @T.prim_func
    def main(x: T.Tensor((K,), "float16"), A: T.Tensor((N, K), "float16"), y: T.Tensor((N,), "float16")):
        with T.Kernel(T.ceildiv(N, rows), threads=(rows, lanes)) as bn:
            tn = T.get_thread_binding(0)
            tk = T.get_thread_binding(1)
            A_local = T.alloc_local((vector,), "float16")
            x_local = T.alloc_local((vector,), "float16")
            acc = T.alloc_local((1,), "float32")
            y_shared = T.alloc_shared((rows,), "float32")

            if tk == 0:
                y_shared[tn] = 0
            T.clear(acc)
            for bk in T.serial(T.ceildiv(K, block_K)):
                for v in T.vectorized(vector):
                    A_local[v] = A[bn * rows + tn, bk * block_K + tk * vector + v]
                    x_local[v] = x[bk * block_K + tk * vector + v]
                for v in T.serial(vector):
                    acc[0] += A_local[v].astype("float32") * x_local[v].astype("float32")
            T.atomic_add(y_shared[tn], acc[0])
            if tk == 0:
                y[bn * rows + tn] = y_shared[tn]

    return main
