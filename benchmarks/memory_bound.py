"""Kernels that are bound by memory beside the device's own copy rate and torch, on a GPU.

    python benchmarks/memory_bound.py prepare FOLDER        here: needs tilec; writes the .cu files and plan.json
    python benchmarks/memory_bound.py measure FOLDER        there: needs CuPy and torch, no tilec installation

Rates are bytes read plus written over the median time, in TB/s. Inputs are N(0,1) float16; the buffers of a graph of launches are
rotated past the L2 cache; the kernel, torch and a device-to-device copy (cudaMemcpyAsync) of as many bytes take turns in one process.
Each result is checked against float64 first, into NaN.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import race

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

ELEMENTS = 1 << 27  # of each tensor that is measured: 256 MB of float16
SETS = 2
LAUNCHES = 6  # in a graph
ROWS = (1024, 4096, 16384, 65536)
ARCH = "sm_90"


def _threads(n: int) -> int:
    """The block that holds a row of n elements."""
    return 64 if n <= 1024 else 256 if n <= 4096 else 512


def jobs() -> list[dict[str, Any]]:
    """What is compiled: name, source, definitions, and how it is called."""
    out: list[dict[str, Any]] = []
    for n in ROWS:
        m, t = ELEMENTS // n, _threads(n)
        for kind in ("softmax", "rms_norm", "layer_norm"):
            file = f"rows/{kind}.py" if n <= 16384 else f"rows/{kind}_long.py"  # which keeps a part of the row in shared memory
            out.append(job(f"{kind} {n}", file, M=m, N=n, threads=t, dtype="float16"))
        block = min(n, 2048)
        out.append(job(f"residual {n}", "elementwise/residual.py", M=m, N=n, block=block, threads=block // 8))
        out.append(job(f"transpose {n}", "elementwise/transpose.py", M=m, N=n))
    out.append(job("add", "vector_add.py", N=ELEMENTS))
    out.append(job("gemv 16384", "products/gemv.py", N=16384, K=16384))
    return out


def job(name: str, file: str, **defines: Any) -> dict[str, Any]:
    """One kernel: its sample and what it is compiled with; the first word of the name says what it computes."""
    return {"name": name, "kind": name.split()[0], "file": file, "defines": defines}


def prepare(folder: Path) -> None:
    """Compiles every job into the folder."""
    from tilec.driver import Options, compile_source
    from tilec.emit.manifest import manifest
    from tilec.options import architecture

    folder.mkdir(parents=True, exist_ok=True)
    plan = []
    for k, job in enumerate(jobs()):
        source = ROOT / "samples" / job["file"]
        built = compile_source(Options(job["file"], source.read_bytes(), architecture(ARCH), defines=job["defines"]))
        (folder / f"{k}.cu").write_text(built.cu)
        plan.append({**job, "cu": f"{k}.cu", "manifest": manifest(built.plans)})
    (folder / "plan.json").write_text(json.dumps(plan))
    print(f"{folder}: {len(plan)} kernels")


def exact(kind: str, values: list[Any]) -> Any:
    """The result in float64 of inputs in the order of the kernel's parameters."""
    x, *rest = (v.double() for v in values)
    if kind == "softmax":
        return x.softmax(1)
    if kind == "rms_norm":
        return x / ((x * x).mean(1, keepdim=True) + 1e-6).sqrt() * rest[0]
    if kind == "layer_norm":
        centred = x - x.mean(1, keepdim=True)
        return centred / ((centred**2).mean(1, keepdim=True) + 1e-5).sqrt() * rest[0] + rest[1]
    if kind == "residual":
        return x + rest[1] * rest[0]
    if kind == "transpose":
        return x.t()
    return x @ rest[0] if kind == "gemv" else x + rest[0]


def peers(kind: str) -> Callable[[list[Any]], Any]:
    """The same with torch."""
    import torch
    import torch.nn.functional as f

    return {
        "softmax": lambda v: torch.softmax(v[0], 1),
        "rms_norm": lambda v: f.rms_norm(v[0], (v[0].shape[1],), v[1], 1e-6),
        "layer_norm": lambda v: f.layer_norm(v[0], (v[0].shape[1],), v[1], v[2], 1e-5),
        "residual": lambda v: torch.addcmul(v[0], v[1], v[2]),
        "transpose": lambda v: v[0].t().contiguous(),
        "add": lambda v: v[0] + v[1],
        "gemv": lambda v: v[0] @ v[1],
    }[kind]


def measure(folder: Path, rounds: int) -> None:
    """Checks and times every job; prints a table."""
    print("| kernel | TB/s | of the copy rate | copy TB/s | torch TB/s | error |\n|---|---|---|---|---|---|")
    for one in json.loads((folder / "plan.json").read_text()):
        rates, error = measured(one, folder, rounds)
        mine, copy, theirs = rates["tilec"], rates["copy"], rates["torch"]
        print(f"| {one['name']} | {mine:.2f} | {mine / copy:.3f} | {copy:.2f} | {theirs:.2f} | {error:.1e} |", flush=True)


def measured(one: dict[str, Any], folder: Path, rounds: int) -> tuple[dict[str, float], float]:
    """TB/s of the kernel, of a device-to-device copy that moves the same bytes and of torch, and the relative error of the kernel
    against float64."""
    import cupy
    import torch

    from tilec.runtime.loader import Module

    (entry,) = one["manifest"]["kernels"]
    kernel = Module((folder / one["cu"]).read_text(), one["manifest"]).kernel(entry["symbol"])
    shapes = {p["name"]: tuple(int(e) for e in p["shape"]) for p in entry["params"]}
    types = {p["name"]: getattr(torch, p["dtype"]) for p in entry["params"]}
    *ins, out = shapes
    sets = [{n: torch.randn(shape, device="cuda").to(types[n]) for n, shape in shapes.items()} for _ in range(SETS)]
    moved = sum(t.numel() * t.element_size() for t in sets[0].values())
    half = moved // 4 >> 20 << 20  # elements; the driver copies odd sizes by another, slower kernel
    halves = [[torch.randn(half, device="cuda").half() for _ in range(2)] for _ in range(SETS)]
    for tensors in sets:
        tensors[out].fill_(float("nan"))

    def launch(tensors: dict[str, Any]) -> Callable[[], None]:
        prepared = kernel.prepare({n: cupy.from_dlpack(t) for n, t in tensors.items()}, {})

        def run() -> None:
            stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
            for go in prepared:
                go(stream)

        return run

    calls = [launch(tensors) for tensors in sets]
    calls[0]()
    torch.cuda.synchronize()
    error = wrong(one["kind"], [sets[0][n] for n in ins], sets[0][out])
    peer = peers(one["kind"])
    contenders: dict[str, list[Callable[[], Any]]] = {
        "copy": [lambda pair=pair: pair[0].copy_(pair[1]) for pair in halves],  # type: ignore[misc]
        "tilec": list(calls),
        "torch": [lambda tensors=tensors: peer([tensors[n] for n in ins]) for tensors in sets],  # type: ignore[misc]
    }
    return {n: (4 * half if n == "copy" else moved) / t / 1e9 for n, t in race(contenders, LAUNCHES, rounds).items()}, error


def wrong(kind: str, inputs: list[Any], output: Any) -> float:
    """The relative error of the first rows (of everything where rows depend on one another) against float64; infinite where some element
    was not written."""
    rows = slice(0, 64) if kind in ("softmax", "rms_norm", "layer_norm", "residual") else slice(None)
    want = exact(kind, [t[rows] if t.dim() == 2 else t for t in inputs])
    error = float((output[rows].double() - want).norm() / want.norm())
    return error if bool(output.isfinite().all()) else float("inf")


def main() -> None:
    """Prepares or measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("prepare", "measure"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    if options.step == "prepare":
        prepare(options.folder)
    else:
        measure(options.folder, options.rounds)


if __name__ == "__main__":
    main()
