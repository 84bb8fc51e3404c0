"""The record of a long run: what each seed gave, kept in a folder so that the run can be left and taken up again.

    record = Record(Path("/tmp/run")); record.check_seed(7); print(record.told())
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.checking import BATCH, TOO_LARGE, Depth, Finding, check, check_all
from tests.fuzz.features import features
from tests.fuzz.gathering import gather, smallest
from tests.fuzz.program import Program

EXAMPLES = 100
SHRINK_SECONDS = float(os.environ.get("TILEC_FUZZ_SHRINK", "60"))
AGREE = "agree"
HAS_NVRTC = importlib.util.find_spec("cuda") is not None and importlib.util.find_spec("cuda.bindings") is not None


@dataclass(slots=True)
class Record:
    """Seeds that are done, and the hashes of their programs; without a folder they are only kept in mind."""

    folder: Path | None
    lines: list[dict[str, Any]] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    commit: str = ""

    def __post_init__(self) -> None:
        self.commit = os.environ.get("TILEC_FUZZ_COMMIT") or _head()
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lines = [json.loads(line) for line in _lines(self.folder / "seeds.jsonl")]
        self.seen = set(_lines(self.folder / "programs.txt"))

    @property
    def failed(self) -> bool:
        """Whether any program failed."""
        return any(kind not in (AGREE, TOO_LARGE) for line in self.lines for kind in line["kinds"])

    def check_seed(self, seed: int) -> None:
        """Checks the programs of a seed that no earlier seed had, unless the seed is done."""
        if any(line["seed"] == seed for line in self.lines):
            return
        began = time.process_time()
        fresh = [p for p in gather(seed, EXAMPLES) if _hash(p) not in self.seen]
        kinds: Counter[str] = Counter()
        failing: dict[str, tuple[Program, Depth]] = {}
        for at in range(0, len(fresh), BATCH * 4):
            part = fresh[at : at + BATCH * 4]
            depth = _depth(seed + at // (BATCH * 4))
            for p, found in zip(part, check_all(part, depth), strict=True):
                kinds[found.kind if found else AGREE] += 1
                if found and found.kind != TOO_LARGE:
                    self.keep(f"{seed}-{_hash(p)}", f"# {p.arch} {depth} {found.kind}: {found.detail}", p)
                    failing.setdefault(found.kind, (p, depth))
        for kind, (p, depth) in failing.items() if SHRINK_SECONDS else ():
            self.shrink(seed, kind, p, depth)
        self.note(seed, fresh, kinds, time.process_time() - began)

    def shrink(self, seed: int, kind: str, first: Program, depth: Depth) -> None:
        """Keeps the smallest program that fails as the first of its kind does."""
        small = smallest(seed, EXAMPLES, first, lambda p: _kind(check(p, depth)) == kind, SHRINK_SECONDS)
        self.keep(f"{seed}-{kind.replace(' ', '_')}-smallest", f"# {small.arch} {depth} {check(small, depth)}", small)

    def keep(self, name: str, comment: str, p: Program) -> None:
        """Writes a program that failed to the folder, or shows it."""
        text = "\n# ".join(comment.splitlines()) + "\n" + p.text()
        if self.folder is None:
            print(f"----- {name}\n{text}", flush=True)
        else:
            print(f"{name}: {comment.splitlines()[0][:200]}", flush=True)
            (self.folder / f"{name}.py").write_text(text, encoding="utf-8")

    def note(self, seed: int, fresh: list[Program], kinds: Counter[str], seconds: float) -> None:
        """One more seed is done."""
        used = Counter(name for p in fresh for name in features(p))
        line = {"seed": seed, "commit": self.commit, "seconds": round(seconds, 1), "kinds": dict(kinds), "features": dict(used)}
        self.lines.append(line)
        hashes = [_hash(p) for p in fresh]
        self.seen.update(hashes)
        print(f"seed {seed}: {dict(kinds)}", flush=True)
        if self.folder is not None:
            with (self.folder / "programs.txt").open("a", encoding="utf-8") as file:
                file.write("".join(f"{h}\n" for h in hashes))
            with (self.folder / "seeds.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def told(self) -> str:
        """The whole record in a few lines."""
        return _told(self.lines, len(self.seen))


def summary(folders: Iterable[Path]) -> str:
    """What several folders hold together; programs that lie in more than one count once."""
    records = [Record(folder) for folder in folders]
    return _told([line for r in records for line in r.lines], len(set().union(*(r.seen for r in records))))


def _told(lines: list[dict[str, Any]], different: int) -> str:
    kinds: Counter[str] = Counter()
    used: Counter[str] = Counter()
    commits: Counter[str] = Counter()
    for line in lines:
        kinds.update(line["kinds"])
        used.update(line["features"])
        commits[line["commit"]] += sum(line["kinds"].values())
    total = max(1, kinds.total())
    shown = "\n".join(f"  {name:28} {n:6} {100 * n / total:5.1f} %" for name, n in used.most_common())
    return f"{len(lines)} seeds, {different} different programs, checked: {dict(kinds)}\nby commit: {dict(commits)}\n{shown}"


def _head() -> str:
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()


def _depth(number: int) -> Depth:
    """How deep a part is checked: every fourth for races, every sixteenth through NVRTC (where it is), every eighth optimised, at all of
    tilec's levels."""
    level = (2, 1, 2, 3)[number // 4 % 4]
    return Depth(races=number % 4 == 0, nvrtc=HAS_NVRTC and number % 16 == 5, optimised=number % 8 == 2, level=level)


def _kind(found: Finding | None) -> str:
    return found.kind if found else AGREE


def _hash(p: Program) -> str:
    return hashlib.sha256(f"{p.arch}\n{p.text()}".encode()).hexdigest()[:16]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
