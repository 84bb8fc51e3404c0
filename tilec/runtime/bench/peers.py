"""The peers of a kernel on a GPU: cuBLAS, torch's attention, an expression in torch, or another generated file.

    find(cupy, "cublas", product, ours, plan, bound) -> Contender

All work on the buffers of our own contender (the peer's result goes elsewhere), so both read the same numbers. torch and CuPy
share the device's default stream.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.emit.manifest import parse
from tilec.ir.expr import Buffer
from tilec.runtime.bench.machine import Contender
from tilec.runtime.bench.problems import Attention, Problem, Product
from tilec.runtime.bind import Array, Bound
from tilec.runtime.cuda import arguments_of
from tilec.runtime.loader import Module, PreparedLaunch, Refused
from tilec.runtime.request import MissingError, RunError
from tilec.runtime.timing import Problem as Gemm
from tilec.runtime.timing import cublas_call

if TYPE_CHECKING:
    from tilec.plan.plan import Plan

_NARROW = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def queue(launches: Sequence[PreparedLaunch]) -> None:
    """Queues all launches of a kernel."""
    for launch in launches:
        launch()


def as_double(cupy: Any, raw: Any, like: Array) -> Any:
    """A tensor on the device, of the type and shape of `like`, in float64."""
    if like.dtype.name == "bfloat16":
        return (_view(raw, np.dtype(np.uint16), like).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if like.dtype.name in _NARROW:
        table = cupy.asarray(np.arange(256, dtype=np.uint8).view(like.dtype).astype(np.float64))
        return table[_view(raw, np.dtype(np.uint8), like)]
    return _view(raw, like.dtype, like).astype(np.float64)


def _view(raw: Any, dtype: np.dtype[Any], like: Array) -> Any:
    """The bytes as an array with the strides of `like`."""
    flat = raw.view(dtype)
    if like.flags.c_contiguous:
        return flat.reshape(like.shape)
    from cupy.lib.stride_tricks import as_strided

    return as_strided(flat, like.shape, like.strides)


def find(cupy: Any, name: str, problem: Problem | None, ours: Contender, plan: Plan, bound: Bound) -> Contender:
    """The peer of this name on every set of our buffers. Raises MissingError without its library, RunError where it does not fit."""
    if name == "cublas":
        if not isinstance(problem, Product):
            raise RunError(f"{plan.symbol} is no plain matrix product: cuBLAS has nothing to run beside it")
        return _cublas(cupy, problem, ours, bound)
    if name in ("torch", "cudnn"):
        if problem is None or (name == "cudnn" and not isinstance(problem, Attention)):
            raise RunError(f"{plan.symbol} is no {'attention' if name == 'cudnn' else 'GEMM or attention'}: give --against torch:EXPR")
        tensors = [torch_tensors(arrays, bound) for arrays in ours.sets]
        if isinstance(problem, Attention):
            return _started([_attention(problem, t, name == "cudnn") for t in tensors], name)
        return _started([_matmul(problem, t) for t in tensors], name)
    if name.startswith("torch:"):
        return _started([expression(name[6:], torch_tensors(arrays, bound), bound) for arrays in ours.sets], name)
    return other(cupy, Path(name), plan, ours, bound)


def _started(calls: Sequence[Callable[[], object]], name: str) -> Contender:
    """The peer once it has run; what it raises becomes a RunError."""
    try:
        calls[0]()
    except Exception as fault:  # whatever torch or an expression raises
        raise RunError(f"--against {name}: {type(fault).__name__}: {str(fault)[:300]}") from None
    return Contender(calls)


def _cublas(cupy: Any, p: Product, ours: Contender, bound: Bound) -> Contender:
    """gemmEx, or torch.bmm, which is cuBLAS too, for a batch."""
    gemm = Gemm(p.m, p.n, p.k, p.trans_a, p.trans_b, p.operand, p.result, p.accumulator)
    if not gemm.known_to_cublas:
        raise RunError(f"cuBLAS is not called for {p.operand} operands and {p.accumulator} accumulators here")
    if p.batch > 1:
        return _started([_matmul(p, torch_tensors(arrays, bound)) for arrays in ours.sets], "cublas")
    outs = [{p.c: cupy.empty_like(arrays[p.c])} for arrays in ours.sets]
    calls = [cublas_call(cupy, gemm, s[p.a], s[p.b], out[p.c]) for s, out in zip(ours.sets, outs, strict=True)]
    return Contender(calls, outs)


def _matmul(p: Product, tensors: Mapping[str, Any]) -> Callable[[], object]:
    import torch

    a, b = (t.transpose(-1, -2) if flip else t for t, flip in ((tensors[p.a], p.trans_a), (tensors[p.b], p.trans_b)))
    return partial(torch.matmul, a, b, out=torch.empty_like(tensors[p.c])) if a.dtype == tensors[p.c].dtype else partial(torch.matmul, a, b)


def _attention(p: Attention, tensors: Mapping[str, Any], cudnn: bool) -> Callable[[], object]:
    """torch's scaled_dot_product_attention on views with the heads in front of the sequence; the result lies as O does."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (t.movedim((p.head, p.axis), (-3, -2)) for t in (tensors[p.q], tensors[p.k], tensors[p.v]))
    q, k, v = (t if t.ndim == 4 else t.unsqueeze(0) for t in (q, k, v))
    attend = partial(torch.nn.functional.scaled_dot_product_attention, q, k, v, is_causal=p.causal, enable_gqa=q.shape[1] != k.shape[1])
    single = tensors[p.q].ndim == 3

    def call() -> object:
        if not cudnn:
            out = attend()
        else:
            with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
                out = attend()
        return (out.squeeze(0) if single else out).movedim((-3, -2), (p.head, p.axis))

    return call


def torch_tensors(arrays: Mapping[str, Any], bound: Bound) -> dict[str, Any]:
    """Our buffers as torch tensors, without a copy. Raises MissingError without torch."""
    try:
        import torch
    except ImportError as fault:
        raise MissingError(f"torch is not here ({fault}): pip install torch, or choose another --against") from None
    out = {}
    for name, like in bound.arrays.items():
        dtype = getattr(torch, like.dtype.name if like.dtype.name != "bool" else "bool")
        flat = torch.from_dlpack(arrays[name]).view(dtype)
        strides = [s // like.itemsize for s in like.strides]
        out[name] = flat.as_strided(like.shape, strides)
    return out


def expression(text: str, tensors: Mapping[str, Any], bound: Bound) -> Callable[[], object]:
    """A Python expression over the kernel's tensors and numbers by name, with torch, F (torch.nn.functional) and math."""
    import torch

    try:
        code = compile(text, "--against", "eval")
    except SyntaxError as fault:
        raise RunError(f"--against torch:{text}: {fault.msg}") from None
    names = {"torch": torch, "F": torch.nn.functional, "math": math, **bound.scalars, **bound.extents, **tensors}
    return partial(eval, code, names)  # the expression stands on the command line of the person who runs it


def results(cupy: Any, peer: Contender, bound: Bound, written: Sequence[str]) -> dict[str, Any]:
    """What the peer gives for our outputs, in float64: from its own buffers, or the tensors that it returns."""
    returned = peer.calls[0]()
    found = {n: as_double(cupy, peer.arrays[n], bound.arrays[n]) for n in written if n in peer.arrays}
    if found or returned is None:
        return found
    given = returned if isinstance(returned, tuple | list) else (returned,)
    doubles = (cupy.from_dlpack(t.detach().double().contiguous()) for t in given)
    return dict(zip(written, doubles, strict=False))


def other(cupy: Any, file: Path, plan: Plan, ours: Contender, bound: Bound) -> Contender:
    """Another generated .cu on our inputs and outputs of its own; a .py was compiled before."""
    try:
        text = file.read_text(encoding="utf-8")
        manifest = parse(text)
    except (OSError, ValueError) as fault:
        raise RunError(f"--against {file}: {fault}") from None
    wanted = [p.name for p in plan.kernel.params]
    fitting = [k for k in manifest["kernels"] if [p["name"] for p in k["params"]] == wanted]
    if len(fitting) != 1:
        raise RunError(f"--against {file}: {len(fitting)} kernels in it have the parameters {', '.join(wanted)}; one must")
    tensors = {p.name for p in plan.kernel.params if isinstance(p, Buffer)}
    written = {b.name for b in plan.written} & tensors
    sets = [{n: cupy.array(a) if n in written else a for n, a in arrays.items()} for arrays in ours.sets]
    try:
        kernel = Module(text, manifest).kernel(fitting[0]["symbol"])
        launches = [kernel.prepare(arrays, arguments_of(bound)) for arrays in sets]
    except (Refused, KeyError) as fault:
        raise RunError(f"--against {file}: refused the call: {fault}") from None
    return Contender([partial(queue, found) for found in launches], sets)
