"""Questions of host code about the GPU, answered for the target of the compilation: nothing is asked of this machine.

    torch.cuda.get_device_capability() -> (9, 0) under --arch sm_90a;  driver.get_num_sms() -> 132
"""

from __future__ import annotations

from typing import Any

from tilec.language.bind import Entry, works
from tilec.language.builder import Builder
from tilec.language.values import Namespace


def get_num_sms(b: Builder, device: Any = None) -> int:
    """The number of multiprocessors the kernel is compiled for."""
    return b.target.multiprocessors


def get_device_capability(b: Builder, device: Any = None) -> tuple[int, int]:
    """The compute capability of the target: (8, 0) for sm_80."""
    return divmod(b.target.number, 10)


def get_device_properties(b: Builder, device: Any = None) -> Namespace:
    """What torch tells of a GPU, as far as the target decides it."""
    target = b.target
    major, minor = divmod(target.number, 10)
    facts = {
        "major": major,
        "minor": minor,
        "multi_processor_count": target.multiprocessors,
        "shared_memory_per_block_optin": target.shared_per_block_max,
        "shared_memory_per_multiprocessor": target.shared_per_sm,
        "regs_per_multiprocessor": target.registers_per_sm,
        "max_threads_per_multi_processor": target.threads_per_sm,
        "max_threads_per_block": target.threads_per_block_max,
        "warp_size": 32,
    }
    return Namespace("torch.cuda.get_device_properties()", facts)


def get_target_compute_version(b: Builder, target: Any = None) -> str:
    """The compute capability of the target as text: "9.0"."""
    return "{}.{}".format(*divmod(b.target.number, 10))


def is_available(b: Builder) -> bool:
    """Whether there is a GPU: kernels are compiled for one."""
    return True


def device_count(b: Builder) -> int:
    """The number of GPUs that the code is compiled for: one."""
    return 1


def current_device(b: Builder) -> int:
    """The number of the GPU that the code is compiled for."""
    return 0


def device(b: Builder, name: Any = "cuda", index: Any = 0) -> str:
    """A device of torch, by its name."""
    return str(name)


def _named(*entries: tuple[Entry, ...]) -> dict[str, Any]:
    return {e.name: e.primitive() for group in entries for e in group}


ENTRIES: tuple[Entry, ...] = works(get_num_sms, host=True)
"""What is also a name of the language."""

DRIVER = _named(ENTRIES)
"""Members of tilelang.carver.arch.driver."""

NVCC = _named(works(get_target_compute_version, host=True))
"""Members of tilelang.contrib.nvcc."""

TORCH = _named(works(device, host=True))
"""Members of torch that are neither dtypes nor about CUDA."""

TORCH_CUDA = _named(
    works(get_device_capability, host=True), works(get_device_properties, host=True), works(is_available, host=True),
    works(device_count, host=True), works(current_device, host=True),
)  # fmt: skip
"""Members of torch.cuda."""
