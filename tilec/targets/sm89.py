"""Ada (L40, GeForce 40): as sm_86, with tensor cores that take 8-bit floats."""

from tilec.targets.model import Target

SM89 = Target(
    "sm_89", 89, shared_per_block_max=99 * 1024, shared_per_sm=100 * 1024, threads_per_sm=1536, blocks_per_sm=24, multiprocessors=142,
    has_fp8_mma=True,
)  # fmt: skip
