"""Packs everything a machine with a GPU needs to check and time tilec's code, without tilec being installed there.

    python benchmarks/make_bundle.py OUT            here: needs tilec, no GPU
    python OUT/check.py                             there: needs CuPy, NumPy, ml_dtypes, nvcc and compute-sanitizer

The bundle holds the table of GEMM variants, the sample C++ project and the GEMMs that are timed, all as generated .cu files, a
plan.json with what each must compute, and tilec's Python files, of which the loader needs no package but NumPy and CuPy.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.gemm.variants import GemmVariant, defines, source, table
from tilec.driver import Compiled, Options, compile_source
from tilec.emit.header import header_text
from tilec.emit.manifest import manifest
from tilec.emit.render import render
from tilec.ir.dtypes import lookup
from tilec.options import architecture
from tilec.reference.compare import tolerance

ROOT = Path(__file__).resolve().parent.parent
TIMED_SIZES = (4096, 8192)


def compiled(path: str, text: bytes, arch: str, **options: Any) -> Compiled:
    """One compilation, as `tilec compile` does it."""
    return compile_source(Options(path, text, architecture(arch), **options))


def entry(name: str, built: Compiled, folder: Path, **more: Any) -> dict[str, Any]:
    """Writes a .cu into the bundle; what check.py must know about it."""
    file = folder / f"{name}.cu"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(built.cu)
    (plan,) = built.plans
    return {"name": name, "cu": f"{folder.name}/{name}.cu", "symbol": plan.symbol, "manifest": manifest(built.plans), **more}


def variant(v: GemmVariant, folder: Path, arch: str) -> dict[str, Any]:
    """One row of the table of variants."""
    types = [lookup(t) for t in (v.result, v.dtype, v.accumulator)]
    result, operand, accumulator = (t for t in types if t is not None)
    m, n, k = v.size
    built = compiled("kernel.py", source(v).encode(), arch, defines=defines(v))
    return entry(
        v.name, built, folder, m=m, n=n, k=k, trans_a=v.trans_a, trans_b=v.trans_b,
        operand=v.dtype, exact=v.exact_inputs, result=v.result, accumulator=v.accumulator,
        limit=tolerance(result, max(1, k), operand, accumulator), numbers={"M": m, "N": n, "K": k} if v.dynamic else {},
    )  # fmt: skip


def timed(layout: str, size: int, folder: Path, arch: str) -> dict[str, Any]:
    """One GEMM that is measured beside cuBLAS, B as [K, N] or as [N, K]."""
    file = ROOT / "benchmarks" / "kernels" / "gemm.py"
    built = compiled(file.name, file.read_bytes(), arch, kernels=(f"matmul_{layout}",), defines=dict.fromkeys("MNK", size))
    return entry(
        f"{layout}_{size}", built, folder, m=size, n=size, k=size, trans_a=False, trans_b=layout == "nk",
        operand="float16", result="float16", accumulator="float32", limit=1e-3, numbers={},
    )  # fmt: skip


def program(folder: Path, arch: str) -> list[str]:
    """The generated part of the sample C++ project, and its main file; the names of what nvcc must compile."""
    folder.mkdir(parents=True, exist_ok=True)
    project = ROOT / "samples" / "cpp_project"
    names = []
    for file in sorted(project.glob("*.py")):
        if file.stem != "tiles":
            result = compiled(str(file), file.read_bytes(), arch)
            (folder / f"{file.stem}.cu").write_text(result.cu)
            (folder / f"{file.stem}.h").write_text(header_text(render, result.plans, file.name))
            names.append(f"{file.stem}.cu")
    for name in ("main.cpp", "norms.c", "norms.h"):
        shutil.copy(project / name, folder / name)
    return [*names, "main.cpp", "norms.c"]


def main() -> None:
    """Writes the bundle."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--arch", default="sm_80")
    parser.add_argument("--rows", type=int, default=0, help="only so many rows of the table")
    options = parser.parse_args()
    out: Path = options.out
    if out.exists():
        shutil.rmtree(out)
    shutil.copytree(ROOT / "tilec", out / "tilec", ignore=shutil.ignore_patterns("__pycache__"))
    rows = table()[: options.rows or None]
    plan = {
        "arch": options.arch,
        "variants": [variant(v, out / "variants", options.arch) for v in rows],
        "timed": [timed(layout, size, out / "timed", options.arch) for layout in ("kn", "nk") for size in TIMED_SIZES],
        "program": program(out / "program", options.arch),
    }
    (out / "plan.json").write_text(json.dumps(plan, indent=1))
    shutil.copy(ROOT / "benchmarks" / "bundle_check.py", out / "check.py")
    size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file())
    print(f"{out}: {len(rows)} variants, {len(plan['timed'])} timed GEMMs, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
