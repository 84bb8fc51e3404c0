"""Peers through torch, with a stand-in for torch on NumPy: what lies where, and that their results are compared with ours."""

from __future__ import annotations

import contextlib
import math
import sys
import types
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.bench.test_bench import attention
from tests.bench.test_gpu import cupy, fault  # noqa: F401 - the stand-in for CuPy
from tilec.runtime.bench import peers
from tilec.runtime.bench.gpu import Gpu
from tilec.runtime.bench.machine import Contender
from tilec.runtime.bench.problems import Attention, Product
from tilec.runtime.bind import Bound
from tilec.runtime.cuda import upload
from tilec.runtime.request import RunError

B, S, H, KV, D = 2, 9, 4, 2, 8


class Tensor(np.ndarray):
    """The few methods of torch's tensors that the peers use, on NumPy."""

    def movedim(self, source: Any, target: Any) -> Any:
        return np.moveaxis(self, source, target)

    def unsqueeze(self, at: int) -> Any:
        return np.expand_dims(self, at)

    def as_strided(self, shape: Any, strides: Any) -> Any:
        return np.lib.stride_tricks.as_strided(self, shape, [s * self.itemsize for s in strides], subok=True)

    def transpose(self, *axes: int) -> Any:  # type: ignore[override]
        return np.swapaxes(np.asarray(self), *axes).view(Tensor) if len(axes) == 2 else np.asarray(self).transpose(*axes).view(Tensor)

    def detach(self) -> Any:
        return self

    def double(self) -> Any:
        return self.astype(np.float64)

    def contiguous(self) -> Any:
        return np.ascontiguousarray(self).view(Tensor)


def sdpa(q: Any, k: Any, v: Any, is_causal: bool, enable_gqa: bool) -> Any:
    """On [batch, head, sequence, dim], in float64."""
    assert q.ndim == 4 and enable_gqa == (q.shape[1] != k.shape[1])
    flipped = (np.swapaxes(x, 1, 2).astype(np.float64) for x in (q, k, v))
    return np.swapaxes(attention(*flipped, is_causal), 1, 2).view(Tensor)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch, cupy: Any) -> Any:  # noqa: F811
    module, nn, functional, backends = (types.ModuleType(n) for n in ("torch", "torch.nn", "torch.nn.functional", "torch.nn.attention"))
    module.from_dlpack = lambda a: a.view(Tensor)  # type: ignore[attr-defined]
    module.float16, module.bfloat16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)  # type: ignore[attr-defined]
    module.matmul = lambda a, b, out=None: np.matmul(a.astype(np.float64), b.astype(np.float64)).view(Tensor)  # type: ignore[attr-defined]
    module.empty_like = np.empty_like  # type: ignore[attr-defined]
    functional.scaled_dot_product_attention = sdpa  # type: ignore[attr-defined]
    backends.SDPBackend = types.SimpleNamespace(CUDNN_ATTENTION=1)  # type: ignore[attr-defined]
    backends.sdpa_kernel = lambda kinds: contextlib.nullcontext()  # type: ignore[attr-defined]
    module.nn, nn.functional, nn.attention = nn, functional, backends  # type: ignore[attr-defined]
    for m in (module, nn, functional, backends):
        monkeypatch.setitem(sys.modules, m.__name__, m)
    cupy.from_dlpack = lambda t: np.asarray(t)
    cupy.empty_like = np.empty_like
    return module


def contender(cupy: Any, bound: Bound, name: str, result: Any) -> Contender:  # noqa: F811
    """A kernel that puts `result` into the tensor `name`, on two sets of buffers."""
    sets = [{n: upload(cupy, a) for n, a in bound.arrays.items()} for _ in range(2)]

    def call(arrays: Any) -> None:
        arrays[name].view(bound.arrays[name].dtype)[...] = np.ascontiguousarray(result).astype(bound.arrays[name].dtype).reshape(-1)

    return Contender([lambda s=s: call(s) for s in sets], sets)


def plan(*names: str) -> Any:
    return types.SimpleNamespace(symbol="kernel", kernel=types.SimpleNamespace(params=[types.SimpleNamespace(name=n) for n in names]), written=())


@pytest.mark.parametrize("order", ["bshd", "bhsd"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["torch", "cudnn"])
def test_attention(torch: Any, cupy: Any, order: str, causal: bool, name: str) -> None:  # noqa: F811
    rng = np.random.default_rng()
    q, k, v = (rng.standard_normal((B, S, n, D)).astype(np.float16) for n in (H, KV, KV))
    want = attention(*(x.astype(np.float64) for x in (q, k, v)), causal)
    axes = [("bshd").index(c) for c in order]
    arrays = {n: np.ascontiguousarray(np.transpose(x, axes)) for n, x in zip("QKVO", (q, k, v, np.zeros_like(q)), strict=True)}
    bound = Bound(arrays, {}, {})
    problem = Attention("Q", "K", "V", "O", order.index("s"), order.index("h"), B * H, S, S, D, "float16", "float32", causal)
    gpu, ours = Gpu(), contender(cupy, bound, "O", np.transpose(want, axes))
    peer = peers.find(cupy, name, problem, ours, plan(*"QKVO"), bound)
    assert len(peer.calls) == 2 and gpu.apart(peer, ours, bound, ["O"]) < 1e-3
    off = contender(cupy, bound, "O", np.transpose(want, axes) * 1.1)
    assert gpu.apart(peer, off, bound, ["O"]) == pytest.approx(0.1, rel=0.02)


def test_attention_of_three_dimensions(torch: Any, cupy: Any) -> None:  # noqa: F811
    rng = np.random.default_rng()
    q, k, v = (rng.standard_normal((H, S, D)).astype(np.float16) for _ in range(3))
    scores = q.astype(float) @ k.astype(float).transpose(0, 2, 1) / math.sqrt(D)
    weights = np.exp(scores)
    want = weights @ v.astype(float) / weights.sum(-1, keepdims=True)
    bound = Bound({"Q": q, "K": k, "V": v, "O": np.zeros_like(q)}, {}, {})
    ours = contender(cupy, bound, "O", want)
    peer = peers.find(cupy, "torch", Attention("Q", "K", "V", "O", 1, 0, H, S, S, D, "float16", "float32"), ours, plan(*"QKVO"), bound)
    assert Gpu().apart(peer, ours, bound, ["O"]) < 1e-3


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)], ids=str)
def test_a_batch_of_products(torch: Any, cupy: Any, dtype: Any) -> None:  # noqa: F811
    rng = np.random.default_rng()
    a, b = rng.standard_normal((3, 6, 5)).astype(dtype), rng.standard_normal((3, 7, 6)).astype(dtype)
    want = np.swapaxes(a.astype(float), 1, 2) @ np.swapaxes(b.astype(float), 1, 2)
    bound = Bound({"A": a, "B": b, "C": np.zeros((3, 5, 7), dtype)}, {}, {})
    ours = contender(cupy, bound, "C", want)
    peer = peers.find(cupy, "cublas", Product("A", "B", "C", 3, 5, 7, 6, True, True, dtype.name, dtype.name, "float32"), ours, plan(*"ABC"), bound)
    assert Gpu().apart(peer, ours, bound, ["C"]) < 1e-2


def test_expressions(torch: Any, cupy: Any) -> None:  # noqa: F811
    bound = Bound({"X": np.arange(6, dtype=np.float16), "Y": np.zeros(6, np.float16)}, {"f": 2.0}, {"N": 6})
    ours = contender(cupy, bound, "Y", np.arange(6) * 2.0 + 6)
    find = lambda text: peers.find(cupy, f"torch:{text}", None, ours, plan("X", "Y"), bound)  # noqa: E731
    assert Gpu().apart(find("X * f + N"), ours, bound, ["Y"]) == 0
    assert Gpu().apart(find("X * f"), ours, bound, ["Y"]) > 0.1
    assert Gpu().apart(find("X[:3]"), ours, bound, ["Y"]) == math.inf
    for wrong, words in (("X * nothing", "NameError"), ("X +", "syntax"), ("X @ torch", "Error")):
        with pytest.raises(RunError, match=words):
            find(wrong)


def test_peers_that_do_not_fit(torch: Any, cupy: Any, tmp_path: Path) -> None:  # noqa: F811
    bound = Bound({"X": np.zeros(6, np.float16)}, {}, {})
    ours = contender(cupy, bound, "X", np.zeros(6))
    for name in ("cublas", "torch", "cudnn", str(tmp_path / "none.cu")):
        with pytest.raises(RunError, match=r"no plain|no GEMM|no attention|No such"):
            peers.find(cupy, name, None, ours, plan("X"), bound)
