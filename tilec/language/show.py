"""Shapes and expressions as text, for messages.

shape_text((Const(128, INT32), n)) -> "128×n"
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilec.ir.dtypes import INT32
from tilec.ir.expr import Binary, Buffer, Call, Cast, Compare, Const, Expr, Load, Logical, Reinterpret, Select, Unary, Var
from tilec.language.values import Ref, Vec

_SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "pow": "**", "and": "&", "or": "|", "xor": "^",
    "shl": "<<", "shr": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip


def expr_text(e: Expr, nested: bool = False) -> str:
    """An expression in Python's spelling; nested ones are put in brackets where needed."""
    match e:
        case Const(value):
            return str(value)
        case Var(name):
            return name
        case Load(buffer, indices):
            return f"{buffer.name}[{', '.join(map(expr_text, indices))}]" if indices else buffer.name
        case Cast(a):
            return expr_text(a, nested)
        case Reinterpret(a, dtype):
            return f"reinterpret({expr_text(a)}, {dtype})"
        case Call(name, args):
            return f"{name}({', '.join(map(expr_text, args))})"
        case Binary(op, a, b) if op not in _SIGNS:
            return f"{op}({expr_text(a)}, {expr_text(b)})"
        case _:
            text = _operator_text(e)
            return f"({text})" if nested else text


def _operator_text(e: Unary | Binary | Compare | Logical | Select) -> str:
    match e:
        case Unary(op, a):
            return {"neg": "-", "not": "not ", "invert": "~"}[op] + expr_text(a, True)
        case Binary(op, a, b) | Compare(op, a, b):
            return f"{expr_text(a, True)} {_SIGNS[op]} {expr_text(b, True)}"
        case Logical(op, a, b):
            return f"{expr_text(a, True)} {op} {expr_text(b, True)}"
        case Select(cond, a, b):
            return f"{expr_text(a, True)} if {expr_text(cond, True)} else {expr_text(b, True)}"


def shape_text(extents: Sequence[Expr]) -> str:
    """`128×32`; `scalar` without dimensions."""
    return "×".join(expr_text(e, True) for e in extents) or "scalar"


def size_text(extents: Sequence[Expr]) -> str:
    """A shape as a predicate: `16×16`, `8 elements`, `a scalar`."""
    if len(extents) == 1:
        return f"{expr_text(extents[0])} element{'' if extents[0] == Const(1, INT32) else 's'}"
    return shape_text(extents) if extents else "a scalar"


def describe(value: Any) -> str:
    """A value that was given where another kind was wanted, in a few words."""
    if isinstance(value, Buffer):
        return f"the {value.scope.value} buffer `{value.name}` of shape {shape_text(value.shape)}"
    if isinstance(value, Const):
        return f"{value.value} ({value.dtype})"
    if isinstance(value, Expr):
        return f"`{expr_text(value)}`, which is known at run time only"
    if isinstance(value, Vec):
        return f"a vector of {len(value.lanes)} {value.lanes[0].dtype}"
    if isinstance(value, (str, int, float, bool)) or value is None:
        return repr(value)
    if isinstance(value, Ref):
        return f"an element or region of `{value.buffer.name}`"
    word = type(value).__name__
    return _WORDS.get(word, f"{'an' if word[0].lower() in 'aeiou' else 'a'} {word.lower()}")


_WORDS = {
    "Namespace": "a module", "Module": "a module", "Builtin": "a function of Python", "Primitive": "a function of the language",
    "BoundMethod": "a method", "Partial": "a function", "ClassValue": "a class", "KernelValue": "a kernel", "DType": "an element type",
    "Marker": "a decorator or annotation", "Iter": "an iterator", "Instance": "an instance of a class",
    "EnumMember": "a member of an enumeration", "LoopSpec": "a loop", "TensorSpec": "a tensor annotation", "ellipsis": "`...`",
}  # fmt: skip
