"""tilec's portable attention beside FlashAttention-2 (torch's flash backend, mma.sync as well): launches in turns, medians.

    python benchmarks/attention_peers.py build build/attention                    needs nvcc: compiles samples/attention/forward.py
    python benchmarks/attention_peers.py run build/attention --json peers.json    needs a GPU, torch and CuPy

TF are 4 B H S^2 D over time (half of it when causal). Each contender is checked against float64 on rows of two heads, into an
output full of NaN. Inputs are N(0,1) float16, [B, S, H, D]. A round runs every contender for a while in rotating order.
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

from measuring import in_turns

ROOT = Path(__file__).resolve().parents[1]
SHAPE = (4, 16, 8192, 128)
"""Batch, heads, sequence, head dimension."""
CONFIGS = [(128, 64, 128), (128, 64, 256), (128, 128, 256), (64, 64, 128)]
"""Query rows, keys of a step, threads."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A compiled kernel and how to launch it."""

    name: str
    cubin: str
    causal: bool
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    registers: int
    spilled: int


def build(folder: Path, arch: str) -> None:
    """Compiles every configuration into `folder`, with a list of them in plan.json."""
    folder.mkdir(parents=True, exist_ok=True)
    found = [compiled(folder, config, causal, arch) for causal in (False, True) for config in CONFIGS]
    for c in found:
        print(f"{c.registers} registers, {c.spilled} bytes spilled: {c.name}")
    (folder / "plan.json").write_text(json.dumps([asdict(c) for c in found]))


def compiled(folder: Path, config: tuple[int, int, int], causal: bool, arch: str) -> Contender:
    """One configuration as a cubin."""
    batch, heads, seq, dim = SHAPE
    rows, keys, threads = config
    name = f"{rows}x{keys}, {threads} threads" + (", causal" if causal else "")
    stem = re.sub(r"\W+", "_", name)
    values = {
        "batch": batch, "heads": heads, "kv_heads": heads, "seq": seq, "dim": dim, "causal": causal, "block_m": rows, "block_n": keys,
        "threads": threads,
    }  # fmt: skip
    defines = [x for n, v in values.items() for x in ("-D", f"{n}={v}")]
    cu = folder / f"{stem}.cu"
    sample = ROOT / "samples/attention/forward.py"
    # For the card it is measured on: what ptxas has to complain about differs between architectures, and so may the configuration.
    command = [sys.executable, "-m", "tilec", "compile", "-q", str(sample), *defines, "--arch", arch, "-o", str(cu)]
    subprocess.run(command, check=True, cwd=ROOT)
    nvcc = ["nvcc", "-std=c++17", "-cubin", f"-arch={arch}", "-Xptxas=-v", "-o", str(folder / f"{stem}.cubin"), str(cu)]
    said = subprocess.run(nvcc, check=True, capture_output=True, text=True).stderr
    registers, spilled = re.search(r"Used (\d+) registers", said), re.search(r"(\d+) bytes spill stores", said)
    shared = re.search(r'"shared_bytes": (\d+)', cu.read_text())
    assert registers and spilled and shared
    return Contender(
        name, f"{stem}.cubin", causal, (-(-seq // rows), heads, batch), threads, int(shared[1]), int(registers[1]), int(spilled[1])
    )


def run(folder: Path, out: Path | None, rounds: int) -> None:
    """Checks and times everything on the GPU."""
    import cupy
    import torch

    batch, heads, seq, dim = SHAPE
    torch.manual_seed(0)
    q, k, v = (torch.randn(batch, seq, heads, dim, device="cuda", dtype=torch.float16) for _ in range(3))
    rows: list[dict[str, Any]] = []
    for causal in (False, True):
        calls: dict[str, Any] = {"FlashAttention-2": flash(q, k, v, causal)}
        for c in (Contender(**x) for x in json.loads((folder / "plan.json").read_text())):
            if c.causal == causal:
                calls[c.name] = ours(folder, c, q, k, v, cupy, torch)
        flop = 4 * batch * heads * seq * seq * dim / (2 if causal else 1)
        wanted = expected(q, k, v, causal, torch)
        errors = {name: float((call()[0, -256:, :2].double() - wanted).norm() / wanted.norm()) for name, call in calls.items()}
        times = in_turns({name: [call] * 3 for name, call in calls.items()}, rounds)
        base = times["FlashAttention-2"]
        for name, t in times.items():
            print(f"{name:32s} {flop / t / 1e9:7.1f} TF  {base / t:5.2f}x  error {errors[name]:.1e}", flush=True)
            rows.append({"name": name, "causal": causal, "tf": flop / t / 1e9, "ratio": base / t, "error": errors[name]})
    if out is not None:
        out.write_text(json.dumps(rows, indent=1))


def flash(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """torch's flash backend."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    def call() -> Any:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=causal).transpose(1, 2)

    return call


def ours(folder: Path, c: Contender, q: Any, k: Any, v: Any, cupy: Any, torch: Any) -> Any:
    """A compiled kernel as a call that returns its output."""
    kernel = cupy.RawModule(path=str(folder / c.cubin)).get_function("attention")
    kernel.max_dynamic_shared_size_bytes = c.shared_bytes
    out = torch.full_like(q, float("nan"))
    lse = torch.empty(q.shape[0], q.shape[2], q.shape[1], device="cuda", dtype=torch.float32)
    arguments = tuple(cupy.uint64(t.data_ptr()) for t in (q, k, v, out, lse))

    def call() -> Any:
        kernel(tuple(c.grid), (c.threads, 1, 1), arguments, shared_mem=c.shared_bytes)  # both libraries use the default stream
        return out

    return call


def expected(q: Any, k: Any, v: Any, causal: bool, torch: Any) -> Any:
    """The last 256 rows of two heads of the first batch entry, in float64."""
    rows, keys, values = (x[0, :, :2].transpose(0, 1).double() for x in (q, k, v))
    scores = rows[:, -256:] @ keys.transpose(1, 2) / q.shape[-1] ** 0.5
    if causal:
        length = q.shape[1]
        at = torch.arange(length - 256, length, device="cuda")[:, None]
        scores = scores.masked_fill(torch.arange(length, device="cuda") > at, float("-inf"))
    return (scores.softmax(-1) @ values).transpose(0, 1)


def main() -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    if options.what == "build":
        build(options.folder, options.arch)
    else:
        run(options.folder, options.json, options.rounds)


if __name__ == "__main__":
    main()
