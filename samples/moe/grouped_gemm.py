"""Grouped GEMM: rows of A belong to groups of run-time sizes, and each group has a matrix of its own.

    tilec compile samples/moe/grouped_gemm.py -D groups=8 -D K=1024 -D N=1024 -o grouped.cu

Rows of group g are A[Offsets[g] : Offsets[g] + Sizes[g]]. `PaddedOffsets` counts the same rows with every group rounded up to
whole tiles; so a block finds its group by its place among the padded rows.
"""

import tilelang
import tilelang.language as T


@tilelang.jit
def grouped_gemm(A, B, Sizes, Offsets, PaddedOffsets, groups: int = 4, block_M: int = 64, block_N: int = 64, block_K: int = 32):
    total, K, N = T.const("total, K, N")
    A: T.Tensor((total, K), T.float16)
    B: T.Tensor((groups, K, N), T.float16)
    Sizes: T.Tensor((groups,), T.int32)
    Offsets: T.Tensor((groups,), T.int32)
    PaddedOffsets: T.Tensor((groups,), T.int32)
    C = T.empty((total, N), T.float16)

    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(total, block_M) + groups, threads=128) as (bx, by):
        A_shared = T.alloc_shared((block_M, block_K), T.float16)
        B_shared = T.alloc_shared((block_K, block_N), T.float16)
        acc = T.alloc_fragment((block_M, block_N), T.float32)
        group = T.alloc_var(T.int32)
        place = T.alloc_var(T.int32)

        place = by * block_M
        group = 0
        for g in T.serial(groups):
            if place >= PaddedOffsets[g]:
                group = g
        inside = place - PaddedOffsets[group]
        first = Offsets[group] + inside
        rows = T.max(0, T.min(block_M, Sizes[group] - inside))

        if rows > 0:
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
                T.copy(A[first : first + block_M, ko * block_K : (ko + 1) * block_K], A_shared)
                T.copy(B[group, ko * block_K : (ko + 1) * block_K, bx * block_N : (bx + 1) * block_N], B_shared)
                T.gemm(A_shared, B_shared, acc)
            for i, j in T.Parallel(block_M, block_N):
                if i < rows:
                    C[first + i, bx * block_N + j] = acc[i, j]

    return C
