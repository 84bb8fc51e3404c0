"""Checks and times generated code on a GPU. `make_bundle.py` copies this file into a bundle as check.py.

    python check.py                         everything, a line a step; exit code 1 if anything is wrong
    python check.py table [NAME ...]        the table of GEMM variants against float64
    python check.py sanitize                memcheck and racecheck on ten of them
    python check.py program                 the C++ project, built by nvcc and run
    python check.py time [--seconds 5]      GEMMs beside cuBLAS, interleaved

Needs CuPy, NumPy and ml_dtypes; nvcc for `program`, compute-sanitizer for `sanitize`. tilec itself is not needed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from tilec.runtime.loader import Module, as_bits  # noqa: E402
from tilec.runtime.timing import Problem, cublas_call, interleaved  # noqa: E402

NARROW = {"bfloat16": ml_dtypes.bfloat16}
SANITIZED = 10
STEPS = ("table", "sanitize", "program", "time")


def numpy_type(name: str) -> Any:
    """The NumPy type of a manifest's type name."""
    return np.dtype(NARROW.get(name, name))


def fresh(rng: np.random.Generator, dtype: str, shape: tuple[int, int], exact: bool = False) -> Any:
    """N(0, 1), the whole range of an 8-bit integer, or small integers where `exact`."""
    if exact:
        return rng.integers(-64, 65, shape).astype(numpy_type(dtype))
    if dtype == "int8":
        return rng.integers(-128, 128, shape).astype(np.int8)
    return rng.standard_normal(shape).astype(numpy_type(dtype))


def operands(row: dict[str, Any], rng: np.random.Generator) -> tuple[Any, Any]:
    """A and B as they are stored."""
    m, n, k = row["m"], row["n"], row["k"]
    exact = row.get("exact", False)
    a = fresh(rng, row["operand"], (k, m) if row["trans_a"] else (m, k), exact)
    return a, fresh(rng, row["operand"], (n, k) if row["trans_b"] else (k, n), exact)


def poisoned(dtype: str, shape: tuple[int, int]) -> Any:
    """What the output holds before the launch: NaN, or bytes 0xA5."""
    kind = numpy_type(dtype)
    return np.full(shape, np.nan).astype(kind) if dtype != "int32" else np.full(shape, 0xA5A5A5A5, np.uint32).view(np.int32)


def wrong(got: Any, want: Any, row: dict[str, Any]) -> str:
    """Why `got` is not `want` (float64), empty if it is close enough."""
    if row["result"] == "int32":
        count = int(np.count_nonzero(got.astype(np.float64) != want))
        return f"{count} integers differ" if count else ""
    difference = got.astype(np.float64) - want
    error = float(np.linalg.norm(difference)) / (float(np.linalg.norm(want)) or 1.0)
    return "" if error <= row["limit"] else f"relative error {error:.2e}, allowed {row['limit']:.2e}"


def load(cupy: Any, row: dict[str, Any], a: Any, b: Any) -> tuple[list[Any], Any, dict[str, Any]]:
    """The launches of a row, its output on the device and its arrays."""
    c = poisoned(row["result"], (row["m"], row["n"]))
    arrays = {name: cupy.asarray(np.frombuffer(as_bits(x).tobytes(), np.uint8)) for name, x in zip("ABC", (a, b, c), strict=True)}
    kernel = Module((HERE / row["cu"]).read_text(), row["manifest"]).kernel(row["symbol"])
    return kernel.prepare(arrays, row["numbers"]), c, arrays


def run_all(launches: list[Any]) -> None:
    """Queues every launch."""
    for launch in launches:
        launch()


def check_row(cupy: Any, row: dict[str, Any], seed: int) -> str:
    """Runs one variant on fresh inputs; empty if it is right."""
    rng = np.random.default_rng(seed)
    a, b = operands(row, rng)
    launches, c, arrays = load(cupy, row, a, b)
    run_all(launches)
    cupy.cuda.runtime.deviceSynchronize()
    got = np.frombuffer(cupy.asnumpy(arrays["C"]).tobytes(), c.dtype).reshape(c.shape)
    left, right = (x.T if flip else x for x, flip in ((a.astype(np.float64), row["trans_a"]), (b.astype(np.float64), row["trans_b"])))
    return wrong(got, left @ right, row)


def table(plan: dict[str, Any], names: list[str]) -> bool:
    """All variants, or those named."""
    import cupy

    rows = [r for r in plan["variants"] if not names or r["name"] in names]
    seed = time.time_ns() % (1 << 32)
    bad = 0
    for i, row in enumerate(rows):
        why = check_row(cupy, row, seed + i)
        bad += bool(why)
        if why:
            print(f"  {row['name']}: {why}")
    print(f"table: {len(rows) - bad} of {len(rows)} variants agree with float64 (seed {seed})")
    return not bad


def sanitize(plan: dict[str, Any]) -> bool:
    """memcheck and racecheck over variants spread across the table."""
    rows = plan["variants"]
    names = [r["name"] for r in rows[:: max(1, len(rows) // SANITIZED)][:SANITIZED]]
    fine = True
    for tool in ("memcheck", "racecheck"):
        command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", sys.executable, str(HERE / "check.py"), "table", *names]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        summary = [line.strip("= ") for line in done.stdout.splitlines() if "SUMMARY" in line]
        print(f"{tool}: {'; '.join(summary) or done.stdout[-500:] + done.stderr[-500:]} on {len(names)} variants")
        fine &= done.returncode == 0
    return fine


def program(plan: dict[str, Any]) -> bool:
    """The C++ project: nvcc, then the program itself."""
    import cupy

    capability = cupy.cuda.Device().compute_capability
    command = ["nvcc", "-std=c++17", f"-arch=sm_{capability}", *plan["program"], "-o", "program"]
    for step in (command, ["./program"]):
        done = subprocess.run(step, cwd=HERE / "program", capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"program: {step[0]} ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}")
            return False
    print(f"program: {done.stdout.strip()}")
    return True


def sampled_error(row: dict[str, Any], a: Any, b: Any, got: Any) -> float:
    """The relative error of 64 rows of the result against float64."""
    chosen = np.random.default_rng().choice(row["m"], 64, replace=False)
    right = b.astype(np.float64)
    want = a[chosen].astype(np.float64) @ (right.T if row["trans_b"] else right)
    return float(np.linalg.norm(got[chosen].astype(np.float64) - want) / np.linalg.norm(want))


def timings(plan: dict[str, Any], seconds: float, results: dict[str, Any]) -> bool:
    """Every timed GEMM: first right, then fast."""
    import cupy

    fine = True
    for row in plan["timed"]:
        problem = Problem(*(row[field] for field in ("m", "n", "k", "trans_a", "trans_b", "operand", "result", "accumulator")))
        a, b = operands(row, np.random.default_rng())
        launches, c, arrays = load(cupy, row, a, b)
        peer = cupy.empty_like(arrays["C"])
        cublas = cublas_call(cupy, problem, arrays["A"], arrays["B"], peer)
        times = interleaved(cupy, {"tilec": partial(run_all, launches), "cublas": cublas}, seconds)
        errors = [sampled_error(row, a, b, cupy.asnumpy(x).view(c.dtype).reshape(c.shape)) for x in (arrays["C"], peer)]
        speed = {name: 2e-12 * row["m"] * row["n"] * row["k"] / statistics.median(t) for name, t in times.items()}
        ratio = speed["tilec"] / speed["cublas"]
        results[row["name"]] = {**speed, "ratio": ratio, "launches": len(times["tilec"]), "errors": errors}
        both = f"tilec {speed['tilec']:6.1f}  cuBLAS {speed['cublas']:6.1f} TFLOP/s"
        print(f"time: {row['name']:8} {both}  ratio {ratio:.3f}  errors {errors[0]:.1e} and {errors[1]:.1e}")
        fine &= errors[0] <= row["limit"]
    return fine


def main() -> int:
    """Runs the steps that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", nargs="?", choices=STEPS)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", type=Path, help="also write the timings here")
    options = parser.parse_args()
    plan = json.loads((HERE / "plan.json").read_text())
    results: dict[str, Any] = {}
    steps = {
        "table": lambda: table(plan, options.names),
        "sanitize": lambda: sanitize(plan),
        "program": lambda: program(plan),
        "time": lambda: timings(plan, options.seconds, results),
    }
    fine = [steps[s]() for s in STEPS if options.step in (None, s)]
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
