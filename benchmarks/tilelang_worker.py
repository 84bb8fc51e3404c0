"""Compiles samples with TileLang as TileLang itself would, into shared libraries for another machine; needs no GPU.

    PYTHON_WITH_TILELANG benchmarks/tilelang_worker.py FOLDER        reads FOLDER/cases.json, writes FOLDER/<k>.tl.cu and .tl.so

Run by `tilelang_peers.py prepare`. The host code, the flags of nvcc and the pass configuration are TileLang's own; only -lcuda is
left out, because the driver is not here: whoever loads the library loads libcuda first.
"""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import tilelang
import torch
from tilelang.contrib.nvcc import get_nvcc_compiler
from tilelang.env import CUTLASS_INCLUDE_DIR, TILELANG_TEMPLATE_PATH
from tilelang.jit.adapter.libgen import LibraryGenerator

TARGET = {"kind": "cuda", "arch": "sm_90a"}


class CompiledError(Exception):
    """Ends TileLang's compilation once the host code is there."""


def kept(self: LibraryGenerator, timeout: float | None = None) -> None:
    """Stands for LibraryGenerator.compile_lib: keeps what it would compile."""
    raise CompiledError(self.lib_code, bool((self.pass_configs or {}).get("tl.enable_fast_math")))


def traced(case: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The PrimFunc of a case and the pass configuration that its author asks for."""
    text = Path(case["file"]).read_text()
    for old, new in case["edits"]:
        assert old in text, old
        text = text.replace(old, new)
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as out:
        out.write(text)
    found = runpy.run_path(out.name)[case["object"]]
    configs = dict(getattr(found, "pass_configs", None) or {})
    if hasattr(found, "get_tir"):
        tensors = [torch.empty(shape, dtype=getattr(torch, dtype)) for dtype, shape in case["tensors"].values()]
        return found.get_tir(*tensors, **case["defines"]), configs
    return (found(**case["defines"]) if case["defines"] else found), configs


def build(case: dict[str, Any], source: Path) -> str:
    """Compiles one case; an error's text, empty if there is none."""
    LibraryGenerator.compile_lib = kept
    try:
        func, configs = traced(case)
        tilelang.compile(func, target=TARGET, execution_backend="cython", pass_configs=configs)
        return "TileLang did not reach its host code"
    except CompiledError as done:
        code, fast = done.args
    except Exception as fault:  # the other cases still compile
        return f"{type(fault).__name__}: {fault}"[:2000]
    source.write_text(code)
    command = [get_nvcc_compiler(), "-std=c++20", "-w", "-Xcudafe", "--diag_suppress=177", "--shared", str(source)]
    command += ["-gencode", "arch=compute_90a,code=sm_90a", "--compiler-options", "-fPIC", *(["--use_fast_math"] if fast else [])]
    command += [f"-I{CUTLASS_INCLUDE_DIR}", f"-I{TILELANG_TEMPLATE_PATH}", "-o", str(source.with_suffix(".so"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr[-2000:] if done.returncode else ""


def main(folder: Path) -> None:
    """Compiles every case of the folder."""
    for k, case in enumerate(json.loads((folder / "cases.json").read_text())):
        source = folder / f"{k}.tl.cu"
        if not source.with_suffix(".so").exists():
            print(f"{case['name']}: {build(case, source) or 'compiled'}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
