"""What ptxas says of the kernels in a CUDA file: registers, spilled bytes, stack, serialised products. Answers are kept on disk.

    ask(about, {"gemm": ("sm_90a",), "gemm__general": ("sm_90a",)})
        -> Report({"gemm": Body(registers=168), "gemm__general": Body(255, stack=8, stores=8, loads=32)}, "13.0")

Answers are keyed by the text of each kernel, its architectures and nvcc's version, and renamed into place whole; what cannot be read is
asked again.
An nvcc that is absent, hangs, crashes or refuses the file gives None and a reason: nobody depends on it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from hashlib import sha256
from pathlib import Path
from typing import Any

from tilec.files import cache_dir
from tilec.record import record

TIMEOUT_S = 60.0
"""The longest that one question may take; TILEC_PTXAS_TIMEOUT names another number of seconds."""
MOST_ENTRIES = 2048
"""Answers on disk; above this the oldest quarter goes."""
_FORMAT = "2"

_ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_LOSS = re.compile(r"\(C(7[56]\d\d)\)(.*)")
_QUOTED = re.compile(r"'(\w+)'")


@record
class Body:
    """What ptxas says of one kernel: registers a thread, bytes of stack and of spilled registers, codes of what it did instead of
    what was asked (C75xx: products one after another, waits put in between, registers not handed over)."""

    registers: int = 0
    stack: int = 0
    stores: int = 0
    loads: int = 0
    losses: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """True when nothing is to complain about."""
        return not (self.stack or self.stores or self.loads or self.losses)

    @property
    def cost(self) -> int:
        """Bytes that are moved for want of registers; products that run one after another count as far more."""
        return max(self.stack, self.stores + self.loads) + (len(self.losses) << 20)

    def worse(self, other: Body) -> Body:
        """The worse of two answers, which are about two architectures."""
        return max(self, other, key=lambda b: (b.cost, b.registers))

    def __str__(self) -> str:
        parts = [f"{self.stores or self.stack} bytes spilled"] if self.stack or self.stores or self.loads else []
        return ", ".join([*parts, *(f"C{code}" for code in self.losses)]) or f"clean with {self.registers} registers"


@record
class Report:
    """The bodies of a file by symbol, and the version of nvcc that was asked."""

    bodies: Mapping[str, Body] = field(default_factory=dict)
    version: str = ""


@record
class Silence:
    """There is no answer, and why."""

    reason: str


def parse(said: str) -> dict[str, Body]:
    """The bodies in what `nvcc -Xptxas -v` printed, by symbol. A message that names no kernel is about all of them."""
    found: dict[tuple[str, str], Body] = {}
    losses: list[tuple[str, list[str]]] = []
    at = ("", "")
    for line in said.splitlines():
        if entry := _ENTRY.search(line):
            at = (entry[1], entry[2])
            found.setdefault(at, Body())
        elif loss := _LOSS.search(line):
            losses.append((loss[1], _QUOTED.findall(loss[2])))
        elif at in found:
            body = found[at]
            if frame := _FRAME.search(line):
                found[at] = Body(body.registers, int(frame[1]), int(frame[2]), int(frame[3]))
            elif used := _USED.search(line):
                found[at] = Body(int(used[1]), body.stack, body.stores, body.loads)
    out: dict[str, Body] = {}
    names = {symbol for symbol, _ in found}
    for (symbol, _), body in found.items():
        codes = tuple(sorted({code for code, quoted in losses if symbol in quoted or names.isdisjoint(quoted)}))
        body = Body(body.registers, body.stack, body.stores, body.loads, codes)
        out[symbol] = body.worse(out[symbol]) if symbol in out else body
    return out


def _body(registers: Any, stack: Any, stores: Any, loads: Any, losses: Any) -> Body:
    """A body as it was kept. Raises TypeError or ValueError for anything else."""
    return Body(int(registers), int(stack), int(stores), int(loads), tuple(map(str, losses)))


def find_nvcc() -> str:
    """The path of nvcc, empty if there is none."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    return shutil.which("nvcc") or shutil.which(str(Path(home) / "bin" / "nvcc")) or ""


About = Callable[[Sequence[str]], str]
"""The text of some kernels of a file, by their symbols."""


def ask(about: About, archs: Mapping[str, Sequence[str]]) -> Report | Silence:
    """What ptxas says of kernels, each for its architectures: from disk where it was asked before, of the others as many at once as
    there are processors."""
    nvcc = find_nvcc()
    version = _version(nvcc)
    if isinstance(version, Silence):
        return version
    texts = {s: about([s]) for s in archs}
    entries = {s: entry_of(text, archs[s], version) for s, text in texts.items()}
    bodies = {s: b for s, b in ((s, _known(entry)) for s, entry in entries.items()) if b is not None}
    wanted = [(s, arch) for s in archs if s not in bodies for arch in archs[s]]
    groups = _groups(wanted, {s: len(text) for s, text in texts.items()}, os.cpu_count() or 1)
    found: dict[str, Body] = {}
    for (symbols, _), said in zip(groups, _said(nvcc, about, groups), strict=True):
        if isinstance(said, Silence):
            return said
        heard = parse(said)
        if not heard.keys() >= set(symbols):
            return Silence("nvcc tells nothing of registers")
        for s in symbols:
            found[s] = heard[s].worse(found[s]) if s in found else heard[s]
    for s, b in found.items():
        keep(entries[s], {"body": [b.registers, b.stack, b.stores, b.loads, b.losses]})
    return Report({**bodies, **found}, version)


def hear(text: str, archs: Sequence[str]) -> Report | Silence:
    """What ptxas says of all kernels of a file, whatever was asked before."""
    nvcc = find_nvcc()
    version = _version(nvcc)
    if isinstance(version, Silence):
        return version
    bodies: dict[str, Body] = {}
    for said in _said(nvcc, lambda _: text, [((), arch) for arch in archs]):
        if isinstance(said, Silence):
            return said
        bodies |= {s: b.worse(bodies[s]) if s in bodies else b for s, b in parse(said).items()}
    return Report(bodies, version) if bodies else Silence("nvcc tells nothing of registers")


def _known(entry: Path) -> Body | None:
    """The body that was kept there."""
    with contextlib.suppress(KeyError, TypeError, ValueError):
        return _body(*(recall(entry) or {})["body"])
    return None


Group = tuple[tuple[str, ...], str]
"""Kernels that one nvcc is asked about, and for which architecture."""


def _groups(wanted: Sequence[tuple[str, str]], sizes: Mapping[str, int], processors: int) -> list[Group]:
    """The kernels, each with an architecture, in about as many groups as there are processors, which take about as long."""
    out: list[Group] = []
    archs = dict.fromkeys(a for _, a in wanted)
    for arch in archs:
        parts: list[list[str]] = [[] for _ in range(max(1, processors // len(archs)))]
        for s in sorted((s for s, a in wanted if a == arch), key=lambda s: (-sizes[s], s)):
            min(parts, key=lambda part: sum(sizes[s] for s in part)).append(s)
        out += [(tuple(part), arch) for part in parts if part]
    return out


def _said(nvcc: str, about: About, groups: Sequence[Group]) -> list[str | Silence]:
    """What nvcc prints for each group; all are asked at once."""
    with tempfile.TemporaryDirectory(prefix="tilec-", ignore_cleanup_errors=True) as folder:
        commands = []
        for n, (symbols, arch) in enumerate(groups):
            source = Path(folder, f"kernels_{n}.cu")
            source.write_text(about(symbols), encoding="utf-8")
            code = f"-gencode=arch=compute_{arch.removeprefix('sm_')},code={arch}"
            commands.append([nvcc, "-std=c++17", code, "-Xptxas", "-v", "-fatbin", "-o", str(source.with_suffix(".fatbin")), str(source)])
        return _run(commands)


def _version(nvcc: str) -> str | Silence:
    """Release and build of nvcc, in a few words."""
    if not nvcc:
        return Silence("nvcc is not here")
    (said,) = _run([[nvcc, "--version"]], 10.0)
    if isinstance(said, Silence):
        return said
    found = re.search(r"\bV(\d+\.\d+\.\d+)", said) or re.search(r"release (\d+\.\d+)", said)
    return found[1] if found else sha256(said.encode()).hexdigest()[:12]


def _run(commands: Sequence[Sequence[str]], limit: float = 0.0) -> list[str | Silence]:
    """What commands print that run side by side; they and what they have started are ended when they take too long."""
    if not limit:
        try:
            limit = float(os.environ.get("TILEC_PTXAS_TIMEOUT") or TIMEOUT_S)
        except ValueError:
            limit = TIMEOUT_S
    until = time.monotonic() + limit
    with contextlib.ExitStack() as open_ones:
        started = [_start(command, open_ones) for command in commands]
        return [s if isinstance(s, Silence) else _heard(s, until - time.monotonic(), limit) for s in started]


def _start(command: Sequence[str], open_ones: contextlib.ExitStack) -> subprocess.Popen[str] | Silence:
    """A command that has begun, and that does not outlive `open_ones`."""
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            start_new_session=True,
        )  # fmt: skip
    except OSError as fault:
        return Silence(f"nvcc cannot be started: {fault.strerror}")
    open_ones.enter_context(process)
    open_ones.callback(_end, process)
    return process


def _heard(process: subprocess.Popen[str], seconds: float, limit: float) -> str | Silence:
    """What a command prints within some seconds."""
    try:
        said, _ = process.communicate(timeout=max(0.0, seconds))
    except subprocess.TimeoutExpired:
        return Silence(f"nvcc gave no answer within {limit:g} s")
    if process.returncode:
        first = next((line.strip() for line in said.splitlines() if "error" in line or "fatal" in line), f"exit code {process.returncode}")
        return Silence(f"nvcc failed: {first[:200]}")
    return said


def _end(process: subprocess.Popen[str]) -> None:
    """Ends a process that goes on, and all that it has started, which it leads."""
    if process.returncode is not None:
        return
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()


# ---- answers on disk


def entry_of(text: str, archs: Sequence[str], version: str) -> Path:
    """Where the answer about a text lies, whether it is there or not."""
    key = sha256("\0".join([_FORMAT, version, *archs, text]).encode()).hexdigest()
    return cache_dir() / "ptxas" / f"{key}.json"


def recall(entry: Path) -> dict[str, Any] | None:
    """What was kept there; None when nothing, or nothing that can be read."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        found = json.loads(entry.read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return found
    return None


def keep(entry: Path, value: Mapping[str, Any]) -> None:
    """Keeps a value, added to what is there; a folder that cannot be written costs time, nothing else."""
    draft = ""
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=entry.parent, suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            json.dump({**(recall(entry) or {}), **value}, out)
        Path(draft).replace(entry)
        _bound(entry.parent)
    except OSError:
        if draft:
            Path(draft).unlink(missing_ok=True)


def _bound(folder: Path) -> None:
    """Removes the oldest entries where there are too many, and drafts that were left behind with them."""
    found = list(folder.iterdir())
    if len(found) <= MOST_ENTRIES:
        return

    def age(path: Path) -> float:
        with contextlib.suppress(OSError):
            return path.stat().st_mtime
        return 0.0

    for old in sorted(found, key=age)[: len(found) - MOST_ENTRIES * 3 // 4]:
        with contextlib.suppress(OSError):
            old.unlink()
