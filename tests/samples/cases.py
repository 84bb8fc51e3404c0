"""What each sample computes, said once more in NumPy at float64: inputs, expected results, and how near they must come.

    CASES["rows/softmax"].inputs(rng) -> {"X": ...};  CASES["rows/softmax"].expected(inputs) -> {"Y": ...}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Rng = np.random.Generator
F16, F32, I32 = np.float16, np.float32, np.int32
BF16 = ml_dtypes.bfloat16
EXACT = 0.0
HALF, BRAIN, SINGLE = 2e-3, 1.6e-2, 1e-5
"""Tolerances, relative to the larger of 1 and the value: a few roundings of the result's type."""


@dataclass(frozen=True, slots=True)
class Case:
    """A sample at a small size. `outputs` are the dtype and shape of poisoned results; inputs named there start as given."""

    inputs: Callable[[Rng], dict[str, Array]]
    expected: Callable[..., dict[str, Array]]
    outputs: Mapping[str, tuple[Any, tuple[int, ...]]]
    tolerance: float
    defines: Mapping[str, Any] = field(default_factory=dict)


def normal(rng: Rng, dtype: Any, *shape: int) -> Array:
    """Standard normal numbers."""
    out: Array = rng.standard_normal(shape).astype(dtype)
    return out


def _softmax(X: Array) -> Array:
    e = np.exp(X - X.max(axis=-1, keepdims=True))
    out: Array = e / e.sum(axis=-1, keepdims=True)
    return out


def _layer_norm(X: Array, gain: Array, bias: Array) -> dict[str, Array]:
    spread = np.sqrt(X.var(axis=1, keepdims=True) + 1e-5)
    return {"Y": (X - X.mean(axis=1, keepdims=True)) / spread * gain + bias}


def _cross_entropy(logits: Array, labels: Array) -> dict[str, Array]:
    picked = logits[np.arange(len(labels)), labels.astype(int)]
    return {"loss": np.log(np.exp(logits).sum(axis=1)) - picked}


def _top_k(logits: Array, k: int) -> dict[str, Array]:
    order = np.argsort(-logits, axis=1)[:, :k]
    return {"gates": np.take_along_axis(logits, order, axis=1), "experts": order}


def _shuffled(rng: Rng, rows: int, n: int) -> Array:
    """Rows of distinct numbers."""
    return np.stack([rng.permutation(n).astype(F32) - n / 3 for _ in range(rows)])


def _rope(X: Array, cosine: Array, sine: Array) -> dict[str, Array]:
    half = X.shape[-1] // 2
    turn = cosine[None, :, None] + 1j * sine[None, :, None]
    z = (X[..., :half] + 1j * X[..., half:]) * turn
    return {"Y": np.concatenate([z.real, z.imag], axis=-1)}


def _rope_inputs(rng: Rng) -> dict[str, Array]:
    angle = rng.uniform(-3, 3, (37, 32))
    return {"X": normal(rng, F16, 2, 37, 3, 64), "cosine": np.cos(angle).astype(F32), "sine": np.sin(angle).astype(F32)}


def _activations(gate: Array, up: Array) -> dict[str, Array]:
    smooth = 0.5 * up * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up**3)))
    return {"gated": gate / (1 + np.exp(-gate)) * up, "smooth": smooth}


def _conv1d(X: Array, weight: Array, bias: Array) -> dict[str, Array]:
    padded = np.pad(X, ((0, 0), (len(weight) - 1, 0), (0, 0)))
    acc = bias + sum(padded[:, k : k + X.shape[1]] * weight[k] for k in range(len(weight)))
    return {"Y": acc / (1 + np.exp(-acc))}


def _conv2d(data: Array, kernel: Array) -> dict[str, Array]:
    _, height, width, _ = data.shape
    padded = np.pad(data, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = (padded[:, h : h + height, w : w + width] @ kernel[h, w] for h in range(3) for w in range(3))
    return {"out": sum(windows, np.zeros(1))}


def _small(rng: Rng, dtype: Any, *shape: int) -> Array:
    """Integers that make products and sums exact in every type."""
    out: Array = rng.integers(-2, 3, shape).astype(dtype)
    return out


CASES: dict[str, Case] = {
    "rows/softmax": Case(
        lambda r: {"X": normal(r, F16, 5, 1024)}, lambda X: {"Y": _softmax(X)}, {"Y": (F16, (5, 1024))}, HALF, {"M": 5, "N": 1024},
    ),
    "rows/online_softmax": Case(
        lambda r: {"X": normal(r, F16, 6, 1100) * 3}, lambda X: {"Y": _softmax(X)}, {"Y": (F16, (6, 1100))}, HALF, {"block_N": 512},
    ),
    "rows/softmax_streamed": Case(
        lambda r: {"X": normal(r, F16, 3, 1100) * 3}, lambda X: {"Y": _softmax(X)}, {"Y": (F16, (3, 1100))}, HALF,
        {"M": 3, "N": 1100, "chunk": 512, "threads": 64},
    ),
    "rows/softmax_long": Case(
        lambda r: {"X": normal(r, F16, 3, 2048) * 3}, lambda X: {"Y": _softmax(X)}, {"Y": (F16, (3, 2048))}, HALF,
        {"M": 3, "N": 2048, "held": 512, "threads": 64},
    ),
    "rows/rms_norm_long": Case(
        lambda r: {"A": normal(r, F16, 3, 2048), "weight": normal(r, F16, 2048)},
        lambda A, weight: {"B": A / np.sqrt((A**2).mean(axis=1, keepdims=True) + 1e-6) * weight}, {"B": (F16, (3, 2048))}, 2 * HALF,
        {"M": 3, "N": 2048, "held": 512, "threads": 64},
    ),
    "rows/rms_norm_streamed": Case(
        lambda r: {"A": normal(r, F16, 3, 1100), "weight": normal(r, F16, 1100)},
        lambda A, weight: {"B": A / np.sqrt((A**2).mean(axis=1, keepdims=True) + 1e-6) * weight}, {"B": (F16, (3, 1100))}, 2 * HALF,
        {"M": 3, "N": 1100, "chunk": 512, "threads": 64},
    ),
    "rows/layer_norm": Case(
        lambda r: {"X": normal(r, F16, 3, 1024), "gain": normal(r, F16, 1024), "bias": normal(r, F16, 1024)}, _layer_norm,
        {"Y": (F16, (3, 1024))}, 2 * HALF, {"M": 3, "N": 1024},
    ),
    "rows/layer_norm_long": Case(
        lambda r: {"X": normal(r, F16, 3, 2048) + 9, "gain": normal(r, F16, 2048), "bias": normal(r, F16, 2048)}, _layer_norm,
        {"Y": (F16, (3, 2048))}, 2 * HALF, {"M": 3, "N": 2048, "held": 512, "threads": 64},
    ),
    "rows/rms_norm": Case(
        lambda r: {"A": normal(r, BF16, 3, 2048), "weight": normal(r, BF16, 2048)},
        lambda A, weight: {"B": A / np.sqrt((A**2).mean(axis=1, keepdims=True) + 1e-6) * weight}, {"B": (BF16, (3, 2048))}, BRAIN,
        {"M": 3, "N": 2048},
    ),
    "rows/cross_entropy": Case(
        lambda r: {"logits": normal(r, BF16, 5, 3001), "labels": r.integers(0, 3001, 5).astype(I32)}, _cross_entropy,
        {"loss": (F32, (5,))}, SINGLE, {"chunk": 1024},
    ),
    "rows/row_column_sum": Case(
        lambda r: {"A": _small(r, F32, 100, 200), "by_row": _small(r, F32, 100), "by_column": _small(r, F32, 200)},
        lambda A, by_row, by_column: {"by_row": by_row + A.sum(axis=1), "by_column": by_column + A.sum(axis=0)}, {}, EXACT,
    ),
    "rows/full_reduction": Case(
        lambda r: {
            "A": r.integers(-99, 99, 9999).astype(F32), "total": _small(r, F32, 1), "top": np.array([-1000], I32), "size": _small(r, F32, 1),
        },
        lambda A, total, top, size: {"total": total + A.sum(), "top": np.array([A.max()]), "size": size + np.abs(A).sum()}, {}, EXACT,
        {"blocks": 4},
    ),
    "by_hand/gemm_warp_specialized": Case(
        lambda r: {"A": _small(r, F16, 130, 200), "B": _small(r, F16, 200, 264)}, lambda A, B: {"C": A @ B}, {"C": (F16, (130, 264))}, EXACT,
        {"M": 130, "N": 264, "K": 200},
    ),
    "by_hand/pipeline_elementwise": Case(
        lambda r: {"X": normal(r, F32, 100, 128), "Y": normal(r, F32, 100, 128)}, lambda X, Y: {"Z": X / (1 + np.exp(-X)) + Y},
        {"Z": (F32, (100, 128))}, SINGLE, {"M": 100, "N": 128},
    ),
    "by_hand/attention": Case(
        lambda r: {n: normal(r, F16, 2, 128, 64) for n in "QKV"}, lambda Q, K, V: {"O": _softmax(Q @ K.transpose(0, 2, 1) / 8) @ V},
        {"O": (F16, (2, 128, 64))}, HALF, {"S": 128},
    ),
    "by_hand/gathered_attention": Case(
        lambda r: {"Q": normal(r, BF16, 3, 64, 128), "KV": normal(r, BF16, 90, 128), "Picked": r.integers(0, 90, (3, 128)).astype(np.int32)},
        lambda Q, KV, Picked: {"O": np.stack([_softmax(q @ KV[p.astype(int)].T / 128**0.5) @ KV[p.astype(int)] for q, p in zip(Q, Picked, strict=True)])},
        {"O": (BF16, (3, 64, 128))}, BRAIN, {"picks": 128},
    ),
    "rows/argmax": Case(
        lambda r: {"X": np.floor(normal(r, F32, 9, 1000) * 2)}, lambda X: {"where": X.argmax(axis=1), "value": X.max(axis=1)},
        {"where": (I32, (9,)), "value": (F32, (9,))}, EXACT, {"M": 9},
    ),
    "rows/top_k": Case(
        lambda r: {"logits": _shuffled(r, 20, 128)}, lambda logits: _top_k(logits, 4),
        {"gates": (F32, (20, 4)), "experts": (I32, (20, 4))}, EXACT, {"M": 20},
    ),
    "scans/prefix_sum": Case(
        lambda r: {"X": _small(r, F32, 20, 150)}, lambda X: {"Y": np.cumsum(X, axis=1)}, {"Y": (F32, (20, 150))}, EXACT,
    ),
    "scans/histogram": Case(
        lambda r: {"X": r.integers(0, 256, 3000).astype(np.uint8), "counts": _small(r, I32, 256)},
        lambda X, counts: {"counts": counts + np.bincount(X.astype(int), minlength=256)}, {}, EXACT, {"blocks": 3},
    ),
    "elementwise/activations": Case(
        lambda r: {"gate": normal(r, F16, 2600), "up": normal(r, F16, 2600)}, _activations,
        {"gated": (F16, (2600,)), "smooth": (F16, (2600,))}, HALF,
    ),
    "elementwise/residual": Case(
        lambda r: {"X": normal(r, F16, 5, 1100), "R": normal(r, F16, 5, 1100), "scale": normal(r, F16, 1100)},
        lambda X, R, scale: {"Y": X + scale * R}, {"Y": (F16, (5, 1100))}, HALF, {"block": 512},
    ),
    "elementwise/rope": Case(_rope_inputs, _rope, {"Y": (F16, (2, 37, 3, 64))}, HALF),
    "elementwise/transpose": Case(lambda r: {"A": normal(r, F16, 100, 136)}, lambda A: {"B": A.T}, {"B": (F16, (136, 100))}, EXACT),
    "elementwise/dequantise": Case(
        lambda r: {"Q": r.integers(-128, 128, (40, 256)).astype(np.int8), "scale": normal(r, F16, 40, 4)},
        lambda Q, scale: {"W": Q * np.repeat(scale, 64, axis=1)}, {"W": (F16, (40, 256))}, HALF, {"N": 40},
    ),
    "elementwise/conv1d": Case(
        lambda r: {"X": normal(r, BF16, 2, 40, 96), "weight": normal(r, F32, 4, 96), "bias": normal(r, F32, 96)}, _conv1d,
        {"Y": (BF16, (2, 40, 96))}, BRAIN,
    ),
    "products/gemv": Case(
        lambda r: {"A": _small(r, F16, 10, 1024), "x": _small(r, F16, 1024)}, lambda A, x: {"y": A @ x}, {"y": (F16, (10,))}, EXACT,
    ),
    "products/gemv_simt": Case(
        lambda r: {"x": _small(r, F16, 520), "A": _small(r, F16, 10, 520)}, lambda A, x: {"y": A @ x}, {"y": (F16, (10,))}, EXACT,
        {"N": 10, "K": 520},
    ),
    "products/norm_projection": Case(
        lambda r: {"X": _small(r, BF16, 45, 520), "W": _small(r, F32, 32, 520)},
        lambda X, W: {"Y": X / np.sqrt((X * X).mean(axis=1, keepdims=True) + 1e-6) @ W.T}, {"Y": (F32, (45, 32))}, SINGLE,
        {"M": 45, "N": 32, "K": 520},
    ),
    "products/conv2d": Case(
        lambda r: {"data": _small(r, F16, 1, 10, 9, 32), "kernel": _small(r, F16, 3, 3, 32, 72)}, _conv2d,
        {"out": (F16, (1, 10, 9, 72))}, EXACT, {"N": 1, "H": 10, "W": 9, "F": 72},
    ),
    "products/gemm_residual": Case(
        lambda r: {"A": _small(r, BF16, 100, 64), "B": _small(r, BF16, 96, 64), "bias": _small(r, F32, 96), "R": _small(r, BF16, 100, 96)},
        lambda A, B, bias, R: {"C": np.maximum(A @ B.T + bias, 0) + R}, {"C": (BF16, (100, 96))}, BRAIN,
    ),
    "products/gemm_batched": Case(
        lambda r: {"X": _small(r, F16, 3, 70, 72), "Y": _small(r, F16, 3, 72, 40)}, lambda X, Y: {"Z": X @ Y}, {"Z": (F16, (3, 70, 40))}, EXACT,
        {"B": 3, "M": 70, "N": 40, "K": 72},
    ),
    "products/gemm_split_k": Case(
        lambda r: {"A": _small(r, F16, 70, 256), "B": _small(r, F16, 256, 72), "C": _small(r, F32, 70, 72)},
        lambda A, B, C: {"C": C + A @ B}, {}, EXACT,
    ),
    "products/gemm_persistent": Case(
        lambda r: {"A": _small(r, F16, 250, 64), "B": _small(r, F16, 64, 192)}, lambda A, B: {"C": A @ B}, {"C": (F16, (250, 192))}, EXACT,
        {"M": 250, "N": 192, "K": 64, "blocks": 3},
    ),
}  # fmt: skip
