"""`tilec doctor`: what this machine has for tilec to work with, and what to install for what it lacks.

    report = examine();  print("\\n".join(lines(report)));  report.exit_code -> 0, or 3 when something is missing

Nothing heavy is imported: versions come from package metadata, compilers are asked, the driver is called directly.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from tilec.record import record
from tilec.files import cache_dir
from tilec.ptxas import find_nvcc
from tilec.runtime import cubin
from tilec.runtime.callable import this_arch
from tilec.runtime.driver_api import GpuError, driver
from tilec.runtime.request import MissingError
from tilec.version import __version__

_CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy")


@record
class Finding:
    """One thing that was looked for: what was found, what it serves, and what to do where `ok` is false."""

    name: str
    ok: bool
    found: str
    serves: str
    advice: str = ""
    needed: bool = True


@record
class Examination:
    """All findings."""

    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """3 if anything that is needed is missing, else 0."""
        return 3 if any(f.needed and not f.ok for f in self.findings) else 0

    def as_json(self) -> list[dict[str, Any]]:
        """The findings as plain data."""
        return [asdict(f) for f in self.findings]


def examine() -> Examination:
    """Looks at the machine."""
    home = Path(__file__).resolve().parent.parent
    return Examination((
        Finding("tilec", True, f"{__version__} in {home}, Python {platform.python_version()}", "compile, check"),
        _host_compiler(), _numpy(), _nvcc(), _nvrtc(), *_gpus(), _cupy(),
        _package("torch", ("torch",), "torch tensors in tilec.load and tilec.compile", "pip install torch", needed=False), _cache(),
    ))  # fmt: skip


def lines(examination: Examination, quiet: bool = False) -> list[str]:
    """The findings as a table; with `quiet` only what is missing."""
    shown = [f for f in examination.findings if not quiet or (f.needed and not f.ok)]
    width = max((len(f.name) for f in shown), default=0)
    out = []
    for f in shown:
        mark = "ok" if f.ok else "missing" if f.needed else "absent"
        out.append(f"{f.name:{width}}  {mark:7}  {f.found}")
        if not f.ok:
            out.append(f"{'':{width}}           for {f.serves}: {f.advice}")
    return out


def _host_compiler() -> Finding:
    serves = "tilec run on the CPU"
    for name in (os.environ.get("TILEC_CXX", ""), "g++", "clang++"):
        path = shutil.which(name) if name else None
        if path:
            version = _asked(path, "-dumpfullversion", "-dumpversion") or "of an unknown version"
            major = int(version.split(".")[0]) if version[:1].isdigit() else 0
            if "clang" not in path and 0 < major < 11:
                return Finding("C++ compiler", False, f"{path} {version}, too old", serves, "install g++ 11 or newer, or set TILEC_CXX")
            return Finding("C++ compiler", True, f"{path} {version}", serves)
    return Finding("C++ compiler", False, "none", serves, "install g++ 11 or newer (apt install g++), or set TILEC_CXX")


def _asked(*command: str) -> str:
    """The first line that a program prints, empty if it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().split("\n")[0]


def _numpy() -> Finding:
    return _package("NumPy", ("numpy",), "tilec run, bench and tune", "pip install 'tilec[cpu]'", also=("ml_dtypes", "ml-dtypes"))


def _package(name: str, distributions: Sequence[str], serves: str, advice: str, needed: bool = True, also: Sequence[str] = ()) -> Finding:
    """A Python package by its distribution's names, and a second one that belongs to it."""
    found = [v for d in distributions if (v := _version(d))]
    second = [v for d in also if (v := _version(d))]
    if found and (second or not also):
        return Finding(name, True, ", ".join([found[0], *(f"{also[0]} {v}" for v in second[:1])]), serves, needed=needed)
    lacking = name if not found else also[0]
    return Finding(name, False, f"no {lacking}", serves, advice, needed)


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _nvcc() -> Finding:
    path, serves = find_nvcc(), "building C++ projects, and machine code where NVRTC is absent"
    if not path:
        return Finding("nvcc", False, "none", serves, "install the CUDA toolkit (12.5 or newer for sm_90a) and put its bin on the PATH")
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    number = re.search(r"release (\d+\.\d+)", said)
    return Finding("nvcc", True, f"{path} {number[1] if number else 'of an unknown version'}", serves)


def _nvrtc() -> Finding:
    version, serves = cubin.nvrtc_version(), "tilec.load and tilec.compile in Python, run and bench on a GPU"
    if version is None:
        nvcc = bool(find_nvcc())
        found = "none; nvcc serves in its place, slower" if nvcc else "none"
        return Finding("NVRTC", False, found, serves, "pip install nvidia-cuda-nvrtc", needed=not nvcc)
    return Finding("NVRTC", True, f"{version[0]}.{version[1]}", serves)


def _gpus() -> list[Finding]:
    serves = "running on a GPU; compiling needs none"
    try:
        gpu = driver()
        count, (major, minor) = gpu.device_count, gpu.version
        found = [Finding("driver", True, f"for CUDA {major}.{minor} and older", serves)]
        for n in range(count):
            number = gpu.capability(n)
            best = this_arch(n)
            fits = f"sm_{number}: --arch {best}" if number >= 80 else f"sm_{number}, older than sm_80"
            found.append(Finding(f"GPU {n}", number >= 80, f"{gpu.device_name(n)}, {fits}", serves, "tilec writes for sm_80 and newer"))
        return found
    except (MissingError, GpuError) as fault:
        return [Finding("GPU", False, str(fault), serves, "install NVIDIA's driver; compile, check, explain and run work without")]


def _cupy() -> Finding:
    serves = "run and bench on a GPU, outputs of kernels that are called without torch"
    advice = "pip install 'tilec[cuda13]' or 'tilec[cuda12]'"
    name = next((d for d in _CUPY if _version(d)), "")
    if not name and importlib.util.find_spec("cupy") is None:
        return Finding("CuPy", False, "none", serves, advice)
    return Finding("CuPy", True, f"{_version(name) or 'of an unknown version'} ({name or 'cupy'})", serves)


def _cache() -> Finding:
    place, serves = cache_dir(), "what is compiled once"
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as fault:
        return Finding("cache", False, f"{place}: {fault.strerror}", serves, "set TILEC_CACHE_DIR to a folder that can be written")
    return Finding("cache", True, str(place), serves)
