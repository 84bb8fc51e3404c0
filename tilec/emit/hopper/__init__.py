"""The CUDA text of kernels on Hopper's own machinery: a writer for each kind that `plan.hopper` plans, and what they share.

`gemm`, `attention` and `chain` write whole kernels, `statements` single statements in them, `tiles` which tile of the result comes next,
`maps` what the copy engine is told of tensors; `writer` has what the three writers have in common.
"""
