"""What the samples of narrow types compute, at float64: weights of 4 bits, 8-bit floats with scales, pruned operands.

    LOW["products/gemm_sparse"].inputs(rng) -> {"A": ..., "E": ..., "B": ...}
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.samples.cases import BF16, BRAIN, EXACT, F16, F32, HALF, Array, Case, Rng

FP8 = ml_dtypes.float8_e4m3fn
ROUNDED = 2.0**-4
"""Half a step of an 8-bit float with three bits behind the point, relative to it."""


def _weights(rng: Rng) -> dict[str, Array]:
    scale = (rng.integers(1, 5, (72, 2)) / 4).astype(F16)
    packed = rng.integers(0, 256, (72, 64)).astype(np.uint8).view(np.int8)
    return {"A": rng.integers(-2, 3, (40, 128)).astype(F16), "W": packed, "scale": scale}


def _weighted(A: Array, W: Array, scale: Array) -> dict[str, Array]:
    codes = W.astype(np.int8).view(np.uint8).astype(int)
    values = np.stack([codes & 15, codes >> 4], -1).reshape(len(W), -1)
    return {"C": A @ (((values ^ 8) - 8) * np.repeat(scale, 64, 1)).T}


def _blocks(rng: Rng) -> dict[str, Array]:
    a, b = (rng.integers(-3, 4, shape).astype(FP8) for shape in ((70, 256), (136, 256)))
    return {"A": a, "B": b, "scale_A": rng.integers(1, 5, (70, 2)).astype(F32) / 4, "scale_B": rng.integers(1, 5, (2, 2)).astype(F32) / 4}


def _scaled(A: Array, B: Array, scale_A: Array, scale_B: Array) -> dict[str, Array]:
    wide = np.repeat(np.repeat(scale_B, 128, 0)[: len(B)], 128, 1)
    return {"C": (A * np.repeat(scale_A, 128, 1)) @ (B * wide).T}


def _pruned(rng: Rng) -> dict[str, Array]:
    places = np.sort(np.array([rng.permutation(4)[:2] for _ in range(64 * 32)]), 1)
    codes = (places[:, 0] | places[:, 1] << 2).reshape(64, 8, 4)
    marks = (codes << (4 * np.arange(4))).sum(-1).astype(np.uint16).view(np.int16)
    return {"A": rng.integers(-2, 3, (64, 64)).astype(F16), "E": marks, "B": rng.integers(-2, 3, (128, 72)).astype(F16)}


def _product_of_pruned(A: Array, E: Array, B: Array) -> dict[str, Array]:
    codes = (E.astype(int)[..., None] >> (4 * np.arange(4))).reshape(64, 32) & 15
    dense = np.zeros((64, 32, 4))
    np.put_along_axis(dense, np.stack([codes & 3, codes >> 2], -1), A.reshape(64, 32, 2), 2)
    return {"C": dense.reshape(64, 128) @ B}


def _quantised(X: Array) -> dict[str, Array]:
    parts = X.reshape(len(X), -1, 128)
    scale = np.maximum(np.abs(parts).max(-1), 1e-4) / 448
    return {"Y": (parts / scale[..., None]).reshape(X.shape), "scale": scale}


LOW: dict[str, Case] = {
    "products/gemm_int4_weights": Case(_weights, _weighted, {"C": (F16, (40, 72))}, HALF, {"M": 40, "N": 72, "K": 128}),
    "products/gemm_fp8_blocks": Case(_blocks, _scaled, {"C": (BF16, (70, 136))}, BRAIN, {"M": 70, "N": 136, "K": 256}),
    "products/gemm_sparse": Case(_pruned, _product_of_pruned, {"C": (F32, (64, 72))}, EXACT, {"M": 64, "N": 72, "K": 128}),
    "rows/quantise_fp8": Case(
        lambda r: {"X": r.standard_normal((21, 256)).astype(BF16)}, _quantised, {"Y": (FP8, (21, 256)), "scale": (F32, (21, 2))}, ROUNDED,
        {"N": 256},
    ),
}  # fmt: skip
