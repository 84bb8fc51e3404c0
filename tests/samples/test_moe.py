"""Grouped GEMM, the fused feed-forward layer and the mixture of experts against float64."""

import numpy as np

from tests.samples.kit import Array, check, fresh, half
from tests.toolchain import needs_gxx

pytestmark = needs_gxx


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def test_grouped_gemm() -> None:
    rng = fresh()
    sizes = np.array([70, 0, 64, 5], np.int32)
    total, k, n = int(sizes.sum()), 64, 64
    offsets = np.cumsum(sizes) - sizes
    padded = -(-sizes // 64) * 64
    a, b = half(rng.standard_normal((total, k))), half(rng.standard_normal((4, k, n)))
    wanted = np.concatenate([a[o : o + s].astype(float) @ b[g].astype(float) for g, (o, s) in enumerate(zip(offsets, sizes, strict=True))])
    inputs = {"A": a, "B": b, "Sizes": sizes, "Offsets": offsets, "PaddedOffsets": np.cumsum(padded) - padded}
    check("moe/grouped_gemm.py", {"groups": 4, "total": total, "K": k, "N": n}, inputs, {"C": wanted}, 1e-3)


def test_fused_mlp() -> None:
    rng = fresh()
    tokens, model, hidden = 70, 64, 128
    x, down = rng.standard_normal((tokens, model)), rng.standard_normal((hidden, model)) / 8
    gate, up = (rng.standard_normal((model, hidden)) / 8 for _ in range(2))
    x, gate, up, down = (m.astype("bfloat16") for m in (x, gate, up, down))
    h = silu(x.astype(float) @ gate.astype(float)) * (x.astype(float) @ up.astype(float))
    inputs = {"X": x, "Wg": gate, "Wu": up, "Wd": down}
    check("moe/fused_mlp.py", {"tokens": tokens, "model": model, "hidden": hidden}, inputs, {"Y": h @ down.astype(float)}, 5e-3)


def test_mixture_of_experts() -> None:
    rng = fresh()
    tokens, experts, model, hidden, block = 48, 3, 64, 64, 32
    x = half(rng.standard_normal((tokens, model)))
    gate, up = (half(rng.standard_normal((experts, hidden, model)) / 8) for _ in range(2))
    down = half(rng.standard_normal((experts, model, hidden)) / 8)
    chosen = np.argsort(rng.random((tokens, experts)), axis=1)[:, :2]
    share = rng.dirichlet([1, 1], tokens)
    token, weight, tiles = [], [], []
    for e in range(experts):
        mine = [(t, share[t, n]) for t in range(tokens) for n in range(2) if chosen[t, n] == e]
        mine += [(-1, 0.0)] * (-len(mine) % block)
        token += [t for t, _ in mine]
        weight += [w for _, w in mine]
        tiles += [e] * (len(mine) // block)
    x64, wanted = x.astype(float), np.zeros((tokens, model))
    hiddens = np.zeros((len(token), hidden))
    for s, t in enumerate(token):
        e = tiles[s // block]
        if t >= 0:
            hiddens[s] = silu(gate[e].astype(float) @ x64[t]) * (up[e].astype(float) @ x64[t])
            wanted[t] += weight[s] * (down[e].astype(float) @ hiddens[s])
    sizes = {"tokens": tokens, "experts": experts, "model": model, "hidden": hidden, "slots": len(token)}
    route = {"Token": np.array(token, np.int32), "Expert": np.array(tiles, np.int32)}
    first = check("moe/experts.py", sizes, {"X": x, "Wg": gate, "Wu": up, **route}, {"H": hiddens}, 1e-3, kernel="up_kernel")
    inputs = {"H": first["H"], "Wd": down, "Weight": np.array(weight, np.float32), "Y": np.zeros((tokens, model)), **route}
    check("moe/experts.py", sizes, inputs, {"Y": wanted}, 1e-3, kernel="down_kernel")
