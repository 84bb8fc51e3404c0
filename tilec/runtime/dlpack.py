"""Reads DLPack capsules without copying: what a producer such as JAX says about its array.

    tensor = read(array.__dlpack__(stream=1))  ->  Tensor(address=..., shape=(4, 8), strides=(8, 1), dtype="float16", ...)

The capsule is looked into and not consumed: its own destructor frees it, so it must be kept as long as the memory is used.
"""

from __future__ import annotations

import ctypes
from typing import Any

from tilec.record import record

CPU, CUDA, CUDA_MANAGED = 1, 2, 13
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool", 10: "float8_e4m3fn", 12: "float8_e5m2", 14: "float8_e8m0fnu"}
_READ_ONLY = 1


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    )  # fmt: skip


@record
class Tensor:
    """An array as DLPack describes it; strides in elements, `dtype` empty for a type that kernels do not have."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device_type: int
    device: int
    read_only: bool


def read(capsule: Any) -> Tensor:
    """The tensor in a capsule. Raises ValueError for anything else."""
    pointer_of, is_valid = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_IsValid
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    is_valid.restype, is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
    if is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(pointer_of(capsule, b"dltensor_versioned"))
        if versioned.major != 1:
            raise ValueError(f"DLPack of version {versioned.major}.{versioned.minor} is not known here")
        return _describe(versioned.tensor, bool(versioned.flags & _READ_ONLY))
    if is_valid(capsule, b"dltensor"):
        return _describe(_Tensor.from_address(pointer_of(capsule, b"dltensor")), False)
    raise ValueError("not a DLPack capsule, or one that has been consumed")


def _describe(t: _Tensor, read_only: bool) -> Tensor:
    shape = tuple(t.shape[i] for i in range(t.ndim))
    strides = tuple(t.strides[i] for i in range(t.ndim)) if t.strides else dense_strides(shape)
    return Tensor((t.data or 0) + t.byte_offset, shape, strides, _dtype(t), t.device_type, t.device_id, read_only)


def _dtype(t: _Tensor) -> str:
    if t.lanes != 1 or t.code not in _CODES:
        return ""
    word = _CODES[t.code]
    return word if word in ("bool",) or word.startswith("float8") else f"{word}{t.bits}"


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a row-major array without gaps."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))
