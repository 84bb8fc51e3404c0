"""The table of a search on disk: written after every answer, resumed by the next run, read by `-D @tuned.json`.

    Table.load(path, key) -> Table;  table.put({"block_M": 128}, answer);  table.save(path)
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilec import __version__, files
from tilec.driver import Options
from tilec.options import TUNED
from tilec.runtime.tune.job import FINAL, Answer
from tilec.runtime.tune.space import Candidate


@dataclass(slots=True)
class Table:
    """Rows by candidate. `key` tells which search they belong to: other sources or options are another search."""

    key: str
    kernel: str = ""
    device: str = ""
    best: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    @staticmethod
    def load(path: Path, key: str) -> Table:
        """The table of this search so far; an empty one if the file is absent, broken, or of another search."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            rows = {name(r["config"]): dict(r) for r in data["rows"]}
            if data["key"] == key:
                return Table(key, str(data["kernel"]), str(data["device"]), dict(data["best"]), rows)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
        return Table(key)

    def answered(self, candidate: Candidate) -> bool:
        """Whether the candidate needs no further measuring."""
        return self.status(candidate) in FINAL

    def status(self, candidate: Candidate) -> str:
        """The last answer's status, empty without one."""
        return str(self.rows.get(name(candidate), {}).get("status", ""))

    def put(self, candidate: Candidate, answer: Answer) -> dict[str, Any]:
        """Takes an answer in; facts that are known already stay. The row."""
        row = self.rows.setdefault(name(candidate), {"config": dict(candidate)})
        row |= {"status": answer.status, "reason": answer.reason, **answer.facts}
        if answer.seconds:
            low, _, high = statistics.quantiles(answer.seconds, n=4) if len(answer.seconds) > 1 else (answer.median,) * 3
            row |= {"median_us": answer.median * 1e6, "spread": (high - low) / answer.median if answer.median else 0.0}
        return row

    def ranked(self) -> list[dict[str, Any]]:
        """The measured rows, fastest first."""
        return sorted((r for r in self.rows.values() if r["status"] == "measured"), key=lambda r: float(r["median_us"]))

    def save(self, path: Path) -> None:
        """Writes the file whole or not at all."""
        about = {TUNED: 1, "key": self.key, "kernel": self.kernel, "device": self.device, "best": self.best}
        data = {**about, "rows": list(self.rows.values())}
        files.write_all({str(path): json.dumps(data, indent=1) + "\n"})


def name(candidate: Candidate) -> str:
    """A candidate as a key, the same for every order of its names."""
    return json.dumps(dict(sorted(candidate.items())), default=str)


def key_of(options: Options, device: str, sources: Mapping[str, bytes]) -> str:
    """What a search depends on besides the candidates: sources, options, the machine and tilec itself."""
    about = (
        device, options.target.name, repr(sorted(options.defines.items())), repr(sorted(options.args.items())), options.kernels,
        options.opt_level, options.fp32_gemm, options.pairs, __version__, [t.name for t in options.also],
    )  # fmt: skip
    digest = hashlib.sha256(repr(about).encode())
    for file in sorted(sources):
        digest.update(sources[file])
    return digest.hexdigest()[:32]
