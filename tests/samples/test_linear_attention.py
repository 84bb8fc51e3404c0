"""Linear attention, retention, Mamba-2 and the gated delta rule against their recurrences in float64."""

import numpy as np

from tests.samples.kit import Array, check, fresh, half
from tests.toolchain import needs_gxx

pytestmark = needs_gxx


def normal(*shape: int, scale: float = 1.0) -> Array:
    return half(fresh().standard_normal(shape) * scale)


def test_chunked_linear_attention() -> None:
    heads, seq, dim = 2, 150, 64
    q, k, v = (normal(1, seq, heads, dim, scale=0.5) for _ in range(3))
    q64, k64, v64 = (x.astype(float) for x in (q, k, v))
    weights = np.einsum("bihd,bjhd->bhij", q64, k64) * np.tri(seq)
    wanted = np.einsum("bhij,bjhd->bihd", weights, v64)
    state = np.einsum("bjhd,bjhe->bhde", k64, v64)
    check(
        "linear_attention/chunked.py", {"heads": heads, "seq": seq, "dim": dim}, {"Q": q, "K": k, "V": v},
        {"O": wanted[None], "State": state}, 2e-3,
    )  # fmt: skip


def test_retention() -> None:
    heads, seq, dim = 2, 100, 64
    q, k, v = (normal(1, seq, heads, dim) for _ in range(3))
    i, j = np.ogrid[:seq, :seq]
    gamma = 1 - 2.0 ** (-5 - np.arange(heads))
    decay = np.where(i >= j, gamma[:, None, None] ** np.maximum(i - j, 0), 0)
    s = np.einsum("bihd,bjhd->bhij", q.astype(float), k.astype(float)) * decay
    o = np.einsum("bhij,bjhd->bihd", s, v.astype(float))
    wanted = o / np.maximum(np.abs(s.sum(-1)), 1).transpose(0, 2, 1)[..., None]
    check("linear_attention/retention.py", {"heads": heads, "seq": seq, "dim_qk": dim, "dim_v": dim}, {"Q": q, "K": k, "V": v}, {"O": wanted}, 2e-3)


def test_mamba2_chunk_state() -> None:
    seq, heads, groups, dim, dstate, chunk = 128, 2, 1, 64, 64, 64
    chunks = seq // chunk
    b, x = normal(1, seq, groups, dstate), normal(1, seq, heads, dim)
    dt = half(fresh().uniform(0, 1, (1, heads, chunks, chunk)))
    da = half(-np.cumsum(fresh().uniform(0, 0.05, dt.shape), -1))
    weight = np.exp(da[..., -1:].astype(float) - da) * dt
    xs = x.astype(float).reshape(1, chunks, chunk, heads, dim)
    bs = np.repeat(b.astype(float), heads // groups, 2).reshape(1, chunks, chunk, heads, dstate)
    wanted = np.einsum("bclhp,bhcl,bclhn->bchpn", xs, weight, bs)
    defines = {"seq": seq, "heads": heads, "groups": groups, "dim": dim, "dstate": dstate}
    check("linear_attention/mamba2.py", defines, {"B": b, "x": x, "dt": dt, "dA_cumsum": da}, {"States": wanted}, 2e-3, kernel="chunk_state")


def test_mamba2_chunk_scan() -> None:
    seq, heads, groups, dim, dstate, chunk = 128, 2, 1, 64, 64, 64
    chunks = seq // chunk
    x, c = normal(1, seq, heads, dim), normal(1, seq, groups, dstate, scale=0.3)
    cb = normal(1, chunks, groups, chunk, chunk, scale=0.5)
    states, d = normal(1, chunks, heads, dim, dstate, scale=0.5), normal(heads)
    dt = half(fresh().uniform(0, 1, (1, heads, chunks, chunk)))
    da = half(-np.cumsum(fresh().uniform(0, 0.05, dt.shape), -1))
    a = da.astype(float)
    xs = x.astype(float).reshape(1, chunks, chunk, heads, dim)
    cs = np.repeat(c.astype(float), heads, 2).reshape(1, chunks, chunk, heads, dstate)
    before = np.einsum("bclhn,bchpn->bclhp", cs, states.astype(float)) * np.exp(a).transpose(0, 2, 3, 1)[..., None]
    decay = np.exp(np.minimum(a[..., :, None] - a[..., None, :], 0)) * dt.astype(float)[..., None, :] * np.tri(chunk)
    inside = np.einsum("bclm,bhclm,bcmhp->bclhp", cb[:, :, 0].astype(float), decay, xs)
    wanted = (before + inside).reshape(1, seq, heads, dim) + x.astype(float) * d.astype(float)[:, None]
    defines = {"seq": seq, "heads": heads, "groups": groups, "dim": dim, "dstate": dstate}
    inputs = {"CB": cb, "x": x, "dt": dt, "dA_cumsum": da, "C": c, "PrevStates": states, "D": d}
    check("linear_attention/mamba2.py", defines, inputs, {"Output": wanted}, 2e-3, kernel="chunk_scan")


def delta_rule(q: Array, k: Array, v: Array, g: Array, beta: Array) -> tuple[Array, Array]:
    """Outputs [s, h, dv] and the last state [h, dk, dv], token by token in float64."""
    seq, heads, dim_k = q.shape
    state = np.zeros((heads, dim_k, v.shape[-1]))
    out = np.zeros(v.shape)
    for t in range(seq):
        state = state * np.exp(g[t])[:, None, None]
        news = beta[t][:, None] * (v[t] - np.einsum("hkv,hk->hv", state, k[t]))
        state = state + np.einsum("hk,hv->hkv", k[t], news)
        out[t] = np.einsum("hkv,hk->hv", state, q[t])
    return out, state


def delta_inputs(heads: int, seq: int, dim_k: int, dim_v: int) -> dict[str, Array]:
    rng = fresh()
    k = rng.standard_normal((1, seq, heads, dim_k))
    return {
        "Q": half(rng.standard_normal(k.shape)), "K": half(k / np.linalg.norm(k, axis=-1, keepdims=True)),
        "V": half(rng.standard_normal((1, seq, heads, dim_v))), "G": -rng.uniform(0, 0.2, (1, seq, heads)).astype(np.float32),
        "Beta": rng.uniform(0, 1, (1, seq, heads)).astype(np.float32),
    }  # fmt: skip


def test_gated_delta_rule_token_by_token() -> None:
    shape = {"heads": 2, "seq": 20, "dim_k": 64, "dim_v": 40}
    inputs = delta_inputs(**shape)
    out, _ = delta_rule(*(inputs[n][0].astype(float) for n in ("Q", "K", "V", "G", "Beta")))
    check("linear_attention/gated_delta.py", shape, inputs, {"O": out}, 1e-5, kernel="recurrent")


def test_gated_delta_rule_in_chunks() -> None:
    shape = {"heads": 2, "seq": 80, "dim_k": 64, "dim_v": 64}
    inputs = delta_inputs(**shape)
    out, state = delta_rule(*(inputs[n][0].astype(float) for n in ("Q", "K", "V", "G", "Beta")))
    check("linear_attention/gated_delta.py", shape, inputs, {"O": out, "Final": state}, 4e-3, kernel="chunked")
