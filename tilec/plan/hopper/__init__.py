"""Kernels on Hopper's own machinery: warp groups that multiply, the copy engine that feeds them, persistent blocks.

Three kinds of kernel are recognised, each by its `*_match`, planned by the module of its name and recorded in `plan` and `chain_plan`:

    gemm        one loop of two copies and one product   -> WarpSpecialized
    attention   tiles streamed past a held one           -> Streamed
    chain       three products and more a step           -> Chained

`parts` has what all three are put together from. Whatever else an author writes takes the portable way.
"""
