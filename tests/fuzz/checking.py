"""Programs through everything: compiled, run on the reference and on the emulator in several modes, compared.

    check(program) -> None, or what is wrong;  check_all(programs) -> the same of many, several of them in one file
"""

from __future__ import annotations

import traceback
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tests.compiling import compile_text
from tests.fuzz.program import HEADER, Program
from tests.fuzz.values import Tile
from tests.toolchain import nvrtc_compile
from tilec import emulator
from tilec.diagnostics import CompileError
from tilec.driver import Compiled
from tilec.reference import run as run_meaning
from tilec.reference.values import Array

TOLERANCE = 32
BATCH = 8
REFUSED = "refused"
TOO_LARGE = "too large"


@dataclass(frozen=True, slots=True)
class Finding:
    """What went wrong with a program; `kind` is refused, internal, reference, nvrtc, build, a status of the emulator, differs, or
    batch for programs that only fail together. "Too large" for the machine's shared memory is no fault, but counts as no program."""

    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class Depth:
    """How programs are checked: with a look for races, through NVRTC too, built by g++ with optimisation as for users; and the
    level at which tilec compiles them."""

    races: bool = False
    nvrtc: bool = False
    optimised: bool = False
    level: int = 2


def modes(seed: int, races: bool) -> list[emulator.Mode]:
    """The ways to run the generated code."""
    return [emulator.Mode("lazy", "apart", seed, races=races), emulator.Mode("eager", "real", seed + 1, races=races)]


def difference(tile: Tile, got: Array, want: Array) -> str:
    """How two results of a tensor differ beyond what is allowed; empty when they do not."""
    a, b = np.asarray(got), np.asarray(want)
    if tile.dtype.is_float:
        a, b = a.astype(np.float64), b.astype(np.float64)
        equal = (a == b) | (np.isnan(a) & np.isnan(b))
    else:
        equal = a == b
    if tile.noise:
        finite = np.abs(b[np.isfinite(b)])
        scale = max(1.0, min(tile.peak, 1e4), float(finite.max()) if finite.size else 1.0)
        equal |= np.abs(a - b) <= TOLERANCE * tile.noise * scale
    if equal.all():
        return ""
    wrong = np.argwhere(~equal)
    at = tuple(int(n) for n in wrong[0])
    return f"{tile.name}{list(at)} is {a[at]}, not {b[at]} ({len(wrong)} of {equal.size} elements differ, noise {tile.noise})"


def check(p: Program, depth: Depth = Depth()) -> Finding | None:
    """What is wrong with a program, if anything."""
    return _check_file([p], depth)[0]


def check_all(programs: Sequence[Program], depth: Depth = Depth()) -> list[Finding | None]:
    """What is wrong with each program. They are compiled and built several in a file, and alone if anything is wrong with it."""
    found: dict[int, Finding | None] = {}
    for arch in sorted({p.arch for p in programs}):
        numbers = [i for i, p in enumerate(programs) if p.arch == arch]
        for at in range(0, len(numbers), BATCH):
            part = numbers[at : at + BATCH]
            together = _check_file([programs[i] for i in part], depth)
            alone = [check(programs[i], depth) if t else None for i, t in zip(part, together, strict=True)]
            for i, t, a in zip(part, together, alone, strict=True):
                found[i] = a or (Finding("batch", f"{t.kind}: {t.detail}") if t and not any(alone) else None)
    return [found[i] for i in range(len(programs))]


def file_text(programs: Sequence[Program]) -> str:
    """One source file with all the kernels."""
    return HEADER + "".join(p.kernel_text(f"kernel_{i}") for i, p in enumerate(programs))


def _check_file(programs: Sequence[Program], depth: Depth) -> list[Finding | None]:
    """The findings of programs in one file; what keeps the file from running is told as one of each, kind batch if they are many."""

    def all_fail(kind: str, detail: str) -> list[Finding | None]:
        return [Finding(kind if len(programs) == 1 else "batch", detail)] * len(programs)

    try:
        compiled = compile_text(file_text(programs), arch=programs[0].arch, opt_level=depth.level)
    except CompileError as error:
        shown = "; ".join(f"{d.code} {d.message} at line {d.span.line}" for d in error.diagnostics)
        return all_fail("internal" if "TL09" in shown else TOO_LARGE if "TL0401" in shown else REFUSED, shown)
    except Exception:
        return all_fail("internal", traceback.format_exc(limit=-6))
    try:
        if depth.nvrtc:
            nvrtc_compile(compiled.cu, programs[0].arch, "-w")
    except AssertionError as error:
        return all_fail("nvrtc", str(error)[:2000])
    try:
        built = emulator.build(compiled.cu)
        if not depth.optimised:
            built = replace(built, runtime=replace(built.runtime, flags=tuple("-O0" if f == "-O1" else f for f in built.runtime.flags)))
        return [_check_run(p, compiled, built, i, depth.races) for i, p in enumerate(programs)]
    except emulator.BuildError as error:
        return all_fail("build", str(error)[:2000])


def _check_run(p: Program, compiled: Compiled, built: emulator.Program, number: int, races: bool) -> Finding | None:
    """Compares the runs of the file's kernel of that number; its inputs follow from the program's text."""
    seed = zlib.crc32(p.text().encode())
    rng = np.random.default_rng(seed)
    kernel, plan = compiled.module.kernels[number], compiled.plans[number]
    arrays = {t.tile.name: t.array(rng) for t in p.tensors}
    scalars = {n: value for n, (_, value) in p.arguments.items()}
    want = {k: v.copy() for k, v in arrays.items()}
    try:
        run_meaning(kernel, want, scalars)
    except Exception:
        return Finding("reference", traceback.format_exc(limit=-6))
    for mode in modes(seed, races):
        got = {k: v.copy() for k, v in arrays.items()}
        outcome = built.run(f"{plan.symbol}_launch", {**got, **scalars}, mode, 60)
        if not outcome.ok:
            return Finding(outcome.status, f"{mode}: {outcome.message}")
        for t in p.tensors:
            if t.is_output and (wrong := difference(t.tile, got[t.tile.name], want[t.tile.name])):
                return Finding("differs", f"{mode}: {wrong}")
    return None
