"""T.CUDASourceCodeKernel: a launch whose body is a `__global__` function of the author's own.

The kernel that is written calls that function, which becomes a device function, with the parameters of the kernel in order and
then the run-time sizes:

    extern "C" __global__ void add(float* A, int n) {...}    ->  static __device__ void add_source(float* A, int n) {...}
"""

from __future__ import annotations

import re
from typing import Any

from tilec.ir.dtypes import HANDLE, INT32
from tilec.ir.expr import Call, Const, Expr, Load, Var
from tilec.ir.kernel import Param
from tilec.ir.tile import Evaluate
from tilec.language.bind import Entry, works
from tilec.language.builder import Builder
from tilec.language.extern import import_source
from tilec.language.launch import Kernel
from tilec.language.show import describe
from tilec.language.values import SourceSpec

_BOUNDS = r"(?:__launch_bounds__\s*\([^()]*\)\s*)?"
_HEAD = re.compile(rf'(?:extern\s*"C"\s*)?(?:static\s+)?__global__\s+(?:static\s+)?{_BOUNDS}void\s+{_BOUNDS}(\w+)\s*\(')


def CUDASourceCodeKernel(
    b: Builder, *blocks: Any, threads: Any = None, source_code_or_path: Any, entry_name: Any = None, cluster_dims: Any = None,
    prelude: Any = None,
) -> SourceSpec:  # fmt: skip
    """Launches a `__global__` function of the author's CUDA with the kernel's parameters in order, then its run-time sizes."""
    if not isinstance(source_code_or_path, str) or not (entry_name is None or isinstance(entry_name, str)):
        wrong = source_code_or_path if not isinstance(source_code_or_path, str) else entry_name
        raise b.error("TL0206", f"T.CUDASourceCodeKernel takes CUDA text and the name of a function in it, got {describe(wrong)}")
    import_source(b, prelude)
    options = {} if cluster_dims is None else {"cluster_dims": cluster_dims}
    return SourceSpec(Kernel(b, *blocks, threads=threads, **options), source_code_or_path, entry_name or "")


def is_text(source: str) -> bool:
    """True for CUDA text, false for what can only be the name of a file."""
    return "__global__" in source or "\n" in source


def call_source(b: Builder, text: str, entry: str, params: tuple[Param, ...], sizes: tuple[Expr, ...]) -> None:
    """Records the call of the `__global__` function `entry` of `text` as the body of the launch.

    Raises TL0206 where there is none, or where it takes another number of arguments than there are parameters and `sizes`.
    """
    found = {m.group(1): m for m in _HEAD.finditer(text)}
    if not entry and len(found) == 1:
        entry = next(iter(found))
    if entry not in found:
        names = ", ".join(f"`{n}`" for n in found) or "none"
        text = f"the CUDA text has no `__global__ void {entry}`" if entry else "which __global__ function is to be launched?"
        raise b.error("TL0206", text, help=f"name one of its kernels with entry_name: {names}")
    head = found[entry]
    name = f"{entry}_source"
    source = f"{text[: head.start()]}static __device__ void {name}({text[head.end() :]}"
    if source not in b.sources:
        b.sources.append(source)
    args = (*(_argument(p) for p in params), *sizes)
    taken = text[head.end() :].partition(")")[0]
    count = taken.count(",") + 1 if taken.strip() else 0
    if count != len(args):
        names = ", ".join([*(p.name for p in params), *(e.name if isinstance(e, Var) else "a size" for e in sizes)])
        raise b.error("TL0206", f"`{entry}` takes {count} arguments, the kernel gives {len(args)}: {names}")
    b.emit(Evaluate(Call(name, args, HANDLE, True), b.span))


def _argument(p: Param) -> Expr:
    if isinstance(p, Var):
        return p
    return Call("foreign_pointer", (Call("address_rw", (Load(p, (Const(0, INT32),) * p.rank),), HANDLE),), HANDLE)


ENTRIES: tuple[Entry, ...] = works(CUDASourceCodeKernel, host=True)

__all__ = ["ENTRIES", "CUDASourceCodeKernel", "call_source", "is_text"]
