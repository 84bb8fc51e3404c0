"""The search itself: compile all, drop what cannot be, measure what can, and measure the best ones once more.

    Search(options, candidates, table, path, settings, progress).run(compiling, measuring) -> the winner's row
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilec.record import record
from tilec.driver import Options
from tilec.runtime.progress import Progress
from tilec.runtime.tune.job import Job
from tilec.runtime.tune.pool import Pool
from tilec.runtime.tune.space import Candidate, text
from tilec.runtime.tune.table import Table, name

FINALISTS = 4
CLOSE = 1.10
"""Candidates within this factor of the best, at most FINALISTS, are measured once more for longer."""
COMPILE_SECONDS = 300.0


@record
class Settings:
    """How to measure. `seconds` for each candidate, `final_seconds` for each finalist, `timeout` before a candidate counts as hanging."""

    meter: str
    seconds: float = 0.2
    final_seconds: float = 1.0
    timeout: float = 60.0
    seed: int = 0
    nvcc: bool = True
    keep_spills: bool = False
    check_seconds: float = 60.0


@dataclass(slots=True)
class Search:
    """One search; its table is on disk after every answer."""

    options: Options
    candidates: Sequence[Candidate]
    table: Table
    path: Path
    settings: Settings
    progress: Progress

    def run(self, compiling: Pool, measuring: Pool) -> Mapping[str, Any] | None:
        """The row of the fastest candidate that is right; None if there is none."""
        todo = [c for c in self.candidates if not self.table.answered(c)]
        self._ask(todo, "compile", compiling, COMPILE_SECONDS)
        self._ask([c for c in todo if self.table.status(c) == "fine"], "measure", measuring, self.settings.timeout)
        close = self._close()
        if len(close) > 1:
            again = [r["config"] for r in close if not r.get("final")]
            self._ask(again, "final", measuring, self.settings.timeout + self.settings.final_seconds)
        finalists = [r for r in close if r["status"] == "measured"]
        winner = min(finalists, key=lambda r: float(r["median_us"]), default=None)
        self.table.best = dict(winner["config"]) if winner else {}
        self.table.save(self.path)
        self.progress.done()
        return winner

    def _close(self) -> list[dict[str, Any]]:
        """The rows of the fastest candidates of this search."""
        wanted = {name(c) for c in self.candidates}
        mine = [r for r in self.table.ranked() if name(r["config"]) in wanted][:FINALISTS]
        return [r for r in mine if r["median_us"] <= CLOSE * mine[0]["median_us"]]

    def _best(self) -> float:
        ranked = self.table.ranked()
        return float(ranked[0]["median_us"]) / 1e6 if ranked else 0.0

    def _ask(self, candidates: Sequence[Candidate], kind: str, pool: Pool, timeout: float) -> None:
        """Puts the answers of one round into the table."""
        s = self.settings
        seconds = s.final_seconds if kind == "final" else s.seconds
        jobs = [
            Job(
                self.options, c, "compile" if kind == "compile" else "measure", s.meter, seconds, seed=s.seed, nvcc=s.nvcc,
                keep_spills=s.keep_spills, check_seconds=s.check_seconds,
            )
            for c in candidates
        ]  # fmt: skip
        best = (lambda: 0.0) if kind == "final" else self._best
        for i, (job, answer) in enumerate(pool.answers(jobs, timeout, best) if jobs else ()):
            row = self.table.put(job.candidate, answer)
            if kind == "final":
                row["final"] = True
            self.table.save(self.path)
            speed = f" {row['median_us']:.1f} us" if answer.seconds else f" {answer.reason[:60]}"
            self.progress.tell(f"{kind} {i + 1} of {len(jobs)}: {text(job.candidate)}: {answer.status}{speed}")
