"""The header of a generated file: prototypes for C and C++ callers (`--header`).

    header_text(render, [plan], "gemm.py") -> '#ifndef MATMUL_H ... cudaError_t matmul_launch(const void* A, ...);'
"""

from __future__ import annotations

from collections.abc import Sequence

from tilec.record import record
from tilec.emit.hostexpr import manifest_text
from tilec.emit.launcher import Render, is_written, signature
from tilec.emit.names import identifier, printable
from tilec.ir.expr import Buffer
from tilec.layout.shared import CHUNK
from tilec.plan.plan import Plan


@record
class HeaderKernel:
    """One kernel: its comment lines and the parameter lists of its functions (no size query when the second is empty)."""

    symbol: str
    comment: tuple[str, ...]
    parameters: str
    workspace_parameters: str


def header_text(render: Render, plans: Sequence[Plan], file: str) -> str:
    """The text of the header for the kernels of one .cu; `file` is the source as the user spelled it."""
    signs = [signature(p) for p in plans]
    kernels = [
        HeaderKernel(p.symbol, _comment(p), s.parameters, s.workspace_parameters if p.workspace is not None else "")
        for p, s in zip(plans, signs, strict=True)
    ]
    return render(
        "header.h.jinja",
        title=f"{', '.join(p.symbol for p in plans)}: written by tilec from {printable(file)}. Edits here are lost.",
        guard=f"{identifier('_'.join(p.symbol for p in plans)).upper()}_H", kernels=kernels, uses_bool=any(s.uses_bool for s in signs),
    ).strip("\n") + "\n"  # fmt: skip


def _comment(plan: Plan) -> tuple[str, ...]:
    """What a caller must know: each tensor's shape and type, and which ones are written."""
    lines = [f"Queues {plan.symbol} on `stream` and returns without waiting; an error code tells why it refused."]
    for p in plan.kernel.params:
        if isinstance(p, Buffer):
            shape = ", ".join(manifest_text(e, plan.kernel.span) for e in p.shape)
            strides = "" if p.strides is None else f" strides ({', '.join(manifest_text(e, plan.kernel.span) for e in p.strides)})"
            lines.append(f"  {p.name}: {p.dtype}({shape}){strides}, {'written' if is_written(plan, p) else 'read'}")
    if plan.workspace is not None:
        lines.append(f"  workspace: {plan.symbol}_workspace(...) bytes on the device, aligned to {CHUNK}, for this call until it is done")
    return tuple(lines)
