"""tilec: reads a tile kernel written in Python, never runs it, and writes one plain CUDA file.

    import tilec
    gemm = tilec.compile("gemm.py", dtype="bfloat16")     # or tilec.load("gemm.cu")
    C = gemm(A, B)                                        # torch, CuPy, DLPack: on the GPU, without a copy
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilec.version import __version__

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from tilec.runtime.callable import Kernel

__all__ = ["__version__", "compile", "load"]


def load(path: str | os.PathLike[str], *, kernel: str | None = None, outputs: Iterable[str] | None = None) -> Kernel:
    """The kernel in a .cu that tilec wrote, as a function; `kernel` chooses one of several.

    `outputs` names the tensors that a call makes and returns, instead of those that the kernel's `out_idx` or `T.empty` say. Machine
    code comes from the cache, or from NVRTC or nvcc at the first call. Raises ValueError for a file that is not tilec's.
    """
    from pathlib import Path

    from tilec.runtime.callable import load as load_kernel

    return load_kernel(Path(path), kernel, outputs)


def compile(
    path: str | os.PathLike[str], /, *, kernel: str | None = None, arch: str | None = None, opt_level: int = 2, fp32_gemm: str = "tf32",
    pairs: str = "auto", ptxas: str = "auto", include: Iterable[str | os.PathLike[str]] = (), args: Mapping[str, str] | None = None,
    outputs: Iterable[str] | None = None,
    **defines: Any,
) -> Kernel:  # fmt: skip
    """Compiles the kernel of a Python file for the GPU of this machine and gives it as a function; the file is read, never run.

        gemm = tilec.compile("gemm.py", dtype="bfloat16", outputs=["C"])
        C = gemm(A, B)                                    # sizes that are open follow from the arrays

    `defines` are compile-time parameters by name, as `-D` gives them: `M=4096, dtype="bfloat16"`. `args` binds the names in an
    annotation, as `--arg` does: `args={"A": "float16[4096,K]"}`. `kernel` chooses one of several, `outputs` names the tensors that a
    call makes and returns, `include` are folders of modules that the file imports. `arch` is another architecture than the GPU's,
    such as `sm_80`; `opt_level` 1 takes the source literally, 3 may also join blocks; `fp32_gemm="ieee"` multiplies float32 in full
    precision; `pairs` (auto, on, off) lets blocks of a GEMM share a tile on Hopper; `ptxas` (auto, always, never) says whether nvcc
    is asked for spilled registers.

    Raises tilec.diagnostics.CompileError for what is wrong with the file, ArgumentError for names it does not have, OSError where it
    cannot be read. What this machine lacks shows when the function is called (MissingError, GpuError of tilec.runtime).
    """
    from pathlib import Path

    from tilec.runtime.callable import compile_kernel

    options = {
        "kernel": kernel, "arch": arch, "opt_level": opt_level, "fp32_gemm": fp32_gemm, "pairs": pairs, "ptxas": ptxas,
        "include": tuple(include), "args": dict(args or {}), "outputs": outputs,
    }  # fmt: skip
    return compile_kernel(Path(path), options, defines)
