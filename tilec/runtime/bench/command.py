"""The body of `tilec bench`: from the options of the command line to a report, on a GPU or, for the check alone, on the CPU.

    run(request(given, options), compile, device="cuda", quiet=False) -> Report
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilec.options import OptionError
from tilec.runtime.bench.request import BenchRequest, peers, points, sweep
from tilec.runtime.progress import Progress
from tilec.runtime.report import Report
from tilec.runtime.request import RunRequest

if TYPE_CHECKING:
    from tilec.driver import Options
    from tilec.runtime.bench.run import Compile


def request(given: Mapping[str, Any], options: Options) -> BenchRequest:
    """What the command line asks for. Raises OptionError."""
    if given["as_json"] and given["as_csv"]:
        raise OptionError("--json and --csv exclude each other")
    return BenchRequest(
        points=tuple(points([sweep(s) for s in given["sweeps"]])), against=peers(given["against"]), seconds=given["seconds"],
        mode=given["mode"], seed=given["seed"], args=options.args, check_seconds=given["check_seconds"], svg=given["svg"],
        plot=given["plot"], output="json" if given["as_json"] else "csv" if given["as_csv"] else "table",
    )  # fmt: skip


def run(request: BenchRequest, compile: Compile, device: str, quiet: bool) -> Report:
    """Measures on a GPU. Raises MissingError without one; `cpu` runs and compares every point on the emulator instead."""
    progress = Progress(sys.stderr, quiet)
    if device == "cpu":
        return _check_only(request, compile, progress)
    from tilec.runtime.bench.gpu import Gpu
    from tilec.runtime.bench.run import run as measure

    return measure(request, compile, Gpu(), progress)


def _check_only(request: BenchRequest, compile: Compile, progress: Progress) -> Report:
    from tilec.runtime import cpu

    lines: list[str] = []
    faults: list[str] = []
    for i, point in enumerate(request.points):
        progress.tell(f"point {i + 1} of {len(request.points)} on the CPU")
        compiled, defines = compile(point, "")
        found = cpu.run(compiled, RunRequest(defines=defines, args=request.args, seed=request.seed))
        lines += found.lines
        faults += found.faults
    progress.done()
    return Report([*lines, "checked on the CPU, nothing was timed: that takes a GPU"], faults, not faults)
