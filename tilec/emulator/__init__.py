"""The emulator: runs a generated .cu on the CPU, with its races, deadlocks, missing waits and overruns made visible.

The file is compiled by g++ against a stand-in for CUDA (``templates/emulator``) and run in a process of its own, through its
launcher. One fiber a CUDA thread, one block at a time, in a random and unfair order.

    program = build(open("gemm.cu").read())
    outcome = program.run("gemm_launch", {"A": a, "B": b, "C": c}, Mode(asynchrony="eager", seed=3))
    outcome.status -> "ok", and c holds the result; or "deadlock", and outcome.message says which threads wait for what
"""

from tilec.emulator.program import Mode, Outcome, Program, build
from tilec.emulator.toolchain import BuildError, ToolMissing

__all__ = ["BuildError", "Mode", "Outcome", "Program", "ToolMissing", "build"]
