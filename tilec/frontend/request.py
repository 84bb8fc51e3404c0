"""What the driver asks the frontend for: one source file, the values given on the command line, the kernels wanted.

    Request("gemm.py", b"...", defines={"N": 4096}, kernels=("matmul",))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from tilec.record import record
from tilec.targets import SM90A, Target


@record
class ArgSpec:
    """An array as `--arg A=float16[4096,K]` describes it: a dtype name, extents (ints or names) and perhaps strides."""

    dtype: str
    shape: tuple[int | str, ...]
    strides: tuple[int | str, ...] | None = None


@record
class Request:
    """One reading of a source file.

    `path` is spelled as the user did ("-" when `text` came from standard input). `include` are directories in which
    sibling modules are looked for after the file's own one. `defines` are the `-D` values, `args` the `--arg` arrays.
    `kernels` names what to compile (NAME or FACTORY:KERNEL); empty means every kernel whose parameters are known.
    `target` is the GPU for which questions of the file are answered, such as how many multiprocessors there are.
    """

    path: str
    text: str | bytes
    include: tuple[str, ...] = ()
    defines: Mapping[str, Any] = field(default_factory=dict)
    args: Mapping[str, ArgSpec] = field(default_factory=dict)
    kernels: tuple[str, ...] = ()
    target: Target = SM90A


def roots(request: Request) -> list[Path]:
    """The folders in which files are looked for: that of the kernel's file, then those of -I."""
    own = Path() if request.path == "-" else Path(request.path).parent
    return [own, *map(Path, request.include)]
