"""tilec's GEMM beside the hand-written kernel of `peers/` and cuBLAS, sustained: launches back to back, contenders in turns.

    python benchmarks/gemm_peers.py build build/peers                  needs nvcc: compiles kernels/gemm.py and the peer
    python benchmarks/gemm_peers.py run build/peers --json peers.json  needs a GPU, torch and CuPy

Every contender is checked against a float64 product into an output full of NaN. Inputs are N(0,1); several sets of buffers, more
than the L2 cache holds, are used in rotation; each round replays one CUDA graph per contender, in rotating order; medians count.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from measuring import Call, matmul, race, relative_error, sets_past_the_cache

HERE = Path(__file__).resolve().parent
SIZES = (4096, 8192)
LAYOUTS = ("nk", "kn")
CONFIGS: dict[str, dict[str, int]] = {
    "128x256x32, 4 stages": {},
    "128x256x64, 3 stages": {"block_K": 64, "num_stages": 3},
    "128x128x32, 128 threads, 4 stages": {"block_N": 128, "threads": 128},
}
"""Block sizes of kernels/gemm.py that are measured."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A compiled kernel: how to launch it and which problem it fits. `size` 0 means any."""

    name: str
    cubin: str
    symbol: str
    layout: str
    size: int
    tile: tuple[int, int]
    threads: int
    shared_bytes: int
    registers: int
    spilled: int
    persistent: bool
    extents: bool


def build(folder: Path, arch: str) -> None:
    """Compiles every contender into `folder`, with a list of them in plan.json."""
    folder.mkdir(parents=True, exist_ok=True)
    found = [peer(folder, layout, arch) for layout in LAYOUTS]
    for layout in LAYOUTS:
        for size in SIZES:
            found += [compiled(folder, name, values, layout, size, arch) for name, values in CONFIGS.items()]
    for c in found:
        print(f"{c.registers} registers, {c.spilled} bytes spilled: {c.name} {c.layout} {c.size or ''}")
    (folder / "plan.json").write_text(json.dumps([asdict(c) for c in found]))


def peer(folder: Path, layout: str, arch: str) -> Contender:
    """The hand-written kernel."""
    cubin = f"peer_{layout}.cubin"
    registers, spilled = assemble(HERE / "peers" / "gemm_sm80.cu", folder / cubin, arch, f"-DB_KN={int(layout == 'kn')}")
    return Contender("hand-written", cubin, "gemm", layout, 0, (128, 256), 256, 4 * 24576 + 16384, registers, spilled, True, True)


def compiled(folder: Path, name: str, values: dict[str, int], layout: str, size: int, arch: str) -> Contender:
    """kernels/gemm.py at one configuration, sizes fixed."""
    stem = "tilec_" + re.sub(r"\W+", "_", f"{name} {layout} {size}")
    source = folder / f"{stem}.cu"
    defines = [f"-D{k}={v}" for k, v in {"M": size, "N": size, "K": size, **values}.items()]
    chosen = ["-k", f"matmul_{layout}", "--name", "gemm", *defines]
    command = [sys.executable, "-m", "tilec", "compile", "-q", str(HERE / "kernels" / "gemm.py"), *chosen, "-o", str(source.resolve())]
    subprocess.run(command, check=True, cwd=HERE.parent)
    registers, spilled = assemble(source, folder / f"{stem}.cubin", arch)
    comment = source.read_text().partition("// tilec-manifest-begin")[2].partition("// tilec-manifest-end")[0]
    manifest = json.loads("\n".join(line.removeprefix("//") for line in comment.splitlines()))
    variant = manifest["kernels"][0]["launches"][0]["variants"][0]
    tile = values.get("block_M", 128), values.get("block_N", 256)
    shared = int(variant["shared_bytes"])
    threads, symbol, cubin = variant["block"][0], variant["symbol"], f"{stem}.cubin"
    return Contender(f"tilec {name}", cubin, symbol, layout, size, tile, threads, shared, registers, spilled, False, False)


def assemble(source: Path, cubin: Path, arch: str, *options: str) -> tuple[int, int]:
    """Compiles with nvcc; registers and spilled bytes of the first kernel."""
    command = ["nvcc", "-std=c++17", f"-arch={arch}", "-cubin", "-Xptxas", "-v", *options, str(source), "-o", str(cubin)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = re.search(r"(\d+) bytes spill stores.*?Used (\d+) registers", done.stderr, re.S)
    if done.returncode or not said:
        sys.exit(done.stderr)
    return int(said[2]), int(said[1])


def run(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """Measures what `build` left in `folder`; a row for every contender, layout and size."""
    contenders = [Contender(**c) for c in json.loads((folder / "plan.json").read_text())]
    rows = []
    for size in SIZES:
        for layout in LAYOUTS:
            here = [c for c in contenders if c.layout == layout and c.size in (0, size)]
            rows += measure(folder, here, layout, size, rounds)
    return rows


def measure(folder: Path, contenders: list[Contender], layout: str, size: int, rounds: int) -> list[dict[str, Any]]:
    """One problem: checks, then times in turns."""
    import torch

    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.manual_seed(1)
    sets = sets_past_the_cache(6 * size * size)
    a, b = ([torch.randn(size, size, dtype=torch.half, device="cuda") for _ in range(sets)] for _ in range(2))
    c = [torch.empty(size, size, dtype=torch.half, device="cuda") for _ in range(sets)]
    right = [x.t() if layout == "nk" else x for x in b]
    calls: dict[str, list[Call]] = {"cuBLAS": [matmul(*t) for t in zip(a, right, c, strict=True)]}
    for one in contenders:
        calls[one.name] = [launcher(folder, one, *t, size) for t in zip(a, b, c, strict=True)]
    want = a[0].double() @ right[0].double()
    errors = {}
    for name, (first, *_) in calls.items():
        c[0].fill_(float("nan"))
        first()
        errors[name] = relative_error(c[0], want)
    times = race(calls, max(sets, int(4e12 / size**3)), rounds)
    base = times["cuBLAS"]
    registers = {x.name: x.registers for x in contenders}
    return [
        {"size": size, "B": layout, "name": n, "tflops": 2e-9 * size**3 / t, "of_cublas": base / t, "error": errors[n],
         "registers": registers.get(n, 0)}
        for n, t in times.items()
    ]  # fmt: skip


def launcher(folder: Path, c: Contender, a: Any, b: Any, out: Any, size: int) -> Call:
    """A call that queues the contender on torch's current stream."""
    import cupy
    import torch

    kernel = cupy.RawModule(path=str(folder / c.cubin)).get_function(c.symbol)
    kernel.max_dynamic_shared_size_bytes = c.shared_bytes
    columns, rows = size // c.tile[1], size // c.tile[0]
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    grid = (min(columns * rows, multiprocessors),) if c.persistent else (columns, rows)
    extents = (cupy.int32(size),) * 3 if c.extents else ()

    def launch() -> None:
        stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
        arguments = (a.data_ptr(), b.data_ptr(), out.data_ptr(), *extents)
        kernel(grid, (c.threads,), arguments, shared_mem=c.shared_bytes, stream=stream)

    return launch


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("build", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    if chosen.step == "build":
        build(chosen.folder, chosen.arch)
        return
    rows = run(chosen.folder, chosen.rounds)
    for r in rows:
        speed = f"{r['tflops']:7.1f} TFLOP/s, {r['of_cublas']:.3f} of cuBLAS"
        print(f"{r['size']} {r['B']} {speed}, error {r['error']:.1e}, {r['registers'] or '':3} {r['name']}")
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
