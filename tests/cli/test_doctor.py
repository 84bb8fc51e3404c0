"""What a machine lacks is told with what to install; completion scripts work in their shells; every command shows an example."""

from __future__ import annotations

import ctypes.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tilec import cli
from tilec.runtime import cubin, doctor
from tilec.runtime.doctor import Examination, Finding, lines

ROOT = Path(__file__).resolve().parents[2]


def named(found: Examination) -> dict[str, Finding]:
    return {f.name: f for f in found.findings}


def test_what_is_missing_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty PATH, no NVRTC, no driver, no packages: every finding is missing, and each says what helps."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("TILEC_LIBCUDA", "libnothing.so")
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "file" / "below"))
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(cubin, "nvrtc", lambda: None)
    monkeypatch.setattr(doctor, "_version", lambda name: "")
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    found = doctor.examine()
    assert {f.name for f in found.findings if f.ok} == {"tilec"}
    assert all(f.advice for f in found.findings if not f.ok)
    assert found.exit_code == 3
    text = "\n".join(lines(found, quiet=True))
    assert "g++" in text and "pip install" in text and "torch tensors" not in text, "what is optional is not missing"


def test_a_machine_that_has_everything(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: Examination((Finding("nvcc", True, "13.0", "x"), Finding("torch", False, "no", "y", "z", False))))
    assert cli.run(["doctor"]) == 0
    assert "absent" in capsys.readouterr().out
    assert cli.run(["doctor", "-q"]) == 0 and capsys.readouterr().out.strip() == ""
    assert cli.run(["doctor", "--json"]) == 0
    assert [f["ok"] for f in json.loads(capsys.readouterr().out)] == [True, False]


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")
def test_the_driver_and_its_gpus_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = tmp_path / "libfake.so"
    source = ROOT / "tests" / "runtime" / "fake_cuda.cpp"
    subprocess.run(["g++", "-shared", "-fPIC", "-std=c++17", "-o", str(library), str(source)], check=True)
    for capability, ok, words in (("90", True, "--arch sm_90a"), ("100", True, "--arch sm_90"), ("75", False, "older than sm_80")):
        program = "from tilec.runtime.doctor import examine; import json; print(json.dumps(examine().as_json()))"
        env = {**os.environ, "TILEC_LIBCUDA": str(library), "FAKE_CAPABILITY": capability}
        said = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout
        found = {f["name"]: f for f in json.loads(said)}
        assert found["driver"]["found"] == "for CUDA 13.0 and older"
        assert "Stand-in 1" in found["GPU 1"]["found"] and found["GPU 1"]["ok"] is ok and words in found["GPU 1"]["found"]


def test_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    """The findings on the machine of the tests agree with what can be seen otherwise."""
    found = named(doctor.examine())
    assert found["nvcc"].ok is (cubin.find_nvcc() != "")
    assert found["NumPy"].ok
    if ctypes.util.find_library("cuda") is None:
        assert not found["GPU"].ok


@pytest.mark.parametrize("command", [[], *([name] for name in cli.main.commands)])
def test_every_command_has_help_with_an_example(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*command, "--help"]) == 0
    text = capsys.readouterr().out
    assert re.search(rf"^ +tilec {' '.join(command)}", text, re.M), f"no example:\n{text}"
    assert all(len(line) <= 110 for line in text.splitlines())


@pytest.mark.parametrize(("shell", "words"), [("bash", "complete "), ("zsh", "#compdef tilec"), ("fish", "complete ")])
def test_completion_scripts(shell: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--completion", shell]) == 0
    script = capsys.readouterr().out
    assert words in script and f"_TILEC_COMPLETE={shell}_complete" in script


def test_completion_completes_commands_and_options() -> None:
    def completed(line: str, count: int) -> list[str]:
        env = {**os.environ, "_TILEC_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(count)}
        done = subprocess.run([sys.executable, "-m", "tilec"], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        return [entry.partition(",")[2] for entry in done.stdout.split()]

    assert completed("tilec comp", 1) == ["compile"]
    assert "--header" in completed("tilec compile --he", 2)
    assert completed("tilec run --device ", 3) == ["cpu", "cuda"]


def test_a_real_bash_completes(tmp_path: Path) -> None:
    """The script as a person sources it; then what the Tab key calls."""
    tool = tmp_path / "tilec"
    tool.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} -m tilec "$@"\n')
    tool.chmod(0o755)
    tab = 'eval "$(tilec --completion bash)"; COMP_WORDS=($1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _tilec_completion tilec; echo "${COMPREPLY[@]}"'
    env = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    for line, want in (("tilec expl", "explain"), ("tilec compile --lin", "--line-directives"), ("tilec run k.py --device cu", "cuda")):
        done = subprocess.run(["bash", "-c", tab, "-", line], env=env, capture_output=True, text=True, check=False)
        assert done.stdout.strip() == want and not done.stderr, (line, done)


def test_no_color_and_quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert cli._colour()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not cli._colour()
