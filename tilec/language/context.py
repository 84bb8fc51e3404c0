"""Where a primitive may be used, and small readers of arguments that several families share."""

from __future__ import annotations

from typing import Any

from tilec.ir.dtypes import DType
from tilec.ir.expr import Buffer, Const, Expr, Scope
from tilec.language.access import buffer_label, host_int, is_number
from tilec.language.builder import Builder, LaunchState
from tilec.language.show import describe
from tilec.language.values import Ref


def in_kernel(b: Builder, name: str) -> LaunchState:
    """The launch being recorded; an error outside of T.Kernel."""
    if b.launch is None:
        raise b.error("TL0205", f"`T.{name}` is only meaningful inside a kernel", help="use it under `with T.Kernel(...)`")
    return b.launch


def tile_statement(b: Builder, name: str) -> None:
    """Refuses a whole-block operation outside of a kernel or inside of T.Parallel."""
    in_kernel(b, name)
    if b.in_parallel:
        text = f"`T.{name}` acts for the whole block and cannot be used inside T.Parallel"
        raise b.error("TL0205", text, help="move it out of the loop, or write the elements one by one")


def host_flag(b: Builder, value: Any, what: str) -> bool:
    """A bool that must be known while compiling."""
    if isinstance(value, Const):
        return bool(value.value)
    if is_number(value):
        return bool(value)
    raise b.error("TL0206", f"{what} must be True or False, got {describe(value)}")


def buffer_of(value: Any) -> Buffer | None:
    """The buffer behind a buffer or a reference."""
    if isinstance(value, Ref):
        return value.buffer
    return value if isinstance(value, Buffer) else None


def scope_error(b: Builder, buffer: Buffer, what: str, allowed: tuple[Scope, ...], help: str) -> None:
    """Raises when a buffer lives where an operation cannot use it."""
    if buffer.scope not in allowed:
        names = " or ".join(s.value for s in allowed)
        text = f"{what} must be in {names} memory, `{buffer.name}` is in {buffer.scope.value} memory"
        raise b.error("TL0322", text, *buffer_label(buffer), help=help)


def shape_items(b: Builder, shape: Any) -> tuple[Any, ...]:
    """The entries of a shape argument: an int or expression is one dimension."""
    if isinstance(shape, (tuple, list)):
        return tuple(shape)
    if isinstance(shape, (int, Expr)) and not isinstance(shape, bool):
        return (shape,)
    raise b.error("TL0206", f"a shape must be a tuple of sizes, got {describe(shape)}")


def numeric(b: Builder, dtype: DType, what: str) -> None:
    """Refuses pointers and other types without arithmetic."""
    if not (dtype.is_float or dtype.is_int):
        raise b.error("TL0315", f"{what} is not defined for {dtype}")


__all__ = ["buffer_of", "host_flag", "host_int", "in_kernel", "numeric", "scope_error", "shape_items", "tile_statement"]
