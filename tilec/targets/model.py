"""What is to be known about a machine: limits of a block, sizes of a multiprocessor, instructions it has.

    SM80.shared_per_block_max is 166912: the bytes of dynamic shared memory one block may ask for.
"""

from __future__ import annotations

from tilec.record import record



@record
class Target:
    """One GPU architecture, named as nvcc's -arch names it.

    Sizes are bytes, counts are per block or per multiprocessor as the name says. `has_fp8_mma` tells that mma.sync takes 8-bit
    floats, `has_wgmma` that the warp-group products and the tensor-map copies of Hopper exist.
    """

    name: str
    number: int
    shared_per_block_max: int
    shared_per_sm: int
    registers_per_sm: int = 65536
    registers_per_thread_max: int = 255
    threads_per_block_max: int = 1024
    threads_per_sm: int = 2048
    blocks_per_sm: int = 32
    multiprocessors: int = 108
    shared_reserved: int = 1024  # bytes of shared memory that the system keeps for itself in every block
    has_fp8_mma: bool = False
    has_wgmma: bool = False

    def registers_for(self, threads: int) -> int:
        """The most registers that each thread of a block of `threads` can have."""
        return min(self.registers_per_thread_max, self.registers_per_sm // threads // 8 * 8)

    def blocks_that_fit(self, threads: int, registers: int, shared: int) -> int:
        """Blocks of `threads` with `registers` a thread and `shared` bytes that one multiprocessor holds at once. More registers
        than a thread of such a block can have are spilled: they keep no block out."""
        warps = -(-threads // 32)
        per_warp = -(-min(registers, self.registers_for(threads)) * 32 // 256) * 256
        by_registers = self.registers_per_sm // max(1, per_warp * warps)
        by_shared = self.shared_per_sm // (shared + self.shared_reserved)
        return min(by_registers, by_shared, self.threads_per_sm // (warps * 32), self.blocks_per_sm)
