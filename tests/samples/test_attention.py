"""Attention samples against softmax(Q K^T) V in float64."""

from typing import Any

import numpy as np
import pytest

from tests.samples.kit import Array, check, fresh, half
from tests.toolchain import needs_gxx

pytestmark = needs_gxx


def softmax_rows(s: Array) -> Array:
    """Softmax along the last axis; -inf scores get no weight."""
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attend(q: Array, k: Array, v: Array, mask: Array | None = None) -> tuple[Array, Array]:
    """Output [b, s, h, d] and natural log-sum-exp [b, h, s] for [b, s, h, d] tensors; k and v may have fewer heads."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    group = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, group, 2), np.repeat(v, group, 2)
    s = np.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    lse = np.log(np.exp(s - s.max(-1, keepdims=True)).sum(-1)) + s.max(-1)
    return np.einsum("bhij,bjhd->bihd", softmax_rows(s), v), lse


def drawn(batch: int, seq: int, heads: int, kv_heads: int, dim: int, kv_seq: int = 0) -> tuple[Array, Array, Array]:
    rng = fresh()
    shapes = [(batch, seq, heads, dim)] + 2 * [(batch, kv_seq or seq, kv_heads, dim)]
    q, k, v = (half(rng.standard_normal(s)) for s in shapes)
    return q, k, v


@pytest.mark.parametrize("heads, kv_heads, seq, causal", [(2, 2, 128, False), (2, 1, 100, False), (4, 2, 130, True)])
def test_forward(heads: int, kv_heads: int, seq: int, causal: bool) -> None:
    q, k, v = drawn(1, seq, heads, kv_heads, 32)
    out, lse = attend(q, k, v, np.tri(seq, dtype=bool) if causal else None)
    defines: dict[str, Any] = {"batch": 1, "heads": heads, "kv_heads": kv_heads, "seq": seq, "dim": 32, "causal": causal}
    check("attention/forward.py", defines, {"Q": q, "K": k, "V": v}, {"O": out, "LSE": lse * np.log2(np.e)}, 1e-3)


def heads_first(x: Array) -> Array:
    return np.ascontiguousarray(x.transpose(0, 2, 1, 3))


@pytest.mark.parametrize("seq, window", [(192, 50), (100, 1000)])
def test_window_and_sink(seq: int, window: int) -> None:
    heads, dim = 4, 32
    rng = fresh()
    q, k, v = (x.astype("float32") for x in drawn(1, seq, heads, 2, dim))
    sinks = rng.standard_normal(heads).astype(np.float32)
    i, j = np.ogrid[:seq, :seq]
    out, lse = attend(q, k, v, (j <= i) & (i < j + window))
    share = 1 / (1 + np.exp(sinks[None, :, None] - lse))  # of the keys, beside the sink
    wanted = heads_first(out) * share[..., None]
    inputs = {"Q": heads_first(q), "K": heads_first(k), "V": heads_first(v), "Sinks": sinks}
    defines = {"heads": heads, "kv_heads": 2, "seq": seq, "dim": dim, "window": window}
    inputs = {n: x if n == "Sinks" else x.astype("float16") for n, x in inputs.items()}
    check("attention/window_sink.py", {**defines, "dtype": "float16"}, inputs, {"O": wanted}, 1e-3)


@pytest.mark.parametrize("causal", [False, True])
def test_sequences_of_different_lengths(causal: bool) -> None:
    heads, dim = 2, 32
    q_lens, k_lens = [70, 1, 33], [70, 90, 40]
    q_start, k_start = (np.cumsum([0, *lens]).astype(np.int32) for lens in (q_lens, k_lens))
    q, k, v = (x[0] for x in drawn(1, sum(q_lens), heads, 1, dim, sum(k_lens)))
    wanted = np.zeros(q.shape)
    for s, (n, m) in enumerate(zip(q_lens, k_lens, strict=True)):
        rows, cols = slice(q_start[s], q_start[s + 1]), slice(k_start[s], k_start[s + 1])
        i, j = np.ogrid[:n, :m]
        mask = (j <= i + m - n) if causal else np.ones((n, m), bool)
        wanted[rows] = attend(q[None, rows], k[None, cols], v[None, cols], mask)[0][0]
    inputs = {"Q": q, "K": k, "V": v, "QStart": q_start, "KStart": k_start, "longest": max(q_lens), "O": np.full(q.shape, np.nan)}
    defines = {"heads": heads, "kv_heads": 1, "dim": dim, "causal": causal}
    check("attention/varlen.py", defines, inputs, {"O": wanted}, 1e-3, kernel="varlen_kernel")


def test_block_sparse() -> None:
    seq, heads, dim, block = 256, 2, 32, 64
    rng = fresh()
    q, k, v = drawn(1, seq, heads, heads, dim)
    blocks = rng.integers(0, 2, (1, heads, 4, 4)).astype(np.int8) | np.eye(4, dtype=np.int8)
    mask = np.tri(seq, dtype=bool) & (np.kron(blocks, np.ones((block, block), np.int8)) != 0)
    out, _ = attend(q, k, v, mask)
    inputs = {"Q": heads_first(q), "K": heads_first(k), "V": heads_first(v), "Mask": blocks}
    check("attention/block_sparse.py", {"seq": seq, "heads": heads, "dim": dim}, inputs, {"O": heads_first(out)}, 1e-3)


@pytest.mark.parametrize("splits", [1, 3])
def test_split_decoding(splits: int) -> None:
    batch, heads, kv_heads, seq, dim = 2, 8, 2, 300, 32
    rng = fresh()
    _, k, v = drawn(batch, 1, heads, kv_heads, dim, seq)
    q = half(rng.standard_normal((batch, heads, dim)))
    lengths = np.array([seq, int(rng.integers(1, 130))], np.int32)
    wanted = np.concatenate([attend(q[b][None, None], k[b : b + 1, :n], v[b : b + 1, :n])[0][0] for b, n in enumerate(lengths)])
    defines = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "seq": seq, "dim": dim, "splits": splits}
    check("attention/decode.py", defines, {"Q": q, "K": k, "V": v, "Length": lengths}, {"O": wanted}, 1e-3)


def test_latent_decoding() -> None:
    batch, heads, seq, latent, rope = 1, 64, 100, 64, 16
    rng = fresh()
    draws = [rng.standard_normal(s).astype("bfloat16") for s in [(batch, heads, latent), (batch, heads, rope), (batch, seq, latent), (batch, seq, rope)]]
    q, qr, kv, kr = (x.astype(np.float64) for x in draws)
    s = (np.einsum("bhd,bsd->bhs", q, kv) + np.einsum("bhd,bsd->bhs", qr, kr)) / np.sqrt(latent + rope)
    wanted = np.einsum("bhs,bsd->bhd", softmax_rows(s), kv)
    inputs = dict(zip(("Q", "Q_rope", "KV", "K_rope"), draws, strict=True))
    defines = {"batch": batch, "heads": heads, "seq": seq, "latent": latent, "rope": rope}
    check("attention/mla_decode.py", defines, inputs, {"O": wanted}, 5e-3)


@pytest.mark.parametrize("seq, causal", [(128, False), (100, True)])
def test_backward(seq: int, causal: bool) -> None:
    heads, dim = 2, 32
    rng = fresh()
    q, k, v = drawn(1, seq, heads, heads, dim)
    do = half(rng.standard_normal(q.shape))
    mask = np.tri(seq, dtype=bool) if causal else None
    out, lse = attend(q, k, v, mask)
    q64, k64, v64, do64 = (x.astype(np.float64) for x in (q, k, v, do))
    s = np.einsum("bihd,bjhd->bhij", q64, k64) / np.sqrt(dim)
    p = np.exp(s - lse[..., None]) * (1 if mask is None else mask)
    delta = np.einsum("bihd,bihd->bhi", out, do64)
    ds = p * (np.einsum("bihd,bjhd->bhij", do64, v64) - delta[..., None]) / np.sqrt(dim)
    dq, dk = np.einsum("bhij,bjhd->bihd", ds, k64), np.einsum("bhij,bihd->bjhd", ds, q64)
    dv = np.einsum("bhij,bihd->bjhd", p, do64)
    shape = {"batch": 1, "heads": heads, "seq": seq, "dim": dim}
    sample = "attention/backward.py"
    check(sample, shape, {"O": half(out), "dO": do}, {"Delta": np.einsum("bihd,bihd->bhi", half(out).astype(float), do64)}, 1e-5, kernel="delta")
    inputs = {"Q": q, "K": k, "V": v, "dO": do, "LSE": lse * np.log2(np.e), "Delta": delta}
    wanted = {"dQ": dq, "dK": dk, "dV": dv}
    check(sample, {**shape, "causal": causal}, {**inputs, "dQ": np.zeros(q.shape)}, wanted, 2e-3, kernel="gradients")
    check(sample, {**shape, "causal": causal}, inputs, {"dQ": dq}, 2e-3, kernel="query_gradients")
    check(sample, shape, {"dQ": dq}, {"Out": dq}, 1e-3, kernel="narrow")


def test_selected_blocks() -> None:
    rng = fresh()
    seq, heads, dim, size, picked = 64, 16, 64, 32, 2
    q = half(rng.standard_normal((1, seq, heads, dim)))
    k, v = (half(rng.standard_normal((1, seq, 1, dim))) for _ in range(2))
    blocks = np.array([rng.permutation(2) if t >= size else [0, -1] for t in range(seq)], np.int32).reshape(1, seq, 1, picked)
    scores = np.einsum("bthd,bsd->bhts", q.astype(np.float64), k[:, :, 0].astype(np.float64)) / dim**0.5
    chosen = (np.arange(seq) // size == blocks[0, :, 0, :, None]).any(1) & np.tril(np.ones((seq, seq), bool))
    weights = np.where(chosen, np.exp(scores - scores.max()), 0)
    wanted = np.einsum("bhts,bsd->bthd", weights / weights.sum(-1, keepdims=True), v[:, :, 0].astype(np.float64))
    check("attention/selected_blocks.py", {"seq_len": seq}, {"Q": q, "K": k, "V": v, "blocks": blocks}, {"O": wanted}, 1e-3)
