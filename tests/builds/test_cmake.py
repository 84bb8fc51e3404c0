"""find_package(tilec) and tilec_add_kernels with a real CMake, Ninja and make."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.builds.kit import ROOT, Tools, run, touch
from tests.toolchain import needs_nvcc
from tilec.targets import ALL
from tilec.version import __version__

pytestmark = [needs_nvcc, pytest.mark.skipif(shutil.which("cmake") is None, reason="no CMake on this machine")]


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    return Tools(tmp_path_factory.mktemp("tools"))


def project(folder: Path) -> Path:
    source = folder / "a project"
    shutil.copytree(ROOT / "samples" / "cmake_project", source)
    return source


def compiled(said: str) -> list[str]:
    return sorted(re.findall(r"tilec (\w+\.py)", said))


def test_ninja_step_by_step(tools: Tools, tmp_path: Path) -> None:
    if shutil.which("ninja") is None:
        pytest.skip("no ninja on this machine")
    source, build = project(tmp_path), tmp_path / "build"
    run(tmp_path, "cmake", "-S", str(source), "-B", str(build), "-G", "Ninja", f"-DTILEC_EXECUTABLE={tools.command}")
    assert compiled(run(build, "ninja", "-j8")) == ["add.py", "add.py", "softmax.py"]
    assert (build / "program").exists() and (build / "wide").exists()
    assert "no work to do" in run(build, "ninja")
    assert "4096" in (build / "tilec" / "wide" / "add.cu").read_text()
    assert str(source) not in (build / "tilec" / "kernels" / "add.cu").read_text(), "the output does not depend on where the project lies"

    kernels = ["tilec/kernels/add.cu", "tilec/kernels/softmax.cu"]
    touch(source / "common.py")
    assert compiled(run(build, "ninja", "-j8", *kernels)) == ["add.py", "softmax.py"], "an imported module"
    assert "no work to do" in run(build, "ninja", *kernels)
    (build / kernels[0]).unlink()
    assert compiled(run(build, "ninja", *kernels)) == ["add.py"]
    (build / "tilec" / "kernels" / "softmax.h").unlink()
    assert compiled(run(build, "ninja", *kernels)) == ["softmax.py"]
    touch(tools.home / "tilec" / "emit" / "kernel.py")
    assert compiled(run(build, "ninja", *kernels)) == ["add.py", "softmax.py"], "tilec itself"

    (source / "pyproject.toml").write_text("[tool.tilec.define]\nblock = 2048\n")
    touch(source / "pyproject.toml")
    assert compiled(run(build, "ninja", *kernels)) == ["add.py", "softmax.py"], "a pyproject.toml that appears"
    assert "2048" in (build / kernels[0]).read_text() and "no work to do" in run(build, "ninja", *kernels)
    (source / "pyproject.toml").unlink()
    assert compiled(run(build, "ninja", *kernels)) == ["add.py", "softmax.py"] and "2048" not in (build / kernels[0]).read_text()

    whole = (source / "softmax.py").read_text()
    (source / "softmax.py").write_text("def broken(:\n")
    assert "softmax.py" in run(build, "ninja", *kernels, code=1)
    run(build, "ninja", *kernels, code=1)
    (source / "softmax.py").write_text(whole)
    assert compiled(run(build, "ninja", *kernels)) == ["softmax.py"]


def test_makefiles(tools: Tools, tmp_path: Path) -> None:
    source, build = project(tmp_path), tmp_path / "build"
    run(tmp_path, "cmake", "-S", str(source), "-B", str(build), "-G", "Unix Makefiles", f"-DTILEC_EXECUTABLE={tools.command}")
    assert compiled(run(build, "make", "-j8", "wide")) == ["add.py"] and (build / "wide").exists()
    assert compiled(run(build, "make", "wide")) == []
    touch(source / "common.py")
    assert compiled(run(build, "make", "-j8", "wide")) == ["add.py"]


NAMES = """cmake_minimum_required(VERSION 3.20)
set(TILEC_EXECUTABLE "{tilec}")
list(APPEND CMAKE_MODULE_PATH "{folder}")
include("{folder}/tilecConfig.cmake")
_tilec_names(found {archs})
message(STATUS "found=${{found}} known=${{_tilec_architectures}}")
"""


@pytest.mark.parametrize(
    ("archs", "names"),
    [("80", "sm_80"), ("80-real 86-virtual", "sm_80;sm_86"), ("87", "sm_86"), ("90a", "sm_90a"), ("90", "sm_90"), ("100 120a", "sm_90"),
     ("all", "sm_80"), ("", "sm_80"), ("80 90a 90a-real", "sm_80;sm_90a"), ("75 80", "sm_80 and newer")],
)  # fmt: skip
def test_architectures(tmp_path: Path, archs: str, names: str) -> None:
    script = tmp_path / "s.cmake"
    script.write_text(NAMES.format(tilec="tilec", folder=ROOT / "tilec" / "cmake", archs=archs))
    done = subprocess.run(["cmake", "-P", str(script)], capture_output=True, text=True, check=False)
    assert names in done.stdout + done.stderr
    if done.returncode == 0:
        assert f"found={names} " in done.stdout
        known = re.findall(r"\d+", done.stdout.partition("known=")[2])
        assert [int(n) for n in known] == sorted({t.number for t in ALL}), "a target that the CMake package does not know"


def test_the_version_is_the_package_version(tmp_path: Path) -> None:
    major, minor = __version__.split(".")[:2]
    for asked, fits in ((f"{major}.{minor}", "TRUE"), (__version__, "TRUE"), (f"{major}.{int(minor) + 1}", "FALSE"), ("9.0", "FALSE")):
        script = tmp_path / "v.cmake"
        text = f'set(PACKAGE_FIND_VERSION {asked})\ninclude("{ROOT}/tilec/cmake/tilecConfigVersion.cmake")\n'
        script.write_text(text + 'message(STATUS "${PACKAGE_VERSION} ${PACKAGE_VERSION_COMPATIBLE}")\n')
        said = run(tmp_path, "cmake", "-P", str(script))
        assert f"{__version__} {fits}" in said, asked
