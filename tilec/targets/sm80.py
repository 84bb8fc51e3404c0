"""A100 and its kin: cp.async, mma.sync, 163 KB of shared memory a block."""

from tilec.targets.model import Target

SM80 = Target("sm_80", 80, shared_per_block_max=163 * 1024, shared_per_sm=164 * 1024)
