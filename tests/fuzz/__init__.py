"""Random tile programs, each run on the NumPy reference and as generated CUDA on the emulator; the results must agree.

    python -m tests.fuzz 1000 42        a thousand programs from seed 42, with a summary
"""
