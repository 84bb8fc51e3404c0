"""Questions about a function that its text alone answers.

    style(<def f: @T.prim_func def main ...; return main>)  ->  "lazy"
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from tilec.frontend.names import children, dotted

Def = cst.FunctionDef | cst.Lambda


def parameters(node: Def) -> tuple[cst.Param, ...]:
    """All parameters that take one value, in order."""
    p = node.params
    return (*p.posonly_params, *p.params, *p.kwonly_params)


def walk(node: cst.CSTNode, into_functions: bool = True) -> Iterator[cst.CSTNode]:
    """A node and everything below it; without `into_functions`, not the bodies of functions inside it."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        if not into_functions and current is not node and isinstance(current, (cst.FunctionDef, cst.Lambda, cst.ClassDef)):
            continue
        stack.extend(reversed(tuple(children(current))))


def yields(node: cst.FunctionDef) -> bool:
    """True for a generator function."""
    return any(isinstance(n, cst.Yield) for n in walk(node.body, into_functions=False))


def is_prim_func(node: cst.FunctionDef) -> bool:
    """True when a decorator's name ends in prim_func."""
    return any(_last(d.decorator) == "prim_func" for d in node.decorators)


def _last(node: cst.BaseExpression) -> str:
    if isinstance(node, cst.Call):
        node = node.func
    return dotted(node).rpartition(".")[2]


def inner_kernels(node: Def) -> tuple[str, ...]:
    """Names of the prim_funcs that a function defines, at any depth."""
    return tuple(n.name.value for n in walk(node.body) if isinstance(n, cst.FunctionDef) and is_prim_func(n))


_TILE_WORK = frozenset((
    "alloc_shared", "alloc_fragment", "alloc_local", "alloc_var", "copy", "gemm", "clear", "fill", "Pipelined", "Parallel", "serial",
    "unroll", "vectorized",
))  # fmt: skip
_EAGER_WORK = frozenset(("Kernel", "const", "empty", "launch_thread"))


def style(node: Def) -> str:
    """How a function decorated with jit makes its kernel: lazy (returns one), eager (is one), implicit (has no T.Kernel)."""
    if inner_kernels(node):
        return "lazy"
    called = {_last(n.func) for n in walk(node.body) if isinstance(n, cst.Call)}
    if called & _EAGER_WORK or _declares(node):
        return "eager"
    return "implicit" if called & _TILE_WORK else "lazy"


def declares_axes(node: Def) -> bool:
    """True for a kernel that has T.launch_thread and no T.Kernel: its launch is what the axes say."""
    called = {_last(n.func) for n in walk(node.body, into_functions=False) if isinstance(n, cst.Call)}
    return "launch_thread" in called and "Kernel" not in called


def _declares(node: Def) -> bool:
    """True when the body declares one of the function's parameters: `A: T.Tensor(...)`."""
    if isinstance(node, cst.Lambda):
        return False
    names = {p.name.value for p in parameters(node)}
    found = (n for n in walk(node.body, into_functions=False) if isinstance(n, cst.AnnAssign) and n.value is None)
    return any(isinstance(n.target, cst.Name) and n.target.value in names for n in found)


def uses(node: Def, name: str, verbs: tuple[str, ...]) -> bool:
    """True when `name` is an argument of a call that may take a region: one of `verbs`, or a function of the user's own."""
    for n in walk(node.body):
        if not isinstance(n, cst.Call) or not any(isinstance(a.value, cst.Name) and a.value.value == name for a in n.args):
            continue
        if _last(n.func).startswith(verbs) or (isinstance(n.func, cst.Name) and n.func.value not in _SCALAR_FUNCTIONS):
            return True
    return any(isinstance(n, cst.Subscript) and isinstance(n.value, cst.Name) and n.value.value == name for n in walk(node.body))


_SCALAR_FUNCTIONS = frozenset(("min", "max", "int", "float", "bool", "abs", "sum", "round", "range", "len"))
