"""Runs a sample three ways and holds them against a formula: NumPy on its Tile IR, its CUDA on the emulator, float64.

    check("attention/forward.py", {"batch": 1, ...}, {"Q": q, "K": k, "V": v}, {"O": expected}, 1e-3)
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tests.clean import assert_clean
from tests.compiling import MODES
from tilec import emulator
from tilec.driver import Compiled, Options, compile_source
from tilec.emit.manifest import manifest
from tilec.ir.expr import Buffer, Const
from tilec.reference import run
from tilec.reference.extents import infer_extents
from tilec.targets import lookup

Array = npt.NDArray[Any]
SAMPLES = Path(__file__).resolve().parents[2] / "samples"
ARCHS = ("sm_80", "sm_90a")


def fresh() -> np.random.Generator:
    """Numbers that no earlier run has seen."""
    return np.random.default_rng(int.from_bytes(os.urandom(4), "little"))


def half(a: Array) -> Array:
    """The values as float16 keeps them."""
    return a.astype(np.float16)


@cache
def _compiled(name: str, defines: tuple[tuple[str, Any], ...], arch: str, kernels: tuple[str, ...]) -> Compiled:
    target = lookup(arch)
    assert target is not None
    path = SAMPLES / name
    return compile_source(Options(str(path), path.read_bytes(), target, defines=dict(defines), kernels=kernels))


def compile_sample(name: str, defines: Mapping[str, Any], arch: str = "sm_80", kernel: str = "") -> Compiled:
    """The compilation of a file under samples/."""
    return _compiled(name, tuple(sorted(defines.items())), arch, (kernel,) if kernel else ())


def _dtype(name: str) -> Any:
    kinds = {"bfloat16": ml_dtypes.bfloat16, "float8_e4m3": ml_dtypes.float8_e4m3fn}
    return kinds.get(name, name)


def arguments(compiled: Compiled, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """A value for every parameter of the one kernel: `inputs` in the kernel's types, all other tensors poisoned."""
    (kernel,) = compiled.module.kernels
    out: dict[str, Any] = {}
    for p in kernel.params:
        if not isinstance(p, Buffer):
            if p.name in inputs:
                out[p.name] = inputs[p.name]
            continue
        kind = np.dtype(_dtype(str(p.dtype)))
        if p.name in inputs:
            out[p.name] = np.ascontiguousarray(np.asarray(inputs[p.name]).astype(kind))
            continue
        shape = tuple(e.value for e in p.shape if isinstance(e, Const))
        poison = 77 if kind.kind in "iub" else np.nan
        out[p.name] = np.full(shape, poison).astype(kind)
    return out


def relative(got: Array, want: Array) -> float:
    """The error in the Frobenius norm, relative to what is wanted."""
    difference = got.astype(np.float64) - want.astype(np.float64)
    return float(np.linalg.norm(difference) / max(np.linalg.norm(want.astype(np.float64)), 1e-30))


def _same(what: str, got: Mapping[str, Any], wanted: Mapping[str, Array], tolerance: float) -> None:
    for tensor, want in wanted.items():
        have = np.asarray(got[tensor]).reshape(want.shape)
        assert np.isfinite(have.astype(np.float64)).all() or not np.isfinite(want).all(), f"{what}: {tensor} is not finite"
        if tolerance == 0:
            assert np.array_equal(have.astype(np.float64), want.astype(np.float64)), f"{what}: {tensor} differs"
            continue
        wrong = relative(have, want)
        assert wrong <= tolerance, f"{what}: {tensor} is off by {wrong:.2e}"


def emulate(compiled: Compiled, values: Mapping[str, Any], mode: str) -> dict[str, Any]:
    """Copies of `values` after the CUDA has run on the emulator."""
    out = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in values.items()}
    (plan,) = compiled.plans
    outcome = emulator.build(compiled.cu).run(f"{plan.symbol}_launch", out, MODES[mode], 120)
    assert outcome.ok, f"{outcome.status}: {outcome.message}"
    return out


def pack(folder: Path, name: str, compiled: Compiled, values: Mapping[str, Any], wanted: Mapping[str, Array], tolerance: float) -> dict[str, Any]:
    """Writes one case for a machine with a GPU; returns what the kernel should leave, in its own types."""
    (kernel,) = compiled.module.kernels
    arrays = {n: v for n, v in values.items() if isinstance(v, np.ndarray)}
    scalars = {n: v for n, v in values.items() if not isinstance(v, np.ndarray)}
    extents = {v.name: int(n) for v, n in infer_extents(kernel, arrays, scalars).items()}
    place = folder / f"{name}_{len(list(folder.glob('*.json')))}"
    folder.mkdir(parents=True, exist_ok=True)
    place.with_suffix(".cu").write_text(compiled.cu)
    np.savez_compressed(place.with_suffix(".npz"), **{f"in_{n}": a.view(np.uint8).ravel() for n, a in arrays.items()}, **{f"out_{n}": a for n, a in wanted.items()})
    kinds = {n: str(a.dtype) for n, a in arrays.items()}
    case = {"manifest": manifest(compiled.plans), "numbers": {**scalars, **extents}, "kinds": kinds, "tolerance": tolerance}
    place.with_suffix(".json").write_text(json.dumps(case))
    return {n: wanted[n].astype(values[n].dtype) if n in wanted else v for n, v in values.items()}


def check(
    name: str,
    defines: Mapping[str, Any],
    inputs: Mapping[str, Any],
    wanted: Mapping[str, Array],
    tolerance: float,
    *,
    archs: tuple[str, ...] = ARCHS,
    kernel: str = "",
) -> dict[str, Any]:
    """Compares every tensor of `wanted` (float64) with the reference and with the emulator, lazy and eager; returns the last run.

    A file that is the same for two architectures is run once; ptxas must have nothing to complain about in that for sm_90a. With TILEC_CASES=FOLDER nothing is run here: the files with their
    arguments and what they must give go into that folder, for `benchmarks/sample_cases.py` on a machine with a GPU.
    """
    done: dict[str, Any] = {}
    seen: set[str] = set()
    for arch in archs:
        compiled = compile_sample(name, defines, arch, kernel)
        values = arguments(compiled, inputs)
        if folder := os.environ.get("TILEC_CASES"):
            done = pack(Path(folder), f"{Path(name).stem}_{kernel}_{arch}", compiled, values, wanted, tolerance)
            continue
        if arch == "sm_90a":
            assert_clean(compiled, arch)
        if not seen:
            meant = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in values.items()}
            run(
                compiled.module.kernels[0], {k: v for k, v in meant.items() if isinstance(v, np.ndarray)},
                {k: v for k, v in meant.items() if not isinstance(v, np.ndarray)},
            )  # fmt: skip
            _same("reference", meant, wanted, tolerance)
        body = compiled.cu.split("// ---- layouts")[-1].replace("sm_90a", "sm_80")
        if body in seen:
            continue
        seen.add(body)
        for mode in MODES:
            done = emulate(compiled, values, mode)
            _same(f"{arch} {mode}", done, wanted, tolerance)
    return done
