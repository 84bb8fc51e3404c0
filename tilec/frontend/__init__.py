"""The frontend: reads a file of kernels with libcst, never runs it, and gives Tile IR.

    read(Request("gemm.py", open("gemm.py", "rb").read()))  ->  ir.kernel.Module
"""

from tilec.frontend.reader import read
from tilec.frontend.request import ArgSpec, Request

__all__ = ["ArgSpec", "Request", "read"]
