"""Machine code of a generated file: from the cache on disk, else from NVRTC, else from nvcc.

    cubin(cu_text, "sm_90a") -> b"\\x7fELF..."

NVRTC is called by ctypes with the options that the file's numbers were checked with; CuPy's RawModule would add -ftz=true, which
turns small float32 numbers into zeros. A file whose author's CUDA includes headers gets them from `headers`; what NVRTC does not take
goes to nvcc where there is one. The cache is keyed by the text and the architecture, so a machine that has the entry needs no
compiler. Entries are written under a name of their own and renamed: any number of processes may write the same one, and a process
that dies leaves nothing that is ever read.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

from tilec.files import cache_dir
from tilec.ptxas import find_nvcc
from tilec.runtime import headers
from tilec.runtime.request import MissingError

OPTIONS = ("-std=c++17",)
_ABANDONED_S = 3600
_ADVICE = "pip install nvidia-cuda-nvrtc, or put CUDA's nvcc on the PATH"


class BuildError(RuntimeError):
    """CUDA's compiler refuses a file; the text is what it said."""


def cubin(text: str, arch: str, options: Sequence[str] = (), fresh: bool = False) -> bytes:
    """Machine code of `text` for `arch`. `fresh` compiles anew and replaces the entry of the cache.

    Raises BuildError, or MissingError where there is neither an entry nor a compiler.
    """
    entry = entry_of(text, arch, options)
    if not fresh:
        with contextlib.suppress(OSError):
            found = entry.read_bytes()
            if found.startswith(b"\x7fELF"):
                return found
    made = compile_cubin(text, arch, options)
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time, nothing else
        store(entry, made)
    return made


def cubin_file(text: str, arch: str, options: Sequence[str] = ()) -> Path:
    """A file with the same: the entry of the cache, or a temporary file where the cache cannot be written."""
    made, entry = cubin(text, arch, options), entry_of(text, arch, options)
    if entry.is_file():
        return entry
    handle, name = tempfile.mkstemp(suffix=".cubin")
    with os.fdopen(handle, "wb") as out:
        out.write(made)
    return Path(name)


def entry_of(text: str, arch: str, options: Sequence[str] = ()) -> Path:
    """Where the machine code of `text` for `arch` lies in the cache, whether it is there or not."""
    key = sha256("\0".join([arch, *OPTIONS, *options, text]).encode()).hexdigest()
    return cache_dir() / "cubins" / f"{key}.cubin"


def store(entry: Path, data: bytes) -> None:
    """Writes an entry of the cache in one step, and removes what writers that died an hour ago have left. OSError."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=entry.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        Path(draft).replace(entry)
    except OSError:
        Path(draft).unlink(missing_ok=True)
        raise
    for other in entry.parent.glob("*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - other.stat().st_mtime > _ABANDONED_S:
                other.unlink()


def compile_cubin(text: str, arch: str, options: Sequence[str] = ()) -> bytes:
    """Machine code made now. Raises BuildError, or MissingError where there is no compiler."""
    library, nvcc = nvrtc(), find_nvcc()
    if library is not None:
        try:
            return _by_nvrtc(library, text, arch, options)
        except BuildError:
            if not (nvcc and headers.includes(text)):  # host code in a header, say, is nothing for NVRTC
                raise
    if nvcc:
        return _by_nvcc(nvcc, text, arch, options)
    raise MissingError(f"neither NVRTC nor nvcc is here: {_ADVICE}")


@cache
def nvrtc() -> ctypes.CDLL | None:
    """The newest NVRTC library that can be found, None if there is none. TILEC_NVRTC names one; `none` stands for none."""
    own = os.environ.get("TILEC_NVRTC")
    for name in [own] if own else _nvrtc_names():
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    return None


def nvrtc_version() -> tuple[int, int] | None:
    """The version of NVRTC, None if there is none."""
    library = nvrtc()
    if library is None:
        return None
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def _nvrtc_names() -> Iterator[str]:
    """Where NVRTC may lie: Python packages, the loader's path, CUDA's own folder; newer ones first."""
    for folder in dict.fromkeys(sys.path):
        found = Path(folder).glob("nvidia/*/lib/libnvrtc.so.*") if folder else ()
        yield from sorted((str(f) for f in found if f.name.removeprefix("libnvrtc.so.").isdigit()), reverse=True)
    yield from ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    yield str(Path(home) / "lib64" / "libnvrtc.so")


def _by_nvrtc(library: ctypes.CDLL, text: str, arch: str, options: Sequence[str]) -> bytes:
    program, names = ctypes.c_void_p(), headers.includes(text)
    found = headers.folders(names) if names else ()
    given = headers.built_in(found) if names else {}
    texts, titles = _strings(given.values()), _strings(given)
    if library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", len(given), texts, titles):
        raise BuildError("NVRTC cannot be started")
    try:
        flags = _strings([f"--gpu-architecture={arch}", *OPTIONS, *options, *(f"-I{f}" for f in found)])
        if library.nvrtcCompileProgram(program, len(flags), flags):
            log = _fetch(library, program, "ProgramLog").decode(errors="replace").strip("\0\n ")
            raise BuildError(headers.missing(log, found) or f"NVRTC refuses the file for {arch}:\n{log}")
        return _fetch(library, program, "CUBIN")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _strings(texts: Iterable[str]) -> ctypes.Array[ctypes.c_char_p]:
    """An array of C strings."""
    held = [t.encode() for t in texts]
    return (ctypes.c_char_p * len(held))(*held)


def _fetch(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{what}")(program, buffer)
    return buffer.raw


def _by_nvcc(nvcc: str, text: str, arch: str, options: Sequence[str]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="tilec-") as folder:
        source, result = Path(folder, "kernel.cu"), Path(folder, "kernel.cubin")
        source.write_text(text, encoding="utf-8")
        command = [nvcc, *OPTIONS, *options, "-cubin", f"-arch={arch}", "-o", str(result), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = f"{done.stdout}{done.stderr}"
            raise BuildError(headers.missing(said, None) or f"nvcc refuses the file for {arch}:\n{said}")
        return result.read_bytes()
