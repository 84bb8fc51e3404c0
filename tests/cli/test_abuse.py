"""Outputs that would destroy inputs, streams that are closed or full, files without an end, numbers that fit no type."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_command import SCALE, tilec

IMPLICIT = """import tilelang as T

@T.jit
def add(X, Y, n):
    for i in T.Parallel(96):
        Y[bx * 96 + i] = X[bx * 96 + i]
"""


@pytest.fixture
def room(tmp_path: Path) -> Path:
    (tmp_path / "k.py").write_text(SCALE)
    return tmp_path


def shell(line: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", line, "-", sys.executable], cwd=cwd, capture_output=True, text=True, check=False, env=os.environ)


@pytest.mark.parametrize("output", ["k.py", "./k.py", "soft.py", "hard.py"])
def test_an_input_is_never_overwritten(room: Path, output: str) -> None:
    (room / "soft.py").symlink_to("k.py")
    (room / "hard.py").hardlink_to(room / "k.py")
    for options in (["-o", output], ["-o", "k.cu", "--header", output]):
        done = tilec("compile", "k.py", *options, cwd=room)
        assert done.returncode == 2 and output in done.stderr
    assert (room / "k.py").read_text() == SCALE and not (room / "k.cu").exists()


def test_an_imported_module_is_never_overwritten(room: Path) -> None:
    (room / "sizes.py").write_text("TILE = 256\n")
    (room / "k.py").write_text("from sizes import TILE\n" + SCALE.replace("256", "TILE"))
    assert tilec("compile", "k.py", "-o", "sizes.py", cwd=room).returncode == 2
    assert (room / "sizes.py").read_text() == "TILE = 256\n"


def test_two_outputs_are_two_files(room: Path) -> None:
    assert tilec("compile", "k.py", "-o", "k.cu", "--header", "k.cu", cwd=room).returncode == 2
    assert not (room / "k.cu").exists()


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("compile k.py -o - >&-", 1), ("compile k.py -o - >/dev/full", 1), ("explain k.py >/dev/full", 1), ("--version >/dev/full", 1),
        ("compile k.py -o /dev/full", 1), ("check k.py 2>&-", 0), ("compile missing.py 2>&-", 1), ("compile /dev/zero -o k.cu", 1),
        ("compile k.py --name 'a b'", 2),
    ],
)  # fmt: skip
def test_streams_without_room_or_end(room: Path, line: str, code: int) -> None:
    done = shell(f'"$1" -m tilec {line}', room)
    assert done.returncode == code
    assert "Traceback" not in done.stderr and "TL0901" not in done.stderr and "Exception ignored" not in done.stderr
    assert "None" not in done.stderr


def test_memory_that_the_machine_lacks_is_told(room: Path) -> None:
    done = tilec("run", "k.py", "-D", "N=200000000000", "-D", "factor=1", cwd=room)
    assert done.returncode == 3 and "memory" in done.stderr and "TL0901" not in done.stderr


def test_sizes_that_fit_no_integer_have_a_place(room: Path) -> None:
    (room / "k.py").write_text(SCALE.replace('T.Tensor((N,), "float32"), Y', 'T.Tensor((10**30,), "float32"), Y'))
    done = tilec("compile", "k.py", cwd=room)
    assert done.returncode == 1 and "TL0310" in done.stderr and "TL0901" not in done.stderr
    (room / "k.py").write_text(IMPLICIT)
    for options in (["--arg", "X=float32[2147483648]"], ["-D", "n=2147483648", "--arg", "X=float32[n]"]):
        done = tilec("compile", "k.py", "--arg", "Y=float32[n]", *options, cwd=room)
        assert done.returncode == 1 and "TL0901" not in done.stderr


def test_the_help_of_what_is_inferred_fits_the_tensor(room: Path) -> None:
    (room / "k.py").write_text(IMPLICIT)
    done = tilec("compile", "k.py", cwd=room)
    assert done.returncode == 1 and "`X: T.Tensor((N,), " in done.stderr and "--arg X=float16[N]" in done.stderr
    done = tilec("compile", "k.py", "--arg", "X=float32[n]", "--arg", "Y=float32[n]", cwd=room)
    assert done.returncode == 0 and '`X: T.Tensor((n,), "float32")`' in done.stderr
    assert tilec("compile", "k.py", "--arg", "X=float32[None]", cwd=room).returncode == 2
