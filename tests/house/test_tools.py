"""ruff, mypy --strict and import-linter over the whole project."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"}, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_ruff() -> None:
    pytest.importorskip("ruff")
    run("ruff", "check", "--no-cache", "tilec", "tests", "samples", "benchmarks")


def test_mypy() -> None:
    pytest.importorskip("mypy")
    run("mypy")


def test_layers() -> None:
    pytest.importorskip("importlinter")
    done = subprocess.run([str(Path(sys.executable).parent / "lint-imports"), "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
