"""One program through everything: compiled, run on the reference and on the emulator in several modes, compared.

    check(text, arch, program, seed) -> None, or what is wrong
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.compiling import compile_text, run_reference
from tests.fuzz.choices import Choices
from tests.fuzz.program import Program
from tests.fuzz.statements import generate
from tests.fuzz.values import Tile
from tests.toolchain import nvrtc_compile
from tilec import emulator
from tilec.diagnostics import CompileError
from tilec.reference.values import Array

TOLERANCE = 32
REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Finding:
    """What went wrong with a program; `kind` is refused, internal, reference, a status of the emulator, or differs."""

    kind: str
    detail: str


def modes(seed: int, races: bool) -> list[emulator.Mode]:
    """The ways to run the generated code."""
    found = [emulator.Mode("lazy", "apart", seed), emulator.Mode("eager", "real", seed + 1)]
    return [*found, emulator.Mode("random", "real", seed + 2, races=True)] if races else found


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


def check(p: Program, seed: int, races: bool, nvrtc: bool = False) -> Finding | None:
    """Runs a program everywhere; what is wrong with it, if anything. `races` and `nvrtc` ask for these checks too."""
    rng = np.random.default_rng(seed)
    try:
        compiled = compile_text(p.text(), arch=p.arch)
    except CompileError as error:
        shown = "; ".join(f"{d.code} {d.message} at line {d.span.line}" for d in error.diagnostics)
        return Finding("internal" if "TL09" in shown else REFUSED, shown)
    except Exception:
        return Finding("internal", traceback.format_exc(limit=-6))
    if nvrtc:
        try:
            nvrtc_compile(compiled.cu, p.arch, "-w")
        except AssertionError as error:
            return Finding("nvrtc", str(error)[:2000])
    values = {**{t.tile.name: t.array(rng) for t in p.tensors}, **{n: value for n, (_, value) in p.arguments.items()}}
    try:
        want = run_reference(compiled, values)
    except Exception:
        return Finding("reference", traceback.format_exc(limit=-6))
    outputs = [t.tile for t in p.tensors if t.contents == "poison"]
    try:
        built = emulator.build(compiled.cu)
        for mode in modes(seed, races):
            got = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in values.items()}
            outcome = built.run(f"{compiled.plans[0].symbol}_launch", got, mode, 60)
            if not outcome.ok:
                return Finding(outcome.status, f"{mode}: {outcome.message}")
            for tile in outputs:
                if wrong := difference(tile, got[tile.name], want[tile.name]):
                    return Finding("differs", f"{mode}: {wrong}")
    except emulator.BuildError as error:
        return Finding("build", str(error)[:2000])
    return None


def program(seed: int, number: int, most: int = 12) -> Program:
    """The `number`-th program of a seed."""
    return generate(Choices(random.Random(f"{seed}/{number}")), most)


def replay(record: Sequence[int], most: int = 12) -> Program:
    """The program of a record of decisions."""
    return generate(Choices.replay(record), most)
