"""How long `tilec compile` takes from the start of the process, beside TileLang's way to CUDA text where it is installed.

    python benchmarks/startup.py [--runs 15] [--tilelang PYTHON]

Whole processes, one after another, in turns; the median counts. The first run of each, which fills caches, is left out. The
TileLang side needs a Python that can import tilelang 0.1.15 (`--tilelang /path/to/python`); it lowers the same kernel and takes
the text of the CUDA source, as tilec does, without nvcc.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SAMPLE = Path(__file__).resolve().parent.parent / "samples" / "gemm_prim_func.py"
TILELANG = """
import runpy, sys, tilelang
from tilelang import tvm
kernel = runpy.run_path(sys.argv[1])["gemm"]
target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
with target:
    source = tilelang.lower(kernel, target=target).kernel_source
open(sys.argv[2], "w").write(source)
"""


def seconds(command: list[str]) -> float:
    """Wall time of one process. Ends the program if it fails."""
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    taken = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return taken


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--tilelang", metavar="PYTHON", help="a Python that can import tilelang")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as room:
        out = str(Path(room) / "k.cu")
        commands = {
            "tilec --version": [sys.executable, "-m", "tilec", "--version"],
            "tilec compile": [sys.executable, "-m", "tilec", "compile", str(SAMPLE), "-q", "-o", out],
        }
        if options.tilelang:
            script = Path(room) / "lower.py"
            script.write_text(TILELANG)
            commands["tilelang lower"] = [options.tilelang, str(script), str(SAMPLE), out]
        times: dict[str, list[float]] = {name: [] for name in commands}
        for turn in range(options.runs + 1):
            for name, command in commands.items():
                taken = seconds(command)
                if turn:
                    times[name].append(taken)
    print(f"{os.cpu_count()} cores, {options.runs} runs of each, {SAMPLE.name}")
    for name, all_of_them in times.items():
        print(f"  {name:18} median {statistics.median(all_of_them):6.3f} s   best {min(all_of_them):6.3f}   worst {max(all_of_them):6.3f}")


if __name__ == "__main__":
    main()
