"""The command as people and build systems call it: exit codes, outputs, notes, faults."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.toolchain import needs_gxx

SCALE = """import tilelang.language as T
N = T.dynamic("N")

@T.prim_func
def scale(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32"), factor: T.float32):
    with T.Kernel(T.ceildiv(N, 256), threads=128) as bx:
        for i in T.Parallel(256):
            Y[bx * 256 + i] = factor * X[bx * 256 + i]
"""
TWO = SCALE + SCALE.split("\n\n", 1)[1].replace("def scale", "def twice")


def tilec(*args: str, cwd: Path, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tilec", *args], cwd=cwd, input=stdin, capture_output=True, text=True, check=False, env={**os.environ, **env}
    )


@pytest.fixture
def room(tmp_path: Path) -> Path:
    (tmp_path / "k.py").write_text(SCALE)
    return tmp_path


def test_version_is_told_without_loading_the_compiler(room: Path) -> None:
    done = tilec("--version", cwd=room, PYTHONPROFILEIMPORTTIME="1")
    assert re.fullmatch(r"tilec \d+\.\d+\.\d+\n", done.stdout)
    loaded = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert "tilec" in loaded and not loaded & {"libcst", "jinja2", "click", "numpy", "importlib_metadata"}


def test_compile_writes_one_file_and_says_nothing_on_stdout(room: Path) -> None:
    done = tilec("compile", "k.py", "-o", "out.cu", cwd=room)
    assert (done.returncode, done.stdout) == (0, "")
    assert sorted(os.listdir(room)) == ["k.py", "out.cu"]
    assert "__global__" in (room / "out.cu").read_text()


def test_the_default_output_lies_here(room: Path) -> None:
    assert tilec("compile", "k.py", cwd=room).returncode == 0
    assert (room / "k.cu").is_file()


def test_stdin_to_stdout(room: Path) -> None:
    piped = tilec("compile", "-", cwd=room, stdin=SCALE)
    assert piped.returncode == 0 and "scale_launch" in piped.stdout


def test_the_same_bytes_everywhere(room: Path) -> None:
    texts = set()
    for seed in ("1", "2", "3"):
        assert tilec("compile", "k.py", "-o", "out.cu", cwd=room, PYTHONHASHSEED=seed).returncode == 0
        texts.add((room / "out.cu").read_bytes())
    assert tilec("compile", str(room / "k.py"), "-o", "out.cu", cwd=room).returncode == 0
    texts.add((room / "out.cu").read_bytes())
    assert len(texts) == 1


def test_all_further_outputs(room: Path) -> None:
    (room / "d").mkdir()
    args = ["-o", "d/out.cu", "--header", "d/k.h", "--emit", "ir,plan,json", "-MD", "-MP", "-MT", "target"]
    assert tilec("compile", "k.py", *args, cwd=room).returncode == 0
    assert sorted(os.listdir(room / "d")) == ["k.h", "out.cu", "out.d", "out.ir", "out.json", "out.plan.txt"]
    assert (room / "d" / "out.d").read_text().startswith("target: \\\n  k.py")
    assert json.loads((room / "d" / "out.json").read_text())["kernels"][0]["symbol"] == "scale"
    assert "scale_launch(" in (room / "d" / "k.h").read_text()


@pytest.mark.parametrize(("args", "code"), [
    (["compile", "missing.py"], 1), (["compile", "k.py", "-D", "3"], 2), (["compile", "k.py", "--arch", "sm_12"], 2), (["compile"], 2), (["nope"], 2),
    (["compile", "k.py", "-O", "7"], 2), (["compile", "k.py", "--emit", "ptx"], 2), (["compile", "-", "--header", "x.h"], 2),
    (["compile", "k.py", "-o", "missing/out.cu"], 1), (["compile", "k.py", "-k", "nope"], 1), (["explain", "TL9999"], 2), (["check", "k.py"], 0),
    (["explain", "TL0312"], 0), (["explain", "k.py"], 0), (["run", "k.py", "--in", "Z=z.npy", "-D", "N=4", "-D", "factor=1"], 1), (["bench", "k.py"], None),
])  # fmt: skip
def test_exit_codes(room: Path, args: list[str], code: int | None) -> None:
    done = tilec(*args, cwd=room)
    assert done.returncode == (code if code is not None else done.returncode) and done.returncode in (0, 1, 2, 3)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0 or done.stderr.strip()
    assert not [f for f in os.listdir(room) if f.endswith((".cu", ".tmp"))] or done.returncode == 0


@pytest.mark.parametrize("text", ["", "X = 1\n", "def (\n", "while True: pass\n", "import os\nos.remove('k.py')\n", "raise SystemExit\n", "x = [\n", "\x00",
                                  "(" * 5000, "x = " + "9" * 100000 + "\n", "class A: pass\nA().b.c\n"])  # fmt: skip
def test_files_without_a_kernel_end_in_one_clear_error(room: Path, text: str) -> None:
    (room / "k.py").write_text(text)
    done = tilec("compile", "k.py", "-o", "out.cu", cwd=room)
    assert done.returncode == 1 and re.search(r"k\.py:\d+:\d+", done.stderr), done.stderr
    assert "Traceback" not in done.stderr and sorted(os.listdir(room)) == ["k.py"]


def test_bytes_that_are_no_text(room: Path) -> None:
    (room / "k.py").write_bytes(b"x = 1\ny = '\xff'\n")
    done = tilec("compile", "k.py", cwd=room)
    assert done.returncode == 1 and "k.py:2:6" in done.stderr


def test_a_fault_shows_its_line_in_text_and_in_json(room: Path) -> None:
    (room / "k.py").write_text(SCALE.replace("factor * X", "factr * X"))
    done = tilec("compile", "k.py", cwd=room)
    assert done.returncode == 1
    assert re.match(r"error\[TL\d{4}\]: ", done.stderr) and " --> k.py:8:31" in done.stderr and "^^^^^" in done.stderr
    first = json.loads(tilec("compile", "k.py", "--error-format", "json", cwd=room).stderr.splitlines()[0])
    assert (first["severity"], first["file"], first["line"], first["column"]) == ("error", "k.py", 8, 31)


def test_several_kernels(room: Path) -> None:
    (room / "k.py").write_text(TWO)
    assert tilec("compile", "k.py", "-o", "out.cu", cwd=room).returncode == 0
    text = (room / "out.cu").read_text()
    assert text.count("tilec-manifest-begin") == 1 and "scale_launch" in text and "twice_launch" in text
    done = tilec("run", "k.py", "-D", "N=4", "-D", "factor=1", cwd=room)
    assert done.returncode == 2 and "scale" in done.stderr and "twice" in done.stderr and "-k" in done.stderr
    assert tilec("compile", "k.py", "-k", "twice", "--name", "main", "-o", "out.cu", cwd=room).returncode == 0
    assert "main_kernel_launch" in (room / "out.cu").read_text()
    assert tilec("compile", "k.py", "--name", "x", "-o", "out.cu", cwd=room).returncode == 1


def test_defaults_from_pyproject(room: Path) -> None:
    (room / "pyproject.toml").write_text("[tool.tilec.define]\nN = 512\n")
    assert tilec("compile", "k.py", "-o", "a.cu", "-MD", cwd=room).returncode == 0
    assert "pyproject.toml" in (room / "a.d").read_text()
    assert tilec("compile", "k.py", "-o", "b.cu", "-D", "N=512", cwd=room).returncode == 0
    assert (room / "a.cu").read_text() == (room / "b.cu").read_text()


def test_an_internal_fault_leaves_a_bundle_and_no_traceback(room: Path) -> None:
    broken = "import sys, tilec.plan.planner as p\ndef plan(*a): raise ZeroDivisionError('on purpose')\np.plan = plan\n"
    program = f"{broken}from tilec.__main__ import main\nsys.exit(main(['compile', 'k.py', '-o', 'out.cu']))\n"
    done = subprocess.run([sys.executable, "-c", program], cwd=room, capture_output=True, text=True, check=False, env={**os.environ, "TMPDIR": str(room)})
    assert done.returncode == 70 and "Traceback" not in done.stderr
    assert "error[TL0901]: internal fault in plan: ZeroDivisionError: on purpose" in done.stderr and "k.py:" in done.stderr
    bundle = json.loads(next(room.glob("tilec-fault-*.json")).read_text())
    assert bundle["pass"] == "plan" and any("on purpose" in line for line in bundle["traceback"])
    assert not (room / "out.cu").exists()


def test_a_reader_that_goes_away_is_no_fault(room: Path) -> None:
    (room / "k.py").write_text(SCALE)
    done = subprocess.run(f"{sys.executable} -m tilec compile k.py -o - | head -c 10", shell=True, cwd=room, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr and "internal" not in done.stderr


@needs_gxx
def test_make_never_sees_a_broken_kernel_as_done(room: Path) -> None:
    (room / "Makefile").write_text(f"%.cu: %.py\n\t{sys.executable} -m tilec compile $< -q -o $@ -MD\n-include k.d\n")
    make = ["make", "-s", "k.cu"]
    assert subprocess.run(make, cwd=room, check=False).returncode == 0
    good = (room / "k.cu").read_bytes()
    (room / "k.py").write_text(SCALE.replace("factor * X", "factr * X"))
    later = time.time() + 5
    os.utime(room / "k.py", (later, later))
    assert subprocess.run(make, cwd=room, capture_output=True, check=False).returncode != 0
    assert (room / "k.cu").read_bytes() == good and (room / "k.cu").stat().st_mtime < later
