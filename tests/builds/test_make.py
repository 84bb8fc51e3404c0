"""The rules of tilec.mk, step by step with a real make: what is built again, what is not, and what failures leave."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.builds.kit import ROOT, Tools, run
from tests.toolchain import needs_nvcc

KERNEL = """import tilelang.language as T
from {module} import BLOCK
n = T.dynamic("n")

@T.prim_func
def {name}(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
    with T.Kernel(T.ceildiv(n, BLOCK), threads=128) as bx:
        for i in T.Parallel(BLOCK):
            Y[bx * BLOCK + i] = X[bx * BLOCK + i] * 3.0
"""
MAKEFILE = """TILECFLAGS := $(FLAGS) -I 'my modules'
include $(shell $(TILEC) --make-include)
all: one.cu two.h odd$$name.cu
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    if shutil.which("make") is None:
        pytest.skip("no make on this machine")
    return Tools(tmp_path_factory.mktemp("tools"))


class Project:
    """Three kernels: one and odd$name import a module from a folder with a blank in its name, two has one of its own."""

    def __init__(self, folder: Path, tools: Tools) -> None:
        self.folder, self.tools = folder, tools
        (folder / "my modules").mkdir()
        (folder / "my modules" / "shared.py").write_text("BLOCK = 512\n")
        (folder / "own.py").write_text("BLOCK = 256\n")
        self.write("pyproject.toml", '[project]\nname = "p"\n')
        self.write("Makefile", MAKEFILE)
        for name, module in (("one", "shared"), ("two", "own"), ("odd$name", "shared")):
            self.write(f"{name}.py", KERNEL.format(name=name.replace("$", "_"), module=module))
        past = time.time() - 500
        for file in folder.rglob("*"):
            os.utime(file, (past, past))

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def make(self, *args: str, code: int = 0) -> list[str]:
        """The kernels that one run of make compiles."""
        said = run(self.folder, "make", "-j8", f"TILEC={self.tools.command}", *args, code=code)
        return sorted(re.findall(r"compile '(.*?)\.py'", said))


ALL = ["odd$name", "one", "two"]


def test_make_step_by_step(tools: Tools, tmp_path: Path) -> None:
    p = Project(tmp_path, tools)
    assert p.make() == ALL, "one run of tilec for each kernel, although it writes two files"
    assert p.make() == [] and p.make("-q") == []
    assert (tmp_path / "one.h").exists() and "256" in (tmp_path / "two.cu").read_text()

    p.write("my modules/shared.py", "BLOCK = 1024\n")
    assert p.make() == ["odd$name", "one"], "an imported module"
    assert "1024" in (tmp_path / "one.cu").read_text() and p.make() == []
    p.write("pyproject.toml", '[project]\nname = "p"\n[tool.tilec.define]\nunused = 1\n')
    assert p.make() == ALL, "an option in pyproject.toml"
    (tmp_path / "pyproject.toml").unlink()
    assert p.make() == ALL and p.make() == [], "a pyproject.toml that is gone"
    p.write("pyproject.toml", "[tool.tilec.define]\nunused = 2\n")
    os.utime(tmp_path / "pyproject.toml", (time.time() - 1000, time.time() - 1000))
    assert p.make() == ALL and p.make() == [], "one that appears, however old"
    assert p.make("FLAGS=-O1") == ALL and p.make("FLAGS=-O1") == [] and p.make() == ALL, "an option on the command line"
    os.utime(tools.home / "tilec" / "plan" / "planner.py")
    assert p.make() == ALL and p.make() == [], "tilec itself"

    for lost in ("one.cu", "one.tilec.d"):
        (tmp_path / lost).unlink()
        assert p.make() == ["one"], lost
    (tmp_path / "two.h").unlink()
    assert p.make() == ["two"] and p.make() == []

    p.write("two.py", KERNEL.format(name="two", module="shared"))
    (tmp_path / "own.py").unlink()
    assert p.make() == ["two"] and p.make() == [], "a module that is gone, and no longer imported"


def test_failures_leave_nothing_that_looks_finished(tools: Tools, tmp_path: Path) -> None:
    p = Project(tmp_path, tools)
    whole = (tmp_path / "one.py").read_text()
    p.write("one.py", whole.replace("bx * BLOCK + i] * 3", "bx * BLOCKS + i] * 3"))
    assert p.make("-k", code=2) == ALL
    assert not (tmp_path / "one.cu").exists() and not (tmp_path / "one.h").exists() and (tmp_path / "two.cu").exists()
    assert p.make("-k", code=2) == ["one"], "it is tried again"
    p.write("one.py", whole)
    assert p.make() == ["one"] and p.make() == []
    p.write("one.py", "def broken(:\n")
    assert p.make(code=2) == ["one"] and p.make(code=2) == ["one"], "the file of the last success does not count"
    assert sorted(f.name for f in tmp_path.iterdir() if f.name.endswith(".tmp")) == []


@needs_nvcc
def test_machine_code(tools: Tools, tmp_path: Path) -> None:
    p = Project(tmp_path, tools)
    p.make("one.cubin")
    assert (tmp_path / "one.cubin").read_bytes().startswith(b"\x7fELF")
    p.make("one.cubin", "NVCCFLAGS=--no-such-option", code=2)
    assert not (tmp_path / "one.cubin.tmp").exists() and p.make("-q", "one.cubin", code=1) == []


@needs_nvcc
def test_the_sample_project(tools: Tools, tmp_path: Path) -> None:
    """make links the program; several kernels in a file, several files, callers in C and C++17, and -rdc=true too."""
    for file in (ROOT / "samples" / "cpp_project").iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    make = ["make", f"TILEC={tools.command}"]
    run(tmp_path, *make, "-j4")
    assert os.access(tmp_path / "program", os.X_OK)
    run(tmp_path, *make, "-q")
    os.utime(tmp_path / "tiles.py", (time.time() + 5, time.time() + 5))
    run(tmp_path, *make, "-q", code=1)
    objects = [f"build/{name}.o" for name in ("gemm", "rows", "saxpy")]
    if shutil.which("nm"):
        for name in objects:  # nvcc registers the kernels of a file when the program starts; nothing else may run then
            said = run(tmp_path, "nm", "-C", name)
            assert "cudaRegisterAll" in said and "_GLOBAL__sub_I" not in said and "__static_initialization" not in said
    files = [str(Path(o).with_suffix(".cu")) for o in objects]
    run(tmp_path, "nvcc", "-std=c++17", "-arch=sm_80", "-rdc=true", "-Ibuild", "-o", "apart", *files, "build/main.o", "build/norms.o")
    assert os.access(tmp_path / "apart", os.X_OK)


@needs_nvcc
def test_the_program_that_tries_launchers(tools: Tools, tmp_path: Path) -> None:
    """For Hopper, whose launchers make tensor maps, and linked: several files, a function of two launches with scratch memory."""
    folder = ROOT / "benchmarks" / "launchers"
    run(folder, "make", "-j2", f"TILEC={tools.command}", "ARCH=sm_90a", f"OUT={tmp_path}/")
    assert "split_sum_workspace" in (tmp_path / "split_sum.h").read_text() and "TensorMap" in (tmp_path / "gemm.cu").read_text()
    done = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "CUDA driver" in done.stderr or "no CUDA" in done.stderr, done
