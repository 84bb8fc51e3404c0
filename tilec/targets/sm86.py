"""Ampere without the large shared memory (A40, GeForce 30): 99 KB a block, 1536 threads a multiprocessor."""

from tilec.targets.model import Target

SM86 = Target(
    "sm_86", 86, shared_per_block_max=99 * 1024, shared_per_sm=100 * 1024, threads_per_sm=1536, blocks_per_sm=16, multiprocessors=84
)
