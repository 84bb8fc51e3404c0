"""The result of a run as a short table, and the exit code.

    matmul on the CPU, seed 0: M = 130, N = 70, K = 45
      C  float16  130x70  relative error 2.4e-04, allowed 1.0e-03: agrees
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tilec.record import record
from tilec.ir.dtypes import DType
from tilec.ir.expr import Buffer, Call
from tilec.ir.kernel import Kernel
from tilec.ir.visit import stmt_exprs, walk_expr, walk_stmt
from tilec.reference.compare import Mismatch, compare, kernel_tolerance
from tilec.reference.errors import MeaningError
from tilec.runtime.bind import Array, Bound, storable
from tilec.runtime.request import MissingError, RunError, RunRequest

if TYPE_CHECKING:
    from tilec.plan.plan import Plan


@record
class Report:
    """Lines for standard output, lines for standard error, and whether everything agreed."""

    lines: Sequence[str]
    faults: Sequence[str]
    ok: bool


def finish(action: Callable[[], Report], echo: Callable[[str], None]) -> int:
    """Runs `action`, prints its report, and gives the exit code: 0 agreed, 1 not, 3 something is missing."""
    try:
        report = action()
    except (RunError, MeaningError) as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 1
    except MissingError as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 3
    for line in report.lines:
        echo(line)
    for line in report.faults:
        print(f"error: {line}", file=sys.stderr)
    return 0 if report.ok else 1


def title(kernel: Kernel, device: str, bound: Bound, seed: int) -> str:
    """The first line: what ran where with which sizes."""
    sizes = ", ".join(f"{n} = {v}" for n, v in {**bound.extents, **bound.scalars}.items())
    return f"{kernel.symbol} on {device}, seed {seed}{': ' if sizes else ''}{sizes}"


def own_cuda(kernel: Kernel) -> str:
    """A function of the author's CUDA that the kernel calls, whose meaning only the compiled code knows; "" for none."""
    for launch in kernel.launches:
        for s in walk_stmt(launch.body):
            for root in stmt_exprs(s):
                for e in walk_expr(root):
                    if isinstance(e, Call) and e.foreign:
                        return e.name
    return ""


def not_compared(name: str) -> str:
    """The line that says why there is nothing to compare with."""
    return f"  note: `{name}` is the author's own CUDA: there is no reference to compare with"


def reference(kernel: Kernel, bound: Bound) -> dict[str, Array]:
    """What every tensor holds after the kernel, by the reference."""
    from tilec.reference import run

    expected = bound.copy()
    run(kernel, expected.arrays, expected.scalars, expected.extents)
    return expected.arrays


Arrays = Mapping[str, Array]


def comparison(
    plan: Plan, bound: Bound, got: Arrays, want: Arrays, label: str = "", other: str = "the reference"
) -> tuple[list[str], list[str]]:
    """One line for each tensor that the kernel writes, and one for each that does not agree with `other`."""
    known = {v: bound.integers[v.name] for v in plan.kernel.extents}
    lines, faults = [], []
    for p in plan.kernel.params:
        if not isinstance(p, Buffer):
            continue
        limit = kernel_tolerance(plan.kernel, p.dtype, known) if p in plan.written else 0.0
        found = compare(got[p.name], want[p.name], p.dtype, limit=limit)
        if found is not None:
            unwritten = f"; {other} is NaN where a kernel reads what nothing has written" if found.want != found.want else ""
            faults.append(f"{p.name}{label} differs from {other}: {found}{unwritten}")
        if p in plan.written:
            what = f"  {p.name}  {p.dtype}  {'x'.join(map(str, got[p.name].shape)) or 'scalar'}"
            how_near = _closeness(got[p.name], want[p.name], p.dtype, limit, found)
            lines.append(f"{what}  {how_near}: {'differs' if found else 'agrees'}{label}")
    return lines, faults


def _closeness(got: Array, want: Array, dtype: DType, limit: float, found: Mismatch | None) -> str:
    if not dtype.is_float or not limit:
        return "exact"
    if found is not None:
        return f"relative error {found.error:.1e}, allowed {limit:.1e}"
    with np.errstate(all="ignore"):
        a, b = got.astype(np.float64), want.astype(np.float64)
        both = np.isfinite(a) & np.isfinite(b)
        norm = float(np.linalg.norm(b[both]))
        error = float(np.linalg.norm(a[both] - b[both])) / (norm or 1.0)
    return f"relative error {error:.1e}, allowed {limit:.1e}"


def write_outputs(kernel: Kernel, request: RunRequest, arrays: Mapping[str, Array]) -> None:
    """Writes the tensors that `--out` names. Raises RunError where a file cannot be written."""
    types = {p.name: p.dtype for p in kernel.params}
    for name, file in request.outputs.items():
        try:
            with Path(file).open("wb") as out:
                np.save(out, storable(arrays[name], types[name]))
        except OSError as fault:
            raise RunError(f"--out {name}={file}: {fault.strerror}") from None
