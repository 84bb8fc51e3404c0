"""Meters for tests of the tuner, made inside its workers: the emulator checks, a clock of the tests' own counts."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilec.driver import Compiled
from tilec.runtime.tune.job import Job
from tilec.runtime.tune.meter import EmulatorMeter, EmulatorTrial


class ClockedTrial(EmulatorTrial):
    """Bigger blocks are faster, up to 64 x 64."""

    def seconds(self, budget: float) -> Sequence[float]:
        c = self.job.candidate
        return [1e-3 * (1 + abs(c["block_M"] - 64) + abs(c["block_N"] - 64))] * 5


class Clocked(EmulatorMeter):
    """Right candidates with times by a formula."""

    def load(self, compiled: Compiled, job: Job) -> Any:
        return ClockedTrial(self, compiled, job, self.inputs.bound(compiled.plans[0], job))


class Quick:
    """Nothing is run: the `fate` of a candidate says what happens. Every load is noted in the file that QUICK_LOG names."""

    def load(self, compiled: Compiled, job: Job) -> Any:
        log = os.environ.get("QUICK_LOG")
        if log:
            with Path(log).open("a") as out:
                out.write(f"{job.candidate['block_M']} {job.candidate['block_N']} {os.environ.get('WORKER', '')}\n")
        return QuickTrial(job)


class QuickTrial:
    """block_M decides: 32 crashes, 16 hangs, 48 is wrong, 96 raises; others take block_N microseconds."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def wrong(self) -> str:
        fate = self.job.candidate["block_M"]
        if fate == 32:
            os.abort()
        if fate == 16:
            time.sleep(600)
        if fate == 96:
            raise MemoryError("out of it")
        return "C differs" if fate == 48 else ""

    def seconds(self, budget: float) -> Sequence[float]:
        return [1e-6 * self.job.candidate["block_N"]] * 5

    def facts(self) -> Mapping[str, Any]:
        return {"registers": 40, "pid": os.getpid()}
