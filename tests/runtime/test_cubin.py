"""The cache of machine code: many writers, killed writers, no compiler; and real machine code from NVRTC and nvcc."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.toolchain import needs_nvcc, needs_nvrtc
from tilec.runtime import cubin
from tilec.runtime.request import MissingError

ROOT = Path(__file__).resolve().parents[2]
KERNEL = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] *= 1.5f; }\n'


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "cache"))


@needs_nvrtc
def test_nvrtc_makes_machine_code_that_keeps_small_numbers(tmp_path: Path) -> None:
    made = cubin.cubin(KERNEL, "sm_90a")
    assert made.startswith(b"\x7fELF") and cubin.entry_of(KERNEL, "sm_90a").read_bytes() == made
    with pytest.raises(cubin.BuildError, match="nonsense"):
        cubin.cubin("nonsense", "sm_80")
    assert cubin.nvrtc_version() >= (12, 0)


@needs_nvcc
def test_nvcc_is_the_way_without_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cubin, "nvrtc", lambda: None)
    assert cubin.cubin(KERNEL, "sm_80").startswith(b"\x7fELF")
    with pytest.raises(cubin.BuildError, match="nvcc refuses"):
        cubin.cubin("nonsense", "sm_80")


def test_an_entry_needs_no_compiler_and_without_both_there_is_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cubin, "nvrtc", lambda: None)
    monkeypatch.setattr(cubin, "find_nvcc", lambda: "")
    with pytest.raises(MissingError, match="pip install"):
        cubin.cubin(KERNEL, "sm_80")
    cubin.store(cubin.entry_of(KERNEL, "sm_80"), b"\x7fELFhere")
    assert cubin.cubin(KERNEL, "sm_80") == b"\x7fELFhere"
    with pytest.raises(MissingError):
        cubin.cubin(KERNEL, "sm_86")


def test_a_cache_that_cannot_be_written_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr(cubin, "compile_cubin", lambda text, arch, options: b"\x7fELF")
    assert cubin.cubin(KERNEL, "sm_80") == b"\x7fELF"


WRITER = """
import sys
from pathlib import Path
from tilec.runtime import cubin
data = b"\\x7fELF" + bytes([int(sys.argv[1])]) * 3_000_000
print("ready", flush=True)
while True:
    cubin.store(Path(sys.argv[2]), data)
"""


def test_writers_that_are_killed_leave_whole_entries(tmp_path: Path) -> None:
    """Readers see one writer's entry or another's, never a mixture or a part, while writers are killed in the middle."""
    entry = tmp_path / "cache" / "cubins" / "k.cubin"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(n), str(entry)], cwd=ROOT, stdout=subprocess.PIPE) for n in (1, 2, 3)]
    for w in writers:
        assert w.stdout is not None and w.stdout.readline()
    for w in writers:
        end = time.monotonic() + 0.4
        while time.monotonic() < end:
            if entry.exists():
                data = entry.read_bytes()
                assert len(data) == 3_000_004 and len(set(data[4:])) == 1
        w.send_signal(signal.SIGKILL)
        w.wait()
        w.stdout.close()
    data = entry.read_bytes()
    assert len(data) == 3_000_004 and len(set(data[4:])) == 1


def test_what_dead_writers_left_is_removed_later(tmp_path: Path) -> None:
    entry = tmp_path / "cubins" / "k.cubin"
    cubin.store(entry, b"\x7fELF1")
    old, new = entry.with_name("a.tmp"), entry.with_name("b.tmp")
    for file in (old, new):
        file.write_bytes(b"part")
    os.utime(old, (time.time() - 7200,) * 2)
    cubin.store(entry, b"\x7fELF2")
    assert not old.exists() and new.exists() and entry.read_bytes() == b"\x7fELF2"
