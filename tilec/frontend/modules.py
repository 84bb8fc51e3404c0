"""Modules: the statements of a file run in their order, as Python would run them, and those of another file when it is imported.

    TL2 = 96
    TL2 = 2 * TL2      ->  a kernel gets 192; open("x", "w") between them is not understood, and poisons nothing that others use

Imports find, in this order: the language, the few standard modules of `tilec.frontend.library`, and files beside the source
or under `-I`, which are read the same way. Everything else is poison. A file that imports no other file changes nothing outside
itself, so its import waits until one of its names is used.
"""

from __future__ import annotations

import re
from pathlib import Path

import libcst as cst

from tilec.diagnostics import CompileError, Span
from tilec.frontend import hints
from tilec.frontend.library import LIBRARY
from tilec.frontend.machine import Machine
from tilec.frontend.names import assigned
from tilec.frontend.request import roots
from tilec.frontend.source import Source, load
from tilec.frontend.statements import run_statement, unknown_after
from tilec.frontend.values import Deferred, Fatal, Frame, Module, Poison
from tilec.language.catalogue import modules, suggest
from tilec.language.values import Namespace, Value

MAX_EXHAUSTED = 3
"""How many statements of modules may use up the budget of steps; what they bind is unknown."""

_IMPORTS = re.compile(r"^.*\bimport\b.*$", re.MULTILINE)
_DOTTED = re.compile(r"[.\w]+")


def scan(name: str, path: str, source: Source, package: bool = False) -> Module:
    """A module whose statements are known and not yet run."""
    tree = source.tree
    assert isinstance(tree, cst.Module)
    statements: list[cst.CSTNode] = []
    for line in tree.body:
        statements.extend(line.body if isinstance(line, cst.SimpleStatementLine) else [line])
    bindings: dict[str, list[int]] = {}
    for k, node in enumerate(statements):
        for bound in assigned(node):
            bindings.setdefault(bound, []).append(k)
    return Module(name, path, source, tuple(statements), {n: tuple(ks) for n, ks in bindings.items()}, package)


def module_name(m: Machine, module: Module, name: str) -> Value:
    """The value that a module's name has now. Raises KeyError when nothing has bound it."""
    _run(m, module)
    if name in module.names:
        value = module.names[name]
        return _resolved(module.names, name) if isinstance(value, Deferred) else value
    if name == "__name__":
        return module.name
    raise KeyError(name)


def _resolved(names: dict[str, Value], name: str) -> Value:
    """What a deferred import gives, now that it is needed."""
    held = names[name]
    assert isinstance(held, Deferred)
    try:
        value = held.load()
    except Fatal:
        raise
    except CompileError as fault:
        value = Poison(name, fault)
    if names.get(name) is held:
        names[name] = value
    return names[name]


def _run(m: Machine, module: Module) -> None:
    """Runs a module once. What a statement that ends the program would have bound is unknown; the others count all the same."""
    if module.state != "new":
        return
    module.state = "running"
    frame = module.frame
    for node in module.statements:
        try:
            with m.outside():
                run_statement(m, node, frame)
        except RecursionError:
            with m.outside():
                unknown_after(m, node, frame, m.fail("TL0110", "this statement is nested too deeply", module.source.span(node)))
        except Fatal as fault:
            if fault.diagnostics[0].code == "TL0104":
                m.steps, m.exhausted = 0, m.exhausted + 1
                if m.exhausted > MAX_EXHAUSTED:
                    raise
            with m.outside():
                unknown_after(m, node, frame, fault)
    module.state = "done"
    for names, name in m.waiting.pop(_key(Path(module.path)), ()):
        if isinstance(names.get(name), Deferred):
            _resolved(names, name)


def import_module(m: Machine, name: str, frame: Frame, level: int, span: Span) -> Value:
    """The module of a dotted name, run with the packages that it stands in; `level` counts the dots of a relative import."""
    known = None if level else modules().get(name) or LIBRARY.get(name)
    if known is not None:
        return known
    parts = name.split(".") if name else []
    for root in _folders(m, frame, level):
        found = _find(m, root, parts)
        if found is None:
            continue
        for k in range(1, len(parts)):
            if (outer := _find(m, root, parts[:k])) is not None:
                _run(m, outer)
        _run(m, found)
        return found
    shown = "." * level + name
    help_line = hints.foreign(shown, "") or "only files beside the source, or in a directory given with -I, can be imported"
    cause = m.fail("TL0109", f"the module `{shown}` is not part of what the compiler reads", span, help=help_line)
    return Poison(shown, cause)


def leaf(m: Machine, name: str, frame: Frame, level: int) -> str:
    """The key of the file that an import reads, if it has not been run and imports no other file; else empty."""
    parts = name.split(".")
    if not level and (name in LIBRARY or name in modules()):
        return ""
    for root in _folders(m, frame, level):
        path = root.joinpath(*parts[:-1], f"{parts[-1]}.py")
        packages = (root.joinpath(*parts[:k], "__init__.py") for k in range(1, len(parts) + 1))
        if any(p.is_file() for p in packages):
            return ""
        if path.is_file():
            key = _key(path)
            known = m.modules.get(key)
            return key if (known is None or known.state == "new") and _alone(m, path, key) else ""
    return ""


def _alone(m: Machine, path: Path, key: str) -> bool:
    """True for a file in whose text no line with an import names another file that could be meant."""
    if key in m.waiting:
        return True
    try:
        text = path.read_text("utf-8", errors="replace").replace("\\\n", " ")
    except OSError:
        return False
    folders = [path.parent, *roots(m.request)]
    words = {w for line in _IMPORTS.findall(text) for w in _DOTTED.findall(line)}
    if any(w.startswith(".") for w in words):
        return False
    return not any((f / w.partition(".")[0]).is_dir() or (f / f"{w.partition('.')[0]}.py").is_file() for w in words for f in folders)


def _key(path: Path) -> str:
    return str(path.resolve())


def _folders(m: Machine, frame: Frame, level: int) -> list[Path]:
    """Where a module is looked for."""
    return roots(m.request) if not level else [_parent(_module_of(frame), level)]


def _module_of(frame: Frame) -> Module | None:
    scope: Frame | None = frame
    while scope is not None and scope.module is None:
        scope = scope.parent
    return scope.module if scope is not None else None


def _parent(base: Module | None, level: int) -> Path:
    """The directory that `level` dots of a relative import mean."""
    folder = Path(base.path).parent if base is not None and base.path != "-" else Path()
    for _ in range(level - 1):
        folder = folder.parent if folder.name not in ("", "..") else folder / ".."
    return folder


def _find(m: Machine, root: Path, parts: list[str]) -> Module | None:
    """The file of a dotted name under a directory: a module, or a package's __init__ (which may be missing)."""
    if not all(p.isidentifier() for p in parts):
        return None
    stem = root.joinpath(*parts)
    candidates = [stem / "__init__.py"] + ([stem.parent / f"{stem.name}.py"] if parts else [])
    for path in candidates:
        if path.is_file():
            return read_module(m, ".".join(parts), path)
    return _namespace(m, ".".join(parts), stem) if stem.is_dir() else None


def _namespace(m: Machine, name: str, folder: Path) -> Module:
    """A directory without __init__.py, which holds modules and no names."""
    path = folder / "__init__.py"
    key = _key(path)
    if key not in m.modules:
        m.modules[key] = Module(name, str(path), load(str(path), ""), (), {}, package=True)
    return m.modules[key]


def read_module(m: Machine, name: str, path: Path) -> Module:
    """Reads and scans a sibling file once. Raises CompileError for what is wrong with it."""
    key = _key(path)
    if key not in m.modules:
        shown = str(path)
        try:
            text = path.read_bytes()
        except OSError as fault:
            raise m.fail("TL0103", f"cannot read the file: {fault.strerror}", Span(shown, 1, 1, 1, 1)) from None
        m.files.append(shown)
        m.modules[key] = scan(name, shown, load(shown, text), path.name == "__init__.py")
    return m.modules[key]


def exports(m: Machine, module: Value) -> tuple[str, ...]:
    """The names that `from module import *` binds."""
    if isinstance(module, Namespace):
        return tuple(n for n in module.members if not n.startswith("_"))
    if not isinstance(module, Module):
        return ()
    _run(m, module)
    listed = module.names.get("__all__")
    if isinstance(listed, (list, tuple)):
        return tuple(n for n in listed if isinstance(n, str))
    return tuple(sorted(n for n in module.names if not n.startswith("_")))


def module_attribute(m: Machine, module: Module, name: str, span: Span) -> Value:
    """`module.name`: a name it binds, or a module inside the package."""
    try:
        return module_name(m, module, name)
    except KeyError:
        pass
    if module.package:
        found = _find(m, Path(module.path).parent, [name])
        if found is not None:
            _run(m, found)
            return found
    early = module.state == "running" and name in module.bindings
    help_line = "the two files import each other: its statement has not run yet" if early else ""
    raise m.fail("TL0201", f"the module `{module.name or module.path}` has no `{name}`", span, help=help_line)


def namespace_attribute(m: Machine, space: Namespace, name: str, span: Span) -> Value:
    """`space.name` of the language or the library; an unknown name gets the nearest known one as help."""
    if name in space.members:
        return space.members[name]
    deeper = modules().get(f"{space.name}.{name}")
    if deeper is not None:
        return deeper
    short = "T" if space.name == "tilelang.language" else space.name
    near = suggest(space, name)
    meant = f"did you mean `{short}.{near}`?" if near else hints.foreign(short, name)
    raise m.fail("TL0201", f"`{short}` has no `{name}`", span, help=meant)
