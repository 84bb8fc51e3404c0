"""Every sample compiles, is accepted by nvcc without a warning, and computes what NumPy computes."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.clean import assert_clean
from tests.samples.kit import ARCHS, arguments, compile_sample, pack
from tests.toolchain import needs_gxx, needs_nvcc

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples"
DEFINES = {
    "article_gemm.py": {"M": 130, "N": 70, "K": 45},
    "gemm_lazy_jit.py": {"M": 128, "N": 64, "K": 96},
    "gemm_eager_jit.py": {"M": 130, "N": 70, "K": 45},
    "vector_add.py": {"N": 1001},
}
KERNELS = {"gemm_factory.py": "gemm_wide"}
SHAPES = {
    "gemm_prim_func.py": (256, 384, 192), "gemm_factory.py": (128, 512, 64), "gemm_bias_relu.py": (256, 256, 128),
    "article_gemm.py": (130, 70, 45), "gemm_lazy_jit.py": (128, 64, 96), "gemm_eager_jit.py": (130, 70, 45),
}  # fmt: skip
NAMES = sorted(p.name for p in SAMPLES.glob("*.py"))


def tilec(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tilec", *args], cwd=cwd, capture_output=True, text=True, check=False)


def options(name: str) -> list[str]:
    defines = [x for n, v in DEFINES.get(name, {}).items() for x in ("-D", f"{n}={v}")]
    return [*defines, *(["-k", KERNELS[name]] if name in KERNELS else [])]


@needs_gxx
@pytest.mark.parametrize("name", NAMES)
def test_the_numbers(name: str, tmp_path: Path) -> None:
    """Integer-valued inputs that this test draws, float64 NumPy as the judge; tilec's own reference agrees as well."""
    rng = np.random.default_rng(int.from_bytes(os.urandom(4), "little"))
    if name == "vector_add.py":
        inputs = {n: rng.integers(-99, 100, 1001).astype(np.float32) for n in "AB"}
        want = {"C": inputs["A"].astype(np.float64) + inputs["B"]}
    else:
        m, n, k = SHAPES[name]
        inputs = {"A": rng.integers(-2, 3, (m, k)).astype(np.float32), "B": rng.integers(-2, 3, (k, n)).astype(np.float32)}
        product = inputs["A"].astype(np.float64) @ inputs["B"]
        if name == "gemm_bias_relu.py":
            inputs["bias"] = rng.integers(-9, 10, n).astype(np.float32)
            product = np.maximum(product + inputs["bias"], 0)
        want = {"C": product}
    if folder := os.environ.get("TILEC_CASES"):
        for arch in ARCHS:
            compiled = compile_sample(name, DEFINES.get(name, {}), arch, KERNELS.get(name, ""))
            pack(Path(folder), f"{Path(name).stem}_{arch}", compiled, arguments(compiled, inputs), want, 0.0)
        return
    args = ["run", str(SAMPLES / name), "-q", *options(name)]
    for tensor, a in inputs.items():
        np.save(tmp_path / f"{tensor}.npy", a)
        args += ["--in", f"{tensor}={tensor}.npy"]
    for arch in ARCHS:
        done = tilec(*args, "--arch", arch, "--out", f"C={arch}.npy", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "agrees" in done.stdout
        assert np.array_equal(np.load(tmp_path / f"{arch}.npy").astype(np.float64), want["C"])


@needs_nvcc
@pytest.mark.parametrize("name", NAMES)
def test_nvcc_takes_every_sample(name: str, tmp_path: Path) -> None:
    sizes = [] if name in ("article_gemm.py", "gemm_eager_jit.py", "vector_add.py") else options(name)
    done = tilec("compile", str(SAMPLES / name), "-q", *sizes, "-o", "k.cu", "--header", "k.h", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "use.cpp").write_text('#include "k.h"\n')
    nvcc = ["nvcc", "-std=c++17", "-Werror", "all-warnings"]
    for command in ([*nvcc, "-arch=sm_80", "-c", "k.cu", "-o", "k.o"], [*nvcc, "-c", "use.cpp", "-o", "use.o"]):
        built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stdout + built.stderr
    assert_clean(compile_sample(name, DEFINES.get(name, {}), "sm_90a", KERNELS.get(name, "")), "sm_90a")
