"""Runs the numeric prelude and the expression writer on a GPU and compares with NumPy: the same cases as on the CPU.

    python benchmarks/gpu_numeric.py [FAMILY ...] [--quick]

needs CuPy and a GPU of sm_80 or newer. All 2^16 halves and bfloat16s, all fp8s and, unless --quick, every boundary between two
of them as float and double go through the conversions. Prints a line a family and ends with 1 if anything differs.
Products and sums are kept apart (-fmad=false): contraction is the one freedom that results may differ by.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.emit.cexpr_cases import FAMILIES, Case, complaint, device_text, float_to_float_casts
from tilec.runtime.cubin import cubin_file

THREADS = 256
SLACK = 4.0  # CUDA's mathematical functions are allowed a few more ulp than glibc's


def run(cases: list[Case], cp: Any) -> list[np.ndarray]:
    """The outputs of the cases, computed by the current GPU."""
    machine_code = cubin_file(device_text(cases), f"sm_{cp.cuda.Device().compute_capability}", ("-fmad=false",))
    module = cp.RawModule(path=str(machine_code))
    results = []
    for n, case in enumerate(cases):
        inputs = [cp.asarray(np.ascontiguousarray(a).view(np.uint8)) for a in case.inputs.values()]
        out = cp.full(case.expected.nbytes, 0xA5, cp.uint8)
        blocks = -(-case.expected.size // THREADS)
        module.get_function(f"f{n}")((blocks,), (THREADS,), (*inputs, out, np.int32(case.expected.size)))
        results.append(cp.asnumpy(out).view(case.expected.dtype))
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("families", nargs="*", choices=[*FAMILIES, []], help="default: all")
    parser.add_argument("--quick", action="store_true", help="samples of the boundaries instead of all")
    options = parser.parse_args()
    import cupy as cp

    wrong = 0
    for name in options.families or FAMILIES:
        start = time.perf_counter()
        thorough = name == "float_to_float_casts" and not options.quick
        cases = float_to_float_casts(thorough=True) if thorough else FAMILIES[name]()
        complaints = [text for case, got in zip(cases, run(cases, cp), strict=True) if (text := complaint(case, got, SLACK))]
        values = sum(case.expected.size for case in cases)
        print(f"{name:32} {len(cases):4} expressions, {values:8} values, {len(complaints)} wrong, {time.perf_counter() - start:.1f} s")
        for text in complaints[:10]:
            print("   ", text)
        wrong += len(complaints)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
