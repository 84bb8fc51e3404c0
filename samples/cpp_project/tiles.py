"""Sizes that the kernels of this project share."""

GEMM_TILE = (128, 128, 32)
BLOCK = 1024
