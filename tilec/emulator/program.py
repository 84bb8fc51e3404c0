"""A generated file, built for the CPU: runs its launchers on NumPy arrays and says how the run ended.

    program = build(cu_text)
    program.run("scale_launch", {"A": a, "factor": 2.0, "B": b}).status -> "ok"
"""

import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from tilec.record import record
from tilec.emulator import source, toolchain
from tilec.emulator.arguments import Argument, Array, Scalar, Value, Workspace, bind

_INSTRUCTION = re.compile(r"\{instruction (\d+)\}")
_LINE = re.compile(r"\bline (\d+)")
_ORIGIN = re.compile(r"\s*// (\S+\.py:\d+\b.*)")

SHARED_LIMITS = {80: 166912, 86: 101376, 87: 166912, 89: 101376, 90: 232448, 100: 232448, 120: 101376}
"""Most dynamic shared memory of a block by compute capability, bytes."""


@record
class Mode:
    """How to run: `asynchrony` says when asynchronous copies land, `shared` where shared tiles lie, `seed` in which order
    threads run. `alignment` is that of the arrays, whose ends lie flush with inaccessible memory. `races` also checks that
    something orders every two accesses of shared memory, whatever happened in this run; it costs a second build.

    lazy: at the last moment a wait allows; eager: at once; random: some time between.
    apart: each tile fenced on its own, so that overruns are named; real: at the plan's offsets, so that reuse faults show.
    """

    asynchrony: Literal["lazy", "eager", "random"] = "lazy"
    shared: Literal["apart", "real"] = "apart"
    seed: int = 0
    alignment: int = 16
    races: bool = False


PLAIN = Mode()
"""Lazy copies, tiles apart, seed 0."""


@record
class Outcome:
    """How a run ended. `status` is "ok", "race", "deadlock", "overrun", "fault", "timeout" or "launch error N" (a cudaError_t);
    `message` says what happened where, `line` is the line of the .cu or 0, `output` is what the kernel printed."""

    status: str
    message: str = ""
    line: int = 0
    output: str = ""

    @property
    def ok(self) -> bool:
        """Whether the launcher returned success and nothing wrong was seen."""
        return self.status == "ok"


@record
class Program:
    """A built file: its manifest and its library. `run` may be called often, also from several processes at once."""

    manifest: Mapping[str, Any]
    text: str = field(repr=False)
    library: Path
    runtime: toolchain.Runtime = field(repr=False)

    def run(self, launcher: str, values: Mapping[str, Value], mode: Mode = PLAIN, timeout_s: int = 60) -> Outcome:
        """Calls `launcher` (or the launcher of the kernel of that name) in a process of its own, and waits.

        `values` has an array for each tensor, a number for each scalar, and run-time extents where the arrays' shapes do
        not give them. Arrays that are not inputs are updated in place if the launcher returned.
        KeyError for an unknown launcher; ValueError for values that do not fit the manifest.
        """
        table = source.launchers(self.manifest)
        name = launcher if launcher in table else f"{launcher}_launch"
        if name not in table:
            raise KeyError(f"no launcher {launcher!r}: the file has {', '.join(table)}")
        arguments = bind(table[name], values)
        with tempfile.TemporaryDirectory(prefix="tilec-run-") as scratch:
            return self._run(Path(scratch), name, arguments, mode, timeout_s)

    def _run(self, scratch: Path, launcher: str, arguments: list[Argument], mode: Mode, timeout_s: int) -> Outcome:
        request, data, response = scratch / "request", scratch / "data", scratch / "response"
        request.write_text(self._request(launcher, arguments, mode, timeout_s), encoding="utf-8")
        arrays = [a for a in arguments if isinstance(a, Array)]
        with data.open("wb") as file:
            for array in arrays:
                file.write(array.contents())
        command = [str(self.runtime.runner), str(request), str(data), str(response)]
        try:
            done = subprocess.run(command, capture_output=True, timeout=timeout_s + 10, check=False)
        except subprocess.TimeoutExpired:
            return Outcome("timeout", f"the run did not end within {timeout_s} s")
        output = done.stdout.decode(errors="replace")
        if not response.is_file():
            detail = done.stderr.decode(errors="replace").strip()
            return Outcome("fault", f"the emulator ended with code {done.returncode} and no report. {detail}".strip(), 0, output)
        outcome = self._read(response.read_text(encoding="utf-8", errors="replace"), output, _flags(mode))
        if outcome.ok or outcome.status.startswith("launch error"):
            _fetch(arrays, data)
        return outcome

    def _request(self, launcher: str, arguments: list[Argument], mode: Mode, timeout_s: int) -> str:
        library = toolchain.build_program(self.runtime, self.text, *_flags(mode))
        capability = _capability(source.launchers(self.manifest)[launcher])
        lines = [
            f"library {library}",
            f"launcher {launcher}",
            f"seed {mode.seed % 2**64}",
            f"races {int(mode.races)}",
            f"asynchrony {mode.asynchrony}",
            f"shared {mode.shared}",
            f"alignment {mode.alignment}",
            f"timeout {max(1, int(timeout_s))}",
            f"capability {capability}",
            f"shared_limit {SHARED_LIMITS.get(capability, 101376)}",
        ]
        for argument in arguments:
            match argument:
                case Array():
                    lines.append(f"pointer {argument.name} {argument.role} {argument.nbytes} {argument.shown}")
                case Scalar():
                    lines.append(f"scalar {argument.data.hex()}")
                case Workspace():
                    lines.append(f"workspace {argument.nbytes}")
        return "\n".join([*lines, "stream", ""])

    def _read(self, response: str, output: str, flags: Sequence[str]) -> Outcome:
        """The report of a run: instructions in it become lines, and the lines it names are quoted."""
        status, instruction, line, message = response.split("\n", 3)
        if int(instruction) != 0:
            message += f", in {{instruction {instruction}}}"
        found = [int(number) for number in _INSTRUCTION.findall(message)]
        lines = toolchain.lines_of(self.runtime, self.text, found, *flags) if found else []
        for number in lines:
            message = _INSTRUCTION.sub(f"line {number}" if number else "a line unknown", message, count=1)
        named = [int(number) for number in _LINE.findall(message)]
        last = int(line) or (named[-1] if named else 0)
        text = self.text.splitlines()
        quoted = [f"\n  line {n}: {text[n - 1].strip()}{_origin(text, n)}" for n in dict.fromkeys([last, *named]) if 0 < n <= len(text)]
        return Outcome(status, message + "".join(quoted), last, output)


def _origin(text: Sequence[str], line: int) -> str:
    """The statement of the author that a line of a kernel belongs to, as the comment above it has it; empty where there is none."""
    for above in reversed(text[: line - 1]):
        if above.startswith(("}", "extern", "namespace")):
            break
        if found := _ORIGIN.match(above):
            return f"\n    from {found[1]}"
    return ""


def build(cu_text: str) -> Program:
    """Compiles a generated file for the CPU, or takes it from the cache.

    ToolMissing without a C++ compiler; BuildError if the compiler refuses the file; ValueError if it has no manifest or no
    prelude markers.
    """
    manifest = source.read_manifest(cu_text)
    text = source.prepare(cu_text, manifest)
    base = toolchain.runtime()
    return Program(manifest, text, toolchain.build_program(base, text), base)


def _flags(mode: Mode) -> tuple[str, ...]:
    return toolchain.RACE_FLAGS if mode.races else ()


def _fetch(arrays: list[Array], data: Path) -> None:
    with data.open("rb") as file:
        for array in arrays:
            contents = file.read(array.nbytes)
            if array.role != "in":
                array.update(contents)


def _capability(kernel: Mapping[str, Any]) -> int:
    """The newest architecture that the kernel's variants name, as 10 * major + minor."""
    names = [str(v.get("arch", "sm_80")) for launch in kernel["launches"] for v in launch["variants"]]
    numbers = ["".join(c for c in name if c.isdigit()) for name in names]
    return max((int(n) for n in numbers if n), default=80)
