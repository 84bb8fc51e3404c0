"""Runs generated code: on the CPU emulator, or on a GPU through CuPy, against the reference; times it beside cuBLAS."""
