"""Arrays and libraries that look like those on a GPU, and the driver of fake_cuda.cpp.

    stand_in = StandIn(...); kernel(Interface(0x1000, (4, 8), "<f4")); stand_in.log() -> ["launch scale device 0 grid 1 1 1 ..."]
"""

from __future__ import annotations

import ctypes
import math
import types
from typing import Any

import numpy as np


class StandIn:
    """The fake driver library."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.library.fake_log.restype = ctypes.c_char_p

    def log(self) -> list[str]:
        """What has been asked of the driver since the last time."""
        return self.library.fake_log().decode().splitlines()

    def arguments(self, count: int) -> None:
        """How many arguments the next launches have."""
        self.library.fake_arguments(count)

    @property
    def loaded(self) -> int:
        """How many modules are loaded now."""
        return self.library.fake_loaded()


class Interface:
    """An array that has only `__cuda_array_interface__`."""

    def __init__(self, address: int, shape: tuple[int, ...], typestr: str, strides: tuple[int, ...] | None = None, read_only: bool = False,
                 stream: int | None = None) -> None:  # fmt: skip
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": typestr, "data": (address, read_only), "strides": strides, "version": 3, "stream": stream,
        }  # fmt: skip


class Tensor:
    """What a torch tensor has, as far as a kernel asks."""

    def __init__(self, address: int, shape: tuple[int, ...], dtype: str, device: int = 0, strides: tuple[int, ...] | None = None) -> None:
        self.address, self.shape, self.dtype, self.device = address, shape, TorchType(dtype), device
        self.strides = strides if strides is not None else tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))

    def data_ptr(self) -> int:
        return self.address

    def stride(self) -> tuple[int, ...]:
        return self.strides

    def get_device(self) -> int:
        return self.device


class TorchType(str):
    """A torch dtype: equal by name, printed with the module in front."""

    def __str__(self) -> str:
        return f"torch.{str.__str__(self)}"



def fake_torch(stream: int = 0) -> Any:
    """Stands for torch: allocates at round addresses, and has a current stream."""
    made: list[tuple[Any, ...]] = []

    entered = [""]

    class Entered(_Within):
        """The stream that allocations belong to meanwhile."""

        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> Entered:
            entered.append(self.name)
            return self

        def __exit__(self, *_: object) -> None:
            entered.pop()

    def empty(shape: tuple[int, ...], dtype: TorchType, device: int) -> Tensor:
        made.append((shape, str.__str__(dtype), device, *filter(None, entered[-1:])))
        return Tensor(0x10000 * len(made), tuple(shape), str.__str__(dtype), device)

    names = ("bool", "int8", "int32", "int64", "uint8", "float16", "bfloat16", "float32", "float64", "float8_e4m3fn")
    current = types.SimpleNamespace(cuda_stream=stream)
    cuda = types.SimpleNamespace(
        current_stream=lambda device: current, stream=Entered, default_stream=lambda device: "default",
        ExternalStream=lambda number, device: f"stream {number}",
    )  # fmt: skip
    return types.SimpleNamespace(made=made, empty=empty, device=lambda kind, index: index, cuda=cuda, **{n: TorchType(n) for n in names})


class CupyArray:
    """What a CuPy array has, as far as a kernel asks."""

    def __init__(self, address: int, shape: tuple[int, ...], dtype: str, strides: tuple[int, ...] | None = None, device: int = 0) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        dense = tuple(math.prod(shape[i + 1 :]) * self.dtype.itemsize for i in range(len(shape)))
        self.strides = dense if strides is None else strides
        self.data = types.SimpleNamespace(ptr=address, device_id=device)


CupyArray.__module__ = "cupy"


class _Within:
    """A context manager that does nothing."""

    def __enter__(self) -> _Within:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def fake_cupy(stream: int = 0, device: int = 0) -> Any:
    """Stands for CuPy: allocates at round addresses, and has a current stream and a current device."""
    made: list[tuple[Any, ...]] = []

    def empty(shape: tuple[int, ...], dtype: str) -> CupyArray:
        made.append((shape, dtype))
        return CupyArray(0x100000 * len(made), tuple(shape), dtype)

    current = types.SimpleNamespace(ptr=stream)
    cuda = types.SimpleNamespace(
        get_current_stream=lambda device=-1: current, Device=lambda d: _Within(), ExternalStream=lambda p, d=0: _Within(),
        Stream=types.SimpleNamespace(null=_Within()), runtime=types.SimpleNamespace(getDevice=lambda: device),
    )  # fmt: skip
    return types.SimpleNamespace(made=made, empty=empty, cuda=cuda)


class Exporter:
    """An array that has only DLPack: NumPy's capsule of a host array, whose device says GPU."""

    def __init__(self, host: np.ndarray[Any, Any], device: int = 0, versioned: bool = True, on_host: bool = False) -> None:
        self.host, self.device, self.versioned, self.on_host = host, device, versioned, on_host
        self.streams: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1 if self.on_host else 2), self.device

    def __dlpack__(self, *, stream: int, **options: Any) -> Any:
        if options and not self.versioned:
            raise TypeError("no max_version")
        self.streams.append(stream)
        capsule = self.host.__dlpack__(**options)
        pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
        pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        at = pointer_of(capsule, b"dltensor_versioned" if options else b"dltensor") + (32 if options else 0)
        ctypes.c_int32.from_address(at + 8).value = 2
        ctypes.c_int32.from_address(at + 12).value = self.device
        return capsule
