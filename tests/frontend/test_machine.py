"""Questions of host code about the GPU are answered for the target of the compilation."""

from __future__ import annotations

from tests.frontend.conftest import read_text
from tilec.ir.expr import Const
from tilec.targets import SM80, SM90A, Target

TEXT = """
import torch
from tilelang.contrib import nvcc

def rows():
    if not torch.cuda.is_available() or torch.version.hip is not None:
        raise RuntimeError("no GPU of NVIDIA")
    major, minor = torch.cuda.get_device_capability(torch.device("cuda"))
    return 10 * major + minor

def make():
    facts = torch.cuda.get_device_properties(torch.cuda.current_device())
    columns = facts.multi_processor_count if facts.major >= 8 else 1
    bytes_ = facts.shared_memory_per_block_optin
    hopper = nvcc.get_target_compute_version() == "9.0"
    @T.prim_func
    def k(O: T.Tensor((rows(), columns, bytes_), "int32")):
        with T.Kernel(1, threads=1):
            O[0, 0, 0] = 1 if hopper else 2
    return k
"""


def _facts(target: Target) -> list[object]:
    (kernel,) = read_text(TEXT, target=target).kernels
    (tensor,) = kernel.params
    return [n.value if isinstance(n, Const) else n for n in tensor.shape]


def test_a_factory_asks_for_the_gpu() -> None:
    assert _facts(SM80) == [80, SM80.multiprocessors, SM80.shared_per_block_max]
    assert _facts(SM90A) == [90, SM90A.multiprocessors, SM90A.shared_per_block_max]
