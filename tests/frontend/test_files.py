"""Host programs have Python's value, or are an error at their place: never a value that a change has passed by."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from tests.frontend.conftest import HEAD, HOST
from tests.frontend.programs_of_files import FILES, HARMLESS, ONE_FILE, REFUSED, UNKNOWN
from tilec.diagnostics import CompileError
from tilec.frontend import Request, read
from tilec.ir.text import show

PROGRAMS = {**ONE_FILE, **FILES}


def write(folder: Path, program: str) -> str:
    """Writes the files of a program; the text of the first one."""
    name, parts = "", {"": ""}
    for line in program.splitlines(keepends=True):
        if line.startswith("# "):
            name = line[2:].strip()
            parts[name] = ""
        else:
            parts[name] += line
    for name, text in parts.items():
        if name:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
    return parts[""]


def by_python(folder: Path, text: str) -> object:
    """What Python leaves in `V`."""
    known = set(sys.modules)
    importlib.invalidate_caches()
    sys.path.insert(0, str(folder))
    names: dict[str, object] = {}
    try:
        exec(text, names)
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - known:
            if str(folder) in str(getattr(sys.modules[name], "__file__", None) or folder):
                del sys.modules[name]
    return names["V"]


def by_the_evaluator(folder: Path, text: str) -> int:
    """What a kernel stores that asks for `V`."""
    module = read(Request(str(folder / "k.py"), HEAD + text + HOST.format(expression="V")))
    return int(show(module.kernels[0].launches[0].body).strip().removeprefix("O[0] = "))


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - REFUSED))
def test_programs_have_pythons_value(tmp_path: Path, name: str) -> None:
    text = write(tmp_path, PROGRAMS[name])
    assert by_the_evaluator(tmp_path, text) == by_python(tmp_path, text)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_programs_that_are_not_understood_have_no_value(tmp_path: Path, name: str) -> None:
    text = write(tmp_path, PROGRAMS[name])
    assert isinstance(by_python(tmp_path, text), int)
    with pytest.raises(CompileError) as caught:
        by_the_evaluator(tmp_path, text)
    assert caught.value.diagnostics[0].span.line > HEAD.count("\n")


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_may_have_changed_has_no_value(tmp_path: Path, name: str) -> None:
    with pytest.raises(CompileError) as caught:
        by_the_evaluator(tmp_path, write(tmp_path, UNKNOWN[name]))
    assert caught.value.diagnostics[0].code in ("TL0201", "TL0109", "TL0108")


@pytest.mark.parametrize("name", HARMLESS)
def test_statements_that_change_nothing_do_no_harm(tmp_path: Path, name: str) -> None:
    text, wanted = HARMLESS[name]
    assert by_the_evaluator(tmp_path, text) == wanted


def test_files_that_nothing_needs_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "leaf.py").write_text("def f(:\n")
    text = HEAD + "import leaf\nfrom leaf import f\nV = 1\n" + HOST.format(expression="V")
    assert read(Request(str(tmp_path / "k.py"), text)).sources == (str(tmp_path / "k.py"),)


KERNEL = "@T.prim_func\ndef k(O: T.Tensor((1,), 'int32')):\n    with T.Kernel(1, threads=1):\n        O[0] = n\n"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("n = 1\n" + KERNEL + "n = 2\n", {"k": 1}),
        (KERNEL + "n = 2\n", {"k": 2}),
        ("L = [[1], 2]\n" + KERNEL.replace("= n", "= len(L) * 10 + len(L[0])") + "L.append(2)\nL[0].append(3)\n", {"k": 21}),
        ("C = {'n': 1}\nD = C\n" + KERNEL.replace("= n", "= C['n'] + D['n'] * 10 + (C is D) * 100") + "D['n'] = 2\n", {"k": 111}),
        ("n = 1\ndef f():\n    return n\n" + KERNEL.replace("= n", "= f()") + "n = 2\n", {"k": 1}),
        ("L = [1]\ndef g():\n    return L[0]\ndef f():\n    return g()\n" + KERNEL.replace("= n", "= f()")
         + "L[0] = 2\ndef g():\n    return 7\n", {"k": 1}),
        ("n = 1\n@T.macro\ndef put(O):\n    O[0] = n\n" + KERNEL.replace("O[0] = n", "put(O)") + "n = 2\n", {"k": 1}),
        ("def f(i):\n    return n if i == 0 else f(i - 1)\nn = 1\n" + KERNEL.replace("= n", "= f(2)") + "n = 2\n", {"k": 1}),
        ("KS = {}\nfor n in (3, 4):\n" + "".join(f"    {line}\n" for line in KERNEL.splitlines()) + "    KS[n] = k\na = KS[3]\nb = KS[4]\n", {"a": 3, "b": 4}),
        ("def make(ks):\n    for n in (5, 6):\n" + "".join(f"        {line}\n" for line in KERNEL.splitlines())
         + "        ks.append(k)\n    return ks\nks = make([])\na = ks[0]\nb = ks[1]\n", {"a": 5, "b": 6}),
    ],
)  # fmt: skip
def test_kernels_have_the_values_of_the_place_where_they_are_made(reading, text: str, wanted: dict[str, int]) -> None:
    found = {k.symbol: show(k.launches[0].body).strip() for k in reading(text).kernels}
    assert {n: found.get(n) for n in wanted} == {n: f"O[0] = {v}" for n, v in wanted.items()}
