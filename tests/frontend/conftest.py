"""What the frontend's tests share: reading a text as a file, and the text form of what came out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilec.diagnostics import CompileError, Diagnostic
from tilec.frontend import Request, read
from tilec.ir.kernel import Module
from tilec.ir.text import parse_module, show
from tilec.ir.verify import verify

HEAD = "import tilelang\nimport tilelang.language as T\n"
HOST = """
@T.prim_func
def k(O: T.Tensor((1,), "int32")):
    with T.Kernel(1, threads=1):
        O[0] = {expression}
"""


def read_text(text: str, **options: Any) -> Module:
    """The module of a source text; every kernel in it passes the checker."""
    module = read(Request("k.py", HEAD + text, **options))
    for kernel in module.kernels:
        verify(kernel)
    return module


@pytest.fixture
def reading() -> Callable[..., Module]:
    """Reads a text (the imports of the language come before it)."""
    return read_text


@pytest.fixture
def same() -> Callable[..., None]:
    """Checks that a text means the given Tile IR, written by hand in its text form."""

    def check(text: str, expected: str, **options: Any) -> None:
        assert show(read_text(text, **options)).strip() == show(parse_module(expected)).strip()

    return check


@pytest.fixture
def fails() -> Callable[..., Diagnostic]:
    """Checks that a text is an error with this code; the line is counted after the imports. Gives the first diagnostic."""

    def check(text: str, code: str, line: int | None = None, word: str = "", **options: Any) -> Diagnostic:
        with pytest.raises(CompileError) as caught:
            read_text(text, **options)
        first = caught.value.diagnostics[0]
        assert first.code == code, first
        assert line is None or first.span.line == line + HEAD.count("\n"), first
        assert word in first.message + first.help, first
        return first

    return check


@pytest.fixture
def host() -> Callable[[str, str], int]:
    """The value of an integer expression of host code, as a kernel stores it."""

    def value(setup: str, expression: str, **options: Any) -> int:
        module = read_text(setup + HOST.format(expression=expression), **options)
        line = show(module.kernels[0].launches[0].body).strip()
        return int(line.removeprefix("O[0] = "))

    return value
