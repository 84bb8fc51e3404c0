"""How long `tilec compile` takes from the start of the process, beside TileLang's way to CUDA text where it is installed.

    python benchmarks/startup.py [--runs 15] [--tilelang PYTHON]
    python benchmarks/startup.py --every [--runs 3]      every sample, the first time and again; the best of each counts

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

SAMPLES = Path(__file__).resolve().parent.parent / "samples"
SAMPLE = SAMPLES / "gemm_prim_func.py"
SIZES = {
    "attention/backward": "batch=4 heads=16 seq=4096 dim=128",
    "attention/block_sparse": "seq=4096 heads=16 dim=128",
    "attention/decode": "batch=16 heads=32 kv_heads=8 seq=8192 dim=128 splits=8",
    "attention/forward": "batch=4 heads=16 kv_heads=16 seq=4096 dim=128",
    "attention/mla_decode": "batch=8 heads=128 seq=4096 latent=512 rope=64",
    "attention/varlen": "heads=16 kv_heads=4 dim=128 causal=True",
    "attention/window_sink": "heads=16 kv_heads=4 seq=8192 dim=128 window=1024",
    "linear_attention/chunked": "batch=4 heads=16 seq=4096 dim=128",
    "linear_attention/gated_delta": "heads=16 seq=4096 dim_k=128 dim_v=128",
    "linear_attention/mamba2": "seq=8192 heads=64 groups=1 dim=64 dstate=128 chunk=256",
    "linear_attention/retention": "heads=16 seq=4096 dim_qk=128 dim_v=128",
    "moe/experts": "tokens=4096 experts=8 model=1024 hidden=1024 slots=8192",
    "moe/fused_mlp": "tokens=8192 model=128 hidden=1024",
    "products/norm_projection": "N=32",
}
"""Numbers for the samples that do not compile without some."""
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


def every(runs: int) -> None:
    """Prints a line a sample and architecture: the best of the first compilations with an empty cache, and of those that follow."""
    slow = count = 0
    for file in sorted(SAMPLES.rglob("*.py")):
        name = str(file.relative_to(SAMPLES).with_suffix(""))
        for arch in ("sm_80", "sm_90a"):
            with tempfile.TemporaryDirectory() as room:
                given = [x for value in SIZES.get(name, "").split() for x in ("-D", value)]
                command = [sys.executable, "-m", "tilec", "compile", str(file), "-q", *given, "--arch", arch, "-o", f"{room}/k.cu"]
                if subprocess.run(command, capture_output=True, check=False).returncode:
                    continue  # tiles that another file takes, or clusters where there are none
                times = []
                for n in range(runs):
                    os.environ["TILEC_CACHE_DIR"] = f"{room}/{n}"
                    times.append((seconds(command), seconds(command)))
                del os.environ["TILEC_CACHE_DIR"]
            first, again = map(min, zip(*times, strict=True))
            count, slow = count + 1, slow + (first >= 0.5)
            print(f"{name:36} {arch:7} first {first:5.3f} s   again {again:5.3f} s{'   *' if first >= 0.5 else ''}", flush=True)
    print(f"{slow} of {count} take half a second or more the first time")


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--tilelang", metavar="PYTHON", help="a Python that can import tilelang")
    parser.add_argument("--every", action="store_true", help="all samples, the first time and again")
    options = parser.parse_args()
    if options.every:
        every(min(options.runs, 3))
        return
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
