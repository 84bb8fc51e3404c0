"""Counts of the values 0 to bins - 1 in a vector: a histogram in shared memory for each block, added up at the end.

    tilec run samples/scans/histogram.py -D N=10000
"""

import tilelang
import tilelang.language as T


@tilelang.jit
def histogram(X, counts, bins: int = 256, blocks: int = 4, threads: int = 256):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.uint8)
    counts: T.Tensor((bins,), T.int32)

    with T.Kernel(blocks, threads=threads) as b:
        local = T.alloc_shared((bins,), T.int32)
        tx = T.get_thread_binding(0)

        T.clear(local)
        for step in T.serial(T.ceildiv(N, blocks * threads)):
            i = (step * blocks + b) * threads + tx
            if i < N:
                T.atomic_add(local[T.cast(X[i], T.int32)], 1)
        for k in T.Parallel(bins):
            T.atomic_add(counts[k], local[k])
