"""The arguments of a run: tensors from files or at random, scalars and run-time extents from wherever they are known.

    bind(kernel, RunRequest(defines={"M": 128, "N": 128, "K": 32})) -> Bound(arrays={"A": ...}, scalars={}, extents={"M": 128, ...})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilec.record import record
from tilec.ir.dtypes import BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2, DType, Kind
from tilec.ir.expr import Buffer, Var, VarKind
from tilec.ir.kernel import Kernel
from tilec.reference.errors import InputError
from tilec.reference.extents import evaluate_extent, infer_extents
from tilec.reference.inputs import random_inputs
from tilec.reference.values import cast, np_dtype
from tilec.runtime.request import RunError, RunRequest

Array: TypeAlias = npt.NDArray[Any]

_AS_FLOAT32 = (BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2)


@record
class Bound:
    """All arguments by name: tensors of the parameters' types, scalar parameters, and extents that are not parameters."""

    arrays: dict[str, Array]
    scalars: dict[str, int | float]
    extents: dict[str, int]

    @property
    def integers(self) -> dict[str, int]:
        """What host expressions may name: extents and integer scalars."""
        return {**self.extents, **{n: int(v) for n, v in self.scalars.items() if isinstance(v, int)}}

    def copy(self) -> Bound:
        """The same arguments in arrays of their own, strides kept."""
        return Bound({n: restrided(a, a.strides) for n, a in self.arrays.items()}, self.scalars, self.extents)


def bind(kernel: Kernel, request: RunRequest) -> Bound:
    """Arguments for one run of `kernel`. Raises RunError for what is missing or does not fit."""
    tensors = {p.name: p for p in kernel.params if isinstance(p, Buffer)}
    scalars = {p.name: p for p in kernel.params if isinstance(p, Var)}
    extents = {v.name: v for v in kernel.extents}
    known = tensors.keys() | scalars.keys() | extents.keys()
    if unknown := sorted((request.inputs.keys() | request.outputs.keys()) - known):
        raise RunError(f"{kernel.symbol} has no parameter `{unknown[0]}`; it has {', '.join(sorted(known))}")
    if wrong := sorted(request.outputs.keys() - tensors.keys()):
        raise RunError(f"--out {wrong[0]}: that is no tensor")
    loaded = {name: _load(file, name) for name, file in request.inputs.items()}
    numbers = _numbers(kernel, request, loaded)
    try:
        given = {n: _typed(a, tensors[n]) for n, a in loaded.items() if n in tensors}
        strided = {n: _as_declared(tensors[n], a, _by_var(kernel, numbers)) for n, a in given.items()}
        solved = {v.name: value for v, value in infer_extents(kernel, strided, numbers).items()}
        values = {n: _scalar(p, numbers, solved) for n, p in scalars.items()}
        sizes = {n: solved[n] for n in extents}
        if negative := [n for n, v in sizes.items() if v < 0]:
            raise RunError(f"the extent `{negative[0]}` is negative: {sizes[negative[0]]}")
        whole = {**sizes, **{n: int(v) for n, v in values.items() if scalars[n].dtype.is_int}}
        arrays = {n: strided.get(n, a) for n, a in random_inputs(kernel, whole, request.seed).items()}
    except InputError as fault:
        raise RunError(str(fault)) from None
    env = _by_var(kernel, whole)
    return Bound({n: _as_declared(tensors[n], a, env) for n, a in arrays.items()}, values, sizes)


def storable(array: Array, dtype: DType) -> Array:
    """The array as a .npy file holds it: bf16 and fp8 as float32, dense."""
    return np.ascontiguousarray(array.astype(np.float32) if dtype in _AS_FLOAT32 else array).reshape(array.shape)


def restrided(array: Array, strides: tuple[int, ...]) -> Array:
    """A copy of `array` with these strides in bytes, in memory of its own; gaps are filled with 0xff."""
    if array.size == 0 or any(s < 0 for s in strides):
        return array.copy()
    last = sum((n - 1) * s for n, s in zip(array.shape, strides, strict=True))
    raw = np.full(last + array.itemsize, 0xFF, np.uint8)
    view: Array = np.ndarray(array.shape, array.dtype, raw, 0, strides)
    view[...] = array
    return view


def _by_var(kernel: Kernel, numbers: Mapping[str, int | float]) -> dict[Var, int]:
    names = (*kernel.extents, *(p for p in kernel.params if isinstance(p, Var)))
    return {v: int(numbers[v.name]) for v in names if v.name in numbers and v.dtype.is_int}


def _as_declared(tensor: Buffer, array: Array, known: Mapping[Var, int]) -> Array:
    """The array with the strides that the parameter declares, as far as they are known."""
    if tensor.strides is None or array.ndim != tensor.rank:
        return array
    strides = [evaluate_extent(e, known) for e in tensor.strides]
    if None in strides:
        return array
    return restrided(array, tuple((s or 0) * array.itemsize for s in strides))


def _load(file: str, name: str) -> Array:
    try:
        data = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as fault:
        reason = fault.strerror if isinstance(fault, OSError) and fault.strerror else "not a .npy file of numbers"
        raise RunError(f"--in {name}={file}: {reason}") from None
    if not isinstance(data, np.ndarray) or data.dtype.kind not in "biuf":
        raise RunError(f"--in {name}={file}: not a .npy file of numbers")
    return data


def _typed(array: Array, tensor: Buffer) -> Array:
    """The array in the parameter's type; strides are kept where the type is right already."""
    wanted = np_dtype(tensor.dtype)
    if array.ndim != tensor.rank:
        raise RunError(f"`{tensor.name}` has {tensor.rank} dimension{'s' * (tensor.rank != 1)}, the array given has {array.ndim}")
    if array.dtype == wanted:
        return array
    return np.asarray(cast(array, tensor.dtype)).astype(wanted)


def _numbers(kernel: Kernel, request: RunRequest, loaded: Mapping[str, Array]) -> dict[str, int | float]:
    """Scalars and extents that are given outright: by 0-d arrays, `-D` and the extents of `--arg`."""
    out: dict[str, int | float] = {}
    for p in kernel.params:
        if isinstance(p, Buffer) and p.name in request.args:
            shape = request.args[p.name][1]
            out |= {e.name: n for e, n in zip(p.shape, shape, strict=False) if isinstance(e, Var) and isinstance(n, int)}
    for v in (*(p for p in kernel.params if isinstance(p, Var)), *kernel.extents):
        if v.name in loaded:
            out[v.name] = _number(loaded[v.name], v)
        elif v.name in request.defines:
            out[v.name] = _number(np.asarray(request.defines[v.name]), v)
    return out


def _number(value: Array, v: Var) -> int | float:
    if value.size != 1 or value.dtype.kind not in "biuf":
        raise RunError(f"`{v.name}` is a scalar of type {v.dtype}: give one number")
    number = value.reshape(()).item()
    if v.dtype.is_float:
        return float(number)
    if v.dtype.kind is Kind.BOOL:
        return int(bool(number))
    if int(number) != number:
        raise RunError(f"`{v.name}` is an {v.dtype}: {number} is no integer")
    return int(number)


def _scalar(p: Var, numbers: Mapping[str, int | float], solved: Mapping[str, int]) -> int | float:
    found = numbers.get(p.name, solved.get(p.name))
    if found is None:
        kind = "size" if p.kind is VarKind.EXTENT else "scalar"
        raise RunError(f"the {kind} `{p.name}` has no value: give -D {p.name}=... or --in {p.name}=FILE.npy")
    return found
