"""Runs the cases of the sample tests on a GPU and compares them with what float64 says, plainly or under compute-sanitizer.

    TILEC_CASES=build/cases python -m pytest -q tests/samples                        here: writes the cases, runs nothing
    python benchmarks/sample_cases.py build/cases [NAME ...]                         there: needs CuPy and NumPy
    python benchmarks/sample_cases.py build/cases --jobs 8 --tool racecheck          memcheck, racecheck, initcheck, synccheck

Prints a line a case and ends with 1 if any is wrong; with --jobs only what is wrong is printed, and the totals.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tilec.runtime.loader import Module


def decoded(data: bytes, kind: str) -> Any:
    """The numbers that the bytes of a tensor stand for, in float64."""
    if kind == "bfloat16":  # the upper half of a float32
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if kind == "float8_e5m2":  # the upper half of a float16
        return (np.frombuffer(data, np.uint8).astype(np.uint16) << 8).view(np.float16).astype(np.float64)
    if kind == "float8_e4m3fn":
        code = np.frombuffer(data, np.uint8).astype(int)
        exponent, rest = code >> 3 & 15, code & 7
        size = np.where(exponent > 0, (8 + rest) * 2.0 ** (exponent - 10), rest * 2.0**-9)
        return np.where(code & 127 == 127, np.nan, np.where(code > 127, -size, size))
    return np.frombuffer(data, kind).astype(np.float64)


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
        got = decoded(cupy.asnumpy(arrays[name]).tobytes(), told["kinds"][name]).reshape(want.shape)
        got, want = (np.where(np.isnan(got) & np.isnan(want), 0, x) for x in (got, want))  # elements that nobody writes may be NaN
        error = np.linalg.norm(got - want) / max(np.linalg.norm(want), 1e-30)
        if not error <= told["tolerance"]:
            out.append(f"{name} is off by {error:.1e}")
    return ", ".join(out)


def run(cases: list[Path]) -> int:
    """Checks the cases in this process; 1 if one is wrong."""
    import cupy

    cupy.cuda.set_allocator(None)  # every tensor an allocation of its own, whose ends compute-sanitizer knows
    failed = 0
    for case in cases:
        print(f"{case.stem}: ", end="", flush=True)
        try:
            wrong = check(cupy, case)
        except Exception as fault:  # the other cases still run
            wrong = f"{type(fault).__name__}: {str(fault)[:300]}"
        failed += bool(wrong)
        print(wrong or "right", flush=True)
    return 1 if failed else 0


def spread(arguments: list[str], jobs: int, tool: str) -> int:
    """Checks the cases in several processes at once; prints what is wrong and the totals."""
    found = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    watched = [found, "--tool", tool, "--error-exitcode", "9"] if tool else []
    commands = [[*watched, sys.executable, __file__, *arguments, "--part", f"{k}/{jobs}"] for k in range(jobs)]
    running = [subprocess.Popen(c, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for c in commands]
    texts = [p.communicate()[0] for p in running]
    right, failed = 0, any(p.returncode for p in running)
    for text in texts:
        right += len(re.findall(r"right$", text, re.MULTILINE))
        shown = [x for x in text.splitlines() if not re.search(r"right$|COMPUTE-SANITIZER|SUMMARY: 0", x)]
        print("\n".join(shown[:60]), end="\n" if shown else "")
    summaries = sorted({x.lstrip("= ") for t in texts for x in t.splitlines() if "SUMMARY" in x})
    print(f"{tool or 'plain'}: {right} cases right; {'; '.join(summaries)}{'; FAILED' if failed else ''}", flush=True)
    return 1 if failed else 0


def main() -> int:
    """Checks all cases of a folder, or those whose name contains one of the names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--part", default="0/1", help="k/n: every n-th case, beginning with the k-th")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--tool", default="", choices=("", "memcheck", "racecheck", "initcheck", "synccheck"))
    options = parser.parse_args()
    if options.jobs > 1 or options.tool:
        return spread([str(options.folder), *options.names], options.jobs, options.tool)
    part, parts = map(int, options.part.split("/"))
    cases = sorted(options.folder.glob("*.json"))
    return run([c for c in cases if not options.names or any(n in c.stem for n in options.names)][part::parts])


if __name__ == "__main__":
    sys.exit(main())
