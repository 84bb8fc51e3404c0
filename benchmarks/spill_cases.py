"""The kernels of the sweep for spilled registers (`spills.py`): every kind of body, at sizes around what the registers hold.

    cases()["gemm fp8 192x256x128 mirror s2 t256 O3"] -> Case(family="gemm", text=..., arch="sm_90a", opt=3)

The draw is random with a fixed seed, so that every run asks about the same kernels.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.hopper.attention import Attention
from tests.hopper.chains import Gradients
from tests.hopper.kernels import Gemm

SAMPLES = Path(__file__).resolve().parent.parent / "samples"
TYPES = {
    "fp16": ("float16", "float16", "float32"), "half": ("float16", "float16", "float16"), "bf16": ("bfloat16", "float32", "float32"),
    "tf32": ("float32", "float32", "float32"), "int8": ("int8", "int32", "int32"), "e4m3": ("float8_e4m3", "float16", "float32"),
    "e5m2": ("float8_e5m2", "float32", "float32"),
}  # fmt: skip
"""Elements, results and accumulators."""


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel to ask about: its family, its text or the sample that has it, and how it is compiled."""

    family: str
    text: str
    arch: str = "sm_90a"
    opt: int = 2
    defines: Mapping[str, Any] = field(default_factory=dict)
    kernel: str = ""


def gemm(kind: str, tile: tuple[int, int, int], epilogue: str, stages: int, threads: int, trans_b: bool = True) -> str:
    """The text of a product with one of the epilogues."""
    dtype, out, acc = TYPES[kind]
    m, n, k = tile
    known = epilogue if epilogue in ("bias", "direct", "mirror", "shared") else "copy"
    narrow = kind in ("int8", "e4m3", "e5m2")
    text = Gemm(m, n, k, stages, dtype, out, acc, trans_b=trans_b or narrow, epilogue=known).source()
    text = text.replace("threads=256", f"threads={threads}")
    head, last = text.rstrip("\n").rsplit("\n", 1)
    loop, place = f"    for i, j in T.Parallel({m}, {n}):\n", f"by * {m} + i, bx * {n} + j"
    match epilogue:
        case "relu":
            return f"{head}\n{loop}      acc[i, j] = T.max(acc[i, j], 0)\n{last}\n"
        case "scale":  # of rows and columns
            head = head.replace("):\n  with", f', SA: T.Tensor((M,), "{acc}"), SB: T.Tensor((N,), "{acc}")):\n  with', 1)
            return f"{head}\n{loop}      acc[i, j] = acc[i, j] * SA[by * {m} + i] * SB[bx * {n} + j]\n{last}\n"
        case "residual":
            head = head.replace("):\n  with", f', R: T.Tensor((M, N), "{out}")):\n  with', 1)
            return f"{head}\n{loop}      acc[i, j] = acc[i, j] + R[{place}]\n{last}\n"
        case "two":  # outputs
            head = head.replace("):\n  with", f', E: T.Tensor((M, N), "{out}")):\n  with', 1)
            return f"{head}\n{last}\n{loop}      E[{place}] = T.max(acc[i, j], 0)\n"
        case "gelu":
            float_acc = "acc[i, j]" if acc != "int32" else 'T.cast(acc[i, j], "float32")'
            return f"{head}\n{loop}      C[{place}] = {float_acc} * T.sigmoid(1.702 * {float_acc})\n"
    return text


EPILOGUES = ("copy", "bias", "relu", "scale", "mirror", "two", "residual", "direct", "gelu", "shared")


def _gemms(rng: random.Random, arch: str, count: int) -> Iterator[tuple[str, Case]]:
    """Products: tiles whose accumulators take at least half of what a common number of threads has."""
    kinds = list(TYPES) if arch == "sm_90a" else ["fp16", "half", "bf16", "tf32", "int8"]
    sides = (64, 96, 128, 160, 192, 256)
    every = [
        x for x in itertools.product(kinds, sides, sides, (32, 64, 128), EPILOGUES, (1, 2, 3, 4), (128, 256, 384, 512), (2, 2, 3))
        if 64 <= x[1] * x[2] * (2 if x[0] == "half" else 4) / (4 * x[6]) <= 520 and x[1] % 32 == 0
        and x[3] * (4 if x[0] == "tf32" else 1 if x[0] in ("int8", "e4m3", "e5m2") else 2) * (x[1] + x[2]) <= 80 << 10
        and x[1] * x[2] >= 96 * 96
    ]  # fmt: skip
    for kind, m, n, k, epilogue, stages, threads, opt in rng.sample(every, count):
        try:
            text = gemm(kind, (m, n, k), epilogue, stages, threads, rng.random() < 0.5)
        except (KeyError, ValueError):
            continue
        yield f"{kind} {m}x{n}x{k} {epilogue} s{stages} t{threads} O{opt}", Case("gemm", text, arch, opt)


def _attention(rng: random.Random, arch: str, count: int) -> Iterator[tuple[str, Case]]:
    """Attention forward: heads of 32 to 256, all masks, groups of heads, the ways to write it."""
    dims, masks = (32, 64, 80, 96, 128, 160, 192, 256), ("none", "causal", "tail")
    every = list(itertools.product(dims, (64, 128, 192), (32, 64, 96, 128), masks, (128, 256, 384)))
    every = [x for x in every if x[4] >= x[1] and (x[1] * (x[0] + x[2]) // x[4] >= 96)]
    for dim, m, n, mask, threads in rng.sample(every, count):
        kv, where = rng.choice((1, 2)), rng.choice(("before", "after"))
        lse, staged, refill = (rng.random() < 0.3 for _ in range(3))
        dtype, power, stages = rng.choice(("float16", "bfloat16")), rng.choice(("exp2", "exp")), rng.choice((1, 2, 3))
        a = Attention(2, kv, 4096, dim, m, n, 1, mask, where, power, rng.choice(("bhsd", "bshd")), dtype, stages, lse, staged, refill)
        text = a.source().replace(f"threads={2 * m})", f"threads={threads})")
        if rng.random() < 0.3:  # a sink
            text = text.replace("):\n  with", ', Sink: T.Tensor((2,), "float32")):\n  with', 1)
            last = f"    for i, j in T.Parallel({m}, {dim}): out[i, j] /= "
            text = text.replace(last, f"    for i in T.Parallel({m}): total[i] += T.exp2(Sink[head] - row_max[i])\n{last}")
        extras = "".join(w for w, on in ((" lse", lse), (" staged", staged), (" refill", refill), (" sink", "Sink" in text)) if on)
        yield f"attention D{dim} {m}x{n} {mask} {where} kv{kv} {dtype} {power} s{stages} t{threads}{extras}", Case("attention", text, arch)


def _backward(rng: random.Random, arch: str, count: int) -> Iterator[tuple[str, Case]]:
    sizes = (32, 64, 96, 128, 192), (32, 64, 128), (32, 64, 128)
    every = list(itertools.product(("keys", "queries"), *sizes, (False, True), (128, 256, 384), (False, True)))
    for what, dim, m, n, causal, threads, wide in rng.sample(every, count):
        g = Gradients(what, 2, 4096, dim, m, n, 1, causal, rng.choice(("bhsd", "bshd")), rng.choice(("float16", "bfloat16")), True, wide)
        text = g.source().replace("threads=256", f"threads={threads}")
        extras = f"{' causal' if causal else ''} t{threads}{' wide' if wide else ''}"
        yield f"backward {what} D{dim} {m}x{n}{extras}", Case("backward", text, arch)


SPACES = """
24 chunked   linear_attention/chunked.py     heads=8 seq=4096 dim=128,256 chunk=32,64,128 block_k=64,128 block_v=32,64,128 threads=128,256
12 delta     linear_attention/gated_delta.py:chunked  heads=8 seq=4096 dim_k=64,128 dim_v=128 chunk=32,64 block_v=32,64,128 \
             threads=128,256
16 state     linear_attention/mamba2.py:chunk_state   seq=4096 heads=64 groups=1 dim=64,128 dstate=128 chunk=256 block_m=64,128 \
             block_n=64,128 block_k=32,64,128 threads=128,256
16 scan      linear_attention/mamba2.py:chunk_scan    seq=4096 heads=64 groups=1 dim=64,128 dstate=64,128 chunk=256 block_m=64,128 \
             block_n=64,128 block_k=32,64 threads=128,256
20 retention linear_attention/retention.py   heads=8 seq=2048 dim_qk=64,128 dim_v=128,256 block_m=64,128 block_n=64,128 block_v=64,128 \
             threads=128,256
16 mlp       moe/fused_mlp.py                tokens=4096 model=128,256 hidden=1024 block_m=64,128 block_h=32,64,128 threads=128,256
14 up        moe/experts.py:up_kernel        tokens=4096 experts=8 model=1024 hidden=1024 slots=8192 block_m=32,64,128 block_n=64,128 \
             block_k=32,64 threads=128,256
12 mla       attention/mla_decode.py         batch=8 heads=128 seq=8192 latent=256,512 rope=64 block_h=32,64 block_n=32,64 threads=128,256
24 varlen    attention/varlen.py:varlen_kernel  heads=8 kv_heads=2,8 dim=64,96,128,192,256 causal=0,1 block_m=64,128 block_n=32,64,128 \
             threads=128,256
14 window    attention/window_sink.py        heads=8 kv_heads=2 seq=4096 dim=64,128,192 window=0,512 block_m=64,128 block_n=32,64,128 \
             threads=128,256
8  sparse    attention/block_sparse.py       seq=4096 heads=8 dim=64,128,256 block=64,128 threads=128,256
6  decode    attention/decode.py             heads=32 kv_heads=8 seq=8192 dim=128,256 splits=8 block_n=64,128 block_h=16,64 threads=128
16 gradients attention/backward.py:gradients batch=1 heads=8 seq=4096 dim=64,128 causal=0,1 block_m=32,64,128 block_n=64,128 \
             threads=128,256
14 softmax   rows/softmax.py                 N=4096,16384,32768,65536 dtype=float16,float32 threads=256,512,1024
14 rms       rows/rms_norm.py                N=8192,16384,32768,65536 blk_m=1,2 dtype=bfloat16,float32 threads=256,512,1024
8  softmax-long rows/softmax_long.py         held=16384,32768 dtype=float16,float32 threads=256,512,1024
8  rms-long  rows/rms_norm_long.py           held=16384,32768 dtype=float16,float32 threads=256,512,1024
8  layer-long rows/layer_norm_long.py        held=16384,32768 dtype=float16,float32 threads=256,512,1024
"""
"""Samples and the numbers that are tried of each: how many draws, a name, the file and the kernel, values."""


ORDINARY = """
20 softmax   rows/softmax.py                 N=512,1000,1024,2048,4096,8192,16384 dtype=float16,float32,bfloat16 threads=64,128,256,512
14 online    rows/online_softmax.py          block_M=1,2,4,8 block_N=256,512,1024,2048 threads=64,128,256
20 rms       rows/rms_norm.py                N=512,1024,3000,4096,8192,16384 blk_m=1,2,4 dtype=float16,bfloat16,float32 \
             threads=64,128,256,512
20 layer     rows/layer_norm.py              M=64 N=512,1024,3000,4096,8192,16384 rows=1,2,4 dtype=float16,float32 threads=64,128,256,512
10 entropy   rows/cross_entropy.py           chunk=512,1024,2048,4096,8192 threads=64,128,256,512
14 sums      rows/row_column_sum.py          block_M=16,32,64,128 block_N=64,128,256 threads=64,128,256
12 argmax    rows/argmax.py                  N=100,512,1000,4096,8192 threads=32,64,128,256
14 top-k     rows/top_k.py                   N=32,64,128,256 k=2,4,8 rows=8,16,32 threads=64,128,256
12 fp8       rows/quantise_fp8.py            rows=4,8,16,32 group=64,128,256 threads=64,128,256
12 streamed  rows/softmax_streamed.py        chunk=512,2048,8192 dtype=float16,float32 threads=64,256,512,1024
12 rms-streamed rows/rms_norm_streamed.py    chunk=512,2048,8192 dtype=float16,float32 threads=64,256,512,1024
10 activations elementwise/activations.py    block=256,512,1024,2048,4096 threads=64,128,256
12 residual  elementwise/residual.py         M=64 N=4096 block=256,512,1024,2048,4096 dtype=float16,float32 threads=64,128,256
14 transpose elementwise/transpose.py        block=32,64,96,128 dtype=float16,float32,int8 threads=64,128,256
10 dequantise elementwise/dequantise.py      N=64 K=512 block_N=8,16,32,64 block_K=64,128,256
12 conv1d    elementwise/conv1d.py           width=2,3,4 block_S=8,16,32,64 block_C=32,64,128 threads=64,128,256
8  rope      elementwise/rope.py             block=4,8,16,32 threads=64,128,256
10 prefix    scans/prefix_sum.py             rows=4,8,16,32 block=32,64,128 threads=32,64,128
10 gemv      products/gemv.py                rows=1,2,4,8,16 block_K=128,256,512,1024 threads=64,128,256
10 int4      products/gemm_int4_weights.py   block_M=32,64,128 block_N=32,64,128 block_K=64 threads=128,256
10 blocks8   products/gemm_fp8_blocks.py     block_M=32,64,128 block_N=128 threads=128,256
12 conv2d    products/conv2d.py              N=1 H=32 W=32 F=128 block_M=32,64,128 block_N=32,64,128 block_K=32,64 threads=128,256
14 projection products/norm_projection.py    N=32 block_M=16,32,64 block_K=64,128,256 threads=64,128,256
20 mlp       moe/fused_mlp.py                tokens=512 model=64,128 hidden=256 block_m=32,64 block_h=16,32,64 threads=64,128,256
20 up        moe/experts.py:up_kernel        tokens=512 experts=4 model=256 hidden=256 slots=1024 block_m=16,32,64 block_n=32,64,128 \
             block_k=32,64 threads=64,128,256
12 down      moe/experts.py:down_kernel      tokens=512 experts=4 model=256 hidden=256 slots=1024 block_m=16,32,64 block_n=32,64,128 \
             block_k=32,64 threads=64,128,256
40 attention attention/forward.py            batch=1 heads=4 kv_heads=2 seq=1024 dim=32,64,80,96,128 causal=0,1 block_m=32,64,128 \
             block_n=32,64,128 threads=64,128,256
16 decode    attention/decode.py:decode      heads=16 kv_heads=4 seq=1024 dim=32,64,128 splits=4 block_n=32,64,128 block_h=16,32 \
             threads=64,128
14 sparse    attention/block_sparse.py       seq=1024 heads=4 dim=32,64,128 block=32,64 threads=64,128
12 mla       attention/mla_decode.py         batch=2 heads=64 seq=1024 latent=64,128,256 rope=32,64 block_h=16,32,64 block_n=16,32,64 \
             threads=128,256
24 varlen    attention/varlen.py:varlen_kernel heads=4 kv_heads=2 dim=32,64,96,128 causal=0,1 block_m=32,64,128 block_n=32,64 \
             threads=64,128,256
24 window    attention/window_sink.py        heads=4 kv_heads=2 seq=1024 dim=32,64,128 window=0,256 block_m=32,64,128 block_n=32,64 \
             threads=64,128,256
20 gradients attention/backward.py:gradients batch=1 heads=4 seq=1024 dim=32,64,128 causal=0,1 block_m=32,64 block_n=32,64 \
             threads=64,128,256
16 queries   attention/backward.py:query_gradients batch=1 heads=4 seq=1024 dim=32,64,128 causal=0,1 block_m=32,64 block_n=32,64 \
             threads=64,128,256
24 chunked   linear_attention/chunked.py     heads=4 seq=1024 dim=32,64,128 chunk=32,64 block_k=32,64 block_v=32,64 threads=64,128,256
14 delta     linear_attention/gated_delta.py:chunked heads=4 seq=1024 dim_k=32,64,128 dim_v=64 chunk=16,32,64 block_v=16,32,64 \
             threads=64,128,256
8  recurrent linear_attention/gated_delta.py:recurrent heads=4 seq=256 dim_k=32,64,128 dim_v=64 block_v=8,16,32,64 threads=32,64,128
14 state     linear_attention/mamba2.py:chunk_state seq=1024 heads=8 groups=1 dim=64 dstate=64 chunk=64,128 block_m=32,64 block_n=32,64 \
             block_k=32,64 threads=64,128,256
14 scan      linear_attention/mamba2.py:chunk_scan seq=1024 heads=8 groups=1 dim=64 dstate=64 chunk=64,128 block_m=32,64 block_n=32,64 \
             block_k=32,64 threads=64,128,256
24 retention linear_attention/retention.py   heads=4 seq=1024 dim_qk=32,64,128 dim_v=64,128 block_m=32,64 block_n=32,64 block_v=32,64 \
             threads=64,128,256
"""
"""The same at the sizes that most people begin with, where registers are plenty and the assembler may trade them for blocks."""

TILES = {
    "copy": ("", "B[{at}] = x[i, j]"),
    "gelu": ("", 'B[{at}] = T.cast(T.cast(x[i, j], "float32") * T.sigmoid(1.702 * T.cast(x[i, j], "float32")), "{dtype}")'),
    "rows": ('T.reduce_max(x, s, dim=1)', "B[{at}] = x[i, j] - s[i]"),
    "columns": ('T.reduce_sum(x, s, dim=0)', "B[{at}] = x[i, j] * s[j]"),
    "swapped": ("", "B[bx * {n} + j, by * {m} + i] = x[i, j]"),
}
"""What is done with a tile in registers between loading and storing it, as statements and the last element."""


def _tiles(rng: random.Random) -> Iterator[tuple[str, Case]]:
    """Tiles through registers, of 16 to 128 of a thread, whole and with rows that may start anywhere."""
    every = [
        x for x in itertools.product(TILES, (1, 2, 4, 8, 16, 32, 64, 128), (32, 64, 100, 128, 256, 512, 1024, 2048), (64, 128, 256, 512),
                                     ("float16", "float32", "int8"), (False, True))
        if 16 <= x[1] * x[2] // x[3] <= 128
    ]  # fmt: skip
    for what, m, n, threads, dtype, anywhere in rng.sample(every, 120):
        between, last = TILES[what]
        size = f"({n},)" if what == "columns" else f"({m},)"
        at = f"by * {m} + i, bx * {n} + j"
        shape, back = ("(M, N)", "(N, M)") if anywhere else ("(4096, 4096)", "(4096, 4096)")
        rows, columns = ("M", "N") if anywhere else ("4096", "4096")
        back = back if what == "swapped" else shape
        lines = [
            "import tilelang.language as T", *(['M, N = T.dynamic("M, N")'] if anywhere else []), "@T.prim_func",
            f'def tile(A: T.Tensor({shape}, "{dtype}"), B: T.Tensor({back}, "{dtype}")):',
            f"  with T.Kernel(T.ceildiv({columns}, {n}), T.ceildiv({rows}, {m}), threads={threads}) as (bx, by):",
            f'    x = T.alloc_fragment(({m}, {n}), "{dtype}")', f"    T.copy(A[by * {m}, bx * {n}], x)",
            *([f'    s = T.alloc_fragment({size}, "{dtype}")', f"    {between}"] if between else []),
            f"    for i, j in T.Parallel({m}, {n}):", f"      {last.format(at=at, m=m, n=n, dtype=dtype)}",
        ]  # fmt: skip
        name = f"tile {what} {m}x{n} {dtype} t{threads}{' anywhere' if anywhere else ''}"
        yield name, Case("tile", "\n".join(lines) + "\n", rng.choice(("sm_80", "sm_90a")))


def _samples(rng: random.Random, spaces: str) -> Iterator[tuple[str, Case]]:
    for line in spaces.strip().replace("\\\n", "").splitlines():
        count, name, place, *values = line.split()
        path, _, kernel = place.partition(":")
        space = {k: v.split(",") for k, v in (x.split("=") for x in values)}
        every = [dict(zip(space, x, strict=True)) for x in itertools.product(*space.values())]
        for n, picked in enumerate(rng.sample(every, min(int(count), len(every)))):
            arch = "sm_80" if n % 3 == 2 else "sm_90a"
            shown = " ".join(f"{k}={v}" for k, v in picked.items() if len(space[k]) > 1)
            defines = {k: int(v) if v.isdigit() else v for k, v in picked.items()}
            yield f"{name} {shown} {arch}", Case(path.split("/")[0], (SAMPLES / path).read_text(), arch, 2, defines, kernel)


PINNED: tuple[tuple[str, str, tuple[int, int, int], str, int, int, int], ...] = (
    ("e4m3", "sm_90a", (192, 256, 128), "mirror", 2, 256, 3),
    ("e4m3", "sm_90a", (192, 256, 128), "mirror", 2, 256, 2),
    ("int8", "sm_90a", (256, 256, 128), "bias", 2, 256, 3),
    ("int8", "sm_90a", (256, 256, 64), "bias", 2, 256, 2),
    ("fp16", "sm_90a", (256, 256, 64), "copy", 2, 512, 2),
    ("fp16", "sm_80", (256, 256, 32), "bias", 2, 512, 2),
    ("fp16", "sm_80", (256, 256, 32), "bias", 2, 256, 2),
    ("fp16", "sm_80", (128, 256, 32), "mirror", 2, 128, 2),
)


def cases() -> dict[str, Case]:
    """All of them, by name."""
    rng = random.Random(20261130)
    out: dict[str, Case] = {}
    for kind, arch, tile, epilogue, stages, threads, opt in PINNED:
        name = f"{kind} {'x'.join(map(str, tile))} {epilogue} s{stages} t{threads} O{opt} {arch}"
        out[name] = Case("gemm", gemm(kind, tile, epilogue, stages, threads), arch, opt)
    for dim, m, n, threads in ((256, 192, 64, 384), (256, 192, 64, 256), (96, 192, 128, 256), (96, 192, 128, 384)):
        text = Attention(dim=dim, bm=m, bn=n, seq=4096, mask="tail", where="after", refill=True, order="bhsd").source()
        text = text.replace(f"threads={2 * m})", f"threads={threads})")
        out[f"attention D{dim} {m}x{n} tail t{threads} pinned"] = Case("attention", text)
    for arch, count in (("sm_90a", 190), ("sm_80", 90)):
        out |= {f"{name} {arch}": c for name, c in _gemms(rng, arch, count)}
    for arch, count in (("sm_90a", 80), ("sm_80", 25)):
        out |= {f"{name} {arch}": c for name, c in _attention(rng, arch, count)}
        out |= {f"{name} {arch}": c for name, c in _backward(rng, arch, count // 2)}
    out |= dict(_samples(rng, SPACES))
    plenty = random.Random(20261201)
    out |= {f"ordinary {name}": c for name, c in _samples(plenty, ORDINARY)}
    return out | dict(_tiles(plenty))
