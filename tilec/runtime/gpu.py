"""What a GPU run needs, or why it cannot be.

    cupy = need_gpu() gives the module; MissingError names what to install
"""

from __future__ import annotations

from typing import Any

from tilec.runtime.request import MissingError


def need_gpu() -> Any:
    """CuPy, with a device that answers. Raises MissingError."""
    try:
        import cupy
    except ImportError as fault:
        raise MissingError(f"CuPy is not here ({fault}): pip install 'tilec[cuda12]' or 'tilec[cuda13]'") from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as fault:  # without a driver CuPy raises its own type, which cannot be named without a driver
        raise MissingError(f"no GPU answers: {fault}") from None
    if not count:
        raise MissingError("this machine has no GPU that CUDA sees")
    return cupy
