"""The few functions of the CUDA driver that launching needs, by ctypes: no CuPy, no torch, no CUDA toolkit.

    gpu = driver();  module = gpu.load(0, cubin);  gpu.function(module, "matmul", shared_bytes=65536)

Memory is never allocated here: arrays come from the caller's own library. Work runs in the primary context of a device,
which is the one that the CUDA runtime, CuPy and torch use. TILEC_LIBCUDA names another library than libcuda.so.1.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from tilec.runtime.request import MissingError

MULTIPROCESSORS, MAJOR, MINOR = 16, 75, 76
_DYNAMIC_SHARED, _DEVICE_ORDINAL = 8, 9
_INVALID_IMAGE, _NO_BINARY = 200, 209


class GpuError(RuntimeError):
    """The driver refused something; the text has its name for the reason. `code` is the CUresult."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code

    @property
    def is_bad_image(self) -> bool:
        """Whether machine code could not be loaded, because it is damaged or meant for another architecture."""
        return self.code in (_INVALID_IMAGE, _NO_BINARY)


@cache
def driver() -> Driver:
    """The driver of this machine, initialised. Raises MissingError where there is none, or no GPU."""
    name = os.environ.get("TILEC_LIBCUDA") or ("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    try:
        library = ctypes.CDLL(name)
    except OSError as fault:
        raise MissingError(f"no NVIDIA driver: {fault}") from None
    found = Driver(library)
    if found.device_count == 0:
        raise MissingError("this machine has no GPU that CUDA sees")
    return found


class Driver:
    """An initialised driver library. Every method that fails raises GpuError.

    `launch` and `get_current` are the driver's cuLaunchKernelEx and cuCtxGetCurrent themselves, which every call of a kernel needs:
    they take ctypes objects and return a CUresult.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        try:
            self.launch = library.cuLaunchKernelEx
        except AttributeError:
            raise MissingError("the NVIDIA driver is older than CUDA 12: install a newer one") from None
        self.get_current = library.cuCtxGetCurrent
        self._contexts: dict[int, int] = {}
        try:
            self.call("cuInit", ctypes.c_uint(0))
        except GpuError as fault:
            raise MissingError(f"no GPU answers: {fault}") from None

    def call(self, name: str, *args: Any) -> None:
        """Calls a function of the driver; GpuError unless it succeeds."""
        self.check(int(getattr(self.library, name)(*args)), name)

    def check(self, result: int, what: str) -> None:
        """GpuError with the driver's own name for `result`, unless it is 0."""
        if result:
            text = ctypes.c_char_p()
            self.library.cuGetErrorName(ctypes.c_int(result), ctypes.byref(text))
            raise GpuError(f"{what}: {(text.value or b'an unknown error').decode()} ({result})", result)

    @property
    def version(self) -> tuple[int, int]:
        """The newest CUDA version that the driver serves, such as (13, 0)."""
        number = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(number))
        return number.value // 1000, number.value % 1000 // 10

    @property
    def device_count(self) -> int:
        """How many GPUs this process may use."""
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def device_name(self, device: int) -> str:
        """The product name of a GPU."""
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, ctypes.c_int(256), ctypes.c_int(device))
        return text.value.decode(errors="replace")

    def attribute(self, device: int, number: int) -> int:
        """A figure of a GPU; `number` is one of the constants of this module or of CUdevice_attribute."""
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(number), ctypes.c_int(device))
        return value.value

    def capability(self, device: int) -> int:
        """The compute capability as tilec writes it: 90 for 9.0."""
        return 10 * self.attribute(device, MAJOR) + self.attribute(device, MINOR)

    def current_device(self) -> int:
        """The device of the context that is current on this thread, 0 if there is none."""
        if not self.current_context():
            return 0
        device = ctypes.c_int()
        self.call("cuCtxGetDevice", ctypes.byref(device))
        return device.value

    def current_context(self) -> int:
        """The context that is current on this thread, 0 if there is none."""
        context = ctypes.c_void_p()
        self.check(self.get_current(ctypes.byref(context)), "cuCtxGetCurrent")
        return context.value or 0

    def context(self, device: int) -> int:
        """The primary context of a device, kept for the life of the process."""
        if device not in self._contexts:
            context = ctypes.c_void_p()
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(device))
            self._contexts[device] = context.value or 0
        return self._contexts[device]

    @contextmanager
    def on(self, device: int) -> Iterator[None]:
        """Makes the primary context of `device` current meanwhile."""
        self.call("cuCtxPushCurrent_v2", ctypes.c_void_p(self.context(device)))
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def load(self, device: int, image: bytes) -> int:
        """Machine code, ready on a device: a CUmodule."""
        module = ctypes.c_void_p()
        with self.on(device):
            self.call("cuModuleLoadData", ctypes.byref(module), image)
        return module.value or 0

    def unload(self, device: int, module: int) -> None:
        """Gives back what `load` took; a driver that has been shut down is no error."""
        try:
            with self.on(device):
                self.call("cuModuleUnload", ctypes.c_void_p(module))
        except GpuError:
            pass

    def function(self, device: int, module: int, symbol: str, shared_bytes: int) -> int:
        """A kernel of a loaded module, allowed to take `shared_bytes` of dynamic shared memory: a CUfunction."""
        function = ctypes.c_void_p()
        with self.on(device):
            self.call("cuModuleGetFunction", ctypes.byref(function), ctypes.c_void_p(module), symbol.encode())
            if shared_bytes > 48 * 1024:
                self.call("cuFuncSetAttribute", function, ctypes.c_int(_DYNAMIC_SHARED), ctypes.c_int(shared_bytes))
        return function.value or 0

    def device_of(self, address: int) -> int:
        """The device on which memory lies. Raises GpuError for memory that CUDA does not know."""
        ordinal = ctypes.c_int()
        self.call("cuPointerGetAttribute", ctypes.byref(ordinal), ctypes.c_int(_DEVICE_ORDINAL), ctypes.c_void_p(address))
        return ordinal.value

    def clear(self, address: int, size: int, stream: int) -> None:
        """Queues the zeroing of `size` bytes in the current context."""
        self.call("cuMemsetD8Async", ctypes.c_uint64(address), ctypes.c_ubyte(0), ctypes.c_size_t(size), ctypes.c_void_p(stream))

    def synchronize(self, device: int, stream: int) -> None:
        """Waits for everything queued on a stream."""
        with self.on(device):
            self.call("cuStreamSynchronize", ctypes.c_void_p(stream))
