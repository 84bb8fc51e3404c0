"""The arrays of other libraries, as a kernel sees them: where they lie and what they hold. Nothing is copied.

    view("A", cupy_array) -> View(address=0x7f..., shape=(128, 64), strides=(64, 1), dtype="float16", device=0, ...)

Torch tensors, CuPy arrays, and anything with DLPack or `__cuda_array_interface__`. No array library is imported here: an array
that is passed has brought its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tilec.record import record
from tilec.runtime import dlpack
from tilec.runtime.driver_api import driver
from tilec.runtime.numbers import ArgumentError
from tilec.runtime.request import MissingError

Reading = tuple[int, Any]
"""An address, and a key: everything else that a plan depends on, hashable."""

_INTERFACE_KINDS = {"f": "float", "i": "int", "u": "uint", "b": "bool"}


@record
class View:
    """An array on a device; strides in elements, `dtype` as tilec spells it. `owner` keeps borrowed memory alive."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: int
    read_only: bool = False
    owner: Any = None


def is_torch(array: Any) -> bool:
    """Whether this is a torch tensor, of whatever subclass."""
    return hasattr(array, "data_ptr") and hasattr(array, "get_device")


def is_cupy(array: Any) -> bool:
    """Whether this is a CuPy array, of whatever subclass."""
    return type(array).__module__.partition(".")[0] == "cupy" and hasattr(array, "data")


def reader(array: Any) -> Callable[[Any], Reading] | None:
    """A fast way to the address and the key of arrays of this type, None for types that must be asked at length each time."""
    if is_torch(array):
        return _read_torch
    return _read_cupy if is_cupy(array) else None


def _read_torch(a: Any) -> Reading:
    return a.data_ptr(), (a.shape, a.stride(), a.dtype, a.get_device())


def _read_cupy(a: Any) -> Reading:
    memory = a.data
    return memory.ptr, (a.shape, a.strides, a.dtype, memory.device_id)


def view(name: str, array: Any, stream: int = 0) -> View:
    """What there is to know about an array. `stream` is where it will be used: producers with streams of their own are told.

    Raises ArgumentError, which names the parameter, for anything that is no array on a GPU.
    """
    if is_torch(array):
        return _view_torch(name, array)
    if is_cupy(array):
        size, memory = array.dtype.itemsize, array.data
        return View(memory.ptr, array.shape, tuple(s // size for s in array.strides), array.dtype.name, memory.device_id)
    if hasattr(array, "__cuda_array_interface__"):
        return _view_interface(name, array, stream)
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _view_dlpack(name, array, stream)
    raise ArgumentError(f"`{name}` is a tensor on the GPU; a {type(array).__name__} was given")


def _on_the_host(name: str, array: Any) -> ArgumentError:
    return ArgumentError(f"`{name}` lies in host memory ({type(array).__module__}.{type(array).__name__}); move it to the GPU first")


def _view_torch(name: str, a: Any) -> View:
    if a.get_device() < 0:
        raise _on_the_host(name, a)
    dtype = str(a.dtype).removeprefix("torch.")
    return View(a.data_ptr(), tuple(a.shape), tuple(a.stride()), dtype, a.get_device())


def _view_interface(name: str, array: Any, stream: int) -> View:
    told = array.__cuda_array_interface__
    address, read_only = told["data"]
    shape, typestr = tuple(told["shape"]), told["typestr"]
    if told.get("mask") is not None:
        raise ArgumentError(f"`{name}` has a mask, which kernels do not have")
    order, kind, size = typestr[0], typestr[1], int(typestr[2:])
    word = _INTERFACE_KINDS.get(kind, "") if order in "<|=" else ""
    dtype = word if word == "bool" else f"{word}{8 * size}" if word else typestr
    given = told.get("strides")
    strides = dlpack.dense_strides(shape) if given is None else tuple(s // size for s in given)
    gpu = driver()
    device = gpu.device_of(address) if address else gpu.current_device()
    producer = told.get("stream")
    if producer is not None and producer != stream:
        gpu.synchronize(device, producer)
    return View(address, shape, strides, dtype, device, bool(read_only), array)


def _view_dlpack(name: str, array: Any, stream: int) -> View:
    if int(array.__dlpack_device__()[0]) not in (dlpack.CUDA, dlpack.CUDA_MANAGED):
        raise _on_the_host(name, array)
    number = stream or 1  # DLPack's name for the default stream
    try:
        capsule = array.__dlpack__(stream=number, max_version=(1, 0))
    except TypeError:  # a producer from before versions
        capsule = array.__dlpack__(stream=number)
    t = dlpack.read(capsule)
    return View(t.address, t.shape, t.strides, t.dtype or "a type that kernels do not have", t.device, t.read_only, capsule)


def stream_source(arrays: list[Any], device: int) -> Callable[[], int]:
    """What tells the stream that the library of these arrays uses now: torch's where a tensor is among them, else CuPy's."""
    if any(map(is_torch, arrays)):
        return _torch_stream(device)
    if any(map(is_cupy, arrays)) or "cupy" in sys.modules:
        current = sys.modules["cupy"].cuda.get_current_stream
        return lambda: int(current(device).ptr)
    return _torch_stream(device) if "torch" in sys.modules else int


def _torch_stream(device: int) -> Callable[[], int]:
    torch = sys.modules["torch"]
    raw = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)  # what torch's own compiler calls, ten times faster
    if raw is not None:
        return lambda: int(raw(device))
    return lambda: int(torch.cuda.current_stream(device).cuda_stream)


def stream_number(stream: Any) -> int:
    """The CUstream of what a caller gives: a number, a CuPy or torch stream, or anything with `__cuda_stream__`."""
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        told = stream.__cuda_stream__
        return int((told() if callable(told) else told)[1])
    for attribute in ("ptr", "cuda_stream", "handle"):
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    raise ArgumentError(f"`stream` is a CUDA stream; a {type(stream).__name__} was given")


class Allocator:
    """Makes arrays on one device in the library that the caller uses, and on the caller's stream.

    Raises MissingError when neither torch nor CuPy is there.
    """

    def __init__(self, like: list[Any], device: int) -> None:
        self.device = device
        self.torch: Any = None
        self.cupy: Any = None
        self._torch_device: Any = None
        if any(map(is_torch, like)):
            self.torch = sys.modules["torch"]
            return
        try:
            import cupy

            self.cupy = cupy
        except ImportError:
            self.torch = sys.modules.get("torch")
        if self.cupy is None and self.torch is None:
            raise MissingError("results are made by torch or CuPy, and neither is here: pip install 'tilec[cuda13]', or pass the outputs")

    def empty(self, shape: tuple[int, ...], dtype: str, stream: int | None) -> Any:
        """An array without contents; `stream` is the one that was given, None for the library's current one."""
        if self.torch is not None:
            return self._torch_empty(shape, dtype, stream)
        if stream is None and self.cupy.cuda.runtime.getDevice() == self.device:
            return self.cupy.empty(shape, self._cupy_type(dtype))
        with self.cupy.cuda.Device(self.device):
            if stream is None:
                return self.cupy.empty(shape, self._cupy_type(dtype))
            with self.cupy.cuda.ExternalStream(stream, self.device) if stream else self.cupy.cuda.Stream.null:
                return self.cupy.empty(shape, self._cupy_type(dtype))

    def address(self, array: Any) -> int:
        """Where an array made here lies."""
        return int(array.data_ptr() if self.torch is not None else array.data.ptr)

    def _torch_empty(self, shape: tuple[int, ...], dtype: str, stream: int | None) -> Any:
        torch = self.torch
        kind = getattr(torch, dtype)
        if self._torch_device is None:
            self._torch_device = torch.device("cuda", self.device)
        device = self._torch_device
        if stream is None:
            return torch.empty(shape, dtype=kind, device=device)
        # torch takes an external stream of number 0 for a request of a new one
        given = torch.cuda.ExternalStream(stream, device=device) if stream else torch.cuda.default_stream(device)
        with torch.cuda.stream(given):
            return torch.empty(shape, dtype=kind, device=device)

    def _cupy_type(self, dtype: str) -> Any:
        """CuPy's type; a type that it lacks becomes an unsigned integer of the same width."""
        bits = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}
        if dtype in bits:
            return bits[dtype]
        return "float32" if dtype == "tfloat32" else dtype


def describe(shape: tuple[int, ...]) -> str:
    """A shape for a message: 128x64, or `scalar`."""
    return "x".join(map(str, shape)) if shape else "no dimensions"
