"""Barriers in shared memory as arguments: an element of T.alloc_barrier's, or all of it where it is one.

full = T.alloc_barrier([128, 128]); T.barrier_arrive(full[k % 2])   ->  (full, k % 2)
"""

from __future__ import annotations

from typing import Any

from tilec.ir.dtypes import INT32
from tilec.ir.expr import Buffer, Const, Expr
from tilec.language.access import buffer_label, element
from tilec.language.builder import Builder
from tilec.language.context import in_kernel
from tilec.language.regions import is_element
from tilec.language.show import describe
from tilec.language.values import Ref


def barrier_of(b: Builder, name: str, value: Any) -> tuple[Buffer, Expr]:
    """The barrier that an argument names: an element of T.alloc_barrier's, or all of it where it is one."""
    launch = in_kernel(b, name)
    if isinstance(value, (int, Expr)) and not isinstance(value, bool) and launch.listed is not None:
        value = Ref(launch.listed, (value,), b.span)
    if isinstance(value, Buffer) and value in launch.barriers:
        if len(launch.barriers[value]) > 1:
            text = f"`{value.name}` is {len(launch.barriers[value])} barriers, T.{name} takes one"
            raise b.error("TL0206", text, *buffer_label(value), help=f"index it: `{value.name}[0]`")
        return value, Const(0, INT32)
    if isinstance(value, Ref) and is_element(value) and value.buffer in launch.barriers:
        (index,) = element(b, value)
        return value.buffer, index
    raise b.error("TL0206", f"T.{name} takes a barrier, got {describe(value)}", help="T.alloc_barrier makes barriers")
