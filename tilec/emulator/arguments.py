"""The arguments of a launcher, from its manifest and the caller's values: in the order of its C signature.

    bind(kernel, {"A": np.zeros((4, 8), np.float16), "n": 3}) -> [Array("A", ...), Scalar("n", b"\\x03\\0\\0\\0")]
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilec.record import record
from tilec.emit.hosteval import evaluate

Value: TypeAlias = "npt.NDArray[Any] | int | float"

ITEM_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "tfloat32": 4, "int64": 8, "uint64": 8, "float64": 8,
}  # fmt: skip
"""Bytes an element of each type takes, by the manifest's names."""


@record
class Array:
    """A tensor argument: the caller's array and, for tensors that are not dense, the strides in elements."""

    name: str
    role: str  # in, out, inout
    shown: str  # for reports: float16[64, 64]
    array: npt.NDArray[Any] = field(repr=False)
    strides: tuple[int, ...] | None

    @property
    def nbytes(self) -> int:
        """Bytes from the tensor's first element to the end of its last."""
        if self.strides is None or self.array.size == 0:
            return int(self.array.nbytes)
        elements = sum((n - 1) * s for n, s in zip(self.array.shape, self.strides, strict=True)) + 1
        return int(elements * self.array.dtype.itemsize)

    def contents(self) -> bytes:
        """The tensor as it lies in device memory; gaps between rows hold 0xff."""
        if self.strides is None:
            return np.ascontiguousarray(self.array).tobytes()
        raw = np.full(self.nbytes, 0xFF, np.uint8)
        self._view(raw)[...] = _bits(self.array)
        return raw.tobytes()

    def update(self, contents: bytes) -> None:
        """Writes what lies in device memory back into the caller's array."""
        raw = np.frombuffer(contents, np.uint8)
        self.array[...] = self._view(raw).view(self.array.dtype)

    def _view(self, raw: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        item = self.array.dtype.itemsize
        flat = raw.view(np.dtype(f"u{item}"))
        if self.strides is None:
            return flat.reshape(self.array.shape)
        return np.lib.stride_tricks.as_strided(flat, self.array.shape, [s * item for s in self.strides])


@record
class Scalar:
    """An argument by value: its bytes."""

    name: str
    data: bytes


@record
class Workspace:
    """The scratch memory that the launcher asks for."""

    nbytes: int


Argument: TypeAlias = Array | Scalar | Workspace


def bind(kernel: Mapping[str, Any], values: Mapping[str, Value]) -> list[Argument]:
    """The arguments of the kernel's launcher, the stream left out. ValueError for a value that is missing or does not fit."""
    extents = [_extent(e) for e in kernel.get("extents", ())]
    params = kernel["params"]
    unknown = set(values) - {p["name"] for p in params} - {name for name, _ in extents}
    if unknown:
        raise ValueError(f"{kernel['symbol']} has no parameter {', '.join(sorted(unknown))}")
    env = _environment(params, values)
    arguments: list[Argument] = []
    for param in params:
        name, dtype = param["name"], _dtype(param["dtype"])
        if param["role"] == "scalar":
            arguments.append(Scalar(name, _scalar_bytes(name, dtype, _need(values, name))))
        else:
            arguments.append(_array(param, dtype, values, env))
    for name, dtype in extents:
        if name not in env:
            raise ValueError(f"the extent {name} has no value and no array's shape gives it")
        arguments.append(Scalar(name, _scalar_bytes(name, dtype, env[name])))
    if str(kernel.get("workspace", "0")) != "0":
        arguments.append(Workspace(evaluate(str(kernel["workspace"]), env)))
    return arguments


def _environment(params: list[Mapping[str, Any]], values: Mapping[str, Value]) -> dict[str, int]:
    """Integer scalars and extents by name: those given, and those that are a dimension or a stride of a given array."""
    env = {name: int(value) for name, value in values.items() if isinstance(value, int | np.integer)}
    for param in params:
        array = values.get(param["name"])
        if param["role"] == "scalar" or not isinstance(array, np.ndarray):
            continue
        for text, extent in zip(param["shape"], array.shape, strict=False):
            if str(text).isidentifier():
                env.setdefault(str(text), extent)
        for text, step in zip(param.get("strides", ()), array.strides, strict=False):
            if str(text).isidentifier():
                env.setdefault(str(text), step // array.dtype.itemsize)
    return env


def _array(param: Mapping[str, Any], dtype: str, values: Mapping[str, Value], env: Mapping[str, int]) -> Array:
    name = param["name"]
    array = _need(values, name)
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{name} is a tensor: give an array, not {array!r}")
    if array.dtype.itemsize != ITEM_BYTES[dtype]:
        raise ValueError(f"{name} is {dtype}, {ITEM_BYTES[dtype]} bytes an element, but the array is {array.dtype}")
    shape = tuple(evaluate(str(text), env) for text in param["shape"])
    if array.shape != shape:
        raise ValueError(f"{name} has the shape {shape}, but the array {array.shape}")
    strides = tuple(evaluate(str(text), env) for text in param["strides"]) if "strides" in param else None
    return Array(name, param["role"], f"{dtype}[{', '.join(map(str, shape))}]", array, strides)


def _scalar_bytes(name: str, dtype: str, value: Value) -> bytes:
    if isinstance(value, np.ndarray):
        raise ValueError(f"{name} is a scalar: give a number, not an array")
    if "float" in dtype:
        return _float_bytes(dtype, float(value))
    signed = dtype.startswith("int")
    bits = 1 if dtype == "bool" else ITEM_BYTES[dtype] * 8 - signed
    if int(value) != value or not -(1 << bits) * signed <= value < 1 << bits:
        raise ValueError(f"{name} = {value} is no {dtype}")
    return int(value).to_bytes(ITEM_BYTES[dtype], "little", signed=signed)


def _float_bytes(dtype: str, value: float) -> bytes:
    native = {"float16": np.float16, "float32": np.float32, "tfloat32": np.float32, "float64": np.float64}
    if dtype in native:
        return bytes(np.array(value, native[dtype]).tobytes())
    import ml_dtypes  # only for the narrow formats, which NumPy itself does not have

    return bytes(np.array(value, np.dtype(getattr(ml_dtypes, dtype))).tobytes())


def _extent(entry: Any) -> tuple[str, str]:
    return (entry, "int32") if isinstance(entry, str) else (entry["name"], _dtype(entry.get("dtype", "int32")))


def _dtype(name: str) -> str:
    if name not in ITEM_BYTES:
        raise ValueError(f"the manifest names an unknown type {name!r}")
    return name


def _need(values: Mapping[str, Value], name: str) -> Value:
    if name not in values:
        raise ValueError(f"no value for the parameter {name}")
    return values[name]


def _bits(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.ascontiguousarray(array).view(np.dtype(f"u{array.dtype.itemsize}"))
