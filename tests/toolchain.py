"""Which tools this machine has, for tests that need them: missing ones skip, or fail under TILEC_REQUIRE_TOOLCHAIN=1.

    from tests.toolchain import needs_gxx, needs_nvcc, nvrtc_compile
    @needs_gxx
    def test_runs_on_the_cpu(): ...
"""

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

REQUIRED = os.environ.get("TILEC_REQUIRE_TOOLCHAIN") == "1"


def _needs(present: bool, what: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not present and not REQUIRED, reason=f"no {what} on this machine")


needs_gxx = _needs(any(shutil.which(name) for name in (os.environ.get("TILEC_CXX", ""), "g++", "clang++") if name), "C++ compiler")
has_nvcc = shutil.which("nvcc") is not None
needs_nvcc = _needs(has_nvcc, "nvcc")
needs_nvrtc = _needs(importlib.util.find_spec("cuda") is not None and importlib.util.find_spec("cuda.bindings") is not None, "NVRTC")


def nvrtc_compile(text: str, arch: str, *options: str) -> str:
    """Compiles CUDA text with NVRTC, warnings as errors; returns the PTX, or fails the test with NVRTC's log."""
    from cuda.bindings import nvrtc

    def checked(result: tuple[Any, ...]) -> Any:
        assert int(result[0]) == 0, f"NVRTC: {result[0]}"
        return result[1] if len(result) > 1 else None

    program = checked(nvrtc.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, [], []))
    flags = [f"-arch={arch}".encode(), b"-std=c++17", *(o.encode() for o in options)]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
    log = _room(checked(nvrtc.nvrtcGetProgramLogSize(program)))
    checked(nvrtc.nvrtcGetProgramLog(program, log))
    said = log.decode(errors="replace").strip("\0\n ")
    assert int(status) == 0 and not said, said
    ptx = _room(checked(nvrtc.nvrtcGetPTXSize(program)))
    checked(nvrtc.nvrtcGetPTX(program, ptx))
    return ptx.rstrip(b"\0").decode()


def _room(size: int) -> bytes:
    """Bytes that NVRTC's Python bindings write into.

    One byte more than asked for: Python keeps a single object for all bytes of length 1, and an empty log (its NUL) written
    into that one turns every later b" " of the process into b"\\0", np.save's padding of headers among them.
    """
    return b" " * (size + 1)


def nvcc_compile(text: str, arch: str, folder: Path, *options: str) -> None:
    """Compiles CUDA text with nvcc, warnings as errors, down to machine code; fails the test with what nvcc said."""
    source = folder / "kernel.cu"
    source.write_text(text, encoding="utf-8")
    command = ["nvcc", "-std=c++17", "-Werror", "all-warnings", f"-arch={arch}", *options, "-c", "-o", str(folder / "kernel.o")]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr.strip(), done.stderr
