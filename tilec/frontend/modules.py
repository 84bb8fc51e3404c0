"""Modules on demand: only the statements that bind a wanted name are evaluated, in their order, and only once.

    TL2 = 96
    TL2 = 2 * TL2      ->  a kernel that asks for TL2 gets 192; open("x", "w") between them is never looked at

Imports find, in this order: the language, the few standard modules of `tilec.frontend.library`, and files beside the source
or under `-I`, which are read the same way. Everything else is poison.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from pathlib import Path

import libcst as cst

from tilec.diagnostics import Span
from tilec.frontend import hints
from tilec.frontend.effects import Effects, aliases
from tilec.frontend.library import LIBRARY
from tilec.frontend.machine import Machine
from tilec.frontend.names import assigned
from tilec.frontend.request import roots
from tilec.frontend.source import Source, load
from tilec.frontend.statements import run_statement
from tilec.frontend.values import Frame, Module, Poison
from tilec.language.catalogue import modules, suggest
from tilec.language.values import Namespace, Value

_UNBOUND = object()


def scan(name: str, path: str, source: Source, package: bool = False) -> Module:
    """A module whose statements are known and not yet evaluated."""
    tree = source.tree
    assert isinstance(tree, cst.Module)
    statements: list[cst.CSTNode] = []
    for line in tree.body:
        statements.extend(line.body if isinstance(line, cst.SimpleStatementLine) else [line])
    bindings: dict[str, list[int]] = {}
    stars = []
    for k, node in enumerate(statements):
        for bound in assigned(node):
            bindings.setdefault(bound, []).append(k)
        if isinstance(node, cst.ImportFrom) and isinstance(node.names, cst.ImportStar):
            stars.append(k)
    effects = Effects(statements)
    touched = {k: names for k, node in enumerate(statements) if (names := effects.changed(node))}
    groups = aliases(statements)
    grown = {k: frozenset((t.value,)) for k, t in _augmented(statements) if t.value in groups}
    changes = {k: names.union(*(groups.get(n, ()) for n in names)) for k, names in sorted({**grown, **touched}.items())}
    rebound = {k: effects.bound(statements[k]) for k in touched}
    reads = {k: effects.read(node) for k, node in enumerate(statements)} if changes else {}
    bound_at = {n: tuple(ks) for n, ks in bindings.items()}
    sites = _sites(bound_at, stars, changes)
    return Module(name, path, source, tuple(statements), bound_at, sites, tuple(stars), changes, touched, rebound, reads, package)


def _sites(bound: Mapping[str, tuple[int, ...]], stars: list[int], changes: Mapping[int, frozenset[str]]) -> dict[str, tuple[int, ...]]:
    """By name, the statements that bind it or may change its object, in order."""
    found = {n: {*ks, *stars} for n, ks in bound.items()}
    for k, names in changes.items():
        for n in names:
            found.setdefault(n, set(stars)).add(k)
    return {n: tuple(sorted(ks)) for n, ks in found.items()}


def _augmented(statements: list[cst.CSTNode]) -> Iterator[tuple[int, cst.Name]]:
    """Statements such as `a += b`, which change a list under all of its names."""
    for k, node in enumerate(statements):
        if isinstance(node, cst.AugAssign) and isinstance(node.target, cst.Name):
            yield k, node.target


def module_name(m: Machine, module: Module, name: str, limit: int | None) -> Value:
    """The value of a module's name before statement `limit` (None: at the end). Raises KeyError when nothing binds it."""
    if limit is None and name in module.given:
        return module.given[name]
    if limit is None and module.active:  # a function that the innermost statement calls sees what is bound by then
        try:
            return module_name(m, module, name, module.active[-1][0])
        except KeyError:
            pass
    sites = module.sites.get(name, module.stars)
    sites = sites if limit is None else sites[: bisect_left(sites, limit)]
    if sites and name in module.done.get(sites[-1], ()):
        return module.done[sites[-1]][name]
    found: Value = _UNBOUND
    for k in sites:
        if k in module.changes and k not in module.done:
            _readers_before(m, module, k)
        found = _statement(m, module, k).get(name, found)
    if found is _UNBOUND:
        if name == "__name__":
            return module.name
        raise KeyError(name)
    return found


def _readers_before(m: Machine, module: Module, k: int) -> None:
    """Evaluates what reads an object before statement `k` changes it."""
    active = {j for j, _ in module.active}
    for j in range(k):
        node = module.statements[j]
        if j in module.done or j in active or isinstance(node, (cst.FunctionDef, cst.ClassDef)) or not assigned(node):
            continue
        if module.reads[j] & module.changes[k]:
            _statement(m, module, j)


def _statement(m: Machine, module: Module, k: int) -> dict[str, Value]:
    """The names that statement `k` binds, evaluated once."""
    if k in module.done:
        return module.done[k]
    node = module.statements[k]
    if any(j == k for j, _ in module.active):
        span = module.source.span(node)
        return {n: Poison(n, m.fail("TL0201", f"`{n}` is defined in terms of itself", span)) for n in assigned(node)}
    frame = Frame(module.source, module=module, limit=k)
    module.active.append((k, frame))
    try:
        with m.outside():
            run_statement(m, node, frame, module.touched.get(k, frozenset()), module.rebound.get(k, frozenset()))
            if not isinstance(node, (cst.FunctionDef, cst.ClassDef)):
                _keep_changed(m, module, k, frame)
    finally:
        module.active.pop()
    module.done[k] = frame.names
    return frame.names


def _keep_changed(m: Machine, module: Module, k: int, frame: Frame) -> None:
    """Objects that the statement changed in place count as bound by it."""
    for name in module.changes.get(k, ()):
        if name not in frame.names:
            try:
                frame.names[name] = module_name(m, module, name, k)
            except KeyError:
                continue


def import_module(m: Machine, name: str, frame: Frame, level: int, span: Span) -> Value:
    """The module of a dotted name; `level` counts the dots of a relative import."""
    known = None if level else modules().get(name) or LIBRARY.get(name)
    if known is not None:
        return known
    base = _module_of(frame)
    folders = roots(m.request) if not level else [_parent(base, level)]
    parts = name.split(".") if name else []
    for root in folders:
        found = _find(m, root, parts)
        if found is not None:
            return found
    shown = "." * level + name
    help_line = hints.foreign(shown, "") or "only files beside the source, or in a directory given with -I, can be imported"
    cause = m.fail("TL0109", f"the module `{shown}` is not part of what the compiler reads", span, help=help_line)
    return Poison(shown, cause)


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
    key = str(path.resolve())
    if key not in m.modules:
        m.modules[key] = Module(name, str(path), load(str(path), ""), (), {}, package=True)
    return m.modules[key]


def read_module(m: Machine, name: str, path: Path) -> Module:
    """Reads and scans a sibling file once. Raises CompileError for what is wrong with it."""
    key = str(path.resolve())
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
    if "__all__" in module.bindings:
        listed = module_name(m, module, "__all__", None)
        if isinstance(listed, (list, tuple)):
            return tuple(n for n in listed if isinstance(n, str))
    names = set(module.bindings)
    for k in module.stars:
        names |= set(_statement(m, module, k))
    return tuple(sorted(n for n in names if not n.startswith("_")))


def module_attribute(m: Machine, module: Module, name: str, span: Span) -> Value:
    """`module.name`: a name it binds, or a module inside the package."""
    try:
        return module_name(m, module, name, None)
    except KeyError:
        pass
    if module.package:
        found = _find(m, Path(module.path).parent, [name])
        if found is not None:
            return found
    raise m.fail("TL0201", f"the module `{module.name or module.path}` has no `{name}`", span)


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
