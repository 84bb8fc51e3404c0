"""What authors should know about the numbers of their kernels.

    T.gemm of float32 tiles, --fp32-gemm tf32  ->  a note of 10 bits of mantissa
"""

from __future__ import annotations

from tilec.diagnostics import Diagnostic, note
from tilec.ir.dtypes import FLOAT32
from tilec.ir.kernel import Kernel
from tilec.ir.tile import Gemm
from tilec.ir.visit import walk_stmt


def number_notes(kernel: Kernel, tf32: bool) -> tuple[Diagnostic, ...]:
    """A note for each product of float32 tiles, where `tf32` is how these are multiplied."""
    if not tf32 or "fp32_gemm_ieee" in kernel.flags:
        return ()
    text = "float32 operands of this gemm are multiplied as TF32 (10 bits of mantissa)"
    advice = "--fp32-gemm ieee multiplies in full float32"
    found = [s for launch in kernel.launches for s in walk_stmt(launch.body) if isinstance(s, Gemm)]
    return tuple(note("TL0503", text, s.span, advice) for s in found if s.a.buffer.dtype == FLOAT32)
