"""Describes tensors to Hopper's copy engine from Python: what `encode_tensor_map` of a generated file does on the host.

    tensor_map(manifest_entry, address, {"M": 4096, "K": 4096}) -> 128 bytes to pass by value, as a NumPy scalar array

Needs a CUDA driver (libcuda), nothing else; NumPy for `tensor_map`.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilec.emit.hosteval import evaluate

if TYPE_CHECKING:
    import numpy as np

_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_SIZE = 128


class MapRefused(ValueError):
    """The driver does not take the description of a tensor."""


def tensor_map(entry: Mapping[str, Any], address: int, env: Mapping[str, int]) -> np.ndarray[Any, Any]:
    """`encode` as an array of one 128-byte element, which CuPy passes to a kernel by value."""
    import numpy as np

    return np.frombuffer(encode(entry, address, env), dtype=f"V{_SIZE}")


def encode(entry: Mapping[str, Any], address: int, env: Mapping[str, int]) -> bytes:
    """The map of one `tensor_maps` entry of a manifest for the tensor at `address`; `env` has the extents by name.

    Raises MapRefused, or OSError without a driver.
    """
    dims = [evaluate(str(e), env) for e in entry["dims"]]
    strides = [evaluate(str(e), env) for e in entry["strides"]]
    rank = len(dims)
    raw = ctypes.create_string_buffer(2 * _SIZE)
    at = -ctypes.addressof(raw) % _SIZE
    words64, words32 = ctypes.c_uint64 * 5, ctypes.c_uint32 * 5
    promotion = 3 if not strides or strides[0] % 128 == 0 else 2  # rows off a 128-byte line gain from fetching no more than that
    error = ctypes.CDLL(os.environ.get("TILEC_LIBCUDA") or "libcuda.so.1").cuTensorMapEncodeTiled(
        ctypes.c_void_p(ctypes.addressof(raw) + at), ctypes.c_int(entry["type"]), ctypes.c_uint32(rank), ctypes.c_void_p(address),
        words64(*dims), words64(*strides), words32(*entry["box"]), words32(*[1] * rank), ctypes.c_int(0),
        ctypes.c_int(_SWIZZLES[entry["swizzle"]]), ctypes.c_int(promotion), ctypes.c_int(0),
    )  # fmt: skip
    if error:
        raise MapRefused(f"the driver refuses the tensor map {entry['name']} (CUresult {error})")
    return raw.raw[at : at + _SIZE]
