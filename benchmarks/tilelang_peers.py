"""The samples compiled by tilec and by TileLang 0.1.15 from the same source with the same block sizes, side by side on a GPU.

    python benchmarks/tilelang_peers.py prepare FOLDER --tilelang PYTHON     here: needs tilec, nvcc and a Python with tilelang
    python benchmarks/tilelang_peers.py measure FOLDER                       there: needs CuPy and torch, neither of the compilers

Both compile for sm_90a. TileLang's own host code is compiled into a library that is called through ctypes; tilec's kernels are
launched through CuPy; either way they are CUDA graphs of a few launches when they are timed. Both work on the same tensors, take turns in
one process, and are checked against float64 first, into NaN.
The last column is TileLang's median time over tilec's: above 1 tilec is faster.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import race

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

ARCH = "sm_90a"
F16, BF16, F32 = "float16", "bfloat16", "float32"
LAUNCHES = 6  # in a graph, so that the host's time does not count


def case(name: str, file: str, made_by: str, edits: tuple[tuple[str, str], ...] = (), n: int = 0, **values: Any) -> dict[str, Any]:
    """One comparison. `values` are parameters, or dtype and extents of the tensors of a call; `edits` set sizes that are constants
    of the file, `n` is the extent that only the launch knows."""
    tensors = {name: v for name, v in values.items() if isinstance(v, tuple)}
    defines = {name: v for name, v in values.items() if not isinstance(v, tuple)}
    told = {"name": name, "file": str(ROOT / "samples" / file), "object": made_by, "edits": edits}
    return {**told, "numbers": {"N": n} if n else {}, "tensors": tensors, "defines": defines}


def cases() -> list[dict[str, Any]]:
    """What is compared."""
    m, n = 32768, 4096
    gemm, blocks = {"M": 4096, "N": 4096, "K": 4096}, {"block_M": 128, "block_N": 128, "block_K": 64}
    sizes = ("M, N, K = 256, 256, 128\nBM, BN, BK = 64, 128, 32", "M, N, K = 4096, 4096, 4096\nBM, BN, BK = 128, 128, 64")
    attention = {"batch": 4, "heads": 16, "kv_heads": 16, "seq": 4096, "dim": 128, "block_m": 128, "block_n": 128, "threads": 256}
    vector, line, angles = (F16, (1 << 26,)), (F16, (n,)), (F32, (4096, 64))
    return [
        case("softmax", "rows/softmax.py", "softmax", M=m, N=n),
        case("softmax, long rows", "rows/softmax.py", "softmax", M=m // 4, N=4 * n, threads=512),
        case("online_softmax", "rows/online_softmax.py", "online_softmax", X=(F16, (m, n))),
        case("rms_norm", "rows/rms_norm.py", "rms_norm", M=m, N=n),
        case("layer_norm", "rows/layer_norm.py", "layer_norm", X=(F16, (m, n)), gain=line, bias=line),
        case("row_column_sum", "rows/row_column_sum.py", "row_column_sum", A=(F32, (m, n)), by_row=(F32, (m,)), by_column=(F32, (n,))),
        case("vector_add", "vector_add.py", "vector_add", n=1 << 26),
        case("activations", "elementwise/activations.py", "activations", gate=vector, up=vector, n=1 << 26),
        case("rope", "elementwise/rope.py", "rope", X=(F16, (4, 4096, 32, 128)), cosine=angles, sine=angles),
        case("dequantise", "elementwise/dequantise.py", "dequantise", N=8192, K=16384),
        case("transpose", "elementwise/transpose.py", "transpose", A=(F16, (16384, 8192))),
        case("prefix_sum", "scans/prefix_sum.py", "prefix_sum", X=(F32, (16384, n))),
        case("gemv", "products/gemv.py", "gemv", A=(F16, (16384, 16384)), x=(F16, (16384,))),
        case("norm_projection", "products/norm_projection.py", "norm_projection", X=(BF16, (m, n)), W=(F32, (32, n))),
        case("gemm", "gemm_lazy_jit.py", "matmul", **blocks, **gemm),
        case("gemm_bias_relu", "gemm_bias_relu.py", "gemm_bias_relu", edits=(sizes,)),
        case("gemm_batched", "products/gemm_batched.py", "gemm_batched", B=16, M=2048, N=2048, K=1024, **blocks),
        case("attention", "attention/forward.py", "attention", **attention),
        case("attention, causal", "attention/forward.py", "attention", causal=True, **attention),
        case("linear_attention", "linear_attention/chunked.py", "linear_attention", heads=16, seq=4096, dim=128, batch=4),
    ]


def prepare(folder: Path, python: str) -> None:
    """Compiles every case with both compilers."""
    from tilec.driver import Options, compile_source
    from tilec.emit.manifest import manifest
    from tilec.options import architecture

    folder.mkdir(parents=True, exist_ok=True)
    plan = []
    for k, one in enumerate(cases()):
        text = Path(one["file"]).read_text()
        for old, new in one["edits"]:
            text = text.replace(old, new)
        fixed = {} if one["numbers"] else one["tensors"]
        built = compile_source(Options(one["file"], text.encode(), architecture(ARCH), defines=one["defines"], args=fixed))
        (folder / f"{k}.cu").write_text(built.cu)
        plan.append({**one, "manifest": manifest(built.plans)})
    (folder / "cases.json").write_text(json.dumps(plan))
    subprocess.run([python, str(ROOT / "benchmarks" / "tilelang_worker.py"), str(folder)], check=True)


def softmax(x: Any) -> list[Any]:
    """Rows."""
    return [x.softmax(1)]


def rms_norm(x: Any, weight: Any) -> list[Any]:
    """Rows."""
    return [x / ((x * x).mean(1, keepdim=True) + 1e-6).sqrt() * weight]


def layer_norm(x: Any, gain: Any, bias: Any) -> list[Any]:
    """Rows."""
    centred = x - x.mean(1, keepdim=True)
    return [centred / ((centred**2).mean(1, keepdim=True) + 1e-5).sqrt() * gain + bias]


def activations(gate: Any, up: Any) -> list[Any]:
    """SiLU(gate) * up and GELU(up)."""
    return [gate * gate.sigmoid() * up, 0.5 * up * (1 + (0.7978845608 * (up + 0.044715 * up**3)).tanh())]


def rope(x: Any, cosine: Any, sine: Any) -> list[Any]:
    """The halves of a head rotate together."""
    import torch

    a, c = x.chunk(2, -1)
    cosine, sine = cosine[None, :, None], sine[None, :, None]
    return [torch.cat([a * cosine - c * sine, c * cosine + a * sine], -1)]


def attention(q: Any, k: Any, v: Any, causal: bool = False) -> list[Any]:
    """The first batch only: its scores are large in float64."""
    import torch

    q, k, v = (t[0].transpose(0, 1) for t in (q, k, v))
    s = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
    if causal:
        s = s.masked_fill(torch.ones(s.shape[1:], dtype=torch.bool, device=s.device).triu(1), float("-inf"))
    return [(s.softmax(-1) @ v).transpose(0, 1)[None], s.logsumexp(-1)[None] * 1.4426950408889634]


def linear_attention(q: Any, k: Any, v: Any) -> list[Any]:
    """The first batch only, in the parts of the state that blocks own."""
    q, k, v = (t[0].transpose(0, 1) for t in (q, k, v))
    halves = [(((a @ b.transpose(1, 2)).tril()) @ v).transpose(0, 1) for a, b in zip(q.split(64, -1), k.split(64, -1), strict=True)]
    return [halves[0][None, None], (k.transpose(1, 2) @ v)[None]]


FORMULAS: dict[str, Callable[..., list[Any]]] = {
    "softmax": softmax, "online_softmax": softmax, "rms_norm": rms_norm, "layer_norm": layer_norm, "activations": activations, "rope": rope,
    "row_column_sum": lambda a: [a.sum(1), a.sum(0)],
    "vector_add": lambda a, b: [a + b],
    "dequantise": lambda q, scale: [q * scale.repeat_interleave(64, 1)],
    "transpose": lambda a: [a.t()],
    "prefix_sum": lambda x: [x.cumsum(1)],
    "gemv": lambda a, x: [a @ x],
    "norm_projection": lambda x, w: [rms_norm(x, 1)[0] @ w.T],
    "gemm": lambda a, b: [a @ b],
    "gemm_bias_relu": lambda a, b, bias: [(a @ b + bias).relu()],
    "gemm_batched": lambda a, b: [a @ b],
    "attention": attention,
    "attention, causal": lambda q, k, v: attention(q, k, v, True),
    "linear_attention": linear_attention,
}  # fmt: skip


class Rivals:
    """One case on the GPU: its tensors, and a call of either compiler's kernel."""

    def __init__(self, folder: Path, k: int, one: dict[str, Any]) -> None:
        import cupy
        import torch

        from tilec.runtime.loader import Module

        (entry,) = one["manifest"]["kernels"]
        numbers = {e["name"]: one["numbers"][e["name"]] for e in entry["extents"]}
        self.params = entry["params"]
        self.tensors = [drawn(p, numbers) for p in self.params]
        plain = [t.view(torch.uint16) if t.dtype is torch.bfloat16 else t for t in self.tensors]
        views = {p["name"]: cupy.from_dlpack(t) for p, t in zip(self.params, plain, strict=True)}
        launches = Module((folder / f"{k}.cu").read_text(), one["manifest"]).kernel(entry["symbol"]).prepare(views, numbers)

        def call() -> None:
            stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
            for launch in launches:
                launch(stream)

        self.calls: dict[str, Callable[[], Any]] = {"tilec": call}
        self.calls["tilelang"] = self.peer(folder / f"{k}.tl.so", numbers)

    def peer(self, library: Path, numbers: dict[str, int]) -> Callable[[], Any]:
        """A call of TileLang's kernel through its own host code."""
        import torch

        loaded = ctypes.CDLL(str(library.resolve()))
        loaded.get_last_error.restype = ctypes.c_char_p
        if loaded.init():
            raise RuntimeError(loaded.get_last_error())
        told = re.search(r"int call\((.*?)\)", library.with_suffix(".cu").read_text())
        assert told is not None
        extents = [ctypes.c_int(numbers[n]) for n in re.findall(r"\bint (\w+)", told[1])]
        arguments = [ctypes.c_void_p(t.data_ptr()) for t in self.tensors]

        def call() -> None:
            if loaded.call(*arguments, *extents, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)):
                raise RuntimeError(loaded.get_last_error())

        return call

    def error(self, who: str, name: str) -> float:
        """The largest relative error of a result against float64."""
        import torch

        outputs = [t for p, t in zip(self.params, self.tensors, strict=True) if p["role"] != "in"]
        for t in outputs:
            t.fill_(0 if name == "row_column_sum" else float("nan"))  # which adds to what is there
        self.calls[who]()
        torch.cuda.synchronize()
        inputs = [t for p, t in zip(self.params, self.tensors, strict=True) if p["role"] == "in"]
        few = name.startswith("attention") or name == "linear_attention"
        wanted = FORMULAS[name.removesuffix(", long rows")](*((t[:1] if few else t).double() for t in inputs))
        worst = 0.0
        for want, got in zip(wanted, outputs, strict=True):
            have = got[tuple(slice(0, extent) for extent in want.shape)].double()
            worst = max(worst, float((have - want).norm() / want.norm()))
        return worst


def drawn(p: dict[str, Any], numbers: dict[str, int]) -> Any:
    """A tensor of a parameter: N(0, 1), bytes over their whole range."""
    import torch

    from tilec.emit.hosteval import evaluate

    shape = tuple(evaluate(e, numbers) for e in p["shape"])
    if p["dtype"] == "int8":
        return torch.randint(-128, 128, shape, dtype=torch.int8, device="cuda")
    return torch.randn(shape, device="cuda").to(getattr(torch, p["dtype"]))


def measure(folder: Path, rounds: int, names: list[str]) -> None:
    """Checks and times every case; prints a table."""
    import torch

    ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    torch.cuda.init()
    print("| sample | tilec us | TileLang us | TileLang / tilec | errors |\n|---|---|---|---|---|")
    for k, one in enumerate(json.loads((folder / "cases.json").read_text())):
        if names and not any(n in one["name"] for n in names):
            continue
        try:
            rivals = Rivals(folder, k, one)
            errors = {who: rivals.error(who, one["name"]) for who in rivals.calls}
            t = race({who: [call] for who, call in rivals.calls.items()}, LAUNCHES, rounds)
        except Exception as fault:  # the other cases are still measured
            print(f"| {one['name']} | {type(fault).__name__}: {str(fault)[:200]} |", flush=True)
            continue
        mine, theirs = t["tilec"] * 1e3, t["tilelang"] * 1e3
        wrong = " ".join(f"{e:.1e}" for e in errors.values())
        print(f"| {one['name']} | {mine:.1f} | {theirs:.1f} | {theirs / mine:.2f} | {wrong} |", flush=True)
        del rivals
        torch.cuda.empty_cache()


def main() -> None:
    """Prepares or measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("prepare", "measure"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--tilelang", metavar="PYTHON", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    if options.step == "prepare":
        prepare(options.folder, options.tilelang)
    else:
        measure(options.folder, options.rounds, options.names)


if __name__ == "__main__":
    main()
