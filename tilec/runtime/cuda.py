"""`tilec run --device cuda`: the generated file on a GPU through CuPy, against the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.emit.manifest import parse
from tilec.runtime import report
from tilec.runtime.bind import Array, Bound, bind, restrided
from tilec.runtime.gpu import need_gpu
from tilec.runtime.loader import Module, Refused, as_bits
from tilec.runtime.report import Report
from tilec.runtime.request import RunError, RunRequest

if TYPE_CHECKING:
    from tilec.driver import Compiled


def run(compiled: Compiled, request: RunRequest) -> Report:
    """Runs the one kernel of `compiled` on the current device. Raises RunError, or MissingError without CuPy or a GPU."""
    cupy = need_gpu()
    plan = compiled.plans[0]
    bound = bind(plan.kernel, request)
    own = report.own_cuda(plan.kernel)
    want = report.reference(plan.kernel, bound) if request.check and not own else None
    arrays = {name: upload(cupy, a) for name, a in bound.arrays.items()}
    try:
        Module(compiled.cu, parse(compiled.cu)).kernel(plan.symbol)(arrays, {**bound.scalars, **bound.extents})
        cupy.cuda.runtime.deviceSynchronize()
    except Refused as fault:
        raise RunError(f"{plan.symbol} refused the call: {fault}") from None
    except cupy.cuda.runtime.CUDARuntimeError as fault:
        raise RunError(f"{plan.symbol} on the GPU: {fault}") from None
    got = {name: download(cupy, arrays[name], bound.arrays[name]) for name in arrays}
    device = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())["name"].decode()
    lines, faults = report.comparison(plan, bound, got, want) if want is not None else ([], [])
    if own and request.check:
        lines = [report.not_compared(own)]
    report.write_outputs(plan.kernel, request, got)
    return Report([report.title(plan.kernel, device, bound, request.seed), *lines], faults, not faults)


def upload(cupy: Any, array: Array) -> Any:
    """The memory of a host array on the device, gaps between its rows included, as bytes."""
    flat = restrided(array, array.strides)
    raw = flat.base if isinstance(flat.base, np.ndarray) else as_bits(np.ascontiguousarray(flat)).reshape(-1)
    return cupy.asarray(raw.view(np.uint8))


def download(cupy: Any, raw: Any, like: Array) -> Array:
    """What `upload` gave, in the type, shape and strides of `like`."""
    host = cupy.asnumpy(raw)
    if not like.size:
        return like.copy()
    return np.ndarray(like.shape, like.dtype, host, 0, like.strides)


def arguments_of(bound: Bound) -> dict[str, int | float]:
    """Every number of the call by name."""
    return {**bound.scalars, **bound.extents}
