"""Runs the cases of the sample tests on a GPU and compares them with what float64 says.

    TILEC_CASES=build/cases python -m pytest -q tests/samples/test_attention.py     here: writes the cases, runs nothing
    python benchmarks/sample_cases.py build/cases [NAME ...]                         there: needs CuPy, NumPy and ml_dtypes
    compute-sanitizer --tool racecheck python benchmarks/sample_cases.py build/cases

Prints a line a case and ends with 1 if any is wrong.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tilec.runtime.loader import Module


def check(cupy: Any, case: Path) -> str:
    """What is wrong with one case; empty if nothing is."""
    told = json.loads(case.read_text())
    held = np.load(case.with_suffix(".npz"))
    arrays = {n: cupy.asarray(held[f"in_{n}"]) for n in told["kinds"]}
    (entry,) = told["manifest"]["kernels"]
    kernel = Module(case.with_suffix(".cu").read_text(), told["manifest"]).kernel(entry["symbol"])
    kernel(arrays, told["numbers"])
    cupy.cuda.runtime.deviceSynchronize()
    out = []
    for key in (k for k in held.files if k.startswith("out_")):
        name, want = key.removeprefix("out_"), held[key].astype(np.float64)
        kind = np.dtype(getattr(ml_dtypes, told["kinds"][name], None) or told["kinds"][name])
        got = np.frombuffer(cupy.asnumpy(arrays[name]).tobytes(), kind).astype(np.float64).reshape(want.shape)
        error = np.linalg.norm(got - want) / max(np.linalg.norm(want), 1e-30)
        if not error <= told["tolerance"]:
            out.append(f"{name} is off by {error:.1e}")
    return ", ".join(out)


def main(folder: str, *names: str) -> int:
    """Checks all cases of a folder, or those whose name contains one of `names`."""
    import cupy

    failed = 0
    for case in sorted(Path(folder).glob("*.json")):
        if names and not any(n in case.stem for n in names):
            continue
        try:
            wrong = check(cupy, case)
        except Exception as fault:  # the other cases still run
            wrong = f"{type(fault).__name__}: {str(fault)[:300]}"
        failed += bool(wrong)
        print(f"{case.stem}: {wrong or 'right'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
