"""Modules beside the file: found, read once, never run."""

from __future__ import annotations

import pytest

from tilec.diagnostics import CompileError
from tilec.frontend import Request, read
from tilec.ir.text import show

KERNEL = """
import tilelang.language as T
@T.prim_func
def k(O: T.Tensor((1,), "int32")):
    with T.Kernel(1, threads=1):
        O[0] = V
"""
FILES = {
    "consts.py": "TILE = 96\n_private = 1\nraise RuntimeError\n",
    "helpers.py": "import consts\ndef up(n, m=consts.TILE):\n    return (n + m - 1) // m * m\n",
    "pack/__init__.py": "from .inner import twice, BASE\nfrom . import deep\n__all__ = ['twice', 'BASE']\n",
    "pack/inner.py": "from .deep.more import FIVE\nBASE = FIVE + 1\ndef twice(v):\n    return v * 2 + BASE\n",
    "pack/deep/__init__.py": "",
    "pack/deep/more.py": "from ...consts import TILE\nfrom ..other import THREE\nFIVE = THREE + 2\n",
    "pack/other.py": "THREE = 3\n",
    "plain/leaf.py": "SEVEN = 7\n",
    "broken.py": "def f(:\n",
    "latin.py": b"x = '\xff'\n",
    "wide/extra.py": "NINE = 9\n",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def value(setup: str, **options) -> tuple[int, tuple[str, ...]]:
    module = read(Request("k.py", setup + KERNEL, **options))
    return int(show(module.kernels[0].launches[0].body).strip().removeprefix("O[0] = ")), module.sources


@pytest.mark.parametrize(
    ("setup", "wanted", "files"),
    [
        ("from consts import TILE as V\n", 96, ["consts.py"]),
        ("import consts as c, helpers\nV = helpers.up(200) + c.TILE\n", 384, ["consts.py", "helpers.py"]),
        ("from consts import *\nV = TILE\n", 96, ["consts.py"]),
        ("from pack import twice\nV = twice(2)\n", 10, ["pack/__init__.py", "pack/inner.py", "pack/deep/__init__.py", "pack/deep/more.py", "pack/other.py"]),
        ("from pack import *\nV = BASE\n", 6, None),
        ("import pack.inner\nV = pack.inner.BASE + pack.deep.more.FIVE\n", 11, None),
        ("from plain.leaf import SEVEN as V\n", 7, ["plain/leaf.py"]),
        ("import plain.leaf as leaf\nV = leaf.SEVEN\n", 7, ["plain/leaf.py"]),
        ("def f():\n    from consts import TILE\n    return TILE\nV = f()\n", 96, ["consts.py"]),
    ],
)
def test_siblings_are_found(folder, setup: str, wanted: int, files: list[str] | None) -> None:
    found, sources = value(setup)
    assert found == wanted
    assert sources[0] == "k.py"
    assert files is None or sorted(sources[1:]) == sorted(files)


def test_include_directories(folder) -> None:
    with pytest.raises(CompileError):
        value("from extra import NINE as V\n")
    assert value("from extra import NINE as V\n", include=("wide",)) == (9, ("k.py", "wide/extra.py"))


@pytest.mark.parametrize(
    ("setup", "code", "place"),
    [
        ("from broken import f as V\n", "TL0101", "broken.py"),
        ("from latin import x as V\n", "TL0103", "latin.py"),
        ("from consts import NOPE as V\n", "TL0201", "k.py"),
        ("import consts\nV = consts.NOPE\n", "TL0201", "k.py"),
        ("from nowhere import thing as V\n", "TL0109", "k.py"),
        ("import nowhere.deeper\nV = nowhere.deeper.x\n", "TL0109", "k.py"),
        ("from .. import V\n", "TL0201", "k.py"),
    ],
)
def test_what_cannot_be_imported_is_told_where_it_is_needed(folder, setup: str, code: str, place: str) -> None:
    assert value(setup.replace("V", "unused") + "V = 1\n")[0] == 1
    with pytest.raises(CompileError) as caught:
        value(setup)
    first = caught.value.diagnostics[0]
    assert (first.code, first.span.file) == (code, place)


def test_modules_that_import_each_other(folder) -> None:
    (folder / "a.py").write_text("ONE = 1\nimport b\ndef f():\n    return b.TWO + ONE\n")
    (folder / "b.py").write_text("import a\nTWO = 2\nTHREE = a.ONE + TWO\n")
    assert value("import a, b\nV = a.f() * 10 + b.THREE\n")[0] == 33


def test_factories_of_other_files(folder) -> None:
    (folder / "fac.py").write_text("import tilelang.language as T\ndef make(n):\n" + KERNEL.replace("\n", "\n    ").replace("V", "n") + "\n    return k\n")
    module = read(Request("main.py", "from fac import make\nimport fac\nk1 = make(1)\nk2 = fac.make(2)\n"))
    assert [(k.symbol, k.span.file) for k in module.kernels] == [("k1", "fac.py"), ("k2", "fac.py")]
