"""Builds with make and CMake against a copy of tilec that nothing else changes while they run.

    tools = Tools(tmp_path_factory.mktemp("tools"));  done = run(folder, "make", f"TILEC={tools.command}")
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Tools:
    """A copy of tilec in a folder whose name has a blank, and a command that runs it."""

    def __init__(self, room: Path) -> None:
        self.home = room / "of tilec"
        for name in ("tilec", "templates"):
            shutil.copytree(ROOT / name, self.home / name, ignore=shutil.ignore_patterns("__pycache__"))
        past = time.time() - 1000
        for file in self.home.rglob("*"):
            os.utime(file, (past, past))
        self.command = room / "tilec"
        lines = ["#!/bin/sh", f"export PYTHONPATH='{self.home}' PYTHONPYCACHEPREFIX='{room / 'bytecode'}'", f"exec '{sys.executable}' -P -m tilec \"$@\""]
        self.command.write_text("\n".join(lines) + "\n")
        self.command.chmod(0o755)


def run(folder: Path, *command: str, code: int | None = 0) -> str:
    """What a command says; it must end with `code`, or with anything where that is None."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    said = done.stdout + done.stderr
    assert code is None or done.returncode == code, f"{' '.join(command)} ended with {done.returncode}:\n{said}"
    return said


def touch(file: Path) -> None:
    """Makes a file newer than everything that is there, without waiting."""
    newest = max(f.stat().st_mtime for f in file.parent.rglob("*") if f.is_file())
    at = max(newest, time.time()) + 0.01
    os.utime(file, (at, at))
