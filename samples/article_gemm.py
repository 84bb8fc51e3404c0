"""A GEMM as a blog article writes it: no launch, no tensor types. tilec infers both and tells what it inferred.

    tilec compile samples/article_gemm.py -o article_gemm.cu        M, N and K stay run-time arguments
    tilec run samples/article_gemm.py -D M=256 -D N=384 -D K=96     the CUDA on the CPU, beside the reference
"""

import tilelang as T


@T.jit(target="cuda")
def article_gemm(A, B, C, M, N, K):
    # The sizes of the crates: a block computes 128 x 128 of C, 32 steps of K at a time.
    block_M, block_N, block_K = 128, 128, 32

    # The shelf beside the workbench, and the tray at hand.
    A_shelf = T.alloc_shared((block_M, block_K), "float16")
    B_shelf = T.alloc_shared((block_K, block_N), "float16")
    C_tray = T.alloc_fragment((block_M, block_N), "float16")

    for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
        T.copy(A[by * block_M, ko * block_K], A_shelf)
        T.copy(B[ko * block_K, bx * block_N], B_shelf)
        T.gemm(A_shelf, B_shelf, C_tray)

    for i, j in T.Parallel(block_M, block_N):
        C[by * block_M + i, bx * block_N + j] = C_tray[i, j]
