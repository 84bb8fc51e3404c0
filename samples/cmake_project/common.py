"""Sizes that the kernels of this project share."""

THREADS = 128
WIDTH = 512
