"""Whatever is wrong with what a person gives: one message with a place or a name, the right exit code, and no file written or lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_command import SCALE, tilec
from tilec.__main__ import main

FACTORY = """import tilelang
import tilelang.language as T

@tilelang.jit
def f(M, block=128, dtype="float16"):
    @T.prim_func
    def main(X: T.Tensor((M,), dtype), Y: T.Tensor((M,), dtype)):
        with T.Kernel(T.ceildiv(M, block), threads=128) as b:
            for i in T.Parallel(block):
                Y[b * block + i] = X[b * block + i]
    return main
"""

TUNE = "tune f.py -D M=64 --device cpu --no-nvcc --space block=64"

CASES = [
    # the file
    ("compile missing.py", 1, "missing.py"), ("compile folder.py", 1, "folder.py"), ("compile latin.py", 1, "latin.py:1:"),
    ("compile zero.py", 1, "zero.py:1:"), ("compile empty.py", 1, "empty.py:1:1"), ("compile none.py", 1, "none.py:1:1"),
    ("compile syntax.py", 1, "syntax.py:1:7"), ("compile tabs.py", 1, "tabs.py:3:"), ("compile deep.py", 1, "deep.py:1:"),
    ("compile loop.py", 1, "loop.py"), ("compile ", 2, "FILE"),
    ("check missing.py --error-format json", 1, '"code": "TL0103"'), ("check latin.py --error-format json", 1, '"file": "latin.py", "line": 1'),
    # kernels and names
    ("explain two.py", 2, "two.py"), ("run two.py", 2, "-k"), ("compile two.py -k three", 1, "three"), ("compile two.py --name x", 1, "--name"),
    ("compile k.py --name 3x", 2, "3x"), ("explain TL9999", 2, "TL9999"), ("nothing", 2, "nothing"), ("compile k.py k.py", 2, "k.py"),
    # -D
    ("compile f.py", 1, "f.py:5:"), ("compile f.py -D M", 2, "-D M"), ("compile f.py -D =3", 2, "-D =3"), ("compile f.py -D M=", 2, "-D M"),
    ("compile f.py -D M=abc", 1, "f.py:7:"), ("compile f.py -D M=-5", 1, "f.py:7:"), ("compile f.py -D M=1e9", 1, "f.py:7:"),
    ("compile f.py -D M=[1,2]", 1, "f.py:7:"), ("compile f.py -D M=4611686018427387904", 1, "f.py:8:"),
    ("compile f.py -D M=99999999999999999999999999", 1, "f.py:7:"), (f"compile f.py -D M={'9' * 6000}", 2, "-D M"),
    (f"compile f.py -D M={'[' * 3000}", 2, "-D M"), ("compile f.py -D M=open('x','w')", 2, "-D M"),
    ("compile f.py -D M=64 -D dtype=float17", 1, "float16"), ("compile f.py -D M=64 -D block=0", 1, "f.py:8:"),
    ("compile f.py -D M=64 -D block=1.5", 1, "f.py:8:"), ("compile f.py -D @missing.json", 2, "missing.json"),
    ("compile f.py -D @list.json", 2, "list.json"), ("compile f.py -D @broken.json", 2, "broken.json"),
    ("compile f.py -D @nested.json", 2, "nested.json"), ("compile f.py -D @folder.py", 2, "folder.py"),
    ("compile broken/f.py -D M=64", 2, "pyproject.toml"), ("compile nested/f.py -D M=64", 2, "pyproject.toml"),
    # --arg, --arch and the rest
    ("compile k.py --arg X=float16", 2, "X=float16"), ("compile k.py --arg X=float16[8]", 1, "k.py:5:"),
    ("compile k.py --arg X=float32[8,8]", 1, "k.py:5:"), (f"compile k.py --arg X=float32[{'9' * 6000}]", 2, "6000 digits"),
    ("compile k.py --arch sm_10", 2, "sm_80"), ("compile k.py --arch sm_80,", 2, "--arch sm_80,"), ("compile k.py --emit all", 2, "all"),
    ("compile k.py -O9", 2, "-O"), ("compile k.py --unknown", 2, "--unknown"),
    # outputs
    ("compile k.py -o folder.cu", 1, "write folder.cu"), ("compile k.py -o no/where/k.cu", 1, "write no/where/k.cu"),
    ("compile k.py -o k.cu --header no/k.h", 1, "write no/k.h"), ("compile k.py -o k.py", 2, "k.py"), ("compile k.py -o - --header k.h", 2, "-o FILE"),
    # run, bench, tune
    ("run k.py", 1, "-D N"), ("run k.py -D N=8 --in X=missing.npy", 1, "missing.npy"), ("run k.py -D N=8 --in X=k.py", 1, "k.py"),
    ("run k.py -D N=8 --in Z=k.py", 1, "`Z`"), ("bench k.py --device cpu --sweep N", 2, "--sweep N"),
    ("bench k.py --device cpu --sweep N=1:9:*1", 2, "N=1:9:*1"), ("bench k.py --device cpu --sweep N=1:999999999:+1", 2, "10000"),
    ("tune f.py -D M=64 --device cpu --space block", 2, "--space block"), ("tune f.py -D M=64 --device cpu --space width=1,2", 2, "width"),
    ("tune f.py -D M=64 --space block=64 --dask nonsense", 1, "--dask nonsense"),
    # outputs that would destroy inputs, or that are known to fail before any work is done
    (f"{TUNE} -o f.py", 2, "f.py is read"), (f"{TUNE} --table f.py", 2, "f.py is read"), (f"{TUNE} -o no/x.cu", 1, "write no/x.cu"),
    (f"{TUNE} --table no/t.json", 1, "write no/t.json"), (f"{TUNE} --table folder.cu", 1, "write folder.cu"),
    ("run k.py -D N=8 --out Y=k.py", 2, "k.py is read"), ("run k.py -D N=8 --out Y=no/y.npy", 1, "write no/y.npy"),
    ("bench k.py --device cpu -D N=8 --svg k.py", 2, "k.py is read"), ("bench k.py --device cpu -D N=8 --svg no/x.svg", 1, "write no/x.svg"),
]  # fmt: skip


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files, most of them broken."""
    room = tmp_path_factory.mktemp("room")
    texts = {
        "k.py": SCALE, "f.py": FACTORY, "two.py": SCALE + SCALE.partition("\n\n")[2].replace("scale", "other"), "none.py": "x = 1\n", "empty.py": "",
        "syntax.py": "def f(:\n", "tabs.py": "if 1:\n\tx = 1\n        y = 2\n", "deep.py": f"x = {'(' * 3000}1{')' * 3000}\n",
        "list.json": "[1, 2]", "broken.json": "{", "nested.json": "[" * 100000, "folder.py/x": "", "folder.cu/x": "", "broken/f.py": FACTORY,
        "broken/pyproject.toml": "[tool.tilec\n", "nested/f.py": FACTORY, "nested/pyproject.toml": f"[tool.tilec.define]\nM = {'[' * 5000}",
    }  # fmt: skip
    for name, text in texts.items():
        (room / name).parent.mkdir(exist_ok=True)
        (room / name).write_text(text)
    (room / "latin.py").write_bytes("# café\n".encode("latin-1") + SCALE.encode())
    (room / "zero.py").write_bytes(b"a = 1\0\n")
    (room / "loop.py").symlink_to("loop.py")
    return room


def contents(room: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in room.rglob("*") if p.is_file()}


@pytest.mark.parametrize(("line", "code", "words"), CASES, ids=[line[:60] for line, _, _ in CASES])
def test_bad_input(room: Path, line: str, code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(room)
    before = contents(room)
    assert main(line.split(" ")) == code
    said = capsys.readouterr()
    assert words in said.err and "Traceback" not in said.err and "TL09" not in said.err and not said.out, said.err
    assert contents(room) == before


def test_standard_input_that_is_closed(tmp_path: Path) -> None:
    done = subprocess.run(["bash", "-c", '"$0" -m tilec compile - -o - <&-', sys.executable], cwd=tmp_path, capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": os.getcwd()})  # fmt: skip
    assert done.returncode == 1 and "standard input" in done.stderr


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    line = 'mkdir gone && cp k.py gone && cd gone && rm -r ../gone && "$0" -m tilec compile k.py'
    (tmp_path / "k.py").write_text(SCALE)
    done = subprocess.run(["bash", "-c", line, sys.executable], cwd=tmp_path, capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": os.getcwd()})  # fmt: skip
    assert done.returncode == 1 and "folder does not exist" in done.stderr


@pytest.mark.parametrize("name", [b"bad\xff.py", b"new\nline.py", "käfer.py".encode()], ids=repr)
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_names_of_files_are_any_bytes(name: bytes, locale: str, tmp_path: Path) -> None:
    file = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    file.write_text(SCALE)
    env = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = tilec("compile", file.name, "-o", "k.cu", "--header", "k.h", "--line-directives", "-MMD", cwd=tmp_path, **env)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "k.cu").read_text(encoding="utf-8")
    assert text.isprintable() or all(line.isprintable() or "\t" in line for line in text.splitlines())
    assert text.count("\n// scale") + text.startswith("// scale") == 1 and name in (tmp_path / "k.d").read_bytes()
    assert tilec("check", file.name, cwd=tmp_path, **env).returncode == 0


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilec import files

    monkeypatch.setenv("TILEC_CACHE_DIR", "/proc/nowhere")
    place = files.usable_cache_dir("programs")
    (place / "x").write_text("x")
    assert place == files.usable_cache_dir("programs")
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "cache"))
    assert files.usable_cache_dir("programs") == tmp_path / "cache" / "programs"
