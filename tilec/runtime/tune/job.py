"""What a worker is asked, what it answers, and how the answer is found. Everything here can be pickled.

    run(Job(options, {"block_M": 128}, "compile")) -> Answer("fine", shared=49152)
    run(Job(options, {"block_M": 128}, "measure", meter="gpu", seconds=0.2)) -> Answer("measured", seconds=(1.9e-4, ...))
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilec.record import record
from tilec.diagnostics import CompileError
from tilec.driver import Compiled, InternalFault, Options, compile_source
from tilec.emit.manifest import parse
from tilec.ptxas import find_nvcc
from tilec.ptxas import parse as parse_report

if TYPE_CHECKING:
    from tilec.runtime.tune.meter import Meter, Trial

FINAL = frozenset(("refused", "spills", "wrong", "crashed", "hangs", "slow", "measured"))
"""Answers that a resumed search does not ask for again."""
TOO_SLOW = 2.0
"""A candidate this many times slower than the best so far is not measured further."""


@record
class Job:
    """One question about one candidate. `kind` is compile or measure; `meter` is gpu, cpu or MODULE:FACTORY.

    `seconds` is the time for measuring, `stop_above` the median of the best so far (0 for none), `nvcc` whether to look for
    spilled registers with nvcc where it is there.
    """

    options: Options
    candidate: Mapping[str, Any]
    kind: str
    meter: str = "gpu"
    seconds: float = 0.2
    stop_above: float = 0.0
    seed: int = 0
    nvcc: bool = True
    keep_spills: bool = False
    check_seconds: float = 60.0

    @property
    def compiled_options(self) -> Options:
        """The options with the candidate's values."""
        return replace(self.options, defines={**self.options.defines, **self.candidate}, ptxas=self.options.ptxas if self.nvcc else "never")


@record
class Answer:
    """`status` is fine (compiled), refused, spills, wrong, failed, slow, measured, crashed or hangs; `reason` says why."""

    status: str
    reason: str = ""
    seconds: tuple[float, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def median(self) -> float:
        """Of the launches in seconds; infinite without any."""
        return statistics.median(self.seconds) if self.seconds else float("inf")


def run(job: Job, meters: dict[str, Meter]) -> Answer:
    """The answer to one job. `meters` keeps what is costly to make between the jobs of a process."""
    try:
        compiled = compile_source(job.compiled_options)
    except CompileError as fault:
        first = fault.diagnostics[0]
        return Answer("refused", f"{first.code}: {first.message}")
    except InternalFault as fault:
        return Answer("refused", f"internal fault: {fault}")
    if len(compiled.plans) != 1:
        return Answer("refused", f"{len(compiled.plans)} kernels: choose one with -k")
    if job.kind == "compile":
        return _assembled(job, compiled)
    return _measured(job, compiled, meters)


def _assembled(job: Job, compiled: Compiled) -> Answer:
    """What the manifest and, where it is there, ptxas tell about the candidate."""
    variants = [v for k in parse(compiled.cu)["kernels"] for launch in k["launches"] for v in launch["variants"]]
    facts: dict[str, Any] = {"shared_bytes": max(v["shared_bytes"] for v in variants), "threads": max(v["block"][0] for v in variants)}
    nvcc = find_nvcc() if job.nvcc else ""
    if not nvcc:
        return Answer("fine", facts=facts)
    with tempfile.TemporaryDirectory(prefix="tilec-tune-") as room:
        source = Path(room) / "kernel.cu"
        source.write_text(compiled.cu, encoding="utf-8")
        arch = f"-arch={job.options.target.name}"
        command = [nvcc, "-std=c++17", arch, "-cubin", "-Xptxas", "-v", str(source), "-o", f"{room}/kernel.cubin"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return Answer("refused", f"nvcc: {_first_error(done.stderr)}", facts=facts)
    return judged(done.stderr, facts, job.keep_spills)


def _first_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[0] if lines else "failed")[:300]


def judged(log: str, facts: dict[str, Any], keep_spills: bool) -> Answer:
    """The answer that the words of `ptxas -v` give: registers, and spilled bytes as a reason to drop the candidate."""
    found = parse_report(log).values()
    if not found:
        return Answer("fine", facts=facts)
    spilled, registers = max(b.stores for b in found), max(b.registers for b in found)
    facts = {**facts, "registers": registers, "spilled": spilled}
    if spilled and not keep_spills:
        return Answer("spills", f"{spilled} bytes of registers spilled at {registers} registers", facts=facts)
    return Answer("fine", facts=facts)


def _measured(job: Job, compiled: Compiled, meters: dict[str, Meter]) -> Answer:
    from tilec.reference.errors import MeaningError
    from tilec.runtime.request import RunError
    from tilec.runtime.tune.meter import find

    if job.meter not in meters:
        meters[job.meter] = find(job.meter)
    meter = meters[job.meter]
    try:
        trial = meter.load(compiled, job)
        if wrong := trial.wrong():
            return Answer("wrong", wrong)
        return _timed(job, trial)
    except (RunError, MeaningError) as fault:
        return Answer("failed", str(fault))


def _timed(job: Job, trial: Trial) -> Answer:
    first = trial.seconds(0.0)
    if job.stop_above and statistics.median(first) > TOO_SLOW * job.stop_above:
        return Answer("slow", f"more than {TOO_SLOW:g} times slower than the best", tuple(first), trial.facts())
    return Answer("measured", "", tuple(trial.seconds(job.seconds)), trial.facts())
