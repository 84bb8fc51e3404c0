"""A builder that stands inside a kernel, tensors to work on, and the one diagnostic of an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilec.diagnostics import CompileError, Diagnostic, Span
from tilec.ir.dtypes import FLOAT16, INT32, DType
from tilec.ir.expr import Buffer, Const, Expr, Scope, Var, VarKind
from tilec.ir.kernel import Kernel, Launch
from tilec.ir.verify import verify
from tilec.language.builder import Builder, LaunchState
from tilec.language.catalogue import modules

BX = Var("bx", kind=VarKind.BLOCK)
BY = Var("by", kind=VarKind.BLOCK, axis=1)
TX = Var("tx", kind=VarKind.THREAD)
N = Var("n", kind=VarKind.EXTENT)
SPAN = Span("k.py", 7, 5, 7, 20)
LANGUAGE = modules()["tilelang.language"].members


def kernel_builder() -> Builder:
    """A builder inside `with T.Kernel(...) as (bx, by)` of 128 threads."""
    return Builder(span=SPAN, launch=LaunchState((BX, BY), (TX,), (128, 1, 1)))


def extents(*sizes: int | Expr) -> tuple[Expr, ...]:
    return tuple(Const(s, INT32) if isinstance(s, int) else s for s in sizes)


def tensor(name: str, *shape: int | Expr, dtype: DType = FLOAT16, scope: Scope = Scope.GLOBAL) -> Buffer:
    return Buffer(name, dtype, extents(*shape), scope, span=Span("k.py", 2, 1, 2, 9))


def call(b: Builder, name: str, *args: Any, **kwargs: Any) -> Any:
    """`T.name(*args, **kwargs)`."""
    return LANGUAGE[name].call(b, args, kwargs)


def fault(run: Callable[[], Any]) -> Diagnostic:
    """The one diagnostic of the CompileError that `run` raises."""
    with pytest.raises(CompileError) as caught:
        run()
    (diagnostic,) = caught.value.diagnostics
    return diagnostic


def refused(b: Builder, name: str, *args: Any, **kwargs: Any) -> Diagnostic:
    return fault(lambda: call(b, name, *args, **kwargs))


def check(b: Builder, *params: Buffer | Var) -> None:
    """The recorded statements as a kernel must pass the verifier."""
    launch = Launch((BX, BY), extents(4, 4), (128, 1, 1), (TX,), b.body(), span=SPAN)
    verify(Kernel("k", tuple(params), (N,), (launch,), span=SPAN))
