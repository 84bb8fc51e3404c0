"""Hopper (H100, H200): 227 KB of shared memory a block; sm_90a adds the instructions that no later machine promises to keep.

mma.sync takes 8-bit floats here too, but the assembler makes two 16-bit products of each, so it gains nothing over float16.
"""

from dataclasses import replace

from tilec.targets.model import Target

SM90 = Target("sm_90", 90, shared_per_block_max=227 * 1024, shared_per_sm=228 * 1024, multiprocessors=132, has_fp8_mma=True)
SM90A = replace(SM90, name="sm_90a", has_wgmma=True)
