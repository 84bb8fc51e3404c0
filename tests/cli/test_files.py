"""Outputs are whole or absent; dependency files mean to make what they should."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tilec.files import depfile, quoted, write_all

ROOT = Path(__file__).resolve().parents[2]


def test_nothing_is_left_when_one_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "old.cu").write_text("old")
    with pytest.raises(OSError):
        write_all({str(tmp_path / "old.cu"): "new", str(tmp_path / "missing" / "x.h"): "y"})
    assert (tmp_path / "old.cu").read_text() == "old"
    assert os.listdir(tmp_path) == ["old.cu"]


def test_links_are_followed_and_devices_written_straight(tmp_path: Path) -> None:
    (tmp_path / "real.cu").write_text("old")
    (tmp_path / "link.cu").symlink_to("real.cu")
    write_all({str(tmp_path / "link.cu"): "new\n", "/dev/null": "gone"})
    assert (tmp_path / "real.cu").read_bytes() == b"new\n" and (tmp_path / "link.cu").is_symlink()
    assert Path("/dev/null").is_char_device()


def test_new_files_have_ordinary_permissions(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_all({str(tmp_path / "a.cu"): "x"})
    finally:
        os.umask(before)
    assert (tmp_path / "a.cu").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("name", ["plain.py", "a b.py", "cost$.py", "c#.py", "é.py"])
def test_make_reads_the_names_it_was_given(tmp_path: Path, require_tool, name: str) -> None:
    make = require_tool("make")
    (tmp_path / name).write_text("")
    (tmp_path / "k.d").write_text(depfile("out.cu", ["k.py", name], phony=False))
    (tmp_path / "k.py").write_text("")
    (tmp_path / "Makefile").write_text("out.cu:\n\ttouch out.cu\n-include k.d\n")
    run = [make, "-s", "-C", str(tmp_path), "out.cu"]
    subprocess.run(run, check=True)
    os.utime(tmp_path / "out.cu", (2_000_000_000, 2_000_000_000))
    assert subprocess.run([*run, "-q"], check=False).returncode == 0
    os.utime(tmp_path / name, (2_000_000_100, 2_000_000_100))
    assert subprocess.run([*run, "-q"], check=False).returncode == 1, "make does not see that the file is newer"


def test_phony_rules_survive_a_deleted_module(tmp_path: Path, require_tool) -> None:
    make = require_tool("make")
    (tmp_path / "k.py").write_text("")
    (tmp_path / "Makefile").write_text("out.cu:\n\ttouch out.cu\ninclude k.d\n")
    for phony, code in ((True, 0), (False, 2)):
        (tmp_path / "k.d").write_text(depfile("out.cu", ["k.py", "gone.py"], phony))
        assert subprocess.run([make, "-s", "-C", str(tmp_path), "out.cu"], capture_output=True, check=False).returncode == code


def test_each_source_is_named_once() -> None:
    assert depfile("o", ["a", "b", "a"], phony=True) == "o: \\\n  a \\\n  b\n\nb:\n"
    assert quoted("a\\ b") == "a\\\\\\ b"


def test_a_process_that_is_killed_while_it_writes_leaves_whole_files(tmp_path: Path) -> None:
    """Both files are complete at every moment, old or new, whenever the writer dies."""
    program = (
        "from tilec.files import write_all\n"
        "while True:\n"
        "  for c in 'ab':\n"
        "    write_all({'k.cu': c * 3000000 + '.', 'k.h': c * 1000 + '.'})\n"
    )
    wholes = {name: {c * count + "." for c in "ab"} for name, count in (("k.cu", 3_000_000), ("k.h", 1000))}
    for turn in range(5):
        writer = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
        while not (tmp_path / "k.h").exists():
            time.sleep(0.01)
        time.sleep(0.02 + 0.013 * turn)
        writer.kill()
        writer.wait()
        assert all((tmp_path / name).read_text() in whole for name, whole in wholes.items())
        (tmp_path / "k.h").unlink()
