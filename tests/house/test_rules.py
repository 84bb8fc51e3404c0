"""House rules: sizes of functions and files, docstrings, import cycles, and which module may import which library."""

from __future__ import annotations

import ast
import statistics
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tilec"
LONGEST_FUNCTION, P95_FUNCTION, LONGEST_FILE, LONGEST_CATALOGUE = 80, 40, 600, 900
CATALOGUES = {"emit/reserved.py", "diagnostics/codes.py"}
CHANGING = {"append", "add", "update", "setdefault", "extend", "clear", "pop"}
MODULES = sorted(PACKAGE.rglob("*.py"))
ONLY_IN = {
    "libcst": lambda m: m.startswith("tilec.frontend"),
    "jinja2": lambda m: m == "tilec.emit.render",
    "click": lambda m: m == "tilec.cli",
    "numpy": lambda m: m.startswith(("tilec.reference", "tilec.emulator", "tilec.runtime")),
    "ml_dtypes": lambda m: m.startswith(("tilec.reference", "tilec.emulator", "tilec.runtime")),
    "cupy": lambda m: m.startswith("tilec.runtime"),
}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (n for n in ast.walk(node) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def length(f: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    doc = f.body[0] if ast.get_docstring(f) is not None else None
    return (f.end_lineno or 0) - f.lineno + 1 - ((doc.end_lineno or 0) - doc.lineno + 1 if doc else 0)


def imports(body: list[ast.stmt], deep: bool) -> Iterator[str]:
    """Absolute names that statements import: at load time, or with `deep` inside functions too."""
    stack: list[ast.AST] = list(body)
    while stack:
        n = stack.pop()
        if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and not deep:
            continue
        if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test):
            stack += n.orelse
        elif isinstance(n, ast.Import):
            yield from (a.name for a in n.names)
        elif isinstance(n, ast.ImportFrom):
            assert n.level == 0, f"relative import in line {n.lineno}"
            yield n.module or ""
            yield from (f"{n.module}.{a.name}" for a in n.names)
        else:
            stack += ast.iter_child_nodes(n)


def loaded(path: Path, names: Collection[str]) -> Iterator[str]:
    """The modules of the package that a module loads with itself; `from package import module` loads the module."""
    found = [i for i in imports(tree(path).body, deep=False) if i in names]
    return (i for i in found if not any(other.startswith(f"{i}.") for other in found))


def test_functions_are_short() -> None:
    sizes = {f"{p.relative_to(ROOT)}:{f.lineno} {f.name}": length(f) for p in MODULES for f in functions(tree(p))}
    assert len(sizes) > 300
    assert {k: v for k, v in sizes.items() if v > LONGEST_FUNCTION} == {}
    ordered = sorted(sizes.values())
    assert ordered[int(0.95 * len(ordered))] <= P95_FUNCTION


def test_files_are_short() -> None:
    lines = {str(p.relative_to(PACKAGE)): len(p.read_text().splitlines()) for p in MODULES}
    assert {k: n for k, n in lines.items() if n > (LONGEST_CATALOGUE if k in CATALOGUES else LONGEST_FILE)} == {}
    assert statistics.median(n for n in lines.values() if n) <= 200


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_public_things_have_docstrings(path: Path) -> None:
    body = tree(path)
    missing = [] if ast.get_docstring(body) else ["the module"]
    for n in body.body:
        if isinstance(n, ast.ClassDef | ast.FunctionDef) and not n.name.startswith("_"):
            missing += [] if ast.get_docstring(n) else [n.name]
            if isinstance(n, ast.ClassDef):
                methods = [m for m in n.body if isinstance(m, ast.FunctionDef) and not m.name.startswith("_")]
                missing += [f"{n.name}.{m.name}" for m in methods if not ast.get_docstring(m)]
    assert missing == []


@pytest.mark.parametrize("library", ONLY_IN)
def test_libraries_stay_in_their_rooms(library: str) -> None:
    users = {module_name(p) for p in MODULES if any(i.split(".")[0] == library for i in imports(tree(p).body, deep=True))}
    assert users, f"nothing imports {library}: the rule is out of date"
    assert {m for m in users if not ONLY_IN[library](m)} == set()


def test_there_are_no_import_cycles() -> None:
    names = {module_name(p): p for p in MODULES}
    graph = {m: set(loaded(p, names)) - {m} for m, p in names.items()}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, f"cycle: {' > '.join((*path[path.index(module):], module))}"
        if module not in done:
            for other in sorted(graph[module]):
                visit(other, (*path, module))
            done.add(module)

    for module in sorted(graph):
        visit(module, ())


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_no_module_keeps_state(path: Path) -> None:
    """No `global` statement, and no module-level name that a function of the module appends to or sets items of."""
    body = tree(path)
    assert not [n for n in ast.walk(body) if isinstance(n, ast.Global)]
    names = {t.id for n in body.body if isinstance(n, ast.Assign | ast.AnnAssign) for t in ([n.target] if isinstance(n, ast.AnnAssign) else n.targets)
             if isinstance(t, ast.Name)}  # fmt: skip
    changed = set()
    for f in functions(body):
        local = {a.arg for a in ast.walk(f) if isinstance(a, ast.arg)} | {n.id for n in ast.walk(f) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        for n in ast.walk(f):
            match n:
                case ast.Subscript(ctx=ast.Store(), value=ast.Name(id=name)) if name not in local:
                    changed.add(name)
                case ast.Call(func=ast.Attribute(attr=method, value=ast.Name(id=name))) if method in CHANGING and name not in local:
                    changed.add(name)
    assert changed & names == set()


def test_the_project_stands_alone() -> None:
    """No file names a place outside of the repository, and no file is left empty or unfinished."""
    outside = ["/work" + "/", "../" + "shared", "/home" + "/"]
    found = []
    for folder in ("tilec", "templates", "tests", "samples", "benchmarks", "docs"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix in (".py", ".md", ".jinja", ".cuh", ".cu", ".h", ".hpp", ".toml", ".json"):
                text = path.read_text(errors="replace")
                found += [f"{path.relative_to(ROOT)}: {word}" for word in outside if word in text]
    assert found == []
