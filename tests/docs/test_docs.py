"""Every shell and Python block of the README and of docs/ is run, page by page, in a folder of its own; links and options hold.

A comment in front of a block says what else to do with it:

    <!-- file: NAME -->   write it to NAME, for the blocks behind it
    <!-- gpu -->          needs a GPU: look at its syntax only
    <!-- nvcc -->         is run where nvcc is; elsewhere look at its syntax only
    <!-- syntax: WHY -->  is not run for the reason given: look at its syntax only
    <!-- fails: CODE -->  ends with this exit code
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from tests.toolchain import needs_gxx
from tilec import cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"(?ms)^(?:<!-- (?P<mark>\w+)(?:: (?P<value>[^\n]*?))? -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$")
PROGRAMS = {"python": "py", "sh": "sh", "bash": "sh", "shell": "sh", "py": "py", "console": "sh"}
OTHER_KINDS = {"", "c", "cpp", "toml", "make", "makefile", "cmake", "text", "json", "cuda"}
TOLD = {"file", "gpu", "nvcc", "syntax", "fails", None}


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and what the comment in front of it says."""

    kind: str
    text: str
    mark: str | None
    value: str


def blocks(page: Path) -> list[Block]:
    found = [Block(m["kind"], m["text"], m["mark"], m["value"] or "") for m in BLOCK.finditer(page.read_text())]
    assert len(found) * 2 == len(re.findall(r"(?m)^```", page.read_text())), f"{page.name} has a fence that is not understood"
    return found


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A folder with the samples and with `tilec` on the path."""
    for name in ("samples", "benchmarks", "templates", "Makefile", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "tilec"
    tool.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tilec "$@"\n')
    tool.chmod(0o755)
    return tmp_path


def run(command: list[str], room: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{room / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    return subprocess.run(command, cwd=room, env=env, capture_output=True, text=True, timeout=240, check=False)


def check_syntax(block: Block, room: Path) -> None:
    if PROGRAMS[block.kind] == "py":
        compile(block.text, "block", "exec")
        return
    done = run([shutil.which("bash") or "sh", "-n", "-c", block.text], room)
    assert done.returncode == 0, done.stderr
    for line in block.text.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["tilec"] and not words[1].startswith("-"):
            command = cli.main.commands[words[1]]
            command.make_context(words[1], words[2:], resilient_parsing=False)


@needs_gxx
@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "tutorial.zh.md"], ids=lambda p: str(p.relative_to(ROOT)))
def test_the_blocks_of_a_page(page: Path, room: Path) -> None:
    for block in blocks(page):
        assert block.kind in PROGRAMS or block.kind in OTHER_KINDS, f"a block of an unknown kind: {block.kind}"
        assert block.mark in TOLD, f"a comment that means nothing: {block.mark}"
        if block.mark == "file":
            (room / block.value).write_text(block.text)
        elif block.kind == "toml":
            tomllib.loads(block.text)
        elif block.kind in PROGRAMS and (block.mark in ("gpu", "syntax") or (block.mark == "nvcc" and shutil.which("nvcc") is None)):
            assert block.mark != "syntax" or block.value, "say why it is not run"
            check_syntax(block, room)
        elif block.kind in PROGRAMS:
            program = [sys.executable, "-c"] if PROGRAMS[block.kind] == "py" else ["bash", "-euo", "pipefail", "-c"]
            done = run([*program, block.text], room)
            wanted = int(block.value) if block.mark == "fails" else 0
            assert done.returncode == wanted, f"{block.text}\nended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def test_the_tutorials_show_the_same_code() -> None:
    """So what has been run of one holds for the other."""
    english, chinese = (blocks(ROOT / "docs" / name) for name in ("tutorial.md", "tutorial.zh.md"))
    assert len(english) >= 10 and english == chinese


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", re.sub(r"(?ms)^```.*?^```|`[^`\n]*`", "", page.read_text())):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("name", sorted(cli.main.commands))
def test_every_option_is_in_the_page_of_its_command(name: str) -> None:
    folder = ROOT / "docs" / "commands"
    page = folder / f"{name}.md"
    assert page.is_file(), f"docs/commands/{name}.md is missing"
    assert f"[{name}]({name}.md)" in (folder / "README.md").read_text()
    text, shared = page.read_text(), (folder / "options.md").read_text()
    for option in cli.main.commands[name].params:
        if isinstance(option, click.Option):
            for spelling in (*option.opts, *option.secondary_opts):
                assert re.search(rf"(?<![\w-]){re.escape(spelling)}(?![\w-])", text + shared), f"{spelling} is not in the page of {name}"


@pytest.mark.parametrize("name", sorted(cli.main.commands))
def test_every_option_has_a_word_of_help(name: str) -> None:
    command = cli.main.commands[name]
    assert command.help
    silent = [o.opts[-1] for o in command.params if isinstance(o, click.Option) and not o.help and o.name not in ("error_format", "seed")]
    assert silent == []
