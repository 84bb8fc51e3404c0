"""Sum, maximum and sum of absolute values of a whole vector: blocks stride over it, partial results meet by atomics.

    tilec run samples/rows/full_reduction.py -D N=100000
"""

import tilelang
import tilelang.language as T


@tilelang.jit
def full_reduction(A, total, top, size, blocks: int = 8, block: int = 1024, threads: int = 256):
    N = T.dynamic("N")
    A: T.Tensor((N,), T.float32)
    total: T.Tensor((1,), T.float32)
    top: T.Tensor((1,), T.int32)
    size: T.Tensor((1,), T.float32)

    with T.Kernel(blocks, threads=threads) as b:
        kept = T.alloc_fragment((block,), T.float32)
        most = T.alloc_fragment((block,), T.int32)
        a = T.alloc_fragment((block,), T.float32)
        one = T.alloc_fragment((1,), T.float32)
        largest = T.alloc_fragment((1,), T.int32)

        T.clear(kept)
        T.fill(most, -(2**31))
        T.clear(a)
        for step in T.serial(T.ceildiv(N, blocks * block)):
            first = (step * blocks + b) * block
            for i in T.Parallel(block):
                if first + i < N:
                    kept[i] += A[first + i]
                    most[i] = T.max(most[i], T.cast(T.floor(A[first + i]), T.int32))
                    a[i] += T.abs(A[first + i])
        T.reduce_sum(kept, one, dim=0)
        T.atomic_add(total, one)
        T.reduce_max(most, largest, dim=0)
        T.atomic_max(top, largest)
        T.reduce_sum(a, one, dim=0)
        T.atomic_add(size, one)
