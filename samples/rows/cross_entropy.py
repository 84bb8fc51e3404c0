"""Cross-entropy of logits and class labels: log-sum-exp of each row minus the logit of its label, a chunk of the row at a time.

    tilec run samples/rows/cross_entropy.py -D M=64 -D V=32000
"""

import tilelang
import tilelang.language as T


@tilelang.jit
def cross_entropy(logits, labels, chunk: int = 2048, threads: int = 256):
    M, V = T.const("M, V")
    logits: T.Tensor((M, V), T.bfloat16)
    labels: T.Tensor((M,), T.int32)
    loss = T.empty((M,), T.float32)

    with T.Kernel(M, threads=threads) as row:
        x = T.alloc_fragment((chunk,), T.float32)
        top = T.alloc_fragment((1,), T.float32)
        before = T.alloc_fragment((1,), T.float32)
        part = T.alloc_fragment((1,), T.float32)
        total = T.alloc_fragment((1,), T.float32)

        T.fill(top, -T.infinity(T.float32))
        T.clear(total)
        for c in T.serial(T.ceildiv(V, chunk)):
            for j in T.Parallel(chunk):
                x[j] = T.if_then_else(c * chunk + j < V, T.cast(logits[row, c * chunk + j], T.float32), -T.infinity(T.float32))
            T.copy(top, before)
            T.reduce_max(x, top, dim=0, clear=False)
            for j in T.Parallel(chunk):
                x[j] = T.exp(x[j] - top[0])
            T.reduce_sum(x, part, dim=0)
            total[0] = total[0] * T.exp(before[0] - top[0]) + part[0]
        loss[row] = T.log(total[0]) + top[0] - T.cast(logits[row, labels[row]], T.float32)

    return loss
